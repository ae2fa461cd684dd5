"""Keeps releases that sit behind every unmet wait apart from the waits.

Measured on an H200: cuMemFree, cuMemFreeHost and cuDestroyExternalSemaphore, also of an object that is idle, return
only when no wait on any stream is unmet, and until then every other thread's appends, imports, allocations and new
streams are held as well (queries of events are not). A signal that another thread is about to append would never come.
So such a release is made only at a moment when no list of the backend's devices has a wait pending, and an append of a
wait lets a release that is under way end first: it is short then.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Final, Protocol

from xsem.runtime.forks import generation

__all__ = ["ReleaseGate", "Waiting", "release_gate_of"]

_TRY_S: Final = 0.01


class Waiting(Protocol):
    """What may have waits pending: an open device."""

    def waits(self) -> bool:
        """Whether a list may have a wait pending."""


class ReleaseGate:
    """One backend's: its devices share a driver, and a process.

    Attributes
    ----------
    lock : RLock
        Held by each release, and by `Queue.append` of an operation that may wait: the two never overlap.
    inside : int
        Number of appends that hold `lock`: a finalizer can start a release on the thread of an append.
    closed : bool
        While a release looks for waits, or is made. An append needs no `lock` if it first makes
        `Waiting.waits` true and then finds `closed` false.
    """

    def __init__(self) -> None:
        # Re-entrant: what is appended may be a function of the application's that appends itself.
        self.lock = threading.RLock()
        self.inside = 0
        self.closed = False
        self._devices: weakref.WeakSet[Waiting] = weakref.WeakSet()

    def add(self, device: Waiting) -> None:
        """Have a device's waits respected until it is collected."""
        with self.lock:
            self._devices.add(device)

    def waiting(self) -> bool:
        """Whether a wait may be pending on a list of any device; asks the driver."""
        with self.lock:
            devices = list(self._devices)
        return any(device.waits() for device in devices)

    def release(self, act: Callable[[], object]) -> bool:
        """Call `act` if no wait is pending; whether it was called."""
        if not self.lock.acquire(timeout=_TRY_S):
            return False
        outer = self.closed
        try:
            self.closed = True
            if self.inside or self.waiting():
                return False
            act()
            return True
        finally:
            self.closed = outer
            self.lock.release()


# By generation, too: in a forked child another thread's lock would stay locked for ever.
_gates: dict[tuple[str, int], ReleaseGate] = {}


def release_gate_of(backend: str) -> ReleaseGate:
    """The gate of the backend with that name."""
    return _gates.setdefault((backend, generation()), ReleaseGate())
