"""Imports of semaphores and memory that another API, device or process exported."""

from __future__ import annotations

from typing import Final

from xsem.errors import BadArgumentError, BadHandleError, UnsupportedError, XsemError
from xsem.portable import SharedMemory
from xsem.spi import HandleState, Imported, ImportFailure
from xsem.types import MemoryDesc, MemoryHandleType, OwnedHandle, SemaphoreDesc, SemaphoreHandleType, SemaphoreKind
from xsem_vulkan import constants as vk
from xsem_vulkan.gpu import Gpu
from xsem_vulkan.memory import LARGEST, Needs, VulkanMemory, allocate, best_type, bind, create_buffer, needs_of
from xsem_vulkan.nodes import causes_of_file, check_node, check_sync_file
from xsem_vulkan.results import import_error
from xsem_vulkan.semaphores import VulkanSemaphore, create_semaphore

__all__ = ["import_host_memory", "import_memory", "import_semaphore"]

_OF_HOST: Final = vk.VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT

# According to the specification, the driver owns an fd only after a successful import. SwiftShader also closes it after
# a failed import, and lavapipe does so for memory until Mesa 25. It may be closed then, so the causes are found before.
_AFTER_REFUSAL: Final = "unknown"
_WITH_HANDLE: Final = frozenset({"vkImportSemaphoreFdKHR", "vkAllocateMemory", "vkGetMemoryFdPropertiesKHR"})


