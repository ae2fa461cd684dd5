"""Images: mipmapped arrays on external memory, and copies of their levels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from xsem.errors import BadArgumentError, DriverError, UnsupportedError
from xsem.spi import LARGEST_ROW_PITCH, ImageRegion, level_layout
from xsem.types import MipmapDesc
from xsem_cuda.codes import INVALID_VALUE
from xsem_cuda.context import Context
from xsem_cuda.memory import MemoryToken
from xsem_cuda.results import call
from xsem_cuda.tokens import DriverObject

__all__ = [
    "UNMAPPED",
    "ArrayToken",
    "LevelToken",
    "format_name",
    "image_capabilities",
    "image_copy",
    "known_flags",
    "known_formats",
    "level_of",
    "map_array",
    "mipmap_descriptor",
    "region_copy",
]

_PLANAR: Final = "CUDA maps only the first plane of such an image: map each plane as an image (MipmapDesc.plane)"
_NO_IMAGE: Final = "CUDA maps no image with this flag"
UNMAPPED: Final[Mapping[str, str]] = {
    # Measured on an H200 (580.159.04): the mapping covers only the luma plane, and a copy of the chroma plane loses the
    # context (CUDA_ERROR_LAUNCH_FAILED).
    "image_formats.nv12": _PLANAR, "image_formats.p010": _PLANAR,
    # Measured there, too: no format maps with these flags.
    "image_flags.depth_texture": _NO_IMAGE, "image_flags.sparse": _NO_IMAGE, "image_flags.deferred_mapping": _NO_IMAGE,
}
"""The capabilities of images that no driver has, each with the reason."""

# The other formats of MipmapDesc: CUDA's enumerator, or its prefix before the number of channels.
_FORMATS: Final = {
    "uint8": "UNSIGNED_INT8", "uint16": "UNSIGNED_INT16", "uint32": "UNSIGNED_INT32", "int8": "SIGNED_INT8",
    "int16": "SIGNED_INT16", "int32": "SIGNED_INT32", "float16": "HALF", "float32": "FLOAT",
    "unorm_10_10_10_2": "UNORM_INT_101010_2",
    **{name: name.upper() for name in (
        "bc1_unorm", "bc1_unorm_srgb", "bc2_unorm", "bc2_unorm_srgb", "bc3_unorm", "bc3_unorm_srgb", "bc4_unorm",
        "bc4_snorm", "bc5_unorm", "bc5_snorm", "bc6h_uf16", "bc6h_sf16", "bc7_unorm", "bc7_unorm_srgb")},
}
_BY_CHANNELS: Final = {"unorm8": "UNORM_INT8X", "unorm16": "UNORM_INT16X", "snorm8": "SNORM_INT8X",
                       "snorm16": "SNORM_INT16X"}
# CUDA_ARRAY3D_…, by the name of the flag.
_FLAGS: Final = {
    "cubemap": "CUBEMAP", "surface_load_store": "SURFACE_LDST", "color_attachment": "COLOR_ATTACHMENT",
    "texture_gather": "TEXTURE_GATHER", "video": "VIDEO_ENCODE_DECODE",
}

# The CUDA version whose header adds a format or a flag. The others are in CUDA 10.0. The headers of 12.4, 12.5, 12.6
# and 12.8 were compared; NVIDIA announced the formats of 11.5 with that release.
_BLOCKS_AND_FRACTIONS: Final = 11050
_SINCE: Final = {"unorm_10_10_10_2": 12080, "video": 12050}

# Size of a GPU's block of pixels. The driver maps an image at offset 256, and the first copy of it loses the context
# (measured on an H200: CUDA_ERROR_LAUNCH_FAILED). Offsets 512, 1024, 4096 and 69632 work.
_ALIGNMENT: Final = 512


class ArrayToken(DriverObject):
    """A mapped CUmipmappedArray and its layout."""

    __slots__ = ("desc",)

    def __init__(self, native: Any, desc: MipmapDesc) -> None:
        super().__init__(native)
        self.desc = desc


class LevelToken(DriverObject):
    """A CUarray: one level of an image. It needs no release, because the image owns it."""

    __slots__ = ("element_size",)

    def __init__(self, native: Any, array: ArrayToken, level: int) -> None:
        super().__init__(native)
        self.element_size = level_layout(array.desc, level).element_size   # bytes per pixel or block


def format_name(desc: MipmapDesc) -> str:
    """Return the name of CUDA's enumerator for the format and the channels of an image."""
    prefix = _BY_CHANNELS.get(desc.format)
    return "CU_AD_FORMAT_" + (f"{prefix}{desc.channels}" if prefix else _FORMATS[desc.format])


