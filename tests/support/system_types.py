"""What differs between the systems: the handle types of the host device, and the C library of Python."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import xsem
from xsem.types import MemoryDesc, MemoryHandleType, SemaphoreDesc, SemaphoreHandleType

__all__ = ["BINARY", "C_LIBRARY", "MEMORY", "TIMELINE", "binary", "binary_of", "memory_of", "timeline"]

_WINDOWS = sys.platform == "win32"
BINARY = SemaphoreHandleType.OPAQUE_WIN32 if _WINDOWS else SemaphoreHandleType.OPAQUE_FD
TIMELINE = SemaphoreHandleType.TIMELINE_SEMAPHORE_WIN32 if _WINDOWS else SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
MEMORY = MemoryHandleType.OPAQUE_WIN32 if _WINDOWS else MemoryHandleType.OPAQUE_FD
C_LIBRARY = ctypes.CDLL("ucrtbase" if _WINDOWS else None, use_errno=True)


def timeline(device: xsem.Device) -> xsem.Semaphore:
    return device.create_semaphore(TIMELINE)


def binary(device: xsem.Device) -> xsem.Semaphore:
    return device.create_semaphore(BINARY)


def binary_of(handle: Any, **fields: Any) -> SemaphoreDesc:
    """Describe a binary semaphore by its handle."""
    return SemaphoreDesc(type=BINARY, handle=handle, **fields)


def memory_of(handle: Any, size: int, **fields: Any) -> MemoryDesc:
    """Describe memory by its handle."""
    return MemoryDesc(type=MEMORY, handle=handle, allocation_size=size, **fields)
