"""Devices with two types of memory and two UUIDs, with one fault each. `test_capable_objects.py` runs the suite."""

from __future__ import annotations

import dataclasses
import os
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from faults.base import Driver, List

from xsem import spi
from xsem.errors import UnsupportedError
from xsem.types import Feature, MemoryDesc, MemoryHandleType, MipmapDesc, OwnedHandle

__all__ = ["OBJECTS", "details"]


class _Two(Driver):
    """No fault: it has dma-bufs, too. They are the memory of `host`."""

    def __init__(self, inner: spi.DeviceDriver, index: int) -> None:
        super().__init__(inner)
        self.index = index
        both = frozenset({MemoryHandleType.OPAQUE_FD, MemoryHandleType.DMABUF_FD, MemoryHandleType.HOST_MEMORY_FD})
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


class _Rows(List, spi.ImageQueue):
    def append_region_copy(self, level, _region, buffer, offset, row_pitch, _slices, read, _fences, want_fence):  # type: ignore[no-untyped-def]
        mapping, rows, first, pitch = level
        for row in range(rows.rows):
            places = (buffer, offset + row * row_pitch), (mapping, first + row * pitch)
            (dst, to), (src, at) = places if read else reversed(places)
            self.inner.append_copy(dst, to, src, at, rows.row_size, (), False)
        return self.inner.append_barrier((), want_fence)


class Linear(_Two, spi.Images):
    """No fault: it maps linear dma-bufs as images of one level."""

    list_type = _Rows

    def __init__(self, inner: spi.DeviceDriver, index: int) -> None:
        super().__init__(inner, index)
        self._layouts: weakref.WeakKeyDictionary[Any, tuple[int, int, int]] = weakref.WeakKeyDictionary()
        self._declared = dataclasses.replace(
            self._declared, features=self._declared.features | {Feature.IMAGE}, image_flags=frozenset(),
            drm_modifiers=frozenset({0}))

    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Any:
        made = super().import_memory(dataclasses.replace(desc, drm_layout=None), handle)
        plane = desc.drm_layout.planes[0] if desc.drm_layout else None
        self._layouts[made.token] = desc.allocation_size, plane.offset if plane else 0, plane.pitch if plane else 0
        return made

    def map_mipmapped_array(self, memory: Any, desc: MipmapDesc) -> Any:
        size, offset, pitch = self._layouts[memory]
        return self.inner.map_buffer(memory, 0, size)[0], spi.level_layout(desc), offset, pitch

    def mipmap_level(self, array: Any, level: int) -> Any:
        return array

    def release_array(self, array: Any) -> None:
        self.inner.unmap_buffer(array[0])


class _OffsetDropped(Linear):
    """The image begins at the start of the dma-buf."""

    def map_mipmapped_array(self, memory: Any, desc: MipmapDesc) -> Any:
        mapping, rows, _, pitch = super().map_mipmapped_array(memory, desc)
        return mapping, rows, 0, pitch


class _RowsAreAdjacent(Linear):
    """The rows of the image have no padding."""

    def map_mipmapped_array(self, memory: Any, desc: MipmapDesc) -> Any:
        mapping, rows, offset, _ = super().map_mipmapped_array(memory, desc)
        return mapping, rows, offset, rows.row_size


class _LinearAndNothingElse(Linear):
    """The device declares the modifier, and maps no image with it."""

    def map_mipmapped_array(self, memory: Any, desc: MipmapDesc) -> Any:
        raise UnsupportedError("no image", capability="drm_modifiers")


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
    "linear": Linear,
    "linear_offset_dropped": _OffsetDropped,
    "linear_rows_are_adjacent": _RowsAreAdjacent,
    "linear_maps_nothing": _LinearAndNothingElse,
}


def details(fault: str, index: int) -> Mapping[str, str]:
    """Return nothing, or raise for the second device."""
    if fault == "details_of_the_second_raise" and index:
        raise KeyError("details")
    return {}
