"""A Vulkan device behind the driver interface."""

from __future__ import annotations

import threading
from typing import Final

from xsem.errors import BadArgumentError, BusyError, UnsupportedError, WrongDeviceError
from xsem.spi import DeviceDriver
from xsem.types import (
    Capabilities,
    Feature,
    MemoryDesc,
    MemoryHandleType,
    MipmapDesc,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
    SemaphoreKind,
)
from xsem_vulkan.addresses import AddressSpace
from xsem_vulkan.gpu import Gpu, Queue
from xsem_vulkan.images import Level, VulkanImage, level_of, map_image
from xsem_vulkan.imports import import_memory, import_semaphore
from xsem_vulkan.lists import VulkanList
from xsem_vulkan.memory import HostMemory, Mapping, VulkanMemory, create_memory, host_memory
from xsem_vulkan.semaphores import (
    Point,
    VulkanSemaphore,
    check_timeline,
    counter_value,
    create_semaphore,
    export_fd,
    export_sync_file,
    host_signal,
    wait_for_value,
)

__all__ = ["VulkanDevice"]

_DLPACK_VULKAN: Final = 7
_SYNC_FILE: Final = SemaphoreHandleType.SYNC_FD.native["vulkan"][1]


class VulkanDevice(DeviceDriver):
    """One open device.

    Parameters
    ----------
    gpu : Gpu
        Owned from here on.
    index : int
        Position among the backend's devices.
    """

    def __init__(self, gpu: Gpu, index: int) -> None:
        self._gpu = gpu
        self._index = index
        self._capabilities = gpu.abilities.capabilities
        self._addresses = AddressSpace()
        self._lists: set[VulkanList] = set()
        self._lock = threading.Lock()

    @property
    def capabilities(self) -> Capabilities:
        """What the driver said when it was asked."""
        return self._capabilities

    def close(self) -> None:
        """Destroy the device; its lists are closed."""
        self._gpu.close()

    # ---- lists and points
    def create_command_list(self) -> VulkanList:
        """A list with a queue to itself, where there are two queues at least.

        One list more than is declared: blocking copies need one, which on a device with one queue shares that.

        Raises
        ------
        BusyError
            ``too_many_lists``.
        """
        with self._lock:
            if len(self._lists) > self._gpu.abilities.lists:
                raise BusyError(f"the device has {len(self._gpu.queues)} queues and {len(self._lists)} command lists "
                                "open; release some", reason="too_many_lists")
            queue: Queue = min(self._gpu.queues, key=lambda each: each.lists)
            made = VulkanList(self._gpu, queue, self._addresses, self._forget)
            self._lists.add(made)
            queue.lists += 1
        return made

    def open_command_list(self, stream: object, in_order: bool) -> VulkanList:
        """A list on one of the device's queues: the application's own, or one that a list of xsem's has.

        Every append has a barrier over everything, so that the application's own submissions come between as they do.

        Raises
        ------
        WrongDeviceError
            ``wrong_device``: the queue is none that this device submits to.
        BadArgumentError
            ``null_stream``.
        TypeError
            `stream` is no VkQueue as an int, nor an object with one.
        """
        address = getattr(stream, "int_ptr", stream)
        if type(address) is not int:
            raise TypeError("a VkQueue is given as an int")
        if address == 0:
            raise BadArgumentError("Vulkan has no default queue: name a VkQueue", reason="null_stream",
                                   backend="vulkan")
        for queue in self._gpu.queues:
            if queue.address == address:
                return VulkanList(self._gpu, queue, self._addresses, lambda _gone: None, borrowed=True)
        raise WrongDeviceError(f"{address:#x} is none of the queues of vulkan:{self._index} that xsem submits to",
                               reason="wrong_device", expected="another device's queue", actual=f"vulkan:{self._index}")

    def _forget(self, gone: VulkanList) -> None:
        with self._lock:
            self._lists.discard(gone)
            gone.queue.lists -= 1

    def done(self, point: Point) -> bool:
        """Ask the list's timeline."""
        return point.timeline.reached(point.value)

    def wait(self, point: Point, timeout_ns: int) -> bool:
        """Sleep until the list's timeline is there."""
        return point.timeline.wait(point.value, timeout_ns)

    def release_point(self, point: Point) -> None:
        """The last one destroys the timeline of a closed list."""
        point.timeline.drop()

    # ---- semaphores
    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> VulkanSemaphore:
        """Call vkImportSemaphoreFdKHR."""
        self._declared(desc.type in self._capabilities.semaphore_import, f"semaphore.import.{desc.type.value}")
        return import_semaphore(self._gpu, desc, handle)

    def create_semaphore(self, type: SemaphoreHandleType, initial_value: int) -> VulkanSemaphore:
        """A new VkSemaphore for export."""
        self._declared(type in self._capabilities.semaphore_export, f"semaphore.export.{type.value}")
        return create_semaphore(self._gpu, timeline=type.kind is SemaphoreKind.TIMELINE, initial_value=initial_value,
                                export=type.native["vulkan"][1])

    def export_semaphore(self, semaphore: VulkanSemaphore) -> OwnedHandle | None:
        """A new fd; None of a sync file that is signalled already."""
        wanted = self._gpu.library.new("VkSemaphoreGetFdInfoKHR", semaphore=semaphore.handle,
                                       handleType=semaphore.export)
        if semaphore.export == _SYNC_FILE:
            return export_sync_file(self._gpu, wanted)
        return export_fd(self._gpu, "vkGetSemaphoreFdKHR", wanted)

    def release_semaphore(self, semaphore: VulkanSemaphore) -> None:
        """Destroy it; what was exported lives on in its importers."""
        self._gpu.vk.vkDestroySemaphore(self._gpu.handle, semaphore.handle, self._gpu.library.null)

    def semaphore_value(self, semaphore: VulkanSemaphore) -> int:
        """A timeline's value now."""
        check_timeline(semaphore, "value")
        return counter_value(self._gpu, semaphore.handle)

    def host_signal(self, semaphore: VulkanSemaphore, value: int | None) -> None:
        """Set a timeline's value."""
        check_timeline(semaphore, "signal")
        host_signal(self._gpu, semaphore.handle, value or 0)

    def host_wait(self, semaphore: VulkanSemaphore, value: int | None, timeout_ns: int) -> bool:
        """Block until a timeline has the value, or the time is over."""
        check_timeline(semaphore, "wait")
        return wait_for_value(self._gpu, semaphore.handle, value or 0, timeout_ns)

    # ---- memory
    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> VulkanMemory:
        """Call vkAllocateMemory with the fd, and bind a buffer to it."""
        self._declared(desc.type in self._capabilities.memory_import, f"memory.import.{desc.type.value}")
        return import_memory(self._gpu, self._addresses, desc, handle)

    def create_memory(self, type: MemoryHandleType, size: int, dedicated: bool) -> tuple[VulkanMemory, int]:
        """A buffer on memory for export; not zeroed."""
        self._declared(type in self._capabilities.memory_export, f"memory.export.{type.value}")
        made = create_memory(self._gpu, self._addresses, type, size, dedicated=dedicated)
        return made, made.size

    def export_memory(self, memory: VulkanMemory) -> OwnedHandle:
        """A new fd."""
        wanted = self._gpu.library.new("VkMemoryGetFdInfoKHR", memory=memory.memory, handleType=memory.handle_type)
        return export_fd(self._gpu, "vkGetMemoryFdKHR", wanted)

    def map_buffer(self, memory: VulkanMemory, offset: int, size: int) -> tuple[Mapping, int]:
        """An address in the memory's own range: no pointer, a name for `append_copy` and `append_fill`."""
        return Mapping(memory), memory.address + offset

    def unmap_buffer(self, buffer: Mapping) -> None:
        """Nothing was made."""

    def release_memory(self, memory: VulkanMemory) -> None:
        """Free it; what was exported lives on in its importers."""
        memory.close()

    # ---- images
    def map_mipmapped_array(self, memory: VulkanMemory, desc: MipmapDesc) -> VulkanImage:
        """A VkImage bound to the memory at ``desc.offset``."""
        self._declared(Feature.MIPMAPPED_ARRAY in self._capabilities.features, "mipmapped_array")
        return map_image(self._gpu, memory, desc)

    def mipmap_level(self, array: VulkanImage, level: int) -> Level:
        """One level of it."""
        return level_of(array, level)

    def release_array(self, array: VulkanImage) -> None:
        """Destroy the image."""
        array.close()

    def host_buffer(self, size: int) -> tuple[HostMemory, int]:
        """Coherent host memory; the address is a pointer."""
        made = host_memory(self._gpu, size)
        try:
            self._addresses.add_host(made.address, size, made.buffer)
        except BaseException:
            made.close()
            raise
        return made, made.address

    def release_host_buffer(self, buffer: HostMemory) -> None:
        """Free it."""
        self._addresses.remove_host(buffer.address)
        buffer.close()

    # ---- other
    def _declared(self, is_: bool, capability: str) -> None:
        if not is_:
            raise UnsupportedError(f"vulkan:{self._index} does not declare {capability}", backend="vulkan",
                                   capability=capability)

    def native_handle(self, token: object) -> int:
        """VkDevice for None; VkSemaphore, VkDeviceMemory, VkImage; a mapping's VkBuffer, which covers the memory."""
        if token is None:
            return self._gpu.library.address(self._gpu.handle)
        if isinstance(token, VulkanSemaphore):
            return token.handle
        if isinstance(token, VulkanMemory):
            return token.memory
        if isinstance(token, VulkanImage):
            return token.image
        if isinstance(token, Level):
            return token.image.image
        if isinstance(token, Mapping):
            return token.memory.buffer
        if isinstance(token, HostMemory):
            return token.buffer
        if isinstance(token, int):
            return token
        raise UnsupportedError("there is no native handle for this", capability="native_handle", backend="vulkan")

    def dlpack_device(self) -> tuple[int, int]:
        """kDLVulkan: no library takes such a capsule for memory of the host or of CUDA."""
        return (_DLPACK_VULKAN, self._index)
