"""NT objects for tests on Windows, made by kernel32 directly and not by xsem, and targets of spawned processes."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import xsem
from xsem.types import MemoryDesc, SemaphoreDesc

READWRITE, RESERVE = 0x04, 0x04000000
SYNCHRONIZE = 0x00100000
INVALID = 2**64 - 1
BOUND_S = 100.0   # a process starts slowly under Wine on a busy machine


def kernel32() -> Any:
    if sys.platform != "win32":
        raise NotImplementedError
    library = ctypes.WinDLL("kernel32", use_last_error=True)
    for name in ("CreateEventW", "CreateSemaphoreW", "CreateMutexW", "CreateFileMappingW", "GetCurrentProcess",
                 "CreateFileW", "OpenEventW"):
        library[name].restype = ctypes.c_void_p
    return library


def handle_count() -> int:
    """Return the number of open handles of this process."""
    count = ctypes.c_uint32()
    assert kernel32().GetProcessHandleCount(ctypes.c_void_p(INVALID), ctypes.byref(count))
    return count.value


def event(manual: bool = False, name: str | None = None) -> int:
    return int(kernel32().CreateEventW(None, manual, False, name))


def section(size: int = 4096, flags: int = 0, file: int = INVALID, name: str | None = None) -> int:
    return int(kernel32().CreateFileMappingW(ctypes.c_void_p(file), None, READWRITE | flags, 0, size, name))


def mutex() -> int:
    return int(kernel32().CreateMutexW(None, False, None))


def counting_semaphore() -> int:
    return int(kernel32().CreateSemaphoreW(None, 0, 9, None))


def process() -> int:
    """Return a real handle of this process."""
    return with_access(INVALID, 0x1000)


def with_access(handle: int, access: int) -> int:
    """Duplicate a handle with less access."""
    out = ctypes.c_void_p()
    me = ctypes.c_void_p(INVALID)
    assert kernel32().DuplicateHandle(me, ctypes.c_void_p(handle), me, ctypes.byref(out), access, False, 0)
    return int(out.value or 0)


def close(handle: int) -> bool:
    return bool(kernel32().CloseHandle(ctypes.c_void_p(handle)))


def is_open(handle: int) -> bool:
    flags = ctypes.c_uint32()
    return bool(kernel32().GetHandleInformation(ctypes.c_void_p(handle), ctypes.byref(flags)))


def is_signalled(handle: int) -> bool:
    """Return whether a wait without a timeout ends at once. It resets a synchronization event."""
    return int(kernel32().WaitForSingleObject(ctypes.c_void_p(handle), 0)) == 0


@contextmanager
def closing(handle: int) -> Iterator[int]:
    yield handle
    assert close(handle), "other code has closed the handle"


# ---- targets of spawned processes
def consume(timeline: SemaphoreDesc, binary: SemaphoreDesc, memory: MemoryDesc, frames: int) -> None:
    """For each frame: wait for the timeline, check and change the memory, signal the binary semaphore."""
    with xsem.open_device("host") as device:
        turns, done = device.import_semaphore(timeline), device.import_semaphore(binary)
        pixels = device.import_memory(memory).map_buffer()
        for each in (timeline, binary, memory):
            each.close()
        commands = device.create_command_list()
        for frame in range(1, frames + 1):
            turns.host_wait(frame, timeout_s=BOUND_S)
            view = pixels.numpy()
            assert (view == frame).all(), frame
            view[:] = 100 + frame
            commands.append_signal(done)
            commands.synchronize(timeout_s=BOUND_S)


def wait_for_ever(timeline: SemaphoreDesc, begun: SemaphoreDesc) -> None:
    with xsem.open_device("host") as device:
        turns = device.import_semaphore(timeline)
        device.import_semaphore(begun).host_signal()
        turns.host_wait(1000, timeout_s=600)
