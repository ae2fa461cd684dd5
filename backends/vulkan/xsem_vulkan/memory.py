"""Memory: allocated for export, and host memory for copies."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol

from xsem.errors import BadArgumentError, OutOfMemoryError, UnsupportedError
from xsem.types import DrmLayout, MemoryHandleType
from xsem_vulkan import constants as vk
from xsem_vulkan.answers import BUFFER_USAGE
from xsem_vulkan.gpu import Gpu
from xsem_vulkan.semaphores import Timeline

__all__ = ["ANY_ACCESS", "LARGEST", "BoundImage", "Buffer", "HostMemory", "Mapping", "Needs", "Place", "VulkanMemory",
           "allocate", "best_type", "bind", "create_buffer", "create_memory", "free", "host_memory", "needs_of"]

ANY_ACCESS: Final = vk.VK_ACCESS_MEMORY_READ_BIT | vk.VK_ACCESS_MEMORY_WRITE_BIT
LARGEST: Final = 1 << 40   # bytes of the largest memory, more than any GPU has: a driver may report no limit
_ALIGNMENTS_TRIED = 3


class Needs(NamedTuple):
    """Memory requirements of a buffer."""

    size: int   # bytes
    alignment: int
    types: int   # a bit for each suitable memory type
    dedicated: bool   # whether the driver requires a dedicated allocation


class Place(NamedTuple):
    """A place in memory: a VkBuffer and an offset in bytes."""

    buffer: int
    offset: int


class Buffer(Protocol):
    """Memory that a queue copies and fills: a mapping, or host memory."""

    def place(self, offset: int, size: int) -> Place:
        """Return the place of `size` bytes at `offset`."""


class BoundImage(Protocol):
    """An image that lies in a memory, as a handover of the memory uses it."""

    owned: bool

    def barrier(self, *, acquire: bool) -> dict[str, object]:
        """Return the VkImageMemoryBarrier that acquires the image from the other side, or releases it."""

    def used(self, timeline: Timeline, value: int) -> None:
        """Record, before its submission, that a queue's operation `value` uses the image."""


class VulkanMemory:
    """A VkDeviceMemory with one VkBuffer."""

    def __init__(
        self, gpu: Gpu, memory: int, buffer: int, size: int, *, allocated: int, handle_type: int, type_index: int,
        export: bool, dedicated: bool, drm_layout: DrmLayout | None = None,
    ) -> None:
        self.allocated = allocated   # bytes of the memory
        self.handle_type = handle_type   # the bit of the handle type of its import or export
        self.type_index = type_index
        self.export = export   # whether xsem allocated it for export
        self.dedicated = dedicated   # to the buffer
        self.drm_layout = drm_layout   # of the image in an imported dma-buf
        self.of_host = False   # pages of the host, which no handover between queue families concerns
        self.images: set[BoundImage] = set()
        self.handed_over = not export   # whether another party may have used it
        self._gpu = gpu
        self.memory = memory
        self.buffer = buffer
        self.size = size   # bytes that the buffer covers: all, if xsem allocated the memory

    def close(self) -> None:
        """Destroy the buffer and free the memory."""
        free(self._gpu, self.buffer, self.memory)


class Mapping:
    """The part of a memory from `offset` on, through the VkBuffer of the memory."""

    def __init__(self, memory: VulkanMemory, offset: int) -> None:
        self.memory = memory
        self.offset = offset

    def place(self, offset: int, size: int) -> Place:
        """Return the place of `size` bytes at `offset` of the mapping."""
        start = self.offset + offset
        if start + size > self.memory.size:
            raise BadArgumentError(
                f"bytes {start} … {start + size} of the memory cannot be used: a buffer of this device covers only "
                f"{self.memory.size} of {self.memory.allocated} bytes", reason="out_of_range", backend="vulkan")
        return Place(self.memory.buffer, start)


class HostMemory:
    """Host memory that the device can use, mapped as long as it lives."""

    def __init__(self, gpu: Gpu, memory: int, buffer: int, address: int) -> None:
        self._gpu = gpu
        self.memory = memory
        self.buffer = buffer
        self.address = address

    def place(self, offset: int, size: int) -> Place:
        """Return the place of `size` bytes at `offset`."""
        return Place(self.buffer, offset)

    def close(self) -> None:
        """Free the memory, which also unmaps it."""
        free(self._gpu, self.buffer, self.memory)


def create_memory(gpu: Gpu, type: MemoryHandleType, size: int, *, dedicated: bool) -> VulkanMemory:
    """Allocate memory of at least `size` bytes for export as `type`."""
    bit = type.native["vulkan"][1]
    _check_size(gpu, size)
    buffer, needs = _whole_buffer(gpu, size, bit)
    try:
        if not dedicated and (needs.dedicated or type in gpu.answers.dedicated_only):
            # The importer must know, and the descriptor repeats the caller's choice.
            raise UnsupportedError("the driver exports only dedicated memory of this type: pass dedicated=True",
                                   capability=f"memory.export.{type.value}.shared", backend="vulkan")
        index = best_type(gpu, needs.types)
        memory = _allocate_for(gpu, buffer, needs.size, index, export=bit, dedicated=dedicated)
    except BaseException:
        gpu.destroy("vkDestroyBuffer", buffer)
        raise
    return VulkanMemory(gpu, memory, buffer, needs.size, allocated=needs.size, handle_type=bit, type_index=index,
                        export=True, dedicated=dedicated)


