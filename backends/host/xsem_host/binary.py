"""The part of binary semaphores that Linux and Windows share (docs/host-objects.md)."""

from __future__ import annotations

from abc import abstractmethod

from xsem.portable.semaphore_base import Looks, SemaphoreBase

__all__ = ["BinarySemaphore"]


class BinarySemaphore(SemaphoreBase):
    """A binary semaphore."""

    def signal(self, value: int | None = None) -> None:
        """Signal the semaphore. A signalled semaphore stays signalled. Never blocks."""
        with self._use():
            self._set()

    def wait(self, value: int | None, timeout_ns: int) -> bool:
        """Take the signal, which resets the semaphore; return False if the timeout expires first."""
        with self._use():
            return self._wait(timeout_ns)

    def _wait(self, timeout_ns: int) -> bool:
        looks = Looks(timeout_ns)
        sleep_ns = timeout_ns
        while not self._take(sleep_ns):
            sleep_ns = looks.sleep_ns()
            if sleep_ns == 0:
                return False
        return True

    @abstractmethod
    def _set(self) -> None:
        """Set the signal. Never blocks."""

    @abstractmethod
    def _take(self, sleep_ns: int) -> bool:
        """Take the signal. Sleep up to `sleep_ns` nanoseconds until it is set, and return whether it was taken."""
