"""One native queue: its appends, its markers, and how far it has come. All lists that wrap it share one `Queue`."""

from __future__ import annotations

import contextlib
import copy
import logging
import time
import weakref
from collections.abc import Callable, Sequence
from time import perf_counter as now
from typing import Any, Final

from xsem.errors import BusyError, DeviceLostError, DriverError, WouldBlockError, XsemError
from xsem.runtime.bridge import work_failure
from xsem.runtime.device_state import DeviceState
from xsem.runtime.forks import check_generation, clock
from xsem.runtime.lifetime import Lifetime, Usable
from xsem.runtime.locks import call_locked
from xsem.runtime.queues.bridged_append import append_bridged, refuse_captured
from xsem.runtime.queues.operations import Append, DriverCall, Fence, Operation, is_wait, quick_queue
from xsem.runtime.queues.prepared_cache import PreparedCache
from xsem.runtime.queues.progress import Progress
from xsem.runtime.queues.room import Room
from xsem.runtime.quick import AppendState, Lock
from xsem.runtime.release_gate import ReleaseGate
from xsem.runtime.semaphore_state import SemaphoreState
from xsem.runtime.threads import Mark, calling_thread, on_own_thread
from xsem.runtime.tracing import tracing
from xsem.spi import Callers, QueueDriver, Token

__all__ = ["Queue", "RecordedAppends", "StreamUse"]

_log = logging.getLogger("xsem")

_RETRY_S: Final = 0.001
_MANY_PAGED: Final = 32
_UNBLOCK_S: Final = 0.05
_TRACE_S: Final = 0.1   # the driver may block an append, which has the lock


class StreamUse:
    """The use of a borrowed stream, common to all its lists. `QueueTable.release_idle` spares a stream in use."""

    __slots__ = ("__weakref__",)


class StreamLists:
    """The lists on one borrowed stream. The caller of its methods holds `QueueTable.streams_lock`."""

    def __init__(self) -> None:
        # For the next list, until `exist` drops it. Who reads it without the lock has a reference, which `exist` sees.
        self.kept: StreamUse | None = None
        self._last_use: weakref.ref[StreamUse] | None = None

    def use(self) -> StreamUse:
        """Return the use, which each list keeps."""
        use = self.kept
        if use is None and self._last_use is not None:
            use = self._last_use()
        if use is None:
            use = StreamUse()
            self._last_use = weakref.ref(use)
        self.kept = use
        return use

    def exist(self) -> bool:
        """Return whether a list exists."""
        self.kept = None   # from now on, only the lists keep the use
        return self._last_use is not None and self._last_use() is not None


