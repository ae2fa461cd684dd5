"""Separates releases from waits, for drivers whose releases block behind every unmet wait."""

# Measured on an H200: cuMemFree, cuMemFreeHost and cuDestroyExternalSemaphore return only when no wait on any stream is
# unmet, even for an idle object, and until then the appends, imports, allocations and stream creations of all other
# threads block as well. Queries of events do not block. Without pending waits, such a release is short.

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Final, Protocol

from xsem.data.locks import Lock
from xsem.runtime.forks import generation
from xsem.runtime.locks import call_locked

__all__ = ["ReleaseGate", "Waiting", "release_gate_of"]

_TRY_S: Final = 0.01


class Waiting(Protocol):
    """An open device, as the gate sees it."""

    def has_pending_wait(self) -> bool:
        """Return whether a list of the device may have a pending wait."""


class ReleaseGate:
    """The gate of one backend, because its devices share a driver in this process."""

    def __init__(self) -> None:
        # Held by each release. Re-entrant: a release may call a finalizer of the application, and the finalizer may
        # append or release.
        self.lock = Lock()
        # True from the search for pending waits until the end of the release. The append of a wait first makes
        # `Waiting.has_pending_wait` true. If the gate is then closed, the append waits for `lock` and thus for the end
        # of the release.
        self.closed = False
        self._devices: tuple[weakref.ref[Waiting], ...] = ()

    def add(self, device: Waiting) -> None:
        """Register a device. The gate looks for its waits until the device is collected."""
        with self.lock:
            self._devices = (*(each for each in self._devices if each() is not None), weakref.ref(device))

    def any_wait_pending(self) -> bool:
        """Return whether a wait may be pending on a list of any device. Queries the driver."""
        for reference in self._devices:
            device = reference()
            if device is not None and device.has_pending_wait():
                return True
        return False

    def release(self, act: Callable[[], object]) -> bool:
        """Call `act` if no wait is pending, and return whether it was called."""
        return call_locked(self.lock, _TRY_S, lambda: self._release(act), False)

    def _release(self, act: Callable[[], object]) -> bool:
        outer = self.closed
        try:
            self.closed = True
            if self.any_wait_pending():
                return False
            act()
            return True
        finally:
            self.closed = outer


# The key includes the fork generation: in a forked child, a lock of another thread would stay locked for ever.
_gates: dict[tuple[str, int], ReleaseGate] = {}


def release_gate_of(backend: str) -> ReleaseGate:
    """Return the gate of the backend with that name."""
    return _gates.setdefault((backend, generation()), ReleaseGate())
