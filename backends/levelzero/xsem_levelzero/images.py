"""Images in external memory, by zeImageCreate.

An image is created from the handle of the memory, not from a pointer into it. Therefore it begins at the start of the
memory. Level Zero defines no layout for a chain of levels in imported memory. Therefore an image has one level.
"""

from __future__ import annotations

import ctypes
from ctypes import byref
from typing import Final

from xsem.errors import UnsupportedError
from xsem.spi import DriverFd, ImageRegion, duplicate_fd
from xsem.types import MipmapDesc
from xsem_levelzero import ze
from xsem_levelzero.core import Core
from xsem_levelzero.memory import Memory, memory_struct

__all__ = ["Image", "image_desc", "image_region", "make_image"]

_1D, _1D_ARRAY, _2D, _2D_ARRAY, _3D = 0, 1, 2, 3, 4
# Layouts by bits per component, for 1, 2 and 4 components.
_LAYOUTS: Final = {8: {1: 0, 2: 3, 4: 4}, 16: {1: 1, 2: 5, 4: 6}, 32: {1: 2, 2: 7, 4: 8}}
_COMPONENTS: Final = {"uint": 0, "int": 1, "float": 4}
_ZERO, _ONE = 4, 5


class Image:
    """A ze_image_handle_t. The object also stands for the image's only level.

    Attributes
    ----------
    handle : int
    element_size : int
        Bytes of an element.
    """

    __slots__ = ("element_size", "handle")

    def __init__(self, handle: int, element_size: int) -> None:
        self.handle = handle
        self.element_size = element_size

    def destroy(self, core: Core) -> None:
        """Call zeImageDestroy."""
        core.loader.do("zeImageDestroy", self.handle)


def image_desc(desc: MipmapDesc) -> ze.ImageDesc:
    """Return the ze_image_desc_t of a descriptor.

    Raises
    ------
    UnsupportedError
        ``not_supported``: levels, an offset, a cubemap or a colour attachment.
    """
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
    component, bits = _component(desc)
    swizzle = [each if each < desc.channels else (_ONE if each == 3 else _ZERO) for each in range(4)]
    return ze.ImageDesc.made(
        flags=1,  # kernels may write to it
        type=kind, width=width, height=max(1, height), depth=max(1, depth), arraylevels=desc.layers, miplevels=0,
        format=ze.ImageFormat(_LAYOUTS[bits][desc.channels], _COMPONENTS[component], *swizzle),
    )


def image_region(region: ImageRegion) -> ze.ImageRegion:
    """Return the ze_image_region_t of a region. For an image with layers, z and the depth count the layers."""
    (x, y, z), (width, height, _) = region.offset, region.extent
    return ze.ImageRegion(x, y, z + region.layer, width, height, region.slices)


def _component(desc: MipmapDesc) -> tuple[str, int]:
    """Return the kind of a component, for example "uint", and its bits."""
    kind = desc.format.rstrip("0123456789")
    return kind, int(desc.format.removeprefix(kind))


def make_image(core: Core, memory: Memory, desc: MipmapDesc) -> Image:
    """Call zeImageCreate with a duplicate of the memory's fd. The memory keeps its own fd on success and on failure.

    Raises
    ------
    UnsupportedError
        ``not_supported``: see `image_desc`; or the memory was not imported from an fd.
    """
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
        return Image(made, desc.channels * _component(desc)[1] // 8)
    finally:
        fd.settle()
