"""NT handles and threads of this process."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from typing import TYPE_CHECKING, Final

from xsem.spi import duplicate_fd

# For the type checker. Every system can import this module, and only Windows can call its functions.
assert sys.platform == "win32" or not TYPE_CHECKING  # noqa: S101

if sys.platform == "win32":
    from xsem.data.nt_handles import is_open_nt

__all__ = ["Identity", "count", "duplicate", "identity", "is_open", "threads"]

Identity = tuple[int, int]

_EXTENDED_HANDLES: Final = 64
_LENGTH_MISMATCH: Final = 0xC0000004
_HEAD: Final = struct.Struct("<QQ")          # number of entries, reserved
_ENTRY: Final = struct.Struct("<QQQIHHII")   # object, process, handle, access, and four more
_THREADS_OF_ALL: Final = 0x4                 # TH32CS_SNAPTHREAD


class _Thread(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint32)
                     for name in ("size", "usage", "thread", "process", "priority", "delta", "flags"))


def duplicate(number: int) -> int:
    """Return a duplicate of the handle. The caller closes it."""
    return duplicate_fd(number, for_driver=False).detach()


def identity(number: int) -> Identity | None:
    """Return whether a number is open, as an identity: Windows gives no number for an object. None if it is closed."""
    return (0, 0) if is_open_nt(number) else None


def is_open(number: int) -> bool:
    """Return whether a number is open."""
    return is_open_nt(number)


def count() -> int:
    """Return the number of open handles of this process.

    The number comes from the list of all handles of the system, because GetProcessHandleCount of Wine 8 is always 0.
    """
    query, size = ctypes.WinDLL("ntdll").NtQuerySystemInformation, 1 << 20
    while True:
        into = ctypes.create_string_buffer(size)
        status = query(_EXTENDED_HANDLES, into, size, None) & 0xFFFFFFFF
        if status != _LENGTH_MISMATCH:
            break
        size *= 2   # the list has the handles of all processes
    if status:
        raise OSError(f"NtQuerySystemInformation: {status:#x}")
    total, _ = _HEAD.unpack_from(into)
    entries = _ENTRY.iter_unpack(into.raw[_HEAD.size:_HEAD.size + _ENTRY.size * total])
    return [process for _, process, *_ in entries].count(os.getpid())


def threads() -> int:
    """Return the number of threads of this process."""
    kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
    kernel32.CreateToolhelp32Snapshot.restype = ctypes.c_void_p
    snapshot = kernel32.CreateToolhelp32Snapshot(_THREADS_OF_ALL, 0)
    if snapshot in (None, ctypes.c_void_p(-1).value):
        raise ctypes.WinError(ctypes.get_last_error())
    try:
        each, found = _Thread(size=ctypes.sizeof(_Thread)), 0
        more = kernel32.Thread32First(ctypes.c_void_p(snapshot), ctypes.byref(each))
        while more:
            found += each.process == os.getpid()
            more = kernel32.Thread32Next(ctypes.c_void_p(snapshot), ctypes.byref(each))
        return found
    finally:
        kernel32.CloseHandle(ctypes.c_void_p(snapshot))
