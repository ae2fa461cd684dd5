"""Portable timelines, for devices that cannot wait on host memory: a thread stands between the two."""

# A wait becomes a wait for a fence that the host reaches (`HostFences`), and the thread reaches it as soon as the page
# has the value. A signal becomes an operation with a fence, and the value is stored when that fence is reached. Each
# report that a fence of the device is reached comes after `turn`, so that the receiver of the report finds the value
# in the page. An entry holds its semaphores, and these hold the device.

from __future__ import annotations

import atexit
import itertools
import logging
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from xsem.data.locks import Lock
from xsem.errors import DriverError
from xsem.portable import Timeline
from xsem.runtime.forks import generation
from xsem.runtime.lifetime import Lease, Lifetime
from xsem.runtime.threads import Background, Pause, exiting
from xsem.spi import HostFences, Token

__all__ = ["Bridge", "BridgedWait", "Values", "work_failure"]

_log = logging.getLogger("xsem")

_PAUSE_FIRST_S: Final = 20e-6
_PAUSE_LAST_S: Final = 250e-6
_SLICE_FIRST_NS: Final = 1_000_000
_SLICE_LAST_NS: Final = 20_000_000
_LINGER_S: Final = 0.05   # the start of a thread takes longer than a frame's signal should

Values = Sequence[tuple[Timeline, int]]


class BridgedQueue(Protocol):
    """A queue, as the bridge sees it."""

    name: str

    @property
    def done_seq(self) -> int: ...
    def ensure_marker(self, seq: int) -> None: ...
    def poll(self) -> None: ...
    def fail(self, failure: DriverError) -> None: ...


class SignalFence(Protocol):
    """The fence of a signal."""

    def query(self) -> bool:
        """Query the driver alone."""


class BridgedWait:
    """A wait of a queue for the values of some pages."""

    __slots__ = ("fence", "holds", "left", "order", "token")

    def __init__(self, order: int, token: Token, fence: object, left: Values, holds: Sequence[Lease]) -> None:
        self.order = order
        self.token = token
        self.fence = fence   # keeps the token until the driver's wait is done: the operation has it, too
        self.left = list(left)   # not reached yet
        self.holds = holds

    def met(self) -> bool:
        """Return whether all pages have had their values since the append. An abandoned one holds no wait."""
        self.left = [(page, value) for page, value in self.left if page.value < value and not page.abandoned]
        return not self.left


class _Signal:
    """Values to store when a fence is reached."""

    __slots__ = ("fence", "holds", "order", "seq", "values")

    def __init__(
        self, order: int, values: Values, holds: Sequence[Lease], fence: SignalFence | None, seq: int
    ) -> None:
        self.order = order
        self.values = values
        self.holds = holds
        self.fence = fence   # None: Ctrl-C came in the driver's call, and only a later marker tells
        self.seq = seq


class _Line:
    """The entries of one queue, which is in order."""

    __slots__ = ("signals", "waits")

    def __init__(self) -> None:
        self.waits: deque[BridgedWait] = deque()
        self.signals: deque[_Signal] = deque()

    @property
    def blocked(self) -> bool:
        """Whether the first signal is behind an unmet wait."""
        return bool(self.waits) and (not self.signals or self.signals[0].order > self.waits[0].order)


