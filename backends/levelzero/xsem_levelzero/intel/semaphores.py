"""Semaphores of Intel's driver: a handle supports one wait, and a signal is made after its event."""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack
from typing import cast

from xsem.errors import XsemError
from xsem.spi import Lock, duplicate_fd
from xsem.types import OwnedHandle, SemaphoreHandleType
from xsem_levelzero.core import Core
from xsem_levelzero.fences import Events, Fence
from xsem_levelzero.intel.signals import Signals
from xsem_levelzero.semaphores import Semaphore, import_fd

__all__ = ["LateSemaphore"]


class LateSemaphore(Semaphore):
    """A semaphore whose handle serves for signals only, because each wait uses a fresh import of the same fd."""

    __slots__ = ("_core", "_events", "_kept", "_lock", "_signals", "_waits")

    def __init__(
        self, core: Core, events: Events, handle: int, type: SemaphoreHandleType, kept: OwnedHandle | None
    ) -> None:
        super().__init__(handle, type)
        self._core = core
        self._events = events
        self._kept = kept   # owned: another number of the imported file. None: `_import_again` is overridden
        self._lock = Lock()
        # Fresh imports in use, oldest first, each with the event of its wait. The record owns one use of the event.
        self._waits: deque[tuple[Semaphore, Fence]] = deque()
        # Signals that the driver may make after their event, oldest first: the signals of the list, the number on the
        # list, and the event, of which the record owns one use.
        self._signals: list[tuple[Signals, int, Fence]] = []

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
        while True:
            with self._lock:
                if not self._waits or not self._events.done(self._waits[0][1]):
                    return
                fresh, over = self._waits.popleft()
            fresh.release(self._core)
            self._events.release(over)

    # ---- signals
    def signals_with(self, signals: Signals, number: int, over: Fence) -> None:
        """Record a signal with one use of its event, before the append."""
        with self._lock:
            self._signals.append((signals, number, over))

    def signal_appended(self, signals: Signals, number: int) -> None:
        """Drop the earlier signals of the semaphore on the list: the event of this signal comes after theirs."""
        for over in self._dropped(signals, range(number)):
            self._events.release(over)

    def signal_refused(self, signals: Signals, number: int) -> None:
        """Drop a signal that the driver refused. The list gives its event back."""
        self._dropped(signals, range(number, number + 1))

    def _dropped(self, signals: Signals, numbers: range) -> list[Fence]:
        with self._lock:
            dropped = [each for each in self._signals if each[0] is signals and each[1] in numbers]
            self._signals = [each for each in self._signals if each not in dropped]
        return [over for _, _, over in dropped]

    # ---- the end
    def made(self) -> bool:
        """Whether the driver has certainly made all recorded signals of the semaphore."""
        return all(signals.made >= number for signals, number, _ in self._signals)

    def passed(self) -> bool:
        """Whether the lists have certainly passed all recorded waits and signals of the semaphore."""
        with self._lock:
            left = [over for _, over in self._waits]
            left += [over for signals, number, over in self._signals if signals.passed < number]
        try:
            return all(self._events.done(over) for over in left)
        except XsemError:
            return False   # the state of an event is unknown

    def release(self, core: Core) -> None:
        """Release all imports and uses of events. No appended operation may still use them."""
        with ExitStack() as rest:   # each call is made, also after a failure
            if self._kept is not None:
                rest.callback(self._kept.close)
            for _, _, over in self._signals:
                rest.callback(self._events.release, over)
            rest.callback(super().release, core)
            for fresh, over in self._waits:
                rest.callback(self._events.release, over)
                rest.callback(fresh.release, core)
