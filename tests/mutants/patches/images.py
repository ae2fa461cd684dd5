"""Faults in images: their offsets, the content of their levels, and copies of regions."""

from __future__ import annotations

from typing import Any

import xsem_cuda.images as images
import xsem_cuda.queue as lists
from patches.base import instead, patch


@patch
def image_offset_dropped() -> None:
    """An image begins where the memory begins."""
    @instead(images, "mipmap_descriptor")
    def describe(before: Any, driver: Any, desc: Any) -> Any:
        native = before(driver, desc)
        native.offset = 0
        return native


@patch
def image_bytes_not_read() -> None:
    """Some bytes of an image of some formats are not read."""
    @instead(lists, "region_copy")
    def region_copy(before: Any, driver: Any, level: Any, region: Any, *args: Any, read: bool) -> Any:
        native = before(driver, level, region, *args, read=read)
        if read and native.WidthInBytes % 16 == 0 and native.Height == 17:
            native.WidthInBytes -= 8
        return native


@patch
def layers_are_one() -> None:
    """Only the first layer or slice of an image is copied."""
    @instead(lists, "region_copy")
    def region_copy(before: Any, *args: Any, read: bool) -> Any:
        native = before(*args, read=read)
        native.Depth = 1
        return native


@patch
def region_offset_dropped() -> None:
    """A copy of a region begins at the first element of the level."""
    @instead(images, "_position")
    def position(before: Any, level: Any, region: Any) -> Any:
        return 0, 0, before(level, region)[2]


@patch
def region_layer_dropped() -> None:
    """A copy of a region begins in the first layer."""
    @instead(images, "_position")
    def position(before: Any, level: Any, region: Any) -> Any:
        return (*before(level, region)[:2], region.offset[2])


@patch
def region_counts_elements() -> None:
    """The position of a region is in elements instead of bytes."""
    @instead(images, "_position")
    def position(before: Any, level: Any, region: Any) -> Any:
        return (region.offset[0], *before(level, region)[1:])


@patch
def region_pitch_dropped() -> None:
    """A copy of a region takes the rows of the buffer without padding."""
    @instead(lists, "region_copy")
    def region_copy(before: Any, driver: Any, level: Any, region: Any, address: int, *pitches: int, read: bool) -> Any:
        row = region.extent[0] * level.element_size
        return before(driver, level, region, address, row, row * region.extent[1], read=read)


@patch
def region_slice_pitch_dropped() -> None:
    """A copy of a region takes the slices of the buffer without padding."""
    @instead(lists, "region_copy")
    def region_copy(
        before: Any, driver: Any, level: Any, region: Any, address: int, row: int, _slice: int, *, read: bool
    ) -> Any:
        return before(driver, level, region, address, row, row * region.extent[1], read=read)


@patch
def region_written_as_read() -> None:
    """A copy of a region to a level copies the level to the buffer."""
    @instead(lists, "region_copy")
    def region_copy(before: Any, *args: Any, read: bool) -> Any:
        return before(*args, read=True)


@patch
def images_copied_backwards() -> None:
    """Source and destination of a copy between levels are exchanged."""
    @instead(lists, "image_copy")
    def image_copy(before: Any, driver: Any, dst: Any, dst_region: Any, src: Any, src_region: Any) -> Any:
        return before(driver, src, src_region, dst, dst_region)


@patch
def images_copied_at_one_place() -> None:
    """A copy between levels takes the region of the destination in both."""
    @instead(lists, "image_copy")
    def image_copy(before: Any, driver: Any, dst: Any, dst_region: Any, src: Any, src_region: Any) -> Any:
        return before(driver, dst, dst_region, src, dst_region)


@patch
def regions_copied_without_fences() -> None:
    """Copies of regions do not wait for their fences."""
    @instead(lists.StreamQueue, "append_region_copy")
    def append_region_copy(before: Any, self: Any, *args: Any) -> Any:
        *given, _fences, want_fence = args
        return before(self, *given, (), want_fence)


@patch
def images_copied_without_fences() -> None:
    """Copies between levels do not wait for their fences."""
    @instead(lists.StreamQueue, "append_image_copy")
    def append_image_copy(before: Any, self: Any, *args: Any) -> Any:
        *given, _fences, want_fence = args
        return before(self, *given, (), want_fence)


@patch
def flag_declared_and_not_mapped() -> None:
    """The device declares depth textures, which the driver does not map."""
    images._FLAGS["depth_texture"] = "DEPTH_TEXTURE"


@patch
def flag_gives_a_smaller_image() -> None:
    """An image for video has only half of its rows."""
    @instead(images, "mipmap_descriptor")
    def describe(before: Any, driver: Any, desc: Any) -> Any:
        native = before(driver, desc)
        if desc.video:
            native.arrayDesc.Height //= 2
        return native
