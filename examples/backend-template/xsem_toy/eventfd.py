"""Binary semaphores of docs/host-objects.md of xsem: an eventfd that is signalled while its counter is not 0."""

from __future__ import annotations

import errno
import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager

from xsem.errors import BadHandleError, DriverError

__all__ = ["Semaphore", "check", "duplicate", "new"]


class Semaphore:
    """A binary semaphore that owns the file descriptor `fd`."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def signal(self) -> None:
        """Signal the semaphore."""
        # At the counter's maximum a write would block, but then the semaphore is signalled already.
        if self._poll(select.POLLOUT, 0):
            try:
                os.eventfd_write(self.fd, 1)
            except BlockingIOError:
                return

    def wait(self) -> None:
        """Block until the signal is taken."""
        while True:
            self._poll(select.POLLIN, None)
            try:
                # A plain read blocks for an unlimited time if another waiter was faster. This read does not block.
                os.preadv(self.fd, [bytearray(8)], -1, os.RWF_NOWAIT)
            except BlockingIOError:
                time.sleep(0.001)   # another waiter was faster: do not use the CPU all the time
            else:
                return

    def close(self) -> None:
        """Close the file descriptor."""
        os.close(self.fd)

    def _poll(self, wanted: int, timeout_ms: int | None) -> bool:
        poller = select.poll()
        poller.register(self.fd, wanted)
        return any(events & wanted for _, events in poller.poll(timeout_ms))


def new() -> int:
    """Return a new unsignalled semaphore as a file descriptor, owned by the caller."""
    with _calling("eventfd2"):
        return os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)


def duplicate(fd: int) -> int:
    """Return another file descriptor of the same semaphore, owned by the caller."""
    with _calling("dup"):
        return os.dup(fd)


def check(fd: int) -> None:
    """Refuse a file descriptor that is not a binary semaphore, before any other call uses it."""
    with _calling("readlink"):
        target = os.readlink(f"/proc/self/fd/{fd}")
    if target != "anon_inode:[eventfd]":
        raise BadHandleError(f"a binary semaphore of toy is an eventfd, and this is {target}",
                             reason="not_an_eventfd")
    with _calling("open"), open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as info:
        if any(line.split() == ["eventfd-semaphore:", "1"] for line in info):
            raise BadHandleError("the eventfd counts (EFD_SEMAPHORE), so one wait would not reset it",
                                 reason="eventfd_is_counting")


@contextmanager
def _calling(call: str) -> Iterator[None]:
    """Convert each failure of the vendor library to an xsem error, with the call and its code."""
    try:
        yield
    except OSError as error:
        code = error.errno or 0
        raise DriverError(f"the kernel refused: {error.strerror}", reason="system_call_failed", call=call, code=code,
                          code_name=errno.errorcode.get(code)) from error
