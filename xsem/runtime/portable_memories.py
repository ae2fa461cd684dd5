"""Portable memory, on one device (docs/host-objects.md)."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from xsem.errors import XsemError
from xsem.portable import SharedMemory, new_memory, open_whole_pages, opened
from xsem.runtime.device_state import DeviceState
from xsem.spi import HostMemoryImport, Imported, ImportFailure, Token
from xsem.types import MemoryDesc, MemoryHandleType, OwnedHandle

__all__ = ["PortableMemories", "PortableMemory"]


class PortableMemory(NamedTuple):
    """The memory, and the driver's token for it."""

    memory: SharedMemory
    token: Token


class PortableMemories:
    """Makes and releases portable memory on a device."""

    def __init__(self, device_state: DeviceState, type: MemoryHandleType) -> None:
        self._driver = device_state.ability(HostMemoryImport, f"memory.import.{type.value}")

    def create(self, size: int) -> PortableMemory:
        """Allocate at least `size` bytes."""
        return self._taken(new_memory(size))

    def open(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Imported:
        """Import memory, as `MemoryImport.import_memory`; the token is a `PortableMemory`."""
        try:
            return Imported(self._taken(opened(desc, handle, lambda own: open_whole_pages(own, desc.allocation_size))),
                            handle="left")
        except XsemError as error:
            raise ImportFailure(error, handle="left") from error

    def release(self, made: PortableMemory) -> None:
        """Release the memory."""
        try:
            self._driver.release_memory(made.token)
        finally:
            made.memory.close()

    def _taken(self, memory: SharedMemory) -> PortableMemory:
        try:
            return PortableMemory(memory, self._driver.import_host_memory(memory))
        except BaseException:
            with contextlib.suppress(XsemError):
                memory.close()
            raise