class RecordedAppends:
    """The appends of a recording, and the objects that it keeps."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.uses: list[Lifetime] = []   # held by this object

    def keep(self, lifetimes: Sequence[Lifetime]) -> None:
        """Hold the objects of an append."""
        for lifetime in lifetimes:
            self.uses.append(lifetime)
            lifetime.hold(self)

    def release(self) -> None:
        """End the holds, and forget the appends. A second call has no effect."""
        self.operations = []   # not cleared: another thread may read the list for a replay, which is then refused
        while self.uses:
            self.uses[-1].unhold(self)
            self.uses.pop()


class Queue:
    """One native queue with its operations in flight."""

    def __init__(self, device_state: DeviceState, driver: QueueDriver, name: str, *, borrowed: bool) -> None:
        self.device_state = device_state
        self.driver = driver
        self.name = name
        self.borrowed = borrowed
        # Re-entrant: the driver can call work inside `append_work`, and this work may append to its own list.
        self.lock = Lock()
        self.state = AppendState()
        self.state.exposed = borrowed
        self.room = Room(self.state, device_state.capabilities.max_pending)
        self.progress = Progress(device_state.releaser.lock, self.room, self.note_abandoned)
        self.prepared = PreparedCache()
        self.barrier = DriverCall("barrier", driver.append_barrier)   # common to all lists of the queue
        self.lifetime: Lifetime   # these two by `start`
        self.quick: Any
        self.stream_lists = StreamLists()   # those on this borrowed stream
        self.closed = False   # the native queue is closed and gets no more appends
        self._query_capture = driver.is_capturing
        self.only_application = driver.callers is Callers.APPLICATION
        # The thread of the application that called xsem for this queue last. It may call the native queue itself.
        self._user: weakref.ref[Mark] = calling_thread()
        self._warned = False
        # The semaphores of waits that a process can abandon, and the first operation that such an end let pass.
        self._paged: dict[SemaphoreState, None] = {}
        self._many_paged = _MANY_PAGED
        self._lost: int | None = None
        self._unblock_at = 0.0

    def start(self, lifetime: Lifetime) -> None:
        """Take the lifetime of the native queue. Its free calls `close`."""
        self.lifetime = lifetime
        self.quick = None if self.only_application else quick_queue(self, self.driver.native_calls)

    def trace(self) -> None:
        """Note each operation from now on if a trace is recorded, else no longer."""
        call_locked(self.lock, _TRACE_S, self._trace, None)

    def _trace(self) -> None:
        timed = tracing.device_times and tracing.note is not None
        if timed or self.room.each:
            self.room.mark_each(self.device_state.driver.time_fences(timed) and timed)
        self.progress.trace(self, tracing.note)
        if self.quick is not None:
            self.quick.renote()

    # ---- progress, for the lifetimes of its objects, its fences and its lists
    @property
    def done_seq(self) -> int:
        """The number of the last operation known to be done, with all before it."""
        return self.progress.done

    @property
    def last_seq(self) -> int:
        """The number of the last operation, appended or attempted."""
        return int(self.state.seq)

    def appended(self) -> int:
        """Return the number of the last operation for a wait of this thread."""
        # In a signal handler inside an append, this is the operation before that append, because the append continues
        # only after the handler.
        return int(self.state.issued if self.lock._is_owned() else self.state.seq)

    @property
    def wait_in_flight(self) -> bool:
        """Whether a wait is among the operations in flight. The property makes no driver call."""
        return bool(self.state.last_wait > self.progress.done)

    def has_pending_wait(self) -> bool:
        """Return whether a wait may be pending. Query the driver if a wait is not known to be done."""
        if self._may_be_waiting():
            self.ensure_marker(self.state.last_wait)
            self.poll()
        return self._may_be_waiting()

    def _may_be_waiting(self) -> bool:
        return self.wait_in_flight and not self._gone and not self.closed

    @property
    def _gone(self) -> bool:
        """Whether a failure has ended the work. After an abandonment, the device goes on with it."""
        return self.state.failure is not None and self._lost is None

    def pending(self) -> list[Operation]:
        """Return the operations in flight, oldest first."""
        return self.progress.pending()

    def markers(self) -> list[Fence]:
        """Return the fences of the queue that are not known to be reached, oldest first."""
        return self.progress.markers()

    def reached(self, seq: int) -> None:
        """Note that all operations up to this one are done."""
        self.progress.reached(seq)

    def poll(self) -> None:
        """Query the driver for the progress of the queue."""
        self.room.note_poll()
        if self.progress.newest_marker() is None:
            return
        with self.lifetime.visited() as there:
            if there:
                try:
                    self.progress.poll(self.device_state.query_fence)
                except Exception as error:
                    self.fail(work_failure(self.name, error))

    def look(self) -> None:
        """Query how far the queue has come, up to its last append if a marker is possible now."""
        self.ensure_marker(self.last_seq)
        self.poll()

    def ensure_marker(self, seq: int) -> None:
        """Ensure a marker at `seq` or later, if a marker is possible now. Never waits for the lock of the queue."""
        # If the queue declares `Callers.APPLICATION`, only the thread that used the queue last appends the marker, in
        # its next call on the device. If this thread has ended, or the device is released, each thread of the
        # application may append it.
        if self._gone:
            self._retire_failed()
        elif not self.progress.covers(seq):
            if self.only_application and not self._may_call():
                self.device_state.owe_marker(self)
                return
            with self.lifetime.visited() as there:
                if there:
                    call_locked(self.lock, 0, self._try_mark, None)

    def enter(self) -> None:
        """Note that the calling thread of the application uses the queue."""
        if self.only_application:
            self._user = calling_thread()

    def _may_call(self) -> bool:
        """Return whether the calling thread may call the driver of a queue with `Callers.APPLICATION`."""
        if on_own_thread():
            return False
        user = self._user
        return user is calling_thread() or user() is None or self.device_state.releaser.closing

    def wait(self, seq: int, timeout_ns: int) -> bool:
        """Block until operation `seq` is done or the time is over. Return whether the operation is done."""
        if self.progress.done >= seq:
            return True
        self.enter()
        deadline = time.monotonic_ns() + timeout_ns
        # The timeout is necessary: the driver may block another thread in an append to this queue.
        if not call_locked(self.lock, timeout_ns / 1e9, lambda: self._mark_for_wait(seq), False):
            return False
        marker = self.progress.newest_marker()
        left_ns = max(0, deadline - time.monotonic_ns())
        if marker is None:
            if self.progress.done < seq:
                time.sleep(min(_RETRY_S, left_ns / 1e9))
        elif marker.wait(left_ns):
            self.reached(marker.seq)
        return self.progress.done >= seq

    def captured(self) -> bool:
        """Return whether appends are captured or recorded now. False if another thread holds the lock of the queue."""
        # If the queue declares `Callers.APPLICATION`, a thread of xsem does not query the driver for a capture.
        if self.only_application and on_own_thread():
            return self.state.recording is not None
        return call_locked(self.lock, 0, self._is_captured, False)

    def _is_captured(self) -> bool:
        state = self.state
        return state.recording is not None or (state.exposed and not self.closed and self._query_capture())

    # ---- markers
    def _mark_for_wait(self, seq: int) -> bool:
        """Ensure a marker for a host wait, and return True. The caller holds the lock."""
        if not self.progress.covers(seq):
            if self.state.issuing:
                raise BusyError(
                    f"this thread is inside an append to {self.name}, which a signal handler interrupted: wait after "
                    "the handler has returned, or in another thread", reason="in_append",
                )
            if self._is_captured():   # a captured operation does not run, so the queue takes no marker
                raise BusyError(f"{self.name} is being captured", reason="capturing")
            self._mark()
        self.raise_failure()
        return True

    def _mark_and_poll(self) -> None:
        """Append a marker if one is due, and poll the markers if a poll is due. The caller does not hold the lock."""
        if self.room.marker_due:
            with self.lock:
                self._try_mark()
        if self.room.poll_due:
            self.poll()
            self.device_state.return_fences()

    def _try_mark(self) -> None:
        try:
            self._mark()
        except Exception:
            # The error does not concern the caller's append or release. A later call tries again.
            if not self._warned:
                self._warned = True
                _log.warning("%s took no marker; trying again later", self.name, exc_info=True)

    def _mark(self) -> None:
        """Append a marker, unless it would disturb a capture or block this thread. The caller holds the lock."""
        # A finalizer of the application can call this method during an append of the same thread. `issuing` is then
        # True. `state.seq` would be wrong: a signal handler can run before the driver gets that operation.
        state = self.state
        seq = state.issued
        if state.issuing or self.closed or self.progress.covers(seq) or self._is_captured():
            return
        if self.room.left < 1 and self.wait_in_flight:
            return
        try:
            token = self.driver.append_barrier((), True)
        except DriverError as failure:
            if not failure.from_earlier_work and not isinstance(failure, DeviceLostError):
                raise
            self.fail(failure)
            return
        state.given += 1
        self.progress.add_marker(Fence(self.device_state, token, self, seq), state.given)

    # ---- failure and end
    def fail(self, failure: DriverError) -> None:
        """Note that the work of the queue failed, and retire the appended operations."""
        self.device_state.annotate_error(failure)
        if self.state.failure is None:
            self.state.failure = failure
        self._lost = None
        self._retire_failed()

    # ---- abandoned timelines
    def note_abandoned(self, seq: int) -> None:
        """Note a failure if a timeline was abandoned before it met a wait up to `seq`."""
        # The device runs the work behind such a wait, without its data. So the operations stay pending until they are
        # done, and the list takes no more.
        if not self._paged or self.state.failure is not None or not any(
                state.page is not None and state.page.abandoned for state in self._paged.copy()):
            return
        for op in self.progress.pending():
            for state, value in op.targets if op.seq <= seq and is_wait(op.operation) else ():
                if state.page is not None and state.page.lost(value):
                    failure = DriverError(
                        f"{state.described} was abandoned, so the wait for {value} on {self.name} ended without its "
                        "signal, and the work behind it had no data: use a new list", reason="abandoned",
                        from_earlier_work=True)
                    self.device_state.annotate_error(failure, state.type)
                    self._lost, self.state.failure = op.seq, failure
                    return

    def check_waits(self, seq: int) -> None:
        """Raise the failure if a wait up to operation `seq` ended because of an abandonment."""
        if self._paged:
            self.note_abandoned(seq)
        if self._lost is not None and seq >= self._lost:
            self.raise_failure()

    def _note_paged(self, states: Sequence[SemaphoreState]) -> None:
        for state in states:
            self._paged[state] = None
        if len(self._paged) > self._many_paged:
            for state in self._paged.copy():
                if state.lifetime.freed:
                    self._paged.pop(state, None)
            self._many_paged = max(_MANY_PAGED, 2 * len(self._paged))

    def unblock(self, seq: int) -> None:
        """Abandon the timelines of the waits up to `seq` whose signallers have all ended, if the list is released."""
        if self._paged and self.lifetime.released and now() >= self._unblock_at:
            self._unblock_at = now() + _UNBLOCK_S
            self.device_state.unblock(self, seq)

    def _retire_failed(self) -> None:
        # `seq` would be too far: another thread may append an operation now, and the driver may use its objects.
        self.progress.retire(self.state.issued, self.state.given)

    def raise_failure(self) -> None:
        """Raise the failure that `fail` noted, if any."""
        if self.state.failure is not None:
            # Each caller gets a copy: a shared exception would collect the tracebacks of all callers.
            raise copy.copy(self.state.failure) from self.state.failure.__cause__

    def close(self) -> None:
        """Close the native queue, and drop its markers and operations."""
        self.closed = True
        if self.device_state.bridge is not None:
            self.device_state.bridge.let_go(self)   # after a failure, waits can be left
        self.progress.retire(self.state.seq, self.state.given)
        self.device_state.return_fences()   # those of its markers, before the native queue is closed
        self.driver.close()

    # ---- appending
    def append(
        self, append: Append, params: Any = None, of_list: Usable | None = None,
        kept: Sequence[Fence] = (), lifetimes: Sequence[Lifetime] = (), memories: Sequence[Token] = (),
        want_fence: bool = False,
    ) -> Any:
        """Append one operation: record it, and make the driver's call. Return its fence if `want_fence` is True."""
        # All appends on the device take this path, except markers and quick appends. After an error nothing was
        # appended, but an operation whose driver call Ctrl-C interrupts counts as appended, because the driver may have
        # it. `of_list` is the lifetime of the appending command list, because a released list cannot append. `kept` has
        # the wait fences. `lifetimes` and `memories` are the memory in the handover and its tokens; `memories` is empty
        # unless the device declares `needs_handover`.
        device_state = self.device_state
        if device_state.generation != clock.now:
            # This check precedes the lock: at the fork, another thread of the parent process may have held the lock.
            check_generation(device_state.generation, device_state.info.id)
        releaser = device_state.releaser
        if releaser.jobs or device_state.owing or device_state.callbacks_thread.stalled:
            device_state.catch_up()
        gate = device_state.gate if append.may_wait or kept else None
        crowded = False
        if gate is not None and releaser.crowded:
            crowded = True
            releaser.free_between_waits(gate)
        if self.only_application:
            self.enter()
        with self.lock:
            rest = of_list, kept, lifetimes, memories, want_fence, gate, crowded
            if append.bridged:
                fence = append_bridged(self, self._append, append, params, *rest)
            else:
                fence = self._append(append, params, *rest)
        if self.state.given > self.state.due:
            self._mark_and_poll()
        return fence

    def _append(
        self, append: Append, params: Any, of_list: Usable | None, kept: Sequence[Fence], lifetimes: Sequence[Lifetime],
        memories: Sequence[Token], want_fence: bool, gate: ReleaseGate | None, crowded: bool,
        appended: Callable[[Fence], None] | None = None,
    ) -> Fence | None:
        """Append the operation. The caller holds the lock. `appended` gets the fence before another thread sees it."""
        state, recording = self.state, self.state.recording
        foreign = captured = watched = calling = False
        tokens: Sequence[Token] = ()
        changes, outer = None, state.issuing
        seq = state.seq = state.seq + 1
        operation = (seq, append, params, kept, now())
        try:
            # The new number precedes this check. Either a concurrent release in another thread reads the new number and
            # the queue stays open, or this check detects the release.
            lifetime = self.lifetime
            lifetime.uses[self] = seq
            if lifetime.released or state.failure is not None or (of_list is not None and of_list.is_released()):
                self._refuse(of_list)
            if kept:
                tokens = [fence.token for fence in kept]
                if any(fence.queue is None for fence in kept):
                    foreign = state.exposed = True
            if recording is not None or state.exposed:
                captured = recording is not None or self._query_capture()
                if captured and append.bridged:
                    refuse_captured(append)
            if not captured:
                if state.given >= state.due:
                    self._check_room()
                if gate is not None:
                    # A release closes the gate and then reads `last_wait`. Either the release sees this wait, or this
                    # append sees the closed gate and waits for the end of the release.
                    state.last_wait = seq
                    if gate.closed:
                        with gate.lock:
                            pass
                for each in append.unreadable:
                    watched = watched or each.signallers.known
                if watched:
                    # A marker before the wait and one behind it tell whether the wait holds the queue when its
                    # signallers have ended. The first one is missing only if everything before the wait is done.
                    self._try_mark()
            changes = append.begin(self, seq, params, recording is not None)
            if append.paged:
                self._note_paged(append.paged)
            for used in lifetimes:
                used.use(self, seq)
            if recording is not None:
                recording.keep((*append.lifetimes, *lifetimes))
            state.issuing = not append.reenters
            if not captured:
                state.given += 1
                self.progress.operations.append(operation)
            calling = True
            token = append.call(params, tokens, memories, want_fence)
        except BaseException as error:
            if not calling or isinstance(error, Exception):
                self.refused(operation, changes, error)
            raise
        finally:
            state.issuing = outer
            state.issued = state.seq
        if state.seq != seq:   # the work or a signal handler has appended meanwhile
            operation = self.number_again(operation, captured)
            seq = operation[0]
        if changes is not None:
            append.settle(changes)
        if foreign and not captured and self._query_capture():
            # A wait for an event from a capture makes this queue part of that capture.
            captured = True
            self._take_back(operation)
        if captured:
            return self._captured_fence(operation, (*append.lifetimes, *lifetimes), token, want_fence)
        if want_fence:
            fence = Fence(self.device_state, token, self, seq)
            if appended is not None:
                appended(fence)
            self.progress.add_marker(fence, state.given)
            return fence
        if crowded or watched:
            # This marker is directly behind the wait. The next poll can then tell whether the wait is met.
            self._try_mark()
        return None

    def _refuse(self, of_list: Usable | None) -> None:
        self.device_state.lifetime.check()
        self.lifetime.check()
        if of_list is not None:
            of_list.check()
        self.raise_failure()

    def _check_room(self) -> None:
        # The last place belongs to a marker behind all operations. Without that marker, their progress stays unknown.
        room = self.room
        if room.left > 1:
            return
        self.poll()
        if room.left > 1 or not self.wait_in_flight:
            return
        self._try_mark()
        raise WouldBlockError(
            f"{room.pending} operations are pending on {self.name} behind a wait that is not known to be met; the "
            "driver would hold this thread in the next append",
            reason="would_block",
            likely_causes=("the signal that the wait needs was never submitted",
                           "the host runs too far ahead: synchronize() now and then"),
        )

    def number_again(self, operation: tuple[Any, ...], captured: bool) -> tuple[Any, ...]:
        """Give an operation a number behind those that were appended during its driver's call. Return it with it."""
        seq = self.state.seq = self.state.seq + 1
        for lifetime in (self.lifetime, *operation[1].lifetimes):
            lifetime.uses[self] = seq
        if self.state.last_wait == operation[0]:
            self.state.last_wait = seq
        numbered = (seq, *operation[1:])
        if not captured:
            with contextlib.suppress(ValueError):   # done already
                self.progress.operations.remove(operation)
            self.progress.operations.append(numbered)
        self.state.issued = seq
        return numbered

    def refused(self, operation: tuple[Any, ...], changes: Any, error: BaseException) -> None:
        """Undo an operation that was checked or recorded, and that the driver has not."""
        seq, append, params = operation[:3]
        if changes is not None:
            append.take_back(params, changes)
        self._take_back(operation)
        if isinstance(error, XsemError):
            self.device_state.annotate_error(error)
            if self.state.seq == seq:
                self.progress.skip(seq)

    def _captured_fence(
        self, operation: tuple[Any, ...], lifetimes: Sequence[Lifetime], token: Token | None, want_fence: bool
    ) -> Fence | None:
        """Store a recorded operation, or pin the objects of a captured one. Return the requested fence."""
        # The operation runs at each launch of its graph, so no marker can tell its end.
        if self.state.recording is not None:
            self.state.recording.operations.append(Operation(*operation))
        else:
            for lifetime in lifetimes:
                lifetime.pin()
        if not want_fence:
            return None
        fence = Fence(self.device_state, token, self, operation[0])
        fence.captured = True
        return fence

    def _take_back(self, operation: tuple[Any, ...]) -> None:
        """Remove an operation that the driver did not get, refused or captured. The caller holds the lock."""
        with contextlib.suppress(ValueError):  # not in the list yet, or dropped after a failure of the queue
            self.progress.operations.remove(operation)
            self.state.given -= 1
