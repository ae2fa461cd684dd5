"""All that the host's objects ask of the kernel; the only module here that knows that it runs on Linux.

Elsewhere nothing of this is reached: `missing` keeps the device from being opened. The checks tell type checkers so.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import mmap
import os
import platform
import select
import sys
from typing import Final

__all__ = [
    "SEALS",
    "eventfd_add",
    "eventfd_take",
    "futex_wait",
    "futex_wake_all_and_add",
    "map_shared",
    "missing",
    "new_eventfd",
    "new_sealed_memfd",
    "read_at_start",
    "readable",
    "seals",
]

# fcntl's numbers, from linux/fcntl.h; Python's fcntl module has them only when it was built against new enough headers.
_F_ADD_SEALS: Final = 1033
_F_GET_SEALS: Final = 1034
_F_SEAL_SEAL: Final = 1
_F_SEAL_SHRINK: Final = 2
_F_SEAL_GROW: Final = 4
SEALS: Final = _F_SEAL_SEAL | _F_SEAL_SHRINK | _F_SEAL_GROW

_FUTEX_NUMBERS: Final = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "ppc64le": 221, "s390x": 238}
_FUTEX: Final = _FUTEX_NUMBERS.get(platform.machine())
_FUTEX_WAIT: Final = 0
_FUTEX_WAKE_OP: Final = 5
_ADD_ONE: Final = (1 << 28) | (1 << 12)  # FUTEX_OP_ADD, operand 1; compare "old == 0", which wakes nobody more
_EVERYBODY: Final = 2**31 - 1


def missing() -> str | None:
    """Why host objects cannot work here, with what to do; None where they can."""
    if sys.platform != "linux":
        return f"it needs Linux (memfd, eventfd, futex); this is {sys.platform}"
    if _FUTEX is None:
        return f"the futex system call's number is not known for {platform.machine()}"
    for name in ("memfd_create", "eventfd", "preadv", "RWF_NOWAIT"):
        if not hasattr(os, name):
            return f"this Python was built without os.{name}; use one built on a current Linux"
    return None


def _elsewhere() -> NotImplementedError:
    return NotImplementedError("the host device needs Linux")


# ---- eventfd
def new_eventfd() -> int:
    """A counter of 0, close-on-exec, non-blocking."""
    if sys.platform != "linux":
        raise _elsewhere()
    return os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)


def eventfd_add(fd: int) -> None:
    """Add 1, or nothing where that would block: only a peer can bring the counter near its maximum."""
    if sys.platform != "linux":
        raise _elsewhere()
    poller = select.poll()
    poller.register(fd, select.POLLOUT)
    if poller.poll(0):
        os.eventfd_write(fd, 1)


def readable(fd: int, timeout_ms: int) -> bool:
    """Whether the counter is not 0, after waiting at most so long."""
    if sys.platform != "linux":
        raise _elsewhere()
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(timeout_ms))


def eventfd_take(fd: int) -> bool:
    """Set the counter to 0; False where it was 0 already."""
    if sys.platform != "linux":
        raise _elsewhere()
    try:
        # Not a plain read: an imported eventfd may be a blocking one, and somebody else may have taken the signal.
        os.preadv(fd, [bytearray(8)], -1, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    return True


# ---- memfd
def seals(fd: int) -> int | None:
    """The seals of a memfd; None where the file cannot have any."""
    if sys.platform != "linux":
        raise _elsewhere()
    import fcntl

    try:
        return fcntl.fcntl(fd, _F_GET_SEALS)
    except OSError:
        return None


def new_sealed_memfd(name: str, size: int, head: bytes = b"") -> int:
    """A file of `size` bytes in memory that begins with `head` and can never shrink or grow.

    A peer that shrinks a file kills everybody who has it mapped with SIGBUS.
    """
    if sys.platform != "linux":
        raise _elsewhere()
    import fcntl

    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.truncate(fd, size)
        os.pwrite(fd, head, 0)
        fcntl.fcntl(fd, _F_ADD_SEALS, SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_at_start(fd: int, size: int) -> bytes:
    """The first bytes of a file, wherever its position is: that is shared with the exporter."""
    if sys.platform != "linux":
        raise _elsewhere()
    return os.pread(fd, size, 0)


def map_shared(fd: int, size: int) -> mmap.mmap:
    """The first `size` bytes of a file, shared with everybody who maps it."""
    if sys.platform != "linux":
        raise _elsewhere()
    return mmap.mmap(fd, size, mmap.MAP_SHARED)


# ---- futex
class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


def _syscall(*args: object) -> int:
    # CDLL, not PyDLL: the interpreter lock is given up while the kernel waits.
    result: int = _libc().syscall(*args)
    return result


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def futex_wait(address: int, expected: int, timeout_ns: int) -> bool:
    """Sleep while the u32 at `address` is `expected`; False if it was another already, so that nobody slept."""
    timeout = _Timespec(*divmod(max(0, timeout_ns), 1_000_000_000))
    result = _syscall(
        ctypes.c_long(_FUTEX or 0), ctypes.c_void_p(address), ctypes.c_int(_FUTEX_WAIT), ctypes.c_uint32(expected),
        ctypes.byref(timeout), None, ctypes.c_uint32(0),
    )
    return not (result < 0 and ctypes.get_errno() == errno.EAGAIN)


def futex_wake_all_and_add(address: int) -> None:
    """Add 1 to the u32 at `address` and wake all that sleep there, as one atomic step of the kernel's."""
    _syscall(
        ctypes.c_long(_FUTEX or 0), ctypes.c_void_p(address), ctypes.c_int(_FUTEX_WAKE_OP), ctypes.c_int(_EVERYBODY),
        ctypes.c_void_p(0), ctypes.c_void_p(address), ctypes.c_uint32(_ADD_ONE),
    )
