"""Formats and flags of images by name: channels, blocks, planes, and the arrays that hold their elements."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

__all__ = ["FLAGS", "FORMATS", "PLAIN_FLAGS", "PLAIN_FORMATS", "ImageFormat", "Plane"]


class Plane(NamedTuple):
    """One plane of an image, or the only one."""

    dtype: str   # element type of the array that holds the plane
    components: int = 0   # elements of this array for each pixel or block; 0: the number of channels of the image
    divisor: int = 1   # of the image's width and height: 2 for the chroma plane of 4:2:0 sampling


class ImageFormat(NamedTuple):
    """One format of `MipmapDesc.format`."""

    channels: tuple[int, ...]   # permitted values of `MipmapDesc.channels`
    planes: tuple[Plane, ...]
    block: int = 1   # width and height of a block of pixels: 4 for a block-compressed format


_ANY: Final = (1, 2, 4)


def _components(*dtypes: str) -> dict[str, ImageFormat]:
    return {name: ImageFormat(_ANY, (Plane(name),)) for name in dtypes}


def _blocks(channels: int, size: int, *names: str) -> dict[str, ImageFormat]:
    return {name: ImageFormat((channels,), (Plane("uint8", size),), block=4) for name in names}


_PLAIN: Final = _components("uint8", "uint16", "uint32", "int8", "int16", "int32", "float16", "float32")

FORMATS: Final[Mapping[str, ImageFormat]] = MappingProxyType({
    **_PLAIN,
    "unorm8": ImageFormat(_ANY, (Plane("uint8"),)),
    "unorm16": ImageFormat(_ANY, (Plane("uint16"),)),
    "snorm8": ImageFormat(_ANY, (Plane("int8"),)),
    "snorm16": ImageFormat(_ANY, (Plane("int16"),)),
    "unorm_10_10_10_2": ImageFormat((4,), (Plane("uint32", 1),)),
    "nv12": ImageFormat((3,), (Plane("uint8", 1), Plane("uint8", 2, divisor=2))),
    "p010": ImageFormat((3,), (Plane("uint16", 1), Plane("uint16", 2, divisor=2))),
    **_blocks(4, 8, "bc1_unorm", "bc1_unorm_srgb"),
    **_blocks(4, 16, "bc2_unorm", "bc2_unorm_srgb", "bc3_unorm", "bc3_unorm_srgb"),
    **_blocks(1, 8, "bc4_unorm", "bc4_snorm"),
    **_blocks(2, 16, "bc5_unorm", "bc5_snorm"),
    **_blocks(3, 16, "bc6h_uf16", "bc6h_sf16"),
    **_blocks(4, 16, "bc7_unorm", "bc7_unorm_srgb"),
})
"""The formats by name."""

PLAIN_FORMATS: Final = frozenset(_PLAIN)
"""The formats whose components are integers or floating-point numbers. A device with images has all of them."""

FLAGS: Final = ("cubemap", "surface_load_store", "color_attachment", "texture_gather", "depth_texture",
                "deferred_mapping", "sparse", "video")
"""The flags of `MipmapDesc`."""

PLAIN_FLAGS: Final = frozenset(FLAGS[:3])
"""The flags of every device with Feature.MIPMAPPED_ARRAY."""
