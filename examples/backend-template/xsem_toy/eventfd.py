"""Binary semaphores as docs/host-objects.md of xsem defines them: an eventfd, signalled while its counter is not 0."""

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
    """Owns `fd`."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def signal(self) -> None:
        """Set it; already set stays set. At the counter's maximum a write would block, and it is set anyway."""
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
                # Not a plain read: where somebody else was faster it would block, and nobody would look up again.
                os.preadv(self.fd, [bytearray(8)], -1, os.RWF_NOWAIT)
            except BlockingIOError:
                time.sleep(0.001)   # no peer can make this thread spin
            else:
                return

    def close(self) -> None:
        """Give it back."""
        os.close(self.fd)

    def _poll(self, wanted: int, timeout_ms: int | None) -> bool:
        poller = select.poll()
        poller.register(self.fd, wanted)
        return any(events & wanted for _, events in poller.poll(timeout_ms))


def new() -> int:
    """A new one, unsignalled."""
    with _calling("eventfd2"):
        return os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)


def duplicate(fd: int) -> int:
    """Another number for the same semaphore."""
    with _calling("dup"):
        return os.dup(fd)


def check(fd: int) -> None:
    """Refuse what is no binary semaphore, before any other call sees it."""
    with _calling("readlink"):
        target = os.readlink(f"/proc/self/fd/{fd}")
    if target != "anon_inode:[eventfd]":
        raise BadHandleError(f"a binary semaphore of the toy is an eventfd, and this is {target}",
                             reason="not_an_eventfd")
    with _calling("open"), open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as info:
        if any(line.split() == ["eventfd-semaphore:", "1"] for line in info):
            raise BadHandleError("the eventfd counts (EFD_SEMAPHORE), so one wait would not reset it",
                                 reason="eventfd_is_counting")


@contextmanager
def _calling(call: str) -> Iterator[None]:
    """Every failure of the vendor's is one of xsem's errors, with the call and its code."""
    try:
        yield
    except OSError as error:
        code = error.errno or 0
        raise DriverError(f"the kernel refused: {error.strerror}", reason="system_call_failed", call=call, code=code,
                          code_name=errno.errorcode.get(code)) from error
