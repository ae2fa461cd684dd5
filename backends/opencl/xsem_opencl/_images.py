"""Images in external memory, by clCreateImageWithProperties, and copies of them to and from the host.

An image is made from the memory's handle, not from a place in it, so it begins where the memory does; and the extension
has no levels, so an image has one.
"""

from __future__ import annotations

from ctypes import byref
from typing import Final

from xsem.errors import UnsupportedError
from xsem.types import MipmapDesc
from xsem_opencl import _cl as cl
from xsem_opencl._core import Core
from xsem_opencl._fds import GivenFd
from xsem_opencl._memory import Memory, memory_properties

__all__ = ["Image", "image_desc", "image_format", "make_image"]

_2D, _3D, _2D_ARRAY, _1D, _1D_ARRAY = 0x10F1, 0x10F2, 0x10F3, 0x10F4, 0x10F5
_ORDERS: Final = {1: 0x10B0, 2: 0x10B2, 4: 0x10B5}  # CL_R, CL_RG, CL_RGBA
_TYPES: Final = {
    "int8": 0x10D7, "int16": 0x10D8, "int32": 0x10D9, "uint8": 0x10DA, "uint16": 0x10DB, "uint32": 0x10DC,
    "float16": 0x10DD, "float32": 0x10DE,
}


class Image:
    """A cl_mem, released once. It is its one level, too.

    Attributes
    ----------
    handle : int
    region : tuple of int
        What clEnqueueReadImage copies: all of it.
    """

    __slots__ = ("_fd", "_left", "_memory", "handle", "region")

    def __init__(self, handle: int, region: tuple[int, int, int], memory: Memory, fd: GivenFd) -> None:
        self.handle = handle
        self.region = region
        self._memory = memory
        self._fd = fd
        self._left = [handle]

    def release(self, core: Core) -> None:
        """Call clReleaseMemObject, the first time."""
        try:
            handle = self._left.pop()
        except IndexError:
            return
        self._memory.images.discard(handle)
        self._fd.object_goes()
        core.api.do("clReleaseMemObject", handle)
        self._fd.object_gone()


def image_format(desc: MipmapDesc) -> cl.ImageFormat:
    """cl_image_format: components as they are, not as fractions of 1."""
    return cl.ImageFormat(_ORDERS[desc.channels], _TYPES[desc.format])


def image_desc(desc: MipmapDesc) -> tuple[cl.ImageDesc, tuple[int, int, int]]:
    """cl_image_desc, and the region of all of it. The pitches are the driver's: the descriptor tells none.

    Raises
    ------
    UnsupportedError
        ``not_supported``: levels, an offset, a cubemap or a colour attachment.
    """
    if desc.beyond_image:
        raise UnsupportedError(f"OpenCL makes no image with {desc.beyond_image} in imported memory",
                               capability="mipmapped_array", reason="not_supported")
    width, height, depth = desc.extent
    if depth:
        kind, region = _3D, (width, height, depth)
    elif height:
        kind, region = (_2D_ARRAY if desc.layers else _2D), (width, height, max(1, desc.layers))
    else:
        # The rows of a region count the layers of one dimension.
        kind, region = (_1D_ARRAY if desc.layers else _1D), (width, max(1, desc.layers), 1)
    return cl.ImageDesc(type=kind, width=width, height=height, depth=depth, array_size=desc.layers), region


def make_image(core: Core, memory: Memory, desc: MipmapDesc) -> Image:
    """Call clCreateImageWithProperties on a duplicate of the memory's fd.

    Raises
    ------
    UnsupportedError
        ``not_supported``: see `image_desc`; or memory that came by no fd.
    """
    wanted, region = image_desc(desc)
    if memory.fd is None:
        raise UnsupportedError("an image is made from a file descriptor here", capability="mipmapped_array",
                               reason="not_supported")
    format_, given = image_format(desc), memory.fd.another()
    try:
        fd = GivenFd(given, ours=True)
    except BaseException:
        given.close()
        raise
    try:
        made = core.api.make(cl.CREATE_IMAGE, core.context, memory_properties(core, memory.desc, given.fileno()),
                             cl.MEM_READ_WRITE, byref(format_), byref(wanted), None)
    except BaseException:
        fd.refused()
        raise
    fd.imported()
    memory.images.add(made)
    return Image(made, region, memory, fd)
