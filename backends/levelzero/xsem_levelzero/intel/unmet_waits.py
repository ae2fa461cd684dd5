"""A record of unmet waits, for releases of Intel's driver that block for ever in a signal behind an unmet wait.

Before build 38646 (26.22), one thread of the driver makes all waits and signals of the process. The thread begins with
the newest entry, and an entry of a signal blocks the thread until the list reaches the signal. If the list waits for an
earlier entry, the thread never looks at this entry. The next append of any wait or signal then never returns.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from xsem.errors import BusyError, XsemError
from xsem.spi import Lock
from xsem_levelzero.fences import Events, Fence

__all__ = ["UnmetWaits", "unmet_waits_of"]


class UnmetWaits:
    """The waits on one driver of this process, for semaphores or for the application's events, not known to be met."""

    def __init__(self) -> None:
        self.lock = Lock()   # held from `check` or the append of a wait until the driver has returned
        self._waits: list[tuple[Events, Fence]] = []

    def add(self, events: Events, fence: Fence) -> None:
        """Record an appended wait, and take over one use of its fence."""
        with self.lock:
            self._waits.append((events, fence))

    def holds(self, events: Events, fences: Iterable[Fence]) -> bool:
        """Whether an operation behind these fences can wait for the application, so that it is a wait to record."""
        # xsem's fences end by themselves, or behind a recorded operation. Only the application sets its own events.
        return any(each.source is not None and not events.done(each) for each in fences)

    def count(self, events: Events, fences: Iterable[Fence]) -> int:
        """The number of unmet waits, with one behind these fences."""
        with self.lock:
            self._sweep()
            return len(self._waits) + self.holds(events, fences)

    def check(self, events: Events, fences: Iterable[Fence]) -> None:
        """Refuse a signal behind these fences while a wait is unmet."""
        with self.lock:
            count = self.count(events, fences)
            if count:
                raise BusyError(
                    f"{count} waits of this process are not met yet, and this release of Intel's driver "
                    "blocks for ever if a signal is appended behind an unmet wait: synchronize the lists with waits "
                    "before the signal, or update the driver to 26.22", reason="signal_behind_wait",
                )

    def forget(self, events: Events) -> None:
        """Drop the waits of a device that closes."""
        with self.lock:
            self._waits = [each for each in self._waits if each[0] is not events]

    def _sweep(self) -> None:
        left = []
        for events, fence in self._waits:
            try:
                met = events.done(fence)
            except XsemError:
                met = True   # the device is lost: no list waits any more
            if met:
                events.release(fence)
            else:
                left.append((events, fence))
        self._waits = left


_of: dict[tuple[int, int], UnmetWaits] = {}


def unmet_waits_of(driver: int) -> UnmetWaits:
    """Return the record of a driver in this process. All its devices share one thread of the driver."""
    return _of.setdefault((os.getpid(), driver), UnmetWaits())
