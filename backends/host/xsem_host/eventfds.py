"""The system calls of binary semaphores on Linux."""

from __future__ import annotations

import os
import select
import sys
from typing import Final

from xsem.portable.linux import calling, elsewhere
from xsem.spi import own
from xsem.types import OwnedHandle

__all__ = ["eventfd_add", "eventfd_take", "is_counting", "new_eventfd", "readable"]

_LONGEST_POLL_MS: Final = 1_000_000  # poll takes an int


def new_eventfd() -> OwnedHandle:
    """Create an eventfd with counter 0, close-on-exec and non-blocking."""
    if sys.platform != "linux":
        raise elsewhere()
    with calling("eventfd2"):
        return own(os.eventfd, 0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)


def eventfd_add(fd: int) -> None:
    """Add 1 to the counter, or nothing if the write would block."""
    if sys.platform != "linux":
        raise elsewhere()
    poller = select.poll()
    poller.register(fd, select.POLLOUT)
    # Only a peer can bring the counter near its maximum. Then poll reports POLLERR, and a write would block too.
    if any(events & select.POLLOUT for _, events in poller.poll(0)):
        try:
            os.eventfd_write(fd, 1)
        except BlockingIOError:
            return  # another writer brought the counter to its maximum after the poll, so it is signalled


def readable(fd: int, timeout_ns: int) -> bool:
    """Wait until the counter is not 0, and return whether it is. May return False before the timeout expires."""
    if sys.platform != "linux":
        raise elsewhere()
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    # Rounded up: with 0 ms, the loop would spin through the last part of a millisecond.
    return bool(poller.poll(min(-(-max(0, timeout_ns) // 1_000_000), _LONGEST_POLL_MS)))


def eventfd_take(fd: int) -> bool:
    """Set the counter to 0; return False if it is 0 already."""
    if sys.platform != "linux":
        raise elsewhere()
    try:
        # Not a plain read: on an eventfd in blocking mode it would block if another waiter took the signal.
        os.preadv(fd, [bytearray(8)], -1, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    return True


def is_counting(fd: int) -> bool:
    """Return whether an eventfd has EFD_SEMAPHORE. Kernels before Linux 6.5 do not tell; then False."""
    with calling("open"), open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as info:
        return any(line.split() == ["eventfd-semaphore:", "1"] for line in info)
