"""File descriptors: whether two numbers are one open file, and duplicates that a driver is given."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
from typing import Final

from xsem.errors import BusyError
from xsem.handles import OwnedHandle

__all__ = ["dup_high", "duplicate_fd", "kernel_can_compare", "same_open_file"]

_F_DUPFD_QUERY: Final = 1027  # Linux >= 6.10: F_LINUX_SPECIFIC_BASE + 3
_KCMP: Final = {"x86_64": 312, "aarch64": 272, "riscv64": 272, "ppc64le": 354, "s390x": 343}.get(platform.machine())
_KCMP_FILE: Final = 0
_HIGH: Final = 512
_TURN: Final = range(_HIGH, 4096)


class _Turn:
    """Where the next duplicate begins to look for a number."""

    at = _TURN.start


def same_open_file(a: int, b: int) -> bool | None:
    """Whether two fds of this process mean the same open file description; None where the kernel cannot tell.

    So a backend finds out whether its driver has closed a handle: keep a duplicate, and compare the number with it.
    """
    if sys.platform != "linux":
        return None
    import fcntl

    try:
        return fcntl.fcntl(a, _F_DUPFD_QUERY, b) == 1
    except OSError as error:
        if error.errno == errno.EBADF:
            return False
    # fstat cannot stand in: all anonymous inodes (eventfd, sync files, device memory) share one inode number.
    if _KCMP is None:
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    pid = os.getpid()
    order = libc.syscall(ctypes.c_long(_KCMP), ctypes.c_long(pid), ctypes.c_long(pid), ctypes.c_long(_KCMP_FILE),
                         ctypes.c_ulong(a), ctypes.c_ulong(b))
    if order < 0:
        return False if ctypes.get_errno() == errno.EBADF else None
    return bool(order == 0)


def kernel_can_compare() -> bool:
    """Whether `same_open_file` has an answer here."""
    read, write = os.pipe()
    try:
        return same_open_file(read, read) is not None
    finally:
        os.close(read)
        os.close(write)


def dup_high(fd: int) -> int:
    """A duplicate with a high number that was not another duplicate's a moment ago.

    After a driver closed a number, no other duplicate of the same file is to get it before somebody has looked: the
    application's own calls are given the lowest that is free, and these here take turns.
    """
    if sys.platform != "win32":
        import fcntl

        for least in (_Turn.at, _TURN.start):
            try:
                number = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, least)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.EMFILE):  # no such high numbers here
                    raise
            else:
                _Turn.at = number + 1 if number + 1 in _TURN else _TURN.start
                return number
    return os.dup(fd)


def duplicate_fd(fd: int) -> OwnedHandle:
    """A duplicate for a driver, or to keep beside what a driver is given; the caller's to close.

    Raises
    ------
    BusyError
        ``fd_limit``.
    """
    try:
        return OwnedHandle(dup_high(fd))
    except OSError as error:
        raise BusyError(f"file descriptor {fd} cannot be duplicated: {error.strerror}", reason="fd_limit") from error
