"""What an fd means, asked of the kernel: whether two numbers are one open file."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
from typing import Final

__all__ = ["kernel_can_compare", "same_open_file"]

_F_DUPFD_QUERY: Final = 1027  # Linux >= 6.10: F_LINUX_SPECIFIC_BASE + 3
_KCMP: Final = {"x86_64": 312, "aarch64": 272, "riscv64": 272, "ppc64le": 354, "s390x": 343}.get(platform.machine())
_KCMP_FILE: Final = 0


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
