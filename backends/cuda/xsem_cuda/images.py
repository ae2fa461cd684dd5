"""Images: mipmapped arrays on external memory, and copies of their levels."""

from __future__ import annotations

from typing import Any, Final

from xsem.errors import BadArgumentError
from xsem.spi import ImageRegion
from xsem.types import MipmapDesc
from xsem_cuda.context import Context
from xsem_cuda.handles import DriverObject
from xsem_cuda.results import call

__all__ = ["ArrayToken", "LevelToken", "image_copy", "level_copy", "level_of", "mipmap_descriptor", "region_copy"]

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
    element_size : int
        Bytes per pixel.
    """

    __slots__ = ("address", "depth", "element_size", "native", "row_size", "rows")

    def __init__(self, native: Any, array: ArrayToken, level: int) -> None:
        width, height, depth = (max(1, length >> level) for length in array.desc.extent)
        self.native = native
        self.address = int(native)
        self.element_size = array.element_size
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


def region_copy(
    driver: Any, level: LevelToken, region: ImageRegion, address: int, row_pitch: int, slice_pitch: int, *, read: bool
) -> Any:
    """Return the CUDA_MEMCPY3D of a region of a level.

    Parameters
    ----------
    driver : module
        ``cuda.bindings.driver``.
    level : LevelToken
    region : ImageRegion
    address : int
        Address of device memory or of page-locked host memory.
    row_pitch, slice_pitch : int
        Bytes from row to row and from slice to slice at the address.
    read : bool
        True: copy from the level. False: the reverse.
    """
    copy = driver.CUDA_MEMCPY3D()
    unified = driver.CUmemorytype.CU_MEMORYTYPE_UNIFIED
    # The driver counts the height of a slice in rows.
    if read:
        _put_source(driver, copy, level, region)
        copy.dstMemoryType, copy.dstDevice = unified, address
        copy.dstPitch, copy.dstHeight = row_pitch, slice_pitch // row_pitch
    else:
        copy.srcMemoryType, copy.srcDevice = unified, address
        copy.srcPitch, copy.srcHeight = row_pitch, slice_pitch // row_pitch
        _put_destination(driver, copy, level, region)
    return _put_extent(copy, level, region)


def image_copy(driver: Any, dst: LevelToken, dst_region: ImageRegion, src: LevelToken, src_region: ImageRegion) -> Any:
    """Return the CUDA_MEMCPY3D between two levels, whose elements have the same size."""
    copy = driver.CUDA_MEMCPY3D()
    _put_source(driver, copy, src, src_region)
    _put_destination(driver, copy, dst, dst_region)
    return _put_extent(copy, dst, dst_region)


def _put_source(driver: Any, copy: Any, level: LevelToken, region: ImageRegion) -> None:
    copy.srcMemoryType, copy.srcArray = driver.CUmemorytype.CU_MEMORYTYPE_ARRAY, level.native
    copy.srcXInBytes, copy.srcY, copy.srcZ = _position(level, region)


def _put_destination(driver: Any, copy: Any, level: LevelToken, region: ImageRegion) -> None:
    copy.dstMemoryType, copy.dstArray = driver.CUmemorytype.CU_MEMORYTYPE_ARRAY, level.native
    copy.dstXInBytes, copy.dstY, copy.dstZ = _position(level, region)


def _position(level: LevelToken, region: ImageRegion) -> tuple[int, int, int]:
    """Return x in bytes, y, and z. For an image with layers, z is the layer."""
    x, y, z = region.offset
    return x * level.element_size, y, z + region.layer


def _put_extent(copy: Any, level: LevelToken, region: ImageRegion) -> Any:
    width, height, _ = region.extent
    copy.WidthInBytes, copy.Height, copy.Depth = width * level.element_size, height, region.slices
    return copy
