"""The base of the host's semaphores: safe closing, and waits that a peer cannot make spin."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from typing import Final, Self

from xsem.data.handles import OwnedHandle
from xsem.data.locks import Lock
from xsem.errors import ReleasedError

if sys.platform == "win32":
    from xsem.portable.windows import duplicate
else:
    from xsem.portable.linux import duplicate

__all__ = ["Looks", "SemaphoreBase"]

_FREE_LOOKS: Final = 64
_PAUSE_NS: Final = 1_000_000


class SemaphoreBase(ABC):
    """A semaphore of host. It owns its file descriptor or NT handle."""

    def __init__(self, handle: OwnedHandle) -> None:
        self._lock = Lock()
        # The file and the page are freed only after the last thread has left the semaphore. The worker of a queue that
        # was closed during a wait leaves it some time later, and its fd number could belong to another file by then.
        self._inside = 0
        self._closed = False
        self._file = handle.take()   # last: after an error the caller still owns the file

    @property
    def fd(self) -> int:
        """The file descriptor. This object still owns it."""
        return self._file.fileno()

    def duplicate(self) -> OwnedHandle:
        """Return a duplicate of the file descriptor, owned by the caller."""
        with self._use():
            return duplicate(self._file.fileno())

    @abstractmethod
    def signal(self, value: int | None) -> None:
        """Signal the semaphore. `value` is None for a binary semaphore. Never blocks."""

    @abstractmethod
    def wait(self, value: int | None, timeout_ns: int) -> bool:
        """Block until the wait is met or the timeout (nanoseconds) expires; return whether it is met."""

    def _free(self) -> None:
        """Free the file. Called when no thread is inside. A second call has no effect."""
        self._file.close()

    def close(self) -> None:
        """Refuse further use, and free the semaphore as soon as no thread is inside. A second call has no effect."""
        with self._lock:
            self._closed = True
            if not self._inside:
                self._free()

    def _use(self) -> Self:
        """Return a context manager: the file and the page stay until its end."""
        return self   # not a generator, which would cost as much as a signal

    def __enter__(self) -> None:
        with self._lock:
            if self._closed:
                raise ReleasedError("the semaphore has been released", reason="released")
            self._inside += 1

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._closed and not self._inside:
                self._free()

    def _fence(self) -> None:
        """Order the memory accesses before this call before those after it."""
        # Python lacks a memory fence, and plain stores are unordered on aarch64. Releasing a lock and taking it again
        # has that effect: earlier accesses cannot move below the release, later ones cannot move above the second take.
        for _ in range(2):
            with self._lock:
                pass


class Looks:
    """The limit on how often a wait checks its condition: 64 times at once, then once a millisecond."""

    # A peer can wake waiters, change the sequence, or signal and reset at any rate. Without a limit every waiter would
    # spin with it.

    def __init__(self, timeout_ns: int) -> None:
        self._began = time.monotonic_ns()
        self._deadline = self._began + timeout_ns
        self._count = 0

    def sleep_ns(self) -> int:
        """Count a check, pause after too many, and return how long the wait may sleep; 0 after the timeout."""
        now = time.monotonic_ns()
        self._count += 1
        if self._count > _FREE_LOOKS + (now - self._began) // _PAUSE_NS:
            time.sleep(max(0, min(_PAUSE_NS, self._deadline - now)) / 1e9)
            now = time.monotonic_ns()
        return max(0, self._deadline - now)
