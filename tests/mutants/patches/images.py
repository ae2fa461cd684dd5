"""Faults in images: their offsets and the content of their levels."""

from __future__ import annotations

from typing import Any

import xsem_cuda.device as device
import xsem_cuda.queue as lists
from patches.base import instead, patch
from xsem_cuda.images import LevelToken


@patch
def image_offset_dropped() -> None:
    """An image begins where the memory begins."""
    @instead(device, "mipmap_descriptor")
    def describe(before: Any, driver: Any, desc: Any) -> Any:
        native = before(driver, desc)
        native.offset = 0
        return native


@patch
def image_bytes_not_read() -> None:
    """Some bytes of an image of some formats are not read."""
    @instead(lists, "level_copy")
    def level_copy(before: Any, driver: Any, level: Any, address: Any, *, read: bool) -> Any:
        native = before(driver, level, address, read=read)
        if read and level.row_size % 16 == 0 and level.rows == 17:
            native.WidthInBytes -= 8
        return native


@patch
def layers_are_one() -> None:
    """Only the first layer or slice of an image is copied."""
    @instead(LevelToken, "__init__")
    def init(before: Any, self: Any, *args: Any) -> None:
        before(self, *args)
        self.depth = 1
