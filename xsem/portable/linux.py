"""The system calls of the portable objects on Linux."""

# On other systems `missing` prevents the opening of the device, so no function here runs. The checks of `sys.platform`
# tell type checkers this.

from __future__ import annotations

import ctypes
import errno
import functools
import mmap
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from xsem.data.handles import OwnedHandle, own
from xsem.errors import BadHandleError, BusyError, DriverError, OutOfMemoryError, XsemError

__all__ = [
    "SEALS",
    "Pages",
    "calling",
    "duplicate",
    "elsewhere",
    "futex_wait",
    "futex_wake_all_and_add",
    "has_huge_pages",
    "map_private",
    "map_shared",
    "missing",
    "new_sealed_memfd",
    "read_at_start",
    "seals",
]

# Numbers from linux/fcntl.h and linux/memfd.h: a Python that was built with old headers lacks them.
_F_ADD_SEALS: Final = 1033
_F_GET_SEALS: Final = 1034
_F_SEAL_SEAL: Final = 1
_F_SEAL_SHRINK: Final = 2
_F_SEAL_GROW: Final = 4
SEALS: Final = _F_SEAL_SEAL | _F_SEAL_SHRINK | _F_SEAL_GROW
_MFD_NOEXEC_SEAL: Final = 8

_FUTEX_NUMBERS: Final = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "ppc64le": 221, "s390x": 238}
_FUTEX: Final = _FUTEX_NUMBERS.get(platform.machine())
_FUTEX_WAIT: Final = 0
_FUTEX_WAKE_OP: Final = 5
_ADD_ONE: Final = (1 << 28) | (1 << 12)  # FUTEX_OP_ADD, operand 1; the comparison "old == 0" wakes no further waiter
_EVERYBODY: Final = 2**31 - 1



def missing() -> str | None:
    """Return why portable objects cannot work here, and the remedy; None if no obstacle is known."""
    if sys.platform != "linux":
        return f"it needs Linux (memfd, eventfd, futex) or Windows; this is {sys.platform}"
    if _FUTEX is None or sys.maxsize < 2**32:
        return (f"the number of the futex system call is unknown for {platform.machine()}, "
                f"{64 if sys.maxsize > 2**32 else 32}-bit; use 64-bit Python on {', '.join(sorted(_FUTEX_NUMBERS))}")
    for name in ("memfd_create", "eventfd", "preadv", "RWF_NOWAIT"):
        if not hasattr(os, name):
            return f"this Python was built without os.{name}; use one built on a current Linux"
    return None


def elsewhere() -> NotImplementedError:
    """Return the error of a call on another system, which type checkers need."""
    return NotImplementedError("this object needs Linux")


@contextmanager
def calling(call: str) -> Iterator[None]:
    """Raise the error of xsem for an OSError of the call in the block."""
    try:
        yield
    except OSError as error:
        raise _failure(call, error) from error


def _failure(call: str, error: OSError) -> XsemError:
    code = error.errno or 0
    name = errno.errorcode.get(code)
    if code in (errno.EMFILE, errno.ENFILE):
        return BusyError("no more files can be opened: release objects, or raise RLIMIT_NOFILE", reason="fd_limit",
                         call=call, code=code, code_name=name)
    if code in (errno.ENOMEM, errno.EFBIG, errno.ENOSPC):
        return OutOfMemoryError("the host is out of memory", reason="out_of_memory", call=call, code=code,
                                code_name=name)
    return DriverError(f"the kernel refused: {error.strerror}", reason="system_call_failed", call=call, code=code,
                       code_name=name)


def duplicate(fd: int) -> OwnedHandle:
    """Return a close-on-exec duplicate of `fd`, owned by the caller. `fd` stays open."""
    with calling("dup"):
        return own(os.dup, fd)


# ---- memfd
def seals(fd: int) -> int | None:
    """Return the seals of a memfd; None if the file cannot have seals."""
    if sys.platform != "linux":
        raise elsewhere()
    import fcntl

    try:
        return fcntl.fcntl(fd, _F_GET_SEALS)
    except OSError:
        return None


def has_huge_pages(fd: int) -> bool:
    """Return whether a memfd was created with MFD_HUGETLB."""
    if sys.platform != "linux":
        raise elsewhere()
    # Not st_blksize: with transparent huge pages it is large for ordinary memfds too.
    return os.fstatvfs(fd).f_bsize != mmap.PAGESIZE


