"""Images with levels on external memory."""

from __future__ import annotations

from typing import Final

from xsem.errors import BadArgumentError, DeviceLostError, UnsupportedError
from xsem.spi import ImageRegion, level_layout
from xsem.types import DrmLayout, MipmapDesc
from xsem_vulkan import constants as vk
from xsem_vulkan.formats import Shape, refusal, shape_of
from xsem_vulkan.gpu import Gpu
from xsem_vulkan.loader import CData
from xsem_vulkan.memory import ANY_ACCESS, VulkanMemory
from xsem_vulkan.semaphores import Timeline

__all__ = ["Level", "VulkanImage", "level_of", "map_image", "plane_of"]

_SLICE_NS: Final = 50_000_000
_PLANES: Final = (vk.VK_IMAGE_ASPECT_PLANE_0_BIT, vk.VK_IMAGE_ASPECT_PLANE_1_BIT)


# The layout GENERAL is known to both sides of the memory, and no copy changes it. The facade knows that a handover uses
# the memory, but not which images lie in it. Therefore each append that uses an image holds the device's `image_lock`
# and records its operation with `used`.
class VulkanImage:
    """A VkImage at an offset of a memory, always in the layout GENERAL."""

    def __init__(self, gpu: Gpu, memory: VulkanMemory, image: int, desc: MipmapDesc, shape: Shape) -> None:
        self._gpu = gpu
        self._memory = memory
        self.image = image
        self.layers = shape.layers
        self.desc = desc
        self.aspect = shape.aspect
        self.owned = False   # whether xsem has acquired the image from the other side of the memory
        self._uses: dict[Timeline, int] = {}
        with gpu.image_lock:
            memory.images.add(self)

    def used(self, timeline: Timeline, value: int) -> None:
        """Record, before its submission, that a queue's operation `value` uses the image."""
        if timeline not in self._uses:
            timeline.use()
        self._uses[timeline] = value

    def barrier(self, *, acquire: bool) -> dict[str, object]:
        """Return the VkImageMemoryBarrier that acquires the whole image from the other side, or releases it."""
        family, external = self._gpu.family, vk.VK_QUEUE_FAMILY_EXTERNAL
        # No other party has used owned memory before its first handover. It needs no acquire and has no contents to
        # keep.
        fresh = acquire and not self._memory.handed_over
        return {
            "sType": vk.VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER,
            "srcAccessMask": 0 if acquire else ANY_ACCESS, "dstAccessMask": ANY_ACCESS if acquire else 0,
            "oldLayout": vk.VK_IMAGE_LAYOUT_UNDEFINED if fresh else vk.VK_IMAGE_LAYOUT_GENERAL,
            "newLayout": vk.VK_IMAGE_LAYOUT_GENERAL,
            "srcQueueFamilyIndex": family if fresh or not acquire else external,
            "dstQueueFamilyIndex": family if acquire else external,
            "image": self.image,
            "subresourceRange": {"aspectMask": self.aspect, "levelCount": self.desc.levels,
                                 "layerCount": self.layers},
        }

    def close(self) -> None:
        """Destroy the image after the operations that use it."""
        with self._gpu.image_lock:
            self._memory.images.discard(self)
        # Wait without the lock: a concurrent handover of the memory continues without the image, and the wait may
        # depend on it.
        for timeline, value in self._uses.items():
            try:
                while not timeline.wait(min(value, timeline.appended), _SLICE_NS):   # the driver may have refused it
                    pass
            except DeviceLostError:
                pass   # pending work of a lost device counts as complete
            timeline.drop()
        self._gpu.destroy("vkDestroyImage", self.image)


class Level:
    """One level of an image, or one plane of the level."""

    def __init__(self, image: VulkanImage, index: int, plane: int | None = None) -> None:
        self.image = image
        self.index = index
        self.aspect = image.aspect if plane is None else _PLANES[plane]
        layout = level_layout(image.desc, index, plane or 0)
        width, height, depth = layout.extent
        self.extent = width, max(1, height), max(1, depth)
        self.element_size = layout.element_size
        self.block = layout.block

    def part(self, gpu: Gpu, region: ImageRegion, offset: int, row_pitch: int, slice_pitch: int) -> CData:
        """Return the VkBufferImageCopy of a region, with pitches in bytes."""
        return gpu.library.ffi.new("VkBufferImageCopy *", {
            # Vulkan counts the length of a row in pixels, and that of a slice in rows of pixels.
            "bufferOffset": offset, "bufferRowLength": row_pitch // self.element_size * self.block,
            "bufferImageHeight": slice_pitch // row_pitch * self.block,
            "imageSubresource": self.layers_of(region), "imageOffset": self.offset_of(region),
            "imageExtent": self.extent_of(region),
        })

    def layers_of(self, region: ImageRegion) -> dict[str, int]:
        """Return the VkImageSubresourceLayers of a region."""
        return {"aspectMask": self.aspect, "mipLevel": self.index, "baseArrayLayer": region.layer,
                "layerCount": region.layers}

    def offset_of(self, region: ImageRegion) -> tuple[int, int, int]:
        """Return the first pixel of a region."""
        x, y, z = region.offset
        return x * self.block, y * self.block, z

    def extent_of(self, region: ImageRegion) -> tuple[int, int, int]:
        """Return the width, height and depth of a region in pixels."""
        # The last block can reach beyond the level.
        x, y, _ = self.offset_of(region)
        width, height, depth = region.extent
        return min(width * self.block, self.extent[0] - x), min(height * self.block, self.extent[1] - y), depth


