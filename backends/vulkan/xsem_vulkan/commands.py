"""Command buffers of one queue: recorded, submitted, and reused when the device has completed them."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import Any, Final

from xsem.errors import UnsupportedError
from xsem.spi import ImageRegion
from xsem_vulkan import constants as vk
from xsem_vulkan.gpu import Gpu
from xsem_vulkan.images import Level, VulkanImage
from xsem_vulkan.loader import CData
from xsem_vulkan.memory import ANY_ACCESS, BoundImage, HostMemory, Place, VulkanMemory, host_memory

__all__ = ["Commands"]

_ALL: Final = vk.VK_PIPELINE_STAGE_ALL_COMMANDS_BIT
_SCRATCH: Final = 1 << 16
_WORD: Final = 4
_Call = tuple[Any, ...]   # the name of a function, and its arguments behind the command buffer


class Commands:
    """The queue's command pool. One thread at a time uses it."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._vk = gpu.vk
        library = gpu.library
        wanted = library.new("VkCommandPoolCreateInfo", queueFamilyIndex=gpu.family,
                             flags=vk.VK_COMMAND_POOL_CREATE_TRANSIENT_BIT
                             | vk.VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT)
        self._pool = gpu.make("vkCreateCommandPool", "VkCommandPool", wanted)
        self._free: list[CData] = []
        self._busy: deque[tuple[int, CData, HostMemory | None]] = deque()
        self._begin_once = library.new("VkCommandBufferBeginInfo",
                                       flags=vk.VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT)
        self._begin_often = library.new("VkCommandBufferBeginInfo",
                                        flags=vk.VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT)
        self._everything = library.new("VkMemoryBarrier", srcAccessMask=vk.VK_ACCESS_MEMORY_WRITE_BIT,
                                       dstAccessMask=ANY_ACCESS)
        # Barriers before and after a copy, with the host's writes and reads. Without the host part, a copy may be
        # invisible in mapped memory although a wait has seen it complete.
        host = _ALL | vk.VK_PIPELINE_STAGE_HOST_BIT
        self._before = self._barrier(host, vk.VK_PIPELINE_STAGE_TRANSFER_BIT, library.new(
            "VkMemoryBarrier", srcAccessMask=vk.VK_ACCESS_MEMORY_WRITE_BIT | vk.VK_ACCESS_HOST_WRITE_BIT,
            dstAccessMask=vk.VK_ACCESS_TRANSFER_READ_BIT | vk.VK_ACCESS_TRANSFER_WRITE_BIT))
        self._after = self._barrier(vk.VK_PIPELINE_STAGE_TRANSFER_BIT, host, library.new(
            "VkMemoryBarrier", srcAccessMask=vk.VK_ACCESS_TRANSFER_WRITE_BIT,
            dstAccessMask=ANY_ACCESS | vk.VK_ACCESS_HOST_READ_BIT))
        self._shared = library.new(
            "VkMemoryBarrier", srcAccessMask=vk.VK_ACCESS_MEMORY_WRITE_BIT | vk.VK_ACCESS_HOST_WRITE_BIT,
            dstAccessMask=ANY_ACCESS | vk.VK_ACCESS_HOST_READ_BIT | vk.VK_ACCESS_HOST_WRITE_BIT)
        try:
            # The command buffer of all waits, signals and barriers, which may be pending several times. A submission
            # without commands would not order a later signal after an earlier wait: the specification orders commands
            # after waits and signals after commands, not signals after waits.
            self.barrier = self._record(self._barrier(_ALL, _ALL, self._everything), often=True)
            # The same, with the accesses of the host, while the device and the host share memory: the host writes
            # before it ends a wait, which is after the submission, and reads after the operation of a signal.
            self.host_barrier = self._record(self._barrier(host, host, self._shared), often=True)
        except BaseException:
            self.close()
            raise

    # ---- recording
    def copy(self, dst: Place, src: Place, size: int) -> CData:
        """Record a copy between two places."""
        region = self._gpu.library.ffi.new("VkBufferCopy *", (src.offset, dst.offset, size))
        return self._transfer("vkCmdCopyBuffer", src.buffer, dst.buffer, 1, region)

    def fill(self, dst: Place, pattern: bytes, size: int) -> tuple[CData, HostMemory | None]:
        """Record a fill, and return scratch memory, too, if Vulkan's own fill does not support it."""
        word = _as_word(pattern)
        if word is not None and dst.offset % _WORD == 0 and size % _WORD == 0:
            return self._transfer("vkCmdFillBuffer", dst.buffer, dst.offset, size, word), None
        # Vulkan fills only aligned words. A copy may begin and end at any byte.
        chunk = pattern * max(1, min(size, _SCRATCH) // len(pattern))
        scratch = host_memory(self._gpu, len(chunk))
        try:
            ffi = self._gpu.library.ffi
            ffi.memmove(ffi.cast("void *", scratch.address), chunk, len(chunk))
            regions = ffi.new("VkBufferCopy[]", [(0, dst.offset + start, min(len(chunk), size - start))
                                                 for start in range(0, size, len(chunk))])
            return self._transfer("vkCmdCopyBuffer", scratch.buffer, dst.buffer, len(regions), regions), scratch
        except BaseException:
            scratch.close()
            raise

    def region_copy(
        self, level: Level, region: ImageRegion, place: Place, row_pitch: int, slice_pitch: int, *, read: bool
    ) -> CData:
        """Record a copy of a region of a level, after an acquire barrier if the image needs one."""
        image, part = level.image, level.part(self._gpu, region, place.offset, row_pitch, slice_pitch)
        if read:
            return self._transfer("vkCmdCopyImageToBuffer", image.image, vk.VK_IMAGE_LAYOUT_GENERAL, place.buffer, 1,
                                  part, images={image})
        return self._transfer("vkCmdCopyBufferToImage", place.buffer, image.image, vk.VK_IMAGE_LAYOUT_GENERAL, 1, part,
                              images={image})

    def image_copy(self, dst: Level, dst_region: ImageRegion, src: Level, src_region: ImageRegion) -> CData:
        """Record a copy between two levels, after acquire barriers for the images that need them."""
        # VUID-vkCmdCopyImage-srcImage-01551
        if (dst.aspect == vk.VK_IMAGE_ASPECT_DEPTH_BIT) != (src.aspect == vk.VK_IMAGE_ASPECT_DEPTH_BIT):
            raise UnsupportedError("Vulkan copies a depth image only to another depth image; copy through a buffer",
                                   capability="image_copy.depth", backend="vulkan", reason="not_supported")
        region = self._gpu.library.ffi.new("VkImageCopy *", {
            "srcSubresource": src.layers_of(src_region), "srcOffset": src.offset_of(src_region),
            "dstSubresource": dst.layers_of(dst_region), "dstOffset": dst.offset_of(dst_region),
            "extent": src.extent_of(src_region),   # in pixels of the source
        })
        return self._transfer("vkCmdCopyImage", src.image.image, vk.VK_IMAGE_LAYOUT_GENERAL, dst.image.image,
                              vk.VK_IMAGE_LAYOUT_GENERAL, 1, region, images={dst.image, src.image})

    def handover(
        self, memories: Sequence[VulkanMemory], images: Sequence[BoundImage], *, acquire: bool
    ) -> CData:
        """Record a full barrier that acquires memories and images from `VK_QUEUE_FAMILY_EXTERNAL`, or releases them."""
        external_memories = [memory for memory in memories if not memory.of_host]
        stages, everything = _ALL, self._everything
        if self._gpu.shared_with_host:
            stages, everything = _ALL | vk.VK_PIPELINE_STAGE_HOST_BIT, self._shared
        library = self._gpu.library
        family, external = self._gpu.family, vk.VK_QUEUE_FAMILY_EXTERNAL
        barriers = library.ffi.new("VkBufferMemoryBarrier[]", [{
            "sType": vk.VK_STRUCTURE_TYPE_BUFFER_MEMORY_BARRIER,
            # The other side records the other half of each barrier.
            "srcAccessMask": 0 if acquire else ANY_ACCESS,
            "dstAccessMask": ANY_ACCESS if acquire else 0,
            "srcQueueFamilyIndex": external if acquire else family,
            "dstQueueFamilyIndex": family if acquire else external,
            "buffer": memory.buffer, "offset": 0, "size": vk.VK_WHOLE_SIZE,
        } for memory in external_memories])
        pictures = library.ffi.new("VkImageMemoryBarrier[]", [image.barrier(acquire=acquire) for image in images])
        return self._record(("vkCmdPipelineBarrier", stages, stages, 0, 1, everything, len(external_memories), barriers,
                             len(images), pictures))

    def _barrier(self, before: int, after: int, memory: CData) -> _Call:
        null = self._gpu.library.null
        return "vkCmdPipelineBarrier", before, after, 0, 1, memory, 0, null, 0, null

    def _transfer(self, *call: Any, images: Collection[VulkanImage] = ()) -> CData:
        """Record a call between barriers, of which one acquires the images that are not owned."""
        acquired = [image.barrier(acquire=True) for image in images if not image.owned]
        if not acquired:
            return self._record(self._before, call, self._after)
        library, null = self._gpu.library, self._gpu.library.null
        taken = library.ffi.new("VkImageMemoryBarrier[]", acquired)
        acquire = "vkCmdPipelineBarrier", _ALL, _ALL, 0, 0, null, 0, null, len(acquired), taken
        return self._record(self._before, acquire, call, self._after)

    def _record(self, *calls: _Call, often: bool = False) -> CData:
        """Record a command buffer for one submission, or for several with `often`."""
        commands = self._take()
        try:
            self._vk.do("vkBeginCommandBuffer", commands, self._begin_often if often else self._begin_once)
            for name, *arguments in calls:
                getattr(self._vk, name)(commands, *arguments)
            self._vk.do("vkEndCommandBuffer", commands)
        except BaseException:
            self._free.append(commands)
            raise
        return commands

    # ---- command buffers
    def _take(self) -> CData:
        if self._free:
            return self._free.pop()
        library = self._gpu.library
        wanted = library.new("VkCommandBufferAllocateInfo", commandPool=self._pool, commandBufferCount=1,
                             level=vk.VK_COMMAND_BUFFER_LEVEL_PRIMARY)
        made = library.ffi.new("VkCommandBuffer *")
        self._vk.do("vkAllocateCommandBuffers", self._gpu.handle, wanted, made)
        return made[0]

    @property
    def oldest_busy(self) -> int | None:
        """The operation whose completion frees the next command buffer; None if the device uses none."""
        return self._busy[0][0] if self._busy else None

    def lend(self, value: int, commands: CData, scratch: HostMemory | None) -> None:
        """Mark the objects as in use until operation `value` of the queue is complete."""
        self._busy.append((value, commands, scratch))

    def take_back(self) -> None:
        """Free the objects that were lent last, because the driver refused their submission."""
        self._put_back(*self._busy.pop())

    def recycle(self, done: int) -> None:
        """Free the objects of operations up to `done`."""
        while self._busy and self._busy[0][0] <= done:
            self._put_back(*self._busy.popleft())

    def _put_back(self, _value: int, commands: CData, scratch: HostMemory | None) -> None:
        self._free.append(commands)
        if scratch is not None:
            scratch.close()

    def close(self) -> None:
        """Destroy the pool and its command buffers, of which none may be pending."""
        while self._busy:
            self._put_back(*self._busy.popleft())
        self._gpu.destroy("vkDestroyCommandPool", self._pool)


def _as_word(pattern: bytes) -> int | None:
    """The 32-bit word whose repetition equals the pattern's repetition; None if no such word exists."""
    if len(pattern) in (1, 2, _WORD):
        return int.from_bytes(pattern * (_WORD // len(pattern)), "little")
    return None