def new_sealed_memfd(name: str, size: int, head: bytes = b"") -> OwnedHandle:
    """Create a memfd of `size` bytes that begins with `head`, sealed against resizing. The caller owns it."""
    # A peer that shrinks a file kills every process that maps it, with SIGBUS.
    if sys.platform != "linux":
        raise elsewhere()
    import fcntl

    with calling("memfd_create"):
        handle = _memfd(name)
    fd = handle.fileno()
    try:
        with calling("ftruncate"):
            try:
                os.truncate(fd, size)
            except OverflowError:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG)) from None
        with calling("pwrite"):
            os.pwrite(fd, head, 0)
        with calling("fcntl"):
            fcntl.fcntl(fd, _F_ADD_SEALS, SEALS)
    except BaseException:
        handle.close()
        raise
    return handle


def _memfd(name: str) -> OwnedHandle:
    if sys.platform != "linux":
        raise elsewhere()
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        # With vm.memfd_noexec=2 the kernel refuses to create an executable memfd.
        return own(os.memfd_create, name, flags | _MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:  # EINVAL: Linux before 6.3
            raise
    return own(os.memfd_create, name, flags)


def read_at_start(fd: int, size: int) -> bytes:
    """Read the first bytes of a file, without its position: the exporter shares that."""
    if sys.platform != "linux":
        raise elsewhere()
    try:
        return os.pread(fd, size, 0)
    except OSError as error:
        if error.errno != errno.EBADF:
            raise _failure("pread", error) from error
        raise _not_read_and_write() from error


def _not_read_and_write() -> BadHandleError:
    return BadHandleError("the file is not open for reading and writing, or is sealed against writing",
                          reason="read_only")


# ---- mappings. Not Python's mmap objects: each keeps its own fd, and refuses to close while a buffer is exported.
class Pages:
    """Mapped memory, readable and usually writable. `close`, or the end of the last reference, unmaps it."""

    __slots__ = ("__weakref__", "_mapped", "address", "size")

    def __init__(self, size: int, flags: int, fd: int, *, writable: bool = True) -> None:
        self.size = size
        self.address = _map(size, flags, fd, writable=writable)
        self._mapped = True

    def close(self) -> None:
        """Unmap the memory. No thread may access it afterwards. A second call has no effect."""
        if not self._mapped:
            return
        self._mapped = False   # before the call: another mapping can get the address afterwards
        if _libc().munmap(self.address, self.size) != 0:
            code = ctypes.get_errno()
            raise _failure("munmap", OSError(code, os.strerror(code)))

    def __del__(self) -> None:
        # Nothing is mapped if the constructor failed. At the interpreter's exit a worker may still copy here, without
        # the interpreter's lock; the end of the process unmaps all.
        if getattr(self, "_mapped", False) and not sys.is_finalizing():
            self.close()


def map_shared(fd: int, size: int, *, writable: bool = True) -> Pages:
    """Map the first `size` bytes of a file, shared with every process that maps it."""
    if sys.platform != "linux":
        raise elsewhere()
    try:
        return Pages(size, mmap.MAP_SHARED, fd, writable=writable)
    except PermissionError as error:
        raise _not_read_and_write() from error
    except OSError as error:
        raise _failure("mmap", error) from error


def map_private(size: int) -> Pages:
    """Map `size` private bytes, all 0."""
    if sys.platform != "linux":
        raise elsewhere()
    with calling("mmap"):
        return Pages(size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)


def _map(size: int, flags: int, fd: int, *, writable: bool) -> int:
    if sys.platform != "linux":
        raise elsewhere()
    address = _libc().mmap(None, size, mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0), flags, fd, 0)
    if address == ctypes.c_void_p(-1).value:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(address)


@functools.cache
def _libc() -> ctypes.CDLL:
    # CDLL, not PyDLL: CDLL releases the interpreter lock during the system call.
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
    ]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc


# ---- futex
class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


def futex_wait(address: int, expected: int, timeout_ns: int) -> None:
    """Sleep while the u32 at `address` is `expected`, at most `timeout_ns`. May return earlier, even at once."""
    timeout = _Timespec(*divmod(timeout_ns, 1_000_000_000))
    _libc().syscall(
        ctypes.c_long(_FUTEX or 0), ctypes.c_void_p(address), ctypes.c_int(_FUTEX_WAIT), ctypes.c_uint32(expected),
        ctypes.byref(timeout), None, ctypes.c_uint32(0),
    )


def futex_wake_all_and_add(address: int) -> None:
    """Add 1 to the u32 at `address` and wake all its waiters, in one atomic step of the kernel."""
    _libc().syscall(
        ctypes.c_long(_FUTEX or 0), ctypes.c_void_p(address), ctypes.c_int(_FUTEX_WAKE_OP), ctypes.c_int(_EVERYBODY),
        ctypes.c_void_p(0), ctypes.c_void_p(address), ctypes.c_uint32(_ADD_ONE),
    )
