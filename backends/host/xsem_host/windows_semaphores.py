"""The host's binary semaphores on Windows (docs/host-objects.md, "Windows")."""

# They have no lock in shared memory, so a process that is killed at any moment leaves nothing locked.

from __future__ import annotations

from xsem.portable.windows import check_synchronization_event, event_set, new_event, wait_event
from xsem.types import OwnedHandle
from xsem_host.binary import BinarySemaphore

__all__ = ["Binary", "new_binary", "open_binary"]


class Binary(BinarySemaphore):
    """A binary semaphore: a synchronization event."""

    def _set(self) -> None:
        event_set(self.fd)

    def _take(self, sleep_ns: int) -> bool:
        return wait_event(self.fd, sleep_ns)


def new_binary() -> Binary:
    """Create an unsignalled binary semaphore."""
    with new_event() as handle:
        return Binary(handle)


def open_binary(handle: OwnedHandle) -> Binary:
    """Check that the handle is one of a synchronization event, and take ownership of it."""
    check_synchronization_event(handle.fileno())
    return Binary(handle)
