"""NT handles and threads of this process."""

from __future__ import annotations

import ctypes
import gc
import os
import struct
import sys
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Final

from xsem.spi import duplicate_fd

# For the type checker. Every system can import this module, and only Windows can call its functions.
assert sys.platform == "win32" or not TYPE_CHECKING  # noqa: S101

if sys.platform == "win32":
    import msvcrt

    from xsem.data.windows.handles import CURRENT_PROCESS, close_nt, is_open_nt, object_type, same_object

__all__ = [
    "Identity", "close", "count", "duplicate", "duplicate_to", "host_mappings", "identity", "inheritable", "is_open",
    "named_files", "named_host_mappings", "named_threads", "null", "opened", "others", "pipe",
    "processes_with", "same", "threads",
]

Identity = str

_EXTENDED_HANDLES: Final = 64
_LENGTH_MISMATCH: Final = 0xC0000004
_HEAD: Final = struct.Struct("<QQ")          # number of entries, reserved
_ENTRY: Final = struct.Struct("<QQQIHHII")   # object, process, handle, access, and four more
_THREADS_OF_ALL: Final = 0x4                 # TH32CS_SNAPTHREAD
_TRIES: Final = 64
_READ: Final = 0x80000000                    # GENERIC_READ
_SHARE: Final = 7
_EXISTING: Final = 3
_DIRECTORY: Final = 0x02000000               # FILE_FLAG_BACKUP_SEMANTICS


class _Thread(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint32)
                     for name in ("size", "usage", "thread", "process", "priority", "delta", "flags"))


def duplicate(number: int) -> int:
    """Return a duplicate of the handle. The caller closes it."""
    return duplicate_fd(number, for_driver=False).detach()


def duplicate_to(number: int, wanted: int) -> int:
    """Return a duplicate of the handle with a free number from `wanted` on. The caller closes it."""
    # Windows chooses the number. After many tries, the number can be smaller than `wanted`.
    made = [duplicate(number)]
    while made[-1] < wanted and len(made) < _TRIES:
        made.append(duplicate(number))
    for each in made[:-1]:
        close(each)
    return made[-1]


def close(number: int) -> None:
    """Close the handle, if it is open."""
    close_nt(number)


def pipe() -> int:
    """Return the reading end of a pipe without a writing end. The caller closes it."""
    read, write = os.pipe()
    os.close(write)
    return _handle_of(read)


def null() -> int:
    """Open the null device; the caller closes the handle."""
    return _handle_of(os.open(os.devnull, os.O_RDWR))


def others() -> Iterator[tuple[str, int]]:
    """Yield the name and a handle of objects that are neither semaphores nor memory; the caller closes them."""
    yield "a pipe", pipe()
    kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
    kernel32.CreateFileW.restype = ctypes.c_void_p
    folder = kernel32.CreateFileW(os.getcwd(), _READ, _SHARE, None, _EXISTING, _DIRECTORY, None)
    yield "a directory", int(folder)
    yield "a process", duplicate(CURRENT_PROCESS)
    yield "the null device", null()


def _handle_of(descriptor: int) -> int:
    """Return a duplicate of the handle of a descriptor of C, and close the descriptor."""
    try:
        return duplicate(msvcrt.get_osfhandle(descriptor))
    finally:
        os.close(descriptor)


def identity(number: int) -> Identity | None:
    """Return the type of the object, because Windows gives no number for an object; None if the handle is closed."""
    return (object_type(number) or "") if is_open_nt(number) else None


def same(one: int, other: int) -> bool:
    """Return whether both numbers are open handles of one object, or of one type if Windows cannot compare objects."""
    alike = same_object(one, other)
    return is_open_nt(one) and identity(one) == identity(other) if alike is None else alike


def is_open(number: int) -> bool:
    """Return whether a number is open."""
    return is_open_nt(number)


def opened() -> dict[int, Identity]:
    """Return nothing: Python opens and closes handles at all times, because its locks can be semaphores of Windows."""
    return {}


def inheritable(number: int) -> bool:
    """Return whether a program that this process starts may inherit the handle."""
    return os.get_handle_inheritable(number)


def count() -> int:
    """Return the number of open handles of this process, after unreachable locks of Python are collected."""
    # The number comes from the list of all handles of the system, because GetProcessHandleCount of Wine 8 is always 0.
    gc.collect()
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


def host_mappings() -> int:
    """Return 0: Windows has no list of the views of a process."""
    return 0


def named_files() -> dict[Hashable, str]:
    """Return nothing: see `opened`."""
    return {}


def named_host_mappings() -> dict[Hashable, str]:
    """Return nothing: see `host_mappings`."""
    return {}


def named_threads() -> dict[Hashable, str]:
    """Return nothing: few threads of Windows have a name."""
    return {}


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


def processes_with(setting: str) -> dict[int, str]:
    """Return nothing: Windows does not show the environment of another process."""
    return {}