def map_image(gpu: Gpu, memory: VulkanMemory, desc: MipmapDesc) -> VulkanImage:
    """Create an image at ``desc.offset`` of the memory."""
    shape = shape_of(desc)
    if memory.dedicated:
        raise UnsupportedError("the memory is dedicated to a buffer (dedicated=True), so it cannot hold an image",
                               capability="mipmapped_array.dedicated", backend="vulkan")
    layout = memory.drm_layout
    modifier = None if layout is None else layout.modifier
    why = refusal(gpu.physical, shape, desc.levels, memory.handle_type,
                  vk.VK_EXTERNAL_MEMORY_FEATURE_EXPORTABLE_BIT if memory.export
                  else vk.VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT, modifier)
    if why is not None:
        raise UnsupportedError(f"the device does not support such an image of {desc.channels} x {desc.format} in such "
                               f"memory: {why}",
                               capability="mipmapped_array.format", backend="vulkan")
    if layout is not None:
        _check_planes(gpu, shape, layout)
    image = _create(gpu, shape, desc.levels, memory.handle_type, layout)
    try:
        _check_place(gpu, memory, image, desc.offset)
        gpu.vk.do("vkBindImageMemory", gpu.handle, image, memory.memory, desc.offset)
    except BaseException:
        gpu.destroy("vkDestroyImage", image)
        raise
    return VulkanImage(gpu, memory, image, desc, shape)


def level_of(image: VulkanImage, index: int) -> Level:
    """Return one level."""
    if not 0 <= index < image.desc.levels:
        raise BadArgumentError(f"the image has {image.desc.levels} levels, 0 the first; not {index}",
                               reason="bad_levels", backend="vulkan")
    return Level(image, index)


def plane_of(level: Level, plane: int) -> Level:
    """Return one plane of a level."""
    if plane not in (0, 1):
        raise BadArgumentError(f"the image has the planes 0 and 1, not {plane}", reason="bad_plane", backend="vulkan")
    return Level(level.image, level.index, plane)


def _check_planes(gpu: Gpu, shape: Shape, layout: DrmLayout) -> None:
    planes = gpu.physical.modifiers(shape.format).get(layout.modifier)
    if planes is not None and planes != len(layout.planes):
        raise BadArgumentError(f"with this DRM format modifier the format has {planes} memory planes, and the layout "
                               f"has {len(layout.planes)}", reason="bad_plane", backend="vulkan")


def _create(gpu: Gpu, shape: Shape, levels: int, handle_type: int, layout: DrmLayout | None) -> int:
    library = gpu.library
    wanted = library.new(
        "VkImageCreateInfo", flags=shape.flags, imageType=shape.type, format=shape.format, extent=shape.extent,
        mipLevels=levels, arrayLayers=shape.layers, samples=vk.VK_SAMPLE_COUNT_1_BIT, usage=shape.usage,
        tiling=vk.VK_IMAGE_TILING_OPTIMAL if layout is None else vk.VK_IMAGE_TILING_DRM_FORMAT_MODIFIER_EXT,
        sharingMode=vk.VK_SHARING_MODE_EXCLUSIVE,
        initialLayout=vk.VK_IMAGE_LAYOUT_UNDEFINED)
    library.linked("VkExternalMemoryImageCreateInfo", wanted, handleTypes=handle_type)
    if layout is not None:
        # Size, array pitch and depth pitch are 0 for one layer and one slice (…-size-02267, …-arrayPitch-02268).
        planes = library.ffi.new("VkSubresourceLayout[]", [
            {"offset": each.offset, "rowPitch": each.pitch} for each in layout.planes])
        library.linked(
            "VkImageDrmFormatModifierExplicitCreateInfoEXT", wanted, drmFormatModifier=layout.modifier,
            drmFormatModifierPlaneCount=len(layout.planes), pPlaneLayouts=planes)
    return gpu.make("vkCreateImage", "VkImage", wanted)


def _check_place(gpu: Gpu, memory: VulkanMemory, image: int, offset: int) -> None:
    library = gpu.library
    answer = library.new("VkMemoryRequirements2")
    dedicated = library.linked("VkMemoryDedicatedRequirements", answer)
    gpu.vk.vkGetImageMemoryRequirements2(gpu.handle, library.new("VkImageMemoryRequirementsInfo2", image=image), answer)
    needs = answer.memoryRequirements
    if dedicated.requiresDedicatedAllocation:
        raise UnsupportedError("the driver requires a dedicated allocation for such an image",
                               capability="mipmapped_array.shared", backend="vulkan")
    if not needs.memoryTypeBits >> memory.type_index & 1:
        raise UnsupportedError("the driver does not support such an image in memory of this type",
                               capability="mipmapped_array.memory_type", backend="vulkan")
    if offset % needs.alignment:
        raise BadArgumentError(f"the driver requires such an image at a multiple of {needs.alignment} bytes, not at "
                               f"{offset}", reason="bad_offset", backend="vulkan")
    if offset + needs.size > memory.allocated:
        raise BadArgumentError(f"the image takes {needs.size} bytes at {offset}, beyond the memory's "
                               f"{memory.allocated}", reason="out_of_range", backend="vulkan")