class Bridge:
    """The bridged waits and signals of one device."""

    def __init__(self, name: str, driver: HostFences, start_later: Callable[[], None]) -> None:
        self._driver = driver
        self._start_later = start_later   # lets a later call of the application start the thread
        self._generation = generation()
        # Guards the entries, and each store of a value together with the removal of its entry. Queries of fences run
        # under it. The holder waits for no lock of a queue.
        self._lock = Lock()
        self._lines: dict[BridgedQueue, _Line] = {}
        self._order = itertools.count(1)
        self._nap = Pause()
        self._left: list[Lease] = []   # at exit, nothing is released any more
        self._asleep: Timeline | None = None   # the page in which the thread waits
        self.thread = Background(f"xsem-bridge-{name}", self._work, self._busy)
        _bridges.add(self)

    # ---- entries; the caller holds the lock of the queue
    def wait(
        self, queue: BridgedQueue, targets: Values, lifetimes: Sequence[Lifetime], keep: Callable[[Token], object]
    ) -> BridgedWait | None:
        """Begin a wait, whose fence the append must wait for. None if the values are there already."""
        left = [(page, value) for page, value in targets if page.value < value]
        if not left:
            return None
        holds = self.hold(lifetimes)
        try:
            token = self._driver.create_host_fence()
            wait = BridgedWait(next(self._order), token, keep(token), left, holds)
        except BaseException:
            self.end(holds)
            raise
        with self._lock:
            self._line(queue).waits.append(wait)
        self._rouse()
        return wait

    def withdraw(self, queue: BridgedQueue, wait: BridgedWait) -> None:
        """End a wait that was not appended."""
        with self._lock:
            line = self._lines.get(queue)
            if line is not None and wait in line.waits:
                line.waits.remove(wait)
                self._reach(queue, wait)   # so that the driver can use the fence again
                if not line.waits and not line.signals:
                    self._lines.pop(queue, None)
        self.end(wait.holds)

    def signal(
        self, queue: BridgedQueue, values: Values, holds: Sequence[Lease], fence: SignalFence | None, seq: int
    ) -> None:
        """Store values when an appended signal is reached: its fence, or operation `seq`. Takes over the holds."""
        with self._lock:
            self._line(queue).signals.append(_Signal(next(self._order), values, holds, fence, seq))
        self._rouse()

    def hold(self, lifetimes: Sequence[Lifetime]) -> list[Lease]:
        """Hold the semaphores of an entry (ReleasedError)."""
        return [Lease(each) for each in lifetimes]

    def end(self, holds: Sequence[Lease]) -> None:
        """End the holds of an entry. The caller does not hold the lock: a release may call the driver."""
        for each in holds:
            each.end()

    def _line(self, queue: BridgedQueue) -> _Line:
        line = self._lines.get(queue)
        if line is None:
            line = self._lines[queue] = _Line()
        return line

    # ---- progress
    def turn(self) -> None:
        """Store the values of all signals that are reached. Any thread may call this method. It never blocks long."""
        if self._lines:
            self._advance(waits=False)

    def _advance(self, *, waits: bool) -> bool:
        """Store the values that are due, and with `waits` reach the fences that are due. Return whether any was."""
        over: list[Lease] = []
        with self._lock:
            for queue, line in tuple(self._lines.items()):
                while waits and line.waits and line.waits[0].met():
                    over += self._reach(queue, line.waits[0]).holds
                    line.waits.popleft()
                if line.signals and not line.blocked:
                    over += self._store(queue, line)
                if not line.waits and not line.signals:
                    self._lines.pop(queue, None)
        self.end(over)
        return bool(over)

    def _store(self, queue: BridgedQueue, line: _Line) -> list[Lease]:
        over: list[Lease] = []
        try:
            while line.signals and self._reached(queue, line.signals[0]):
                signal = line.signals[0]
                for page, value in signal.values:
                    page.signal(value)
                line.signals.popleft()
                over += signal.holds
        except Exception as error:
            # The work before the signal failed, so its value would promise what is not there.
            for signal in line.signals:
                over += signal.holds
            line.signals.clear()
            # After an abandonment, the device goes on with the work, whose objects must live until then.
            if not (isinstance(error, DriverError) and error.reason == "abandoned"):
                queue.fail(work_failure(queue.name, error))
        return over

    def _reached(self, queue: BridgedQueue, signal: _Signal) -> bool:
        return signal.fence.query() if signal.fence is not None else queue.done_seq >= signal.seq

    def _reach(self, queue: BridgedQueue, wait: BridgedWait) -> BridgedWait:
        try:
            self._driver.reach_host_fence(wait.token)
        except Exception as error:
            _log.warning("a wait of %s cannot be ended", queue.name, exc_info=True)
            queue.fail(work_failure(queue.name, error))
        return wait

    def let_go(self, queue: BridgedQueue) -> None:
        """Drop the signals of a queue that gets no more work, and end its waits, so that none stays in the driver."""
        self.end(self._dropped(queue))

    def _dropped(self, queue: BridgedQueue) -> list[Lease]:
        over: list[Lease] = []
        with self._lock:
            line = self._lines.pop(queue, None)
            if line is not None:
                for signal in line.signals:
                    over += signal.holds
                for wait in line.waits:
                    over += self._reach(queue, wait).holds
        return over

    def at_exit(self) -> None:
        """Store what is due, and end all waits: a GPU that waits could keep the process from ending."""
        if self._generation == generation():
            self._advance(waits=True)
            for queue in tuple(self._lines):
                self._left += self._dropped(queue)

    # ---- the thread
    def _busy(self) -> bool:
        return bool(self._lines)

    def _rouse(self) -> None:
        """Let the thread look at a new entry, and start it if it does not run."""
        with self._lock:
            page = self._asleep
            if page is not None and self._only_page() is not None:
                return   # what is new waits behind what the thread waits for
        if page is not None:
            page.wake()
        self._nap.end()
        self.start()

    def start(self) -> None:
        """Start the thread unless it runs. If the system refuses it, a later call on the device tries again."""
        if not self.thread.ensure():
            self._start_later()

    def _work(self) -> None:
        pause_s, slice_ns = _PAUSE_FIRST_S, _SLICE_FIRST_NS
        while not exiting():
            if self._advance(waits=True):
                pause_s, slice_ns = _PAUSE_FIRST_S, _SLICE_FIRST_NS
            self._mark()
            if not self._lines:
                if not self._nap.wait(_LINGER_S) and not self._lines:
                    return
            elif self._sleep_in_page(slice_ns):
                slice_ns = min(2 * slice_ns, _SLICE_LAST_NS)
            else:
                self._nap.wait(pause_s)
                pause_s = min(pause_s * 1.5, _PAUSE_LAST_S)

    def _mark(self) -> None:
        """Ensure that a marker tells the end of the signals without a fence."""
        for queue, line in tuple(self._lines.items()):
            with self._lock:
                signal = line.signals[0] if line.signals and not line.blocked else None
            if signal is not None and signal.fence is None:
                queue.ensure_marker(signal.seq)
                queue.poll()

    def _sleep_in_page(self, timeout_ns: int) -> bool:
        """Wait in a page, if all entries wait for it. Return whether they did."""
        with self._lock:
            only = self._only_page()
            self._asleep = None if only is None else only[0]
        if only is None:
            return False
        try:
            only[0].wait(only[1], timeout_ns)
        finally:
            self._asleep = None
        return True

    def _only_page(self) -> tuple[Timeline, int] | None:
        """Return the page and the value without which no entry gets on. The caller holds the lock."""
        if len(self._lines) != 1:
            return None
        line = next(iter(self._lines.values()))
        return line.waits[0].left[0] if line.blocked and len(line.waits[0].left) == 1 else None


def work_failure(name: str, error: Exception) -> DriverError:
    """Turn an exception of a query into the failure of the queue."""
    if isinstance(error, DriverError):
        return error
    failure = DriverError(f"work on {name} failed: {error}", reason="work_failed", from_earlier_work=True)
    failure.__cause__ = error
    return failure


_bridges: Final[weakref.WeakSet[Bridge]] = weakref.WeakSet()


def _at_exit() -> None:
    for bridge in tuple(_bridges):
        bridge.at_exit()


atexit.register(_at_exit)   # runs before that of xsem.runtime.threads, which lets the threads end
