"""What all of the host's semaphores have in common: threads inside them, and waits that cannot be made to spin."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from xsem.errors import ReleasedError

__all__ = ["HostSemaphore", "Looks"]

_FREE_LOOKS: Final = 64
_PAUSE_NS: Final = 1_000_000


class HostSemaphore(ABC):
    """A semaphore of host, and the file descriptor that it owns.

    Its file is closed, and its page unmapped, only when no thread is inside any more: the worker of a list that was
    closed in the midst of a wait looks up after a while, and by then the number may be another file's.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._lock = threading.Lock()
        self._inside = 0
        self._closed = False

    @abstractmethod
    def signal(self, value: int | None) -> None:
        """Signal it, with a value if it is a timeline; never blocks."""

    @abstractmethod
    def wait(self, value: int | None, timeout_ns: int) -> bool:
        """Whether it was signalled, or reached the value, within the time."""

    @abstractmethod
    def _free(self) -> None:
        """Give back what it owns; called once, when nobody is inside."""

    def close(self) -> None:
        """Let nobody in any more, and free it as soon as nobody is inside."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            idle = self._inside == 0
        if idle:
            self._free()

    @contextmanager
    def _use(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise ReleasedError("the semaphore has been released", reason="released")
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                last = self._closed and self._inside == 0
            if last:
                self._free()

    def _fence(self) -> None:
        """Keep memory accesses before this from being seen after those that follow it.

        Python has no fence, and its stores order nothing on aarch64. A lock given back and then taken is one: what
        came before cannot sink below the first, what follows cannot rise above the second.
        """
        for _ in range(2):
            with self._lock:
                pass


class Looks:
    """How often a wait may look: some times at once, then once a millisecond.

    A peer can wake sleepers, write a sequence or signal and reset as fast as it likes; without a limit, everybody who
    waits would spin with it.

    Parameters
    ----------
    timeout_ns : int
        How long the wait may take.
    """

    def __init__(self, timeout_ns: int) -> None:
        self._began = time.monotonic_ns()
        self._deadline = self._began + timeout_ns
        self._count = 0

    def sleep_ns(self) -> int:
        """How long the wait may sleep until the next look, having paused if there were too many; 0: it is over."""
        now = time.monotonic_ns()
        self._count += 1
        if self._count > _FREE_LOOKS + (now - self._began) // _PAUSE_NS:
            time.sleep(max(0, min(_PAUSE_NS, self._deadline - now)) / 1e9)
            now = time.monotonic_ns()
        return max(0, self._deadline - now)