def host_memory(gpu: Gpu, size: int) -> HostMemory:
    """Allocate `size` bytes of coherent host memory for copies, which needs no flushes."""
    _check_size(gpu, size)
    buffer = create_buffer(gpu, size, 0)
    try:
        needs = needs_of(gpu, buffer)
        wanted = vk.VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | vk.VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
        # Prefer a cached type: a read of uncached memory takes microseconds per cache line. Vulkan guarantees a type
        # with the first two properties.
        index = gpu.answers.memory_types.choose(needs.types, wanted, wanted | vk.VK_MEMORY_PROPERTY_HOST_CACHED_BIT)
        memory = _allocate_for(gpu, buffer, needs.size, _known(index), export=0, dedicated=False)
    except BaseException:
        gpu.destroy("vkDestroyBuffer", buffer)
        raise
    try:
        pointer = gpu.library.ffi.new("void **")
        gpu.vk.do("vkMapMemory", gpu.handle, memory, 0, vk.VK_WHOLE_SIZE, 0, pointer)
        return HostMemory(gpu, memory, buffer, gpu.library.address(pointer[0]))
    except BaseException:
        free(gpu, buffer, memory)
        raise


def _check_size(gpu: Gpu, size: int) -> None:
    largest = min(gpu.answers.largest_allocation, LARGEST)
    if size > largest:
        raise OutOfMemoryError(f"{size} bytes are more than the device allocates at once, {largest}",
                               reason="out_of_memory", backend="vulkan")


def _whole_buffer(gpu: Gpu, size: int, export: int) -> tuple[int, Needs]:
    """Create a buffer that covers all the memory it needs, so that every byte of the allocation can be mapped."""
    for _ in range(_ALIGNMENTS_TRIED):
        buffer = create_buffer(gpu, size, export)
        needs = needs_of(gpu, buffer)
        if needs.size <= size:
            return buffer, needs
        gpu.destroy("vkDestroyBuffer", buffer)
        size = needs.size
    raise OutOfMemoryError("the driver requires more memory for each larger buffer", reason="out_of_memory",
                           backend="vulkan")


def create_buffer(gpu: Gpu, size: int, external: int) -> int:
    """Create a VkBuffer on memory of the handle type with the bit `external`, 0 for none."""
    library = gpu.library
    wanted = library.new("VkBufferCreateInfo", size=size, usage=BUFFER_USAGE,
                         sharingMode=vk.VK_SHARING_MODE_EXCLUSIVE)
    if external:
        library.linked("VkExternalMemoryBufferCreateInfo", wanted, handleTypes=external)
    return gpu.make("vkCreateBuffer", "VkBuffer", wanted)


def needs_of(gpu: Gpu, buffer: int) -> Needs:
    """Return the memory requirements of a buffer."""
    library = gpu.library
    wanted = library.new("VkBufferMemoryRequirementsInfo2", buffer=buffer)
    answer = library.new("VkMemoryRequirements2")
    dedicated = library.linked("VkMemoryDedicatedRequirements", answer)
    gpu.vk.vkGetBufferMemoryRequirements2(gpu.handle, wanted, answer)
    needs = answer.memoryRequirements
    return Needs(int(needs.size), int(needs.alignment), int(needs.memoryTypeBits),
                 bool(dedicated.requiresDedicatedAllocation))


def best_type(gpu: Gpu, types: int) -> int:
    """Choose a memory type from the bits of `types`: the first device-local type if one exists."""
    # Exporter and importer must use the same type (VUID-VkMemoryAllocateInfo-allocationSize-01742), and no descriptor
    # names it. Therefore both use the device's first type for such a buffer.
    index = gpu.answers.memory_types.choose(types, vk.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT)
    return _known(gpu.answers.memory_types.choose(types, 0) if index is None else index)


def allocate(gpu: Gpu, size: int, type_index: int, *structs: tuple[str, dict[str, Any]]) -> int:
    """Call vkAllocateMemory with structs chained to its argument, each a name and fields."""
    library = gpu.library
    wanted = library.new("VkMemoryAllocateInfo", allocationSize=size, memoryTypeIndex=type_index)
    for struct, fields in structs:
        library.linked(struct, wanted, **fields)
    return gpu.make("vkAllocateMemory", "VkDeviceMemory", wanted)


def bind(gpu: Gpu, buffer: int, memory: int) -> None:
    """Bind a buffer to the start of memory, which is freed on an error."""
    try:
        gpu.vk.do("vkBindBufferMemory", gpu.handle, buffer, memory, 0)
    except BaseException:
        gpu.destroy("vkFreeMemory", memory)
        raise


def _allocate_for(gpu: Gpu, buffer: int, size: int, type_index: int, *, export: int, dedicated: bool) -> int:
    structs: list[tuple[str, dict[str, int]]] = []
    if export:
        structs.append(("VkExportMemoryAllocateInfo", {"handleTypes": export}))
    if dedicated:
        structs.append(("VkMemoryDedicatedAllocateInfo", {"buffer": buffer}))
    memory = allocate(gpu, size, type_index, *structs)
    bind(gpu, buffer, memory)
    return memory


def free(gpu: Gpu, buffer: int, memory: int) -> None:
    """Destroy a buffer and free its memory."""
    gpu.destroy("vkDestroyBuffer", buffer)
    gpu.destroy("vkFreeMemory", memory)


def _known(index: int | None) -> int:
    if index is None:
        raise OutOfMemoryError("no memory type of the device fits the buffer", reason="out_of_memory",
                               backend="vulkan")
    return index
