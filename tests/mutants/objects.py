"""Devices with two types of memory and two UUIDs, with one fault each. `test_capable_objects.py` runs the suite."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

from faults.base import Driver

from xsem import spi
from xsem.types import MemoryDesc, MemoryHandleType, OwnedHandle

__all__ = ["OBJECTS", "details"]


class _Two(Driver):
    """No fault: it has dma-bufs, too. They are the memory of `host`."""

    def __init__(self, inner: spi.DeviceDriver, index: int) -> None:
        super().__init__(inner)
        self.index = index
        both = frozenset({MemoryHandleType.OPAQUE_FD, MemoryHandleType.DMABUF_FD})
        self._declared = dataclasses.replace(inner.capabilities, memory_import=both, memory_export=both)

    @property
    def capabilities(self) -> Any:
        return self._declared

    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Any:
        return self.inner.import_memory(dataclasses.replace(desc, type=MemoryHandleType.OPAQUE_FD), handle)

    def create_memory(self, type: MemoryHandleType, size: int, dedicated: bool) -> Any:
        return self.inner.create_memory(MemoryHandleType.OPAQUE_FD, size, dedicated)


def _elsewhere(type: str | None) -> type[_Two]:
    """Memory of that type, or of each type bound to a device, is other memory after its import."""

    class Elsewhere(_Two):
        def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Any:
            if desc.type.value == type or (type is None and desc.device_uuid is not None):
                made, _ = self.inner.create_memory(MemoryHandleType.OPAQUE_FD, desc.allocation_size, False)
                return spi.Imported(made, handle="left")
            return super().import_memory(desc, handle)

    return Elsewhere


def _leaking(type: str) -> type[_Two]:
    """Each import of that type leaves a file open."""

    class Leaking(_Two):
        def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Any:
            if desc.type.value == type and handle is not None:
                os.dup(handle.fileno())
            return super().import_memory(desc, handle)

    return Leaking


class _OneDlpackDevice(_Two):
    """All devices are one DLPack device."""

    def dlpack_device(self) -> tuple[int, int]:
        return (7, 0)


OBJECTS: dict[str, Callable[[spi.DeviceDriver, int], _Two]] = {
    "sound": _Two,
    "opaque_fd_elsewhere": _elsewhere("opaque_fd"),
    "dmabuf_fd_elsewhere": _elsewhere("dmabuf_fd"),
    "objects_with_a_uuid_are_elsewhere": _elsewhere(None),
    "opaque_fd_leaks": _leaking("opaque_fd"),
    "dmabuf_fd_leaks": _leaking("dmabuf_fd"),
    "one_dlpack_device": _OneDlpackDevice,
    "details_of_the_second_raise": _Two,
    "borrow_undeclared": _Two,
}


def details(fault: str, index: int) -> Mapping[str, str]:
    """Return nothing, or raise for the second device."""
    if fault == "details_of_the_second_raise" and index:
        raise KeyError("details")
    return {}