def import_semaphore(gpu: Gpu, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Imported:
    """Import a VkSemaphore: permanently, or for one wait if it is a sync file."""
    sync_file = desc.type is SemaphoreHandleType.SYNC_FD
    state: HandleState = "left"
    made: VulkanSemaphore | None = None
    causes: tuple[str, ...] = ()
    try:
        fd = _number(desc, handle)
        if not sync_file:
            check_node(fd, gpu.answers.node)
        elif handle is not None:
            check_sync_file(fd)
        made = create_semaphore(gpu, timeline=desc.type.kind is SemaphoreKind.TIMELINE)
        causes, state = causes_of_file(fd), _AFTER_REFUSAL
        gpu.vk.do("vkImportSemaphoreFdKHR", gpu.handle, gpu.library.new(
            "VkImportSemaphoreFdInfoKHR", semaphore=made.handle, handleType=desc.type.native["vulkan"][1], fd=fd,
            # Vulkan copies the payload of a sync file and allows only a temporary import (…-handleType-07307).
            flags=vk.VK_SEMAPHORE_IMPORT_TEMPORARY_BIT if sync_file else 0))
    except BaseException as error:
        if made is not None:
            gpu.destroy("vkDestroySemaphore", made.handle)
        if isinstance(error, XsemError):
            raise _failure(error, causes, state) from error
        raise
    return Imported(made, handle="taken")


def import_memory(gpu: Gpu, desc: MemoryDesc, handle: OwnedHandle | None) -> Imported:
    """Import a VkDeviceMemory and bind a VkBuffer to it."""
    bit = desc.type.native["vulkan"][1]
    state: HandleState = "left"
    buffer = 0
    causes: tuple[str, ...] = ()
    try:
        fd = _number(desc, handle)
        if desc.type is MemoryHandleType.OPAQUE_FD:
            check_node(fd, gpu.answers.node)
        buffer, needs, size = _buffer_within(gpu, desc.allocation_size, bit)
        dedicated = desc.dedicated or needs.dedicated or desc.type in gpu.answers.dedicated_only
        index = _type_for(gpu, desc, fd, needs.types)
        structs = [("VkImportMemoryFdInfoKHR", {"handleType": bit, "fd": fd})]
        if dedicated:
            structs.append(("VkMemoryDedicatedAllocateInfo", {"buffer": buffer}))
        causes, state = causes_of_file(fd), _AFTER_REFUSAL
        memory = allocate(gpu, desc.allocation_size, index, *structs)
        state = "taken"
        bind(gpu, buffer, memory)
    except BaseException as error:
        if buffer:
            gpu.destroy("vkDestroyBuffer", buffer)
        if isinstance(error, XsemError):
            raise _failure(error, causes, state) from error
        raise
    made = VulkanMemory(gpu, memory, buffer, size, allocated=desc.allocation_size, handle_type=bit, type_index=index,
                        export=False, dedicated=dedicated, drm_layout=desc.drm_layout)
    return Imported(made, handle="taken")


class _HostMemory(VulkanMemory):
    """Pages of the host with one VkBuffer."""

    def __init__(self, gpu: Gpu, memory: int, buffer: int, size: int, shared: SharedMemory, type_index: int) -> None:
        super().__init__(gpu, memory, buffer, size, allocated=shared.size, handle_type=_OF_HOST, type_index=type_index,
                         export=False, dedicated=False)
        self.of_host = True
        self._shared = shared
        gpu.shared_with_host += 1

    def close(self) -> None:
        """Free the import, and unmap the pages."""
        super().close()
        self._gpu.shared_with_host -= 1
        self._shared.unmap()


def import_host_memory(gpu: Gpu, shared: SharedMemory) -> VulkanMemory:
    """Import the pages of the host as a VkDeviceMemory, and bind a VkBuffer to it."""
    library = gpu.library
    pointer = library.ffi.cast("void *", shared.map(0).address)
    buffer = 0
    try:
        buffer, needs, size = _buffer_within(gpu, shared.size, _OF_HOST)
        answer = library.new("VkMemoryHostPointerPropertiesEXT")
        gpu.vk.do("vkGetMemoryHostPointerPropertiesEXT", gpu.handle, _OF_HOST, pointer, answer)
        # Nothing flushes the caches of a type that is not coherent, because the other side does not know of it.
        index = gpu.answers.memory_types.choose(needs.types & answer.memoryTypeBits,
                                                vk.VK_MEMORY_PROPERTY_HOST_COHERENT_BIT)
        if index is None:
            raise UnsupportedError("the device imports these pages of the host only without coherence",
                                   capability="memory.import.host_memory_fd", reason="not_coherent", backend="vulkan")
        memory = allocate(gpu, shared.size, index, ("VkImportMemoryHostPointerInfoEXT",
                                                    {"handleType": _OF_HOST, "pHostPointer": pointer}))
        bind(gpu, buffer, memory)
    except BaseException:
        if buffer:
            gpu.destroy("vkDestroyBuffer", buffer)
        shared.unmap()
        raise
    return _HostMemory(gpu, memory, buffer, size, shared, index)


def _type_for(gpu: Gpu, desc: MemoryDesc, fd: int, types: int) -> int:
    """Choose a memory type from the bits of `types`, and from those for the dma-buf."""
    if desc.type is MemoryHandleType.DMABUF_FD:
        answer = gpu.library.new("VkMemoryFdPropertiesKHR")
        gpu.vk.do("vkGetMemoryFdPropertiesKHR", gpu.handle, desc.type.native["vulkan"][1], fd, answer)
        types &= answer.memoryTypeBits
    if not types:
        raise BadHandleError("no memory type of the device fits both the dma-buf and a buffer",
                             reason="refused_by_driver", backend="vulkan")
    return best_type(gpu, types)


def _buffer_within(gpu: Gpu, allocated: int, bit: int) -> tuple[int, Needs, int]:
    """Create the largest buffer that fits into the allocation; return it with its requirements and its size."""
    # The last bytes are unreachable if no buffer of this device needs exactly the exporter's number of bytes.
    if allocated > LARGEST:
        raise BadArgumentError(f"{allocated} bytes are more than an allocation can have, {LARGEST}", reason="bad_size",
                               backend="vulkan")
    size = allocated
    while size > 0:
        buffer = create_buffer(gpu, size, bit)
        needs = needs_of(gpu, buffer)
        if needs.size <= allocated:
            return buffer, needs, size
        gpu.destroy("vkDestroyBuffer", buffer)
        aligned = allocated - allocated % max(1, needs.alignment)
        size = aligned if aligned < size else size - (needs.size - allocated)
    raise BadArgumentError(f"{allocated} bytes are fewer than the device needs for any buffer", reason="bad_size",
                           backend="vulkan")


def _number(desc: SemaphoreDesc | MemoryDesc, handle: OwnedHandle | None) -> int:
    """Return the fd, or -1 for a sync file that is already signalled."""
    if handle is not None:
        return handle.fileno()
    if desc.type is SemaphoreHandleType.SYNC_FD:
        return -1
    raise BadHandleError(f"{desc.type.value} needs a handle", reason="no_handle", backend="vulkan")


def _failure(error: XsemError, causes: tuple[str, ...], state: HandleState) -> ImportFailure:
    """Return the failure of an import: the handle is bad if a call with it was refused."""
    return ImportFailure(import_error(error, causes) if error.call in _WITH_HANDLE else error, handle=state)