def known_formats(driver: Any, version: int) -> frozenset[str]:
    """Return the formats that both the bindings and a driver of this version have."""
    known = driver.CUarray_format.__members__
    suffixes = _FORMATS | {name: f"{prefix}1" for name, prefix in _BY_CHANNELS.items()}
    return frozenset(name for name, suffix in suffixes.items()
                     if f"CU_AD_FORMAT_{suffix}" in known and _since(name) <= version)


def known_flags(version: int) -> frozenset[str]:
    """Return the flags that a driver of this version has."""
    return frozenset(name for name in _FLAGS if _since(name) <= version)


def image_capabilities() -> Mapping[str, int]:
    """Return the capabilities of images that some driver has, each with the CUDA version that added it."""
    return {f"image_formats.{name}": _since(name) for name in (*_FORMATS, *_BY_CHANNELS)} | {
        f"image_flags.{name}": _since(name) for name in _FLAGS}


def _since(name: str) -> int:
    announced = name in _BY_CHANNELS or name.startswith("bc")
    return _BLOCKS_AND_FRACTIONS if announced else _SINCE.get(name, 0)


def mipmap_descriptor(driver: Any, desc: MipmapDesc) -> Any:
    """Return the CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC of an image."""
    width, height, depth = desc.extent
    if desc.offset % _ALIGNMENT:
        raise BadArgumentError(
            f"an image's offset must be a multiple of {_ALIGNMENT} bytes, not {desc.offset}: this is the size of the "
            "GPU's blocks of pixels", reason="bad_offset",
        )
    if desc.texture_gather and desc.layers:
        raise UnsupportedError("CUDA supports the flag texture_gather only for images without layers",
                               capability="image_flags.texture_gather", reason="not_supported")
    native = driver.CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC()
    native.offset = desc.offset
    native.numLevels = desc.levels
    array = native.arrayDesc
    array.Width, array.Height = width, height
    array.Depth = desc.layers or depth
    array.Format = getattr(driver.CUarray_format, format_name(desc))
    array.NumChannels = desc.channels
    flags = 0
    # The six layers of a single cubemap are its faces.
    if desc.layers and (not desc.cubemap or desc.layers != 6 or desc.layered_cubemap):
        flags |= int(driver.CUDA_ARRAY3D_LAYERED)
    for flag in desc.flags:
        flags |= int(getattr(driver, f"CUDA_ARRAY3D_{_FLAGS[flag]}"))
    array.Flags = flags
    return native


def map_array(driver: Any, context: Context, memory: MemoryToken, desc: MipmapDesc) -> ArrayToken:
    """Call cuExternalMemoryGetMappedMipmappedArray."""
    native = mipmap_descriptor(driver, desc)
    with context, context.quiet:
        try:
            return ArrayToken(call(driver.cuExternalMemoryGetMappedMipmappedArray, memory.native, native), desc)
        except DriverError as error:
            if error.code != INVALID_VALUE:
                raise
            # The driver compares with the size at the import, not with the exporter's allocation (measured).
            cause = (f"the image at offset {desc.offset} needs more than the allocation_size of the imported memory, "
                     f"{memory.size} bytes: import the memory with the size of the exporter's allocation")
            raise DriverError(
                "the driver refused an argument", reason="invalid_value", call=error.call, code=error.code,
                code_name=error.code_name, likely_causes=(cause, *error.likely_causes)) from error


def level_of(driver: Any, context: Context, array: ArrayToken, level: int) -> LevelToken:
    """Call cuMipmappedArrayGetLevel for level `level` of the image."""
    with context, context.quiet:
        return LevelToken(call(driver.cuMipmappedArrayGetLevel, array.native, level), array, level)


def region_copy(
    driver: Any, level: LevelToken, region: ImageRegion, address: int, row_pitch: int, slice_pitch: int, *, read: bool
) -> Any:
    """Return the CUDA_MEMCPY3D between a region of a level and device memory or page-locked host memory."""
    copy = driver.CUDA_MEMCPY3D()
    unified = driver.CUmemorytype.CU_MEMORYTYPE_UNIFIED
    if region.extent[1] == 1 and region.slices > 1 and slice_pitch <= LARGEST_ROW_PITCH:
        # Layers of one row: for an image of one dimension, the driver does not take a height of several rows (measured
        # on an H200, 580.159.04: wrong bytes and no error).
        row_pitch = slice_pitch
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
