"""What all of the host's semaphores have in common: threads inside them, and waits that cannot be made to spin."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from xsem.errors import ReleasedError
from xsem.types import OwnedHandle
from xsem_host.linux import duplicate

__all__ = ["HostSemaphore", "Looks"]

_FREE_LOOKS: Final = 64
_PAUSE_NS: Final = 1_000_000


class HostSemaphore(ABC):
    """A semaphore of host, and the file descriptor that it owns.

    Its file is closed, and its page unmapped, only when no thread is inside any more: the worker of a list that was
    closed in the midst of a wait looks up after a while, and by then the number may be another file's.

    Parameters
    ----------
    handle : OwnedHandle
        This object owns its file from here on. After an error the caller still does.
    """

    def __init__(self, handle: OwnedHandle) -> None:
        self._fence_lock = threading.Lock()
        self._inside: set[object] = set()   # not a count, which Ctrl-C could leave wrong
        self._closed = False
        self._file = handle.take()

    @property
    def fd(self) -> int:
        """The descriptor, still owned by this object."""
        return self._file.fileno()

    def duplicate(self) -> OwnedHandle:
        """Another descriptor of the same file, owned by the caller."""
        with self._use():
            return duplicate(self._file.fileno())

    @abstractmethod
    def signal(self, value: int | None) -> None:
        """Signal it, with a value if it is a timeline; never blocks."""

    @abstractmethod
    def wait(self, value: int | None, timeout_ns: int) -> bool:
        """Whether it was signalled, or reached the value, within the time."""

    def _free(self) -> None:
        """Free what it owns, when no thread is inside; no effect a second time."""
        self._file.close()

    def close(self) -> None:
        """Refuse further use, and free the semaphore as soon as no thread is inside."""
        self._closed = True
        if not self._inside:
            self._free()

    @contextmanager
    def _use(self) -> Iterator[None]:
        thread = object()
        try:
            # Add first, then look: a concurrent close either sees this thread, or is seen here.
            self._inside.add(thread)
            if self._closed:
                raise ReleasedError("the semaphore has been released", reason="released")
            yield
        finally:
            # First, and in C code, which Ctrl-C cannot prevent.
            try:
                self._inside.discard(thread)
            finally:
                if self._closed and not self._inside:
                    self._free()

    def _fence(self) -> None:
        """Keep memory accesses before this from being seen after those that follow it.

        Python has no fence, and its stores order nothing on aarch64. A lock given back and then taken is one: what
        came before cannot sink below the first, what follows cannot rise above the second.
        """
        for _ in range(2):
            with self._fence_lock:
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
