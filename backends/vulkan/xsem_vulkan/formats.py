"""Image formats: a MipmapDesc in Vulkan's terms, and the driver's support for such an image."""

from __future__ import annotations

from typing import Final, NamedTuple

from xsem.types import MemoryHandleType, MipmapDesc
from xsem_vulkan import constants as vk
from xsem_vulkan.instance import PhysicalDevice

__all__ = ["Shape", "drm_modifiers", "image_flags", "image_formats", "refusal", "shape_of"]

# By number of components. Integers, not fractions of one: copies transfer bytes, and CUDA's formats are the same.
_COMPONENTS: Final = {
    "uint8": (vk.VK_FORMAT_R8_UINT, vk.VK_FORMAT_R8G8_UINT, vk.VK_FORMAT_R8G8B8A8_UINT),
    "int8": (vk.VK_FORMAT_R8_SINT, vk.VK_FORMAT_R8G8_SINT, vk.VK_FORMAT_R8G8B8A8_SINT),
    "uint16": (vk.VK_FORMAT_R16_UINT, vk.VK_FORMAT_R16G16_UINT, vk.VK_FORMAT_R16G16B16A16_UINT),
    "int16": (vk.VK_FORMAT_R16_SINT, vk.VK_FORMAT_R16G16_SINT, vk.VK_FORMAT_R16G16B16A16_SINT),
    "float16": (vk.VK_FORMAT_R16_SFLOAT, vk.VK_FORMAT_R16G16_SFLOAT, vk.VK_FORMAT_R16G16B16A16_SFLOAT),
    "uint32": (vk.VK_FORMAT_R32_UINT, vk.VK_FORMAT_R32G32_UINT, vk.VK_FORMAT_R32G32B32A32_UINT),
    "int32": (vk.VK_FORMAT_R32_SINT, vk.VK_FORMAT_R32G32_SINT, vk.VK_FORMAT_R32G32B32A32_SINT),
    "float32": (vk.VK_FORMAT_R32_SFLOAT, vk.VK_FORMAT_R32G32_SFLOAT, vk.VK_FORMAT_R32G32B32A32_SFLOAT),
    "unorm8": (vk.VK_FORMAT_R8_UNORM, vk.VK_FORMAT_R8G8_UNORM, vk.VK_FORMAT_R8G8B8A8_UNORM),
    "snorm8": (vk.VK_FORMAT_R8_SNORM, vk.VK_FORMAT_R8G8_SNORM, vk.VK_FORMAT_R8G8B8A8_SNORM),
    "unorm16": (vk.VK_FORMAT_R16_UNORM, vk.VK_FORMAT_R16G16_UNORM, vk.VK_FORMAT_R16G16B16A16_UNORM),
    "snorm16": (vk.VK_FORMAT_R16_SNORM, vk.VK_FORMAT_R16G16_SNORM, vk.VK_FORMAT_R16G16B16A16_SNORM),
}
_WHOLE: Final = {
    "unorm_10_10_10_2": vk.VK_FORMAT_A2B10G10R10_UNORM_PACK32,   # red in the lowest bits
    "nv12": vk.VK_FORMAT_G8_B8R8_2PLANE_420_UNORM,
    "p010": vk.VK_FORMAT_G10X6_B10X6R10X6_2PLANE_420_UNORM_3PACK16,
    "bc1_unorm": vk.VK_FORMAT_BC1_RGBA_UNORM_BLOCK, "bc1_unorm_srgb": vk.VK_FORMAT_BC1_RGBA_SRGB_BLOCK,
    "bc2_unorm": vk.VK_FORMAT_BC2_UNORM_BLOCK, "bc2_unorm_srgb": vk.VK_FORMAT_BC2_SRGB_BLOCK,
    "bc3_unorm": vk.VK_FORMAT_BC3_UNORM_BLOCK, "bc3_unorm_srgb": vk.VK_FORMAT_BC3_SRGB_BLOCK,
    "bc4_unorm": vk.VK_FORMAT_BC4_UNORM_BLOCK, "bc4_snorm": vk.VK_FORMAT_BC4_SNORM_BLOCK,
    "bc5_unorm": vk.VK_FORMAT_BC5_UNORM_BLOCK, "bc5_snorm": vk.VK_FORMAT_BC5_SNORM_BLOCK,
    "bc6h_uf16": vk.VK_FORMAT_BC6H_UFLOAT_BLOCK, "bc6h_sf16": vk.VK_FORMAT_BC6H_SFLOAT_BLOCK,
    "bc7_unorm": vk.VK_FORMAT_BC7_UNORM_BLOCK, "bc7_unorm_srgb": vk.VK_FORMAT_BC7_SRGB_BLOCK,
}
_DEPTH: Final = {"unorm16": vk.VK_FORMAT_D16_UNORM, "float32": vk.VK_FORMAT_D32_SFLOAT}
_CHANNELS: Final = {"nv12": 3, "p010": 3, "bc4_unorm": 1, "bc4_snorm": 1, "bc5_unorm": 2, "bc5_snorm": 2,
                    "bc6h_uf16": 3, "bc6h_sf16": 3}
