"""Images in external memory, by clCreateImageWithProperties."""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import byref, c_uint32
from dataclasses import replace
from typing import Final

from xsem.errors import UnsupportedError
from xsem.spi import ImageRegion, level_layout
from xsem.types import Capabilities, Feature, MipmapDesc
from xsem_opencl import cl
from xsem_opencl.core import Core
from xsem_opencl.file_descriptors import GivenFd
from xsem_opencl.memory import Memory, memory_properties

__all__ = ["Box", "Image", "image_desc", "image_format", "make_image", "supported", "with_formats"]

_2D, _3D, _2D_ARRAY, _1D, _1D_ARRAY = 0x10F1, 0x10F2, 0x10F3, 0x10F4, 0x10F5
_ORDERS: Final = {1: 0x10B0, 2: 0x10B2, 4: 0x10B5}  # CL_R, CL_RG, CL_RGBA
_DEPTH: Final = 0x10BD
_TYPES: Final = {
    "int8": 0x10D7, "int16": 0x10D8, "int32": 0x10D9, "uint8": 0x10DA, "uint16": 0x10DB, "uint32": 0x10DC,
    "float16": 0x10DD, "float32": 0x10DE, "snorm8": 0x10D0, "snorm16": 0x10D1, "unorm8": 0x10D2, "unorm16": 0x10D3,
}
_DEPTH_TYPES: Final = frozenset({_TYPES["unorm16"], _TYPES["float32"]})


Box = tuple[int, int, int]


# An image is created from the handle of the memory, not from an offset in it, so it begins at the start of the memory.
# The extension defines no mipmap levels, so an image has one level.
class Image:
    """A cl_mem, which also stands for the image's only level."""

    __slots__ = ("_fd", "_memory", "desc", "element_size", "handle")

    def __init__(self, handle: int, desc: MipmapDesc, memory: Memory, fd: GivenFd) -> None:
        self.handle = handle
        self.desc = desc
        self.element_size = level_layout(desc).element_size
        self._memory = memory
        self._fd = fd

    @property
    def has_slices(self) -> bool:
        """Whether clEnqueueReadImage takes a slice pitch: for images of three dimensions and images with layers."""
        return self.desc.layers > 0 or self.desc.extent[2] > 0

    @property
    def counts_layers_as_rows(self) -> bool:
        """Whether a region of OpenCL's functions has the layers in place of rows: for images of one dimension."""
        return self.desc.layers > 0 and not self.desc.extent[1]

    def box(self, region: ImageRegion) -> tuple[Box, Box]:
        """Return the origin and the region of OpenCL's functions, in which one of the components counts the layers."""
        (x, y, z), (width, height, depth) = region.offset, region.extent
        if self.counts_layers_as_rows:
            return (x, region.layer, 0), (width, region.layers, 1)
        return (x, y, z + region.layer), (width, height, depth * region.layers)

    def release(self, core: Core) -> None:
        """Call clReleaseMemObject."""
        self._memory.images.discard(self.handle)
        self._fd.object_goes()
        core.api.do("clReleaseMemObject", self.handle)
        self._fd.object_gone()


def image_format(desc: MipmapDesc) -> cl.ImageFormat:
    """Return the cl_image_format."""
    # CL_UNORM_INT_101010_2 has red in the highest bits, not in the lowest. No extension of Khronos defines images of
    # blocks or of several planes.
    if desc.format not in _TYPES:
        raise UnsupportedError(f"OpenCL has no image format for {desc.format}", capability="mipmapped_array.format",
                               reason="not_supported")
    return cl.ImageFormat(_DEPTH if desc.depth_texture else _ORDERS[desc.channels], _TYPES[desc.format])


def with_formats(core: Core, capabilities: Capabilities) -> Capabilities:
    """Return the capabilities with the formats and flags of images of clGetSupportedImageFormats."""
    if Feature.IMAGE not in capabilities.features:
        return capabilities
    count = c_uint32()
    query = (core.context, cl.MEM_READ_WRITE, _2D)
    core.api.do("clGetSupportedImageFormats", *query, 0, None, byref(count))
    found = (cl.ImageFormat * max(1, count.value))()
    core.api.do("clGetSupportedImageFormats", *query, count.value, found, None)
    formats, flags = supported((each.channel_order, each.channel_data_type) for each in found[:count.value])
    return replace(capabilities, image_formats=formats, image_flags=flags)


def supported(formats: Iterable[tuple[int, int]]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the formats and flags of MipmapDesc for the (order, type) pairs of clGetSupportedImageFormats."""
    pairs = set(formats)
    orders = set(_ORDERS.values())
    depth = any((_DEPTH, each) in pairs for each in _DEPTH_TYPES)
    return (frozenset(name for name, type in _TYPES.items() if any((order, type) in pairs for order in orders)),
            frozenset({"surface_load_store", *({"depth_texture"} if depth else ())}))


def image_desc(desc: MipmapDesc) -> cl.ImageDesc:
    """Return the cl_image_desc."""
    if desc.beyond_image:
        raise UnsupportedError(f"OpenCL supports no image with {desc.beyond_image} in imported memory",
                               capability="mipmapped_array", reason="not_supported")
    width, height, depth = desc.extent
    if depth:
        kind = _3D
    elif height:
        kind = _2D_ARRAY if desc.layers else _2D
    else:
        kind = _1D_ARRAY if desc.layers else _1D
    # The driver chooses the pitches, because the descriptor does not specify them.
    return cl.ImageDesc(type=kind, width=width, height=height, depth=depth, array_size=desc.layers)


def make_image(core: Core, memory: Memory, desc: MipmapDesc) -> Image:
    """Call clCreateImageWithProperties with a duplicate of the memory's fd."""
    wanted = image_desc(desc)
    if memory.fd is None:
        raise UnsupportedError("an image needs memory imported from a file descriptor", capability="mipmapped_array",
                               reason="not_supported")
    format_, given = image_format(desc), memory.fd.another()
    try:
        fd = GivenFd(given, ours=True)
    except BaseException:
        given.close()
        raise
    try:
        made = core.api.make(cl.CREATE_IMAGE, core.context, memory_properties(core, memory.desc, fd.given.fileno()),
                             cl.MEM_READ_WRITE, byref(format_), byref(wanted), None)
    except BaseException:
        fd.refused()
        raise
    fd.imported()
    memory.images.add(made)
    return Image(made, desc, memory, fd)
