"""Faults in the content and the flags of images."""

from __future__ import annotations

from typing import Any

import xsem_cuda.images as images
import xsem_cuda.queue as lists
from patches.base import instead, patch


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
def flag_declared_and_not_mapped() -> None:
    """The device declares depth textures, which the driver does not map."""
    images._FLAGS["depth_texture"] = "DEPTH_TEXTURE"
