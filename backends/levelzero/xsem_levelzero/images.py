"""Images in external memory, by zeImageCreate.

An image is created from the handle of the memory, not from a pointer into it, so it begins at the start of the memory.
Level Zero defines no layout for a chain of levels in imported memory, so an image has one level.
"""

from __future__ import annotations

import ctypes
from ctypes import byref
from typing import Final

from xsem.errors import UnsupportedError
from xsem.spi import DriverFd, ImageRegion, duplicate_fd, level_layout
from xsem.types import MipmapDesc
from xsem_levelzero import ze
from xsem_levelzero.core import Core
from xsem_levelzero.memory import Memory, memory_struct

__all__ = ["FLAGS", "FORMATS", "Image", "image_desc", "image_region", "make_image"]

_1D, _1D_ARRAY, _2D, _2D_ARRAY, _3D = 0, 1, 2, 3, 4
# Layouts by bits per component, for 1, 2 and 4 components.
_LAYOUTS: Final = {8: {1: 0, 2: 3, 4: 4}, 16: {1: 1, 2: 5, 4: 6}, 32: {1: 2, 2: 7, 4: 8}}
_PACKED: Final = {"unorm_10_10_10_2": 9}
# ze_image_format_type_t and bits per component.
_COMPONENTS: Final = {
    "uint8": (0, 8), "uint16": (0, 16), "uint32": (0, 32), "int8": (1, 8), "int16": (1, 16), "int32": (1, 32),
    "unorm8": (2, 8), "unorm16": (2, 16), "unorm_10_10_10_2": (2, 0), "snorm8": (3, 8), "snorm16": (3, 16),
    "float16": (4, 16), "float32": (4, 32),
}
# ze_image_format_layout_t has no layouts of blocks or depth. Images of planes need views.
FORMATS: Final = frozenset(_COMPONENTS)
FLAGS: Final = frozenset({"surface_load_store"})   # ze_image_desc_t has no other
_ZERO, _ONE = 4, 5


class Image:
    """A ze_image_handle_t. The object also stands for the image's only level."""

    __slots__ = ("element_size", "handle")

    def __init__(self, handle: int, element_size: int) -> None:
        self.handle = handle
        self.element_size = element_size   # in bytes

    def destroy(self, core: Core) -> None:
        """Call zeImageDestroy."""
        core.destroy("zeImageDestroy", self.handle)


def image_desc(desc: MipmapDesc) -> ze.ImageDesc:
    """Return the ze_image_desc_t of a descriptor, or refuse what Level Zero lacks."""
    if desc.beyond_image:
        raise UnsupportedError(f"Level Zero supports no image with {desc.beyond_image} in imported memory",
                               capability="mipmapped_array", reason="not_supported")
    width, height, depth = desc.extent
    if depth:
        kind = _3D
    elif height:
        kind = _2D_ARRAY if desc.layers else _2D
    else:
        kind = _1D_ARRAY if desc.layers else _1D
    if desc.format not in _COMPONENTS or desc.depth_texture:
        what = "depth images" if desc.depth_texture else f"images of the format {desc.format}"
        raise UnsupportedError(f"Level Zero has no layout for {what}", capability="mipmapped_array.format",
                               reason="not_supported")
    type_, bits = _COMPONENTS[desc.format]
    layout = _PACKED[desc.format] if desc.format in _PACKED else _LAYOUTS[bits][desc.channels]
    swizzle = [each if each < desc.channels else (_ONE if each == 3 else _ZERO) for each in range(4)]
    return ze.ImageDesc.made(
        flags=1,  # kernels may write to it
        type=kind, width=width, height=max(1, height), depth=max(1, depth), arraylevels=desc.layers, miplevels=0,
        format=ze.ImageFormat(layout, type_, *swizzle),
    )


def image_region(region: ImageRegion) -> ze.ImageRegion:
    """Return the ze_image_region_t of a region. For an image with layers, z and the depth count the layers."""
    (x, y, z), (width, height, _) = region.offset, region.extent
    return ze.ImageRegion(x, y, z + region.layer, width, height, region.slices)


def make_image(core: Core, memory: Memory, desc: MipmapDesc) -> Image:
    """Call zeImageCreate with a duplicate of the memory's fd. The memory keeps its own fd on success and on failure."""
    wanted = image_desc(desc)
    if memory.kept is None:
        raise UnsupportedError("an image needs memory imported from a file descriptor", capability="mipmapped_array",
                               reason="not_supported")
    # Intel's driver may crash on an fd that it does not accept. It has accepted this fd as memory before.
    fd = DriverFd(duplicate_fd(memory.kept.fileno()), memory.kept)
    linked = memory_struct(memory.desc, fd.number)
    wanted.pNext = ctypes.addressof(linked)
    try:
        made = core.loader.make("zeImageCreate", core.context, core.device, byref(wanted))
        return Image(made, level_layout(desc).element_size)
    finally:
        fd.settle()
