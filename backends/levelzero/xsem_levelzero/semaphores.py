"""Semaphores: imports, and structs for the driver."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, cast

from xsem.spi import DriverFd
from xsem.types import MemoryDesc, OsHandleKind, OwnedHandle, SemaphoreDesc, SemaphoreHandleType
from xsem_levelzero import ze
from xsem_levelzero.core import Core

__all__ = ["Batches", "Semaphore", "handle_number", "import_fd", "import_semaphore", "semaphore_struct", "win32_name"]


class Semaphore:
    """An imported semaphore: a ze_external_semaphore_ext_handle_t."""

    __slots__ = ("handle", "type")

    def __init__(self, handle: int, type: SemaphoreHandleType) -> None:
        self.handle = handle
        self.type = type

    def release(self, core: Core) -> None:
        """Call zeDeviceReleaseExternalSemaphoreExt. No appended operation may still use the semaphore."""
        core.extension.release_semaphore(self.handle)


def import_semaphore(core: Core, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Semaphore:
    """Import a semaphore. Without `handle`, `desc` has neither an fd nor an NT handle."""
    struct = semaphore_struct(desc, handle_number(desc, handle))
    return Semaphore(core.extension.import_semaphore(core.extension_device, struct), desc.type)


def import_fd(core: Core, type: SemaphoreHandleType, given: OwnedHandle, kept: OwnedHandle) -> int:
    """Import the fd `given`, and close it unless the driver did. `kept` is another number of the same open file."""
    fd = DriverFd(given, kept)
    desc = SemaphoreDesc(type=type, handle=fd.number)
    try:
        return core.extension.import_semaphore(core.extension_device, semaphore_struct(desc, fd.number))
    finally:
        fd.settle()


def semaphore_struct(desc: SemaphoreDesc, number: int | None) -> ze.ExternalSemaphoreDesc:
    """Return a ze_external_semaphore_ext_desc_t with its linked struct; `number` is None for a named object."""
    # Exactly one flag, and the handle's struct first in the chain: Intel's driver reads only that one.
    flags = desc.type.native["levelzero"][1]
    handle: ze.Base
    if desc.type.os_handle_kind is OsHandleKind.FD:
        handle = ze.ExternalSemaphoreFdDesc.made(fd=number)
    else:
        handle = ze.ExternalSemaphoreWin32Desc.made(handle=number)
        if desc.name is not None:
            win32_name(handle, desc.name.encode() + b"\0")  # const char*
    return ze.ExternalSemaphoreDesc.made(flags=flags, pNext=handle)


def win32_name(struct: Any, name: bytes) -> None:
    """Put the address of a name into a struct. The struct keeps the bytes alive."""
    struct.kept_name = ctypes.create_string_buffer(name, len(name))
    struct.name = ctypes.addressof(struct.kept_name)


def handle_number(desc: SemaphoreDesc | MemoryDesc, handle: OwnedHandle | None) -> int | None:
    """Return the number of the duplicate. Without one, return the KMT handle, or None for a named object."""
    return cast("int | None", desc.handle) if handle is None else handle.fileno()


class Batches:
    """Parameter structs of one list, for signals or for waits.

    The structs are reused: the appends of one list never overlap, and the driver has read the structs when its call
    returns.
    """

    def __init__(self, struct: type[ze.Base]) -> None:
        self._struct = struct
        self._by_count: dict[int, Any] = {}

    def fill(self, semaphores: Sequence[Semaphore], params: Sequence[Any]) -> Any:
        """Return a contiguous array of structs. The value is 0 for a binary semaphore."""
        count = len(semaphores)
        structs = self._by_count.get(count)
        if structs is None:
            structs = self._by_count[count] = (self._struct * count)()
            for each in structs:
                each.stype = self._struct.STYPE
        for each, param in zip(structs, params, strict=True):
            each.value = param.value or 0
        return structs
