"""The handle types by the kind of their OS handle, and descriptors of each of them."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from xsem.errors import XsemError
from xsem.types import MemoryDesc, MemoryHandleType, OsHandleKind, SemaphoreDesc, SemaphoreHandleType

ALL: list[SemaphoreHandleType | MemoryHandleType] = [*SemaphoreHandleType, *MemoryHandleType]
FD = [member for member in ALL if member.os_handle_kind is OsHandleKind.FD]
NT = [member for member in ALL if member.os_handle_kind is OsHandleKind.NT]
KMT = [member for member in ALL if member.os_handle_kind is OsHandleKind.KMT]
OF_SYSTEM = NT if sys.platform == "win32" else FD   # the kind that this system can open
OF_DRIVER = [member for member in OF_SYSTEM if not member.portable]   # without those that xsem opens itself
NVSCI = [member for member in ALL if member.os_handle_kind is OsHandleKind.NVSCI]


def named(member: SemaphoreHandleType | MemoryHandleType) -> str:
    return f"{type(member).__name__.removesuffix('HandleType')}-{member.name}"


def make(member: SemaphoreHandleType | MemoryHandleType, **fields: Any) -> SemaphoreDesc | MemoryDesc:
    if isinstance(member, SemaphoreHandleType):
        return SemaphoreDesc(type=member, **fields)
    return MemoryDesc(type=member, **{"allocation_size": 4096, **fields})


def error_of(member: SemaphoreHandleType | MemoryHandleType, **fields: Any) -> XsemError:
    with pytest.raises(XsemError) as caught:
        make(member, **fields)
    return caught.value