_PLAIN: Final = MipmapDesc(extent=(16, 16, 0), format="uint8", channels=4)
_DEPTH_IMAGE: Final = MipmapDesc(extent=(16, 16, 0), format="float32", channels=1, depth_texture=True)

# Every sampled image can be gathered. Sparse images need other functions to bind them, video needs queues and
# extensions of its own, and deferred mapping is a term of CUDA.
_FLAGS: Final = frozenset({"cubemap", "surface_load_store", "color_attachment", "texture_gather"})


class Shape(NamedTuple):
    """A MipmapDesc in Vulkan's terms."""

    format: int
    type: int
    flags: int
    usage: int
    extent: tuple[int, int, int]
    layers: int
    aspect: int


def image_formats(physical: PhysicalDevice, handle_types: list[int]) -> frozenset[str]:
    """Return the formats of images that can lie in non-dedicated, imported memory of one of these types."""
    if not _fits(physical, _PLAIN, handle_types):
        return frozenset()
    return frozenset(
        name for name in (*_COMPONENTS, *_WHOLE)
        if _fits(physical, MipmapDesc(extent=(16, 16, 0), format=name, channels=_CHANNELS.get(name, 4)), handle_types))


def image_flags(physical: PhysicalDevice, handle_types: list[int]) -> frozenset[str]:
    """Return the flags of such images."""
    return _FLAGS | ({"depth_texture"} if _fits(physical, _DEPTH_IMAGE, handle_types) else frozenset())


def _fits(physical: PhysicalDevice, desc: MipmapDesc, handle_types: list[int]) -> bool:
    shape = shape_of(desc)
    return any(refusal(physical, shape, desc.levels, each, vk.VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT) is None
               for each in handle_types)


def shape_of(desc: MipmapDesc) -> Shape:
    """A MipmapDesc in Vulkan's terms."""
    width, height, depth = desc.extent
    usage = (vk.VK_IMAGE_USAGE_TRANSFER_SRC_BIT | vk.VK_IMAGE_USAGE_TRANSFER_DST_BIT | vk.VK_IMAGE_USAGE_SAMPLED_BIT)
    if desc.surface_load_store:
        usage |= vk.VK_IMAGE_USAGE_STORAGE_BIT
    if desc.color_attachment:
        usage |= vk.VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT
    if desc.depth_texture:
        usage |= vk.VK_IMAGE_USAGE_DEPTH_STENCIL_ATTACHMENT_BIT
    return Shape(
        format=_format(desc),
        type=vk.VK_IMAGE_TYPE_3D if depth else vk.VK_IMAGE_TYPE_2D if height else vk.VK_IMAGE_TYPE_1D,
        flags=vk.VK_IMAGE_CREATE_CUBE_COMPATIBLE_BIT if desc.cubemap else 0,
        usage=usage, extent=(width, max(1, height), max(1, depth)), layers=max(1, desc.layers),
        aspect=vk.VK_IMAGE_ASPECT_DEPTH_BIT if desc.depth_texture else vk.VK_IMAGE_ASPECT_COLOR_BIT,
    )


def _format(desc: MipmapDesc) -> int:
    if desc.depth_texture:
        return _DEPTH[desc.format]
    if desc.format in _WHOLE:
        return _WHOLE[desc.format]
    return _COMPONENTS[desc.format][desc.channels // 2]


def drm_modifiers(physical: PhysicalDevice) -> frozenset[int]:
    """Return the DRM format modifiers of the dma-bufs that the device maps as images, for at least one format."""
    handle_type = MemoryHandleType.DMABUF_FD.native["vulkan"][1]
    found: set[int] = set()
    for name in (*_COMPONENTS, *_WHOLE):
        shape = shape_of(MipmapDesc(extent=(16, 16, 0), format=name, channels=_CHANNELS.get(name, 4)))
        found |= {each for each in set(physical.modifiers(shape.format)) - found
                  if refusal(physical, shape, 1, handle_type, vk.VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT,
                             each) is None}
    return frozenset(found)


def refusal(
    physical: PhysicalDevice, shape: Shape, levels: int, handle_type: int, feature: int, modifier: int | None = None
) -> str | None:
    """The reason why such an image in such memory is unsupported; None if it is supported."""
    limits = physical.image_limits(shape.format, shape.type, shape.usage, shape.flags, handle_type, modifier)
    if limits is None:
        return "not this format with this use"
    if not limits.features & feature:
        return "not in memory of this handle type"
    if limits.features & vk.VK_EXTERNAL_MEMORY_FEATURE_DEDICATED_ONLY_BIT:
        return "only in a dedicated allocation"
    if any(mine > most for mine, most in zip(shape.extent, limits.extent, strict=True)):
        return f"the largest is {limits.extent}"
    if levels > limits.levels or shape.layers > limits.layers:
        return f"no more than {limits.levels} levels and {limits.layers} layers"
    return None
