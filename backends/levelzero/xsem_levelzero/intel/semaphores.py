"""Semaphores of Intel's driver: a handle supports one wait, and a signal is made after its event."""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack
from typing import Final, cast

from xsem.errors import XsemError
from xsem.spi import Lock, duplicate_fd
from xsem.types import OwnedHandle, SemaphoreHandleType
from xsem_levelzero.core import Core
from xsem_levelzero.fences import Events, Fence
from xsem_levelzero.intel.signals import Signals
from xsem_levelzero.objects import Counter
from xsem_levelzero.semaphores import Semaphore, import_fd

__all__ = ["LateSemaphore"]

_MANY: Final = 8


class LateSemaphore(Semaphore):
    """A semaphore whose handle serves for signals only, because each wait uses a fresh import of the same fd."""

    __slots__ = ("_core", "_counter", "_events", "_kept", "_lock", "_signals", "_waits")

    def __init__(
        self, core: Core, events: Events, handle: int, type: SemaphoreHandleType, kept: OwnedHandle | None,
        counter: Counter | None = None,
    ) -> None:
        super().__init__(handle, type)
        self._core = core
        self._events = events
        self._kept = kept   # owned: another number of the imported file. None: `_import_again` is overridden
        self._counter = counter   # owned: the value of a timeline, where it can be read
        self._lock = Lock()
        # Fresh imports in use, oldest first, each with the event of its wait. The record owns one use of the event.
        self._waits: deque[tuple[Semaphore, Fence]] = deque()
        self._signals: dict[Signals, int] = {}   # the number of the last signal on each list

    # ---- waits
    def for_one_wait(self) -> Semaphore:
        """Import the fd again. The caller gives the import to `waits_with`, or releases it."""
        # After the first completed wait, every later wait on the same import passes at once, whatever its value.
        self._sweep()
        return self._import_again()

    def _import_again(self) -> Semaphore:
        kept = cast("OwnedHandle", self._kept)
        return Semaphore(import_fd(self._core, self.type, duplicate_fd(kept.fileno()), kept), self.type)

    def waits_with(self, fresh: Semaphore, over: Fence) -> None:
        """Take over a fresh import and one use of `over`: both are released when `over` is signalled."""
        with self._lock:
            self._waits.append((fresh, over))

    def _sweep(self) -> None:
        # A query of the newest event tells of all before it on the same list, so a few waits share one.
        with self._lock:
            newest = self._waits[-1][1] if len(self._waits) >= _MANY else None
        over = self._events.known if newest is None else self._events.done
        if newest is not None:
            over(newest)
        while True:
            with self._lock:
                if not self._waits or not over(self._waits[0][1]):
                    return
                fresh, fence = self._waits.popleft()
            fresh.release(self._core)
            self._events.release(fence)

    # ---- signals
    def signals_at(self, order: Signals, number: int) -> int:
        """Note the last signal on a list, before its append. Return the number of the one before, or 0."""
        with self._lock:
            before = self._signals.get(order, 0)
            self._signals[order] = number
        return before

    def has(self, value: int | None) -> bool | None:
        """Whether the timeline has the value. None: it cannot be read."""
        try:
            return None if self._counter is None else self._counter.value() >= (value or 0)
        except OSError:
            return None

    # ---- the end
    def unused(self) -> bool:
        """Whether the driver's thread has certainly ended all signals of the semaphore."""
        return all(order.unused >= number for order, number in self._signals.items())

    def passed(self) -> bool:
        """Whether the lists have certainly passed all recorded waits and signals of the semaphore."""
        with self._lock:
            waits = [over for _, over in self._waits]
            signals = all(order.passed >= number for order, number in self._signals.items())
        try:
            return signals and all(self._events.done(over) for over in reversed(waits))
        except XsemError:
            return False   # the state of an event is unknown

    def release(self, core: Core) -> None:
        """Release all imports and uses of events. No appended operation may still use them."""
        with ExitStack() as rest:   # each call is made, also after a failure
            if self._kept is not None:
                rest.callback(self._kept.close)
            if self._counter is not None:
                rest.callback(self._counter.close)
            rest.callback(super().release, core)
            for fresh, over in self._waits:
                rest.callback(self._events.release, over)
                rest.callback(fresh.release, core)
