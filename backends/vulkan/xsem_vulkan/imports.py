"""Semaphores and memory that another API, device or process exported.

The specification gives an fd to the driver with a successful import alone. SwiftShader closes it after a failed one,
too, and so does lavapipe for memory until Mesa 25: what became of it then is for the kernel to say.
"""

from __future__ import annotations

from xsem.errors import BadArgumentError, BadHandleError, XsemError
from xsem.spi import ImportFailure
from xsem.types import MemoryDesc, MemoryHandleType, OwnedHandle, SemaphoreDesc, SemaphoreHandleType, SemaphoreKind
from xsem_vulkan import constants as vk
from xsem_vulkan.addresses import LARGEST, AddressSpace
from xsem_vulkan.gpu import Gpu
from xsem_vulkan.memory import Needs, VulkanMemory, allocate, best_type, bind, create_buffer, needs_of
from xsem_vulkan.nodes import check_node, check_sync_file
from xsem_vulkan.results import import_error
from xsem_vulkan.semaphores import VulkanSemaphore, create_semaphore

__all__ = ["import_memory", "import_semaphore"]


def import_semaphore(gpu: Gpu, desc: SemaphoreDesc, handle: OwnedHandle | None) -> VulkanSemaphore:
    """A VkSemaphore with the payload that the fd refers to: for good, or of a sync file for one wait.

    Raises
    ------
    ImportFailure
        With BadHandleError, ``no_handle`` or ``refused_by_driver``, or what the driver says else.
    """
    sync_file = desc.type is SemaphoreHandleType.SYNC_FD
    try:
        fd = _number(desc, handle)
        if not sync_file:
            check_node(fd, gpu.abilities.node)
        elif handle is not None:
            check_sync_file(fd)
        made = create_semaphore(gpu, timeline=desc.type.kind is SemaphoreKind.TIMELINE)
    except XsemError as error:
        raise ImportFailure(error, fate="left") from error
    try:
        gpu.vk.do("vkImportSemaphoreFdKHR", gpu.handle, gpu.library.new(
            "VkImportSemaphoreFdInfoKHR", semaphore=made.handle, handleType=desc.type.native["vulkan"][1], fd=fd,
            # A sync file is copied, not shared, and can be imported in no other way (…-handleType-07307).
            flags=vk.VK_SEMAPHORE_IMPORT_TEMPORARY_BIT if sync_file else 0))
    except BaseException as error:
        gpu.vk.vkDestroySemaphore(gpu.handle, made.handle, gpu.library.null)
        _fail(error)
        raise
    if handle is not None:
        handle.detach()
    return made


def import_memory(gpu: Gpu, addresses: AddressSpace, desc: MemoryDesc, handle: OwnedHandle | None) -> VulkanMemory:
    """A VkDeviceMemory over the memory that the fd refers to, under a VkBuffer.

    Raises
    ------
    ImportFailure
        With BadArgumentError, ``bad_size``: it is larger than anything on the device, or too small for a buffer;
        BadHandleError, ``no_handle`` or ``refused_by_driver``; or what the driver says else.
    """
    bit = desc.type.native["vulkan"][1]
    try:
        fd = _number(desc, handle)
        if desc.type is MemoryHandleType.OPAQUE_FD:
            check_node(fd, gpu.abilities.node)
        buffer, needs, size = _buffer_within(gpu, desc.allocation_size, bit)
    except XsemError as error:
        raise ImportFailure(error, fate="left") from error
    try:
        dedicated = desc.dedicated or needs.dedicated or desc.type in gpu.abilities.dedicated_only
        index = _type_for(gpu, desc, fd, bit, needs)
        memory = _import(gpu, desc, fd, bit, index, buffer if dedicated else 0)
        if handle is not None:
            handle.detach()
        bind(gpu, buffer, memory)
    except BaseException:
        gpu.vk.vkDestroyBuffer(gpu.handle, buffer, gpu.library.null)
        raise
    try:
        return VulkanMemory(gpu, addresses, memory, buffer, size, allocated=desc.allocation_size, handle_type=bit,
                            type_index=index, export=False, dedicated=dedicated)
    except BaseException:
        gpu.vk.vkDestroyBuffer(gpu.handle, buffer, gpu.library.null)
        gpu.vk.vkFreeMemory(gpu.handle, memory, gpu.library.null)
        raise


def _type_for(gpu: Gpu, desc: MemoryDesc, fd: int, bit: int, needs: Needs) -> int:
    try:
        types = needs.types
        if desc.type is MemoryHandleType.DMABUF_FD:
            types &= _types_of(gpu, bit, fd)
        if not types:
            raise BadHandleError("no memory type of the device is the dma-buf's and fits a buffer",
                                 reason="refused_by_driver", backend="vulkan")
        return best_type(gpu, types)
    except XsemError as error:
        raise ImportFailure(import_error(error), fate="left") from error


def _import(gpu: Gpu, desc: MemoryDesc, fd: int, bit: int, index: int, dedicated_to: int) -> int:
    structs = [("VkImportMemoryFdInfoKHR", {"handleType": bit, "fd": fd})]
    if dedicated_to:
        structs.append(("VkMemoryDedicatedAllocateInfo", {"buffer": dedicated_to}))
    try:
        return allocate(gpu, desc.allocation_size, index, *structs)
    except BaseException as error:
        _fail(error)
        raise


def _types_of(gpu: Gpu, bit: int, fd: int) -> int:
    """Bits of the memory types that a dma-buf can be imported as. The fd stays the caller's."""
    answer = gpu.library.new("VkMemoryFdPropertiesKHR")
    gpu.vk.do("vkGetMemoryFdPropertiesKHR", gpu.handle, bit, fd, answer)
    return int(answer.memoryTypeBits)


def _buffer_within(gpu: Gpu, allocated: int, bit: int) -> tuple[int, Needs, int]:
    """A buffer that needs no more memory than there is, what it needs, and its size.

    Where the exporter allocated a number of bytes that no buffer of this device needs, the last ones stay out of reach.
    """
    if allocated > LARGEST:
        raise BadArgumentError(f"the device has no addresses for {allocated} bytes in one", reason="bad_size",
                               backend="vulkan")
    size = allocated
    while size > 0:
        buffer = create_buffer(gpu, size, bit)
        try:
            needs = needs_of(gpu, buffer)
        except BaseException:
            gpu.vk.vkDestroyBuffer(gpu.handle, buffer, gpu.library.null)
            raise
        if needs.size <= allocated:
            return buffer, needs, size
        gpu.vk.vkDestroyBuffer(gpu.handle, buffer, gpu.library.null)
        aligned = allocated - allocated % max(1, needs.alignment)
        size = aligned if aligned < size else size - (needs.size - allocated)
    raise BadArgumentError(f"{allocated} bytes are fewer than the device needs for any buffer", reason="bad_size",
                           backend="vulkan")


def _number(desc: SemaphoreDesc | MemoryDesc, handle: OwnedHandle | None) -> int:
    """The fd; a sync file's may be -1, which stands for one that is signalled already."""
    if handle is not None:
        return handle.fileno()
    if desc.type is SemaphoreHandleType.SYNC_FD:
        return -1
    raise BadHandleError(f"{desc.type.value} needs a handle", reason="no_handle", backend="vulkan")


def _fail(error: BaseException) -> None:
    if isinstance(error, XsemError):
        raise ImportFailure(import_error(error), fate="unknown") from error
