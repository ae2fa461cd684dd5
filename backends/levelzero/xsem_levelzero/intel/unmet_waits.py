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
from xsem_levelzero.events import Events, Fence

__all__ = ["UnmetWaits", "unmet_waits_of"]


class UnmetWaits:
    """The waits on one driver of this process that are not known to be met.

    They wait for semaphores, or for unset events of the application.

    Attributes
    ----------
    lock : RLock
        Held from `check` or the append of a wait until the driver has returned.
    """

    def __init__(self) -> None:
        self.lock = Lock()
        self._waits: list[tuple[Events, Fence]] = []

    def add(self, events: Events, fence: Fence) -> None:
        """Record an appended wait. This record releases `fence` once, when the wait is met."""
        with self.lock:
            self._waits.append((events, fence))

    def holds(self, events: Events, fences: Iterable[Fence]) -> bool:
        """Return whether an operation behind these fences can wait for the application: record its fence with `add`.

        The fences of xsem end by themselves, or behind a recorded operation. Only the application sets its own events.
        """
        return any(each.source is not None and not events.done(each) for each in fences)

    def check(self, events: Events, fences: Iterable[Fence] = ()) -> None:
        """Refuse a signal while a wait is unmet.

        Parameters
        ----------
        events : Events
        fences : iterable of Fence
            The fences before the signal.

        Raises
        ------
        BusyError
            ``signal_behind_wait``.
        """
        with self.lock:
            self._sweep()
            count = len(self._waits) + self.holds(events, fences)
            if count:
                raise BusyError(
                    f"{count} waits of this process are not met yet, and this release of Intel's driver "
                    "blocks for ever if a signal is appended behind an unmet wait: synchronize the lists with waits "
                    "before the signal, or update the driver to 26.22", reason="signal_behind_wait",
                )

    def forget(self, events: Events) -> None:
        """Drop the waits of a device that closes."""
        with self.lock:
            self._waits = self._of_others(events)

    def _of_others(self, events: Events) -> list[tuple[Events, Fence]]:
        # A function of its own, as those of `xsem_levelzero.semaphores.Semaphore`.
        return [each for each in self._waits if each[0] is not events]

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
