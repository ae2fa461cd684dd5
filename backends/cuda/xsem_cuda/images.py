"""Images: mipmapped arrays on external memory, and copies of their levels to and from the host."""

from __future__ import annotations

from typing import Any, Final

from xsem.errors import BadArgumentError
from xsem.types import MipmapDesc
from xsem_cuda.context import Context
from xsem_cuda.handles import DriverObject
from xsem_cuda.results import call

__all__ = ["ArrayToken", "LevelToken", "level_copy", "level_of", "mipmap_descriptor"]

# The formats of MipmapDesc: CUDA's enumerator, and bytes per component.
_FORMATS: Final = {
    "uint8": ("CU_AD_FORMAT_UNSIGNED_INT8", 1),
    "uint16": ("CU_AD_FORMAT_UNSIGNED_INT16", 2),
    "uint32": ("CU_AD_FORMAT_UNSIGNED_INT32", 4),
    "int8": ("CU_AD_FORMAT_SIGNED_INT8", 1),
    "int16": ("CU_AD_FORMAT_SIGNED_INT16", 2),
    "int32": ("CU_AD_FORMAT_SIGNED_INT32", 4),
    "float16": ("CU_AD_FORMAT_HALF", 2),
    "float32": ("CU_AD_FORMAT_FLOAT", 4),
}

# Size of a GPU's block of pixels. The driver maps an image at offset 256, and the first copy of it loses the context
# (measured on an H200: CUDA_ERROR_LAUNCH_FAILED). Offsets 512, 1024, 4096 and 69632 work.
_ALIGNMENT: Final = 512


class ArrayToken(DriverObject):
    """A mapped CUmipmappedArray and its layout.

    Attributes
    ----------
    desc : MipmapDesc
    element_size : int
        Bytes per pixel.
    """

    __slots__ = ("desc", "element_size")

    def __init__(self, native: Any, desc: MipmapDesc) -> None:
        super().__init__(native)
        self.desc = desc
        self.element_size = _FORMATS[desc.format][1] * desc.channels


class LevelToken:
    """One level of an image. It needs no release: the image owns its CUarray.

    Attributes
    ----------
    native : CUarray
    address : int
        The CUarray as a number.
    row_size : int
        Bytes per row.
    rows : int
        Rows per slice or layer.
    depth : int
        Number of slices or layers.
    """

    __slots__ = ("address", "depth", "native", "row_size", "rows")

    def __init__(self, native: Any, array: ArrayToken, level: int) -> None:
        width, height, depth = (max(1, length >> level) for length in array.desc.extent)
        self.native = native
        self.address = int(native)
        self.row_size = width * array.element_size
        self.rows = height
        self.depth = array.desc.layers or depth


def mipmap_descriptor(driver: Any, desc: MipmapDesc) -> Any:
    """Return the CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC of an image.

    Raises
    ------
    BadArgumentError
        ``bad_offset``: the offset is not a multiple of 512 bytes.
    """
    width, height, depth = desc.extent
    if desc.offset % _ALIGNMENT:
        raise BadArgumentError(
            f"an image's offset must be a multiple of {_ALIGNMENT} bytes, not {desc.offset}: this is the size of the "
            "GPU's blocks of pixels", reason="bad_offset",
        )
    native = driver.CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC()
    native.offset = desc.offset
    native.numLevels = desc.levels
    array = native.arrayDesc
    array.Width, array.Height = width, height
    array.Depth = desc.layers or depth
    array.Format = getattr(driver.CUarray_format, _FORMATS[desc.format][0])
    array.NumChannels = desc.channels
    flags = 0
    if desc.layers and not (desc.cubemap and desc.layers == 6):  # the six layers of a cubemap are its faces
        flags |= int(driver.CUDA_ARRAY3D_LAYERED)
    if desc.cubemap:
        flags |= int(driver.CUDA_ARRAY3D_CUBEMAP)
    if desc.surface_load_store:
        flags |= int(driver.CUDA_ARRAY3D_SURFACE_LDST)
    if desc.color_attachment:
        flags |= int(driver.CUDA_ARRAY3D_COLOR_ATTACHMENT)
    array.Flags = flags
    return native


def level_of(driver: Any, context: Context, array: ArrayToken, level: int) -> LevelToken:
    """Call cuMipmappedArrayGetLevel for level `level` of the image."""
    with context, context.quiet:
        return LevelToken(call(driver.cuMipmappedArrayGetLevel, array.native, level), array, level)


def level_copy(driver: Any, level: LevelToken, address: int, *, read: bool) -> Any:
    """Return the CUDA_MEMCPY3D of a whole level.

    Parameters
    ----------
    driver : module
        ``cuda.bindings.driver``.
    level : LevelToken
    address : int
        Address of page-locked host memory. Its rows have no padding.
    read : bool
        True: copy from the level to the host memory. False: the reverse.
    """
    copy = driver.CUDA_MEMCPY3D()
    types = driver.CUmemorytype
    if read:
        copy.srcMemoryType, copy.srcArray = types.CU_MEMORYTYPE_ARRAY, level.native
        copy.dstMemoryType, copy.dstHost = types.CU_MEMORYTYPE_HOST, address
        copy.dstPitch, copy.dstHeight = level.row_size, level.rows
    else:
        copy.srcMemoryType, copy.srcHost = types.CU_MEMORYTYPE_HOST, address
        copy.srcPitch, copy.srcHeight = level.row_size, level.rows
        copy.dstMemoryType, copy.dstArray = types.CU_MEMORYTYPE_ARRAY, level.native
    copy.WidthInBytes, copy.Height, copy.Depth = level.row_size, level.rows, level.depth
    return copy
