"""Image formats: a MipmapDesc in Vulkan's terms, and the driver's support for such an image."""

from __future__ import annotations

from typing import Final, NamedTuple

from xsem.types import MipmapDesc
from xsem_vulkan import constants as vk
from xsem_vulkan.instance import PhysicalDevice

__all__ = ["Shape", "can_map_images", "refusal", "shape_of"]

# By number of components. Integers, not fractions of one: copies transfer bytes, and CUDA's formats are the same.
_FORMATS: Final = {
    "uint8": (vk.VK_FORMAT_R8_UINT, vk.VK_FORMAT_R8G8_UINT, vk.VK_FORMAT_R8G8B8A8_UINT, 1),
    "int8": (vk.VK_FORMAT_R8_SINT, vk.VK_FORMAT_R8G8_SINT, vk.VK_FORMAT_R8G8B8A8_SINT, 1),
    "uint16": (vk.VK_FORMAT_R16_UINT, vk.VK_FORMAT_R16G16_UINT, vk.VK_FORMAT_R16G16B16A16_UINT, 2),
    "int16": (vk.VK_FORMAT_R16_SINT, vk.VK_FORMAT_R16G16_SINT, vk.VK_FORMAT_R16G16B16A16_SINT, 2),
    "float16": (vk.VK_FORMAT_R16_SFLOAT, vk.VK_FORMAT_R16G16_SFLOAT, vk.VK_FORMAT_R16G16B16A16_SFLOAT, 2),
    "uint32": (vk.VK_FORMAT_R32_UINT, vk.VK_FORMAT_R32G32_UINT, vk.VK_FORMAT_R32G32B32A32_UINT, 4),
    "int32": (vk.VK_FORMAT_R32_SINT, vk.VK_FORMAT_R32G32_SINT, vk.VK_FORMAT_R32G32B32A32_SINT, 4),
    "float32": (vk.VK_FORMAT_R32_SFLOAT, vk.VK_FORMAT_R32G32_SFLOAT, vk.VK_FORMAT_R32G32B32A32_SFLOAT, 4),
}
_PLAIN: Final = MipmapDesc(extent=(16, 16, 0), format="uint8", channels=4)


class Shape(NamedTuple):
    """A MipmapDesc in Vulkan's terms."""

    format: int
    type: int
    flags: int
    usage: int
    extent: tuple[int, int, int]
    layers: int
    element_size: int


def can_map_images(physical: PhysicalDevice, handle_types: list[int]) -> bool:
    """Whether the simplest image can lie in non-dedicated, imported memory of one of these types."""
    shape = shape_of(_PLAIN)
    return any(refusal(physical, shape, _PLAIN.levels, each, vk.VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT) is None
               for each in handle_types)


def shape_of(desc: MipmapDesc) -> Shape:
    """A MipmapDesc in Vulkan's terms."""
    width, height, depth = desc.extent
    *by_channels, size = _FORMATS[desc.format]
    usage = (vk.VK_IMAGE_USAGE_TRANSFER_SRC_BIT | vk.VK_IMAGE_USAGE_TRANSFER_DST_BIT | vk.VK_IMAGE_USAGE_SAMPLED_BIT)
    if desc.surface_load_store:
        usage |= vk.VK_IMAGE_USAGE_STORAGE_BIT
    if desc.color_attachment:
        usage |= vk.VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT
    return Shape(
        format=by_channels[desc.channels // 2],
        type=vk.VK_IMAGE_TYPE_3D if depth else vk.VK_IMAGE_TYPE_2D if height else vk.VK_IMAGE_TYPE_1D,
        flags=vk.VK_IMAGE_CREATE_CUBE_COMPATIBLE_BIT if desc.cubemap else 0,
        usage=usage, extent=(width, max(1, height), max(1, depth)), layers=max(1, desc.layers),
        element_size=size * desc.channels,
    )


def refusal(physical: PhysicalDevice, shape: Shape, levels: int, handle_type: int, feature: int) -> str | None:
    """The reason why such an image in such memory is unsupported; None if it is supported."""
    limits = physical.image_limits(shape.format, shape.type, shape.usage, shape.flags, handle_type)
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
