"""The host's binary semaphores on Linux (docs/host-objects.md)."""

# They have no lock in shared memory, so a process that is killed at any moment leaves nothing locked.

from __future__ import annotations

from xsem.errors import BadHandleError
from xsem.portable.files import file_name
from xsem.types import OwnedHandle
from xsem_host.binary import BinarySemaphore
from xsem_host.eventfds import eventfd_add, eventfd_take, is_counting, new_eventfd, readable

__all__ = ["Binary", "new_binary", "open_binary"]


class Binary(BinarySemaphore):
    """A binary semaphore: an eventfd. Counter 0 is unsignalled, any other value is signalled."""

    def _set(self) -> None:
        eventfd_add(self.fd)

    def _take(self, sleep_ns: int) -> bool:
        return readable(self.fd, sleep_ns) and eventfd_take(self.fd)


def new_binary() -> Binary:
    """Create an unsignalled binary semaphore."""
    with new_eventfd() as handle:
        return Binary(handle)


def open_binary(handle: OwnedHandle) -> Binary:
    """Check that the file is an eventfd without EFD_SEMAPHORE, and take ownership of it."""
    fd = handle.fileno()
    target = file_name(fd)
    if target != "anon_inode:[eventfd]":
        raise BadHandleError(f"a binary semaphore of host must be an eventfd, not {target}", reason="not_an_eventfd")
    if is_counting(fd):
        raise BadHandleError("the eventfd has EFD_SEMAPHORE, so one wait would not reset it",
                             reason="eventfd_is_counting")
    return Binary(handle)
