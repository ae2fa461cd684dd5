"""A Vulkan device with the driver interface of xsem."""

from __future__ import annotations

from typing import Final

from xsem import spi
from xsem.errors import BusyError, UnsupportedError, WrongDeviceError
from xsem.portable import SharedMemory
from xsem.types import (
    Capabilities,
    MemoryDesc,
    MemoryHandleType,
    MipmapDesc,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
    SemaphoreKind,
)
from xsem_vulkan.gpu import Gpu
from xsem_vulkan.images import Level, VulkanImage, level_of, map_image, plane_of
from xsem_vulkan.imports import import_host_memory, import_memory, import_semaphore
from xsem_vulkan.memory import HostMemory, Mapping, VulkanMemory, create_memory, host_memory
from xsem_vulkan.queue import VulkanQueue
from xsem_vulkan.semaphores import (
    Fence,
    HostFences,
    VulkanSemaphore,
    check_timeline,
    counter_value,
    create_semaphore,
    export_fd,
    export_sync_file,
    host_signal,
    wait_for_value,
)
from xsem_vulkan.undeclared import undeclared_causes

__all__ = ["VulkanDevice"]

_DLPACK_VULKAN: Final = 7
_SYNC_FILE: Final = SemaphoreHandleType.SYNC_FD.native["vulkan"][1]


class VulkanDevice(
    spi.DeviceDriver, spi.SemaphoreImport, spi.SemaphoreExport, spi.HostSemaphore, spi.MemoryImport, spi.MemoryExport,
    spi.PlanarImages, spi.HostMemory, spi.HostFences, spi.HostMemoryImport, spi.BorrowedQueues,
):
    """One open device."""

    def __init__(self, gpu: Gpu, index: int) -> None:
        self._gpu = gpu   # owned from here on
        self._index = index   # position among the backend's devices
        self._capabilities = gpu.answers.capabilities
        self.undeclared_causes = undeclared_causes(gpu.answers)
        self._queues: set[VulkanQueue] = set()
        self._lock = spi.Lock()
        self._host_fences = HostFences(gpu)

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities that the driver reported."""
        return self._capabilities

    def close(self) -> None:
        """Destroy the device, whose queues are closed."""
        self._host_fences.close()
        self._gpu.close()

    # ---- queues and fences
    def create_queue(self) -> VulkanQueue:
        """Create a queue driver on the VkQueue with the fewest users."""
        # One queue driver more than `independent_lists`, because blocking copies need one. On a device with one
        # VkQueue, two queue drivers share it. Otherwise each has its own.
        with self._lock:
            if len(self._queues) > self._gpu.answers.lists:
                raise BusyError(f"the device has {len(self._gpu.queues)} queues and {len(self._queues)} command lists "
                                "open; release some", reason="too_many_lists")
            queue = min(self._gpu.queues, key=lambda each: each.users)
            made = VulkanQueue(self._gpu, queue, self._forget)
            self._queues.add(made)
            queue.users += 1
        return made

    def queue_identity(self, stream: object) -> int:
        """Return the VkQueue: the identity of a borrowed queue."""
        return spi.queue_handle(stream, "VkQueue")

    def borrow_queue(self, stream: object, in_order: bool) -> VulkanQueue:
        """Create a driver for a VkQueue of the device, owned by the application or used by another list of xsem."""
        # Every VkQueue is in order, so `in_order` changes nothing. Every append contains a full barrier, so the
        # application's own submissions keep their order.
        address = spi.queue_handle(stream, "VkQueue")
        for queue in self._gpu.queues:
            if queue.address == address:
                with self._lock:
                    made = VulkanQueue(self._gpu, queue, self._forget, borrowed=True)
                    queue.users += 1
                return made
        raise WrongDeviceError(f"{address:#x} is not a queue of vulkan:{self._index} that xsem submits to",
                               reason="wrong_device", expected=f"vulkan:{self._index}", actual="another device's queue")

    def _forget(self, gone: VulkanQueue) -> None:
        with self._lock:
            self._queues.discard(gone)
            gone.queue.users -= 1

    def query_fence(self, fence: Fence) -> bool:
        """Query the queue's timeline."""
        return fence.timeline.reached(fence.value)

    def wait_fence(self, fence: Fence, timeout_ns: int) -> bool:
        """Block until the queue's timeline reaches the value, or until the timeout."""
        return fence.timeline.wait(fence.value, timeout_ns)

    def release_fence(self, fence: Fence) -> None:
        """Release the fence, and the timeline of a closed queue with its last fence."""
        if fence.host:
            self._host_fences.release(fence)
        else:
            fence.timeline.drop()

    def create_host_fence(self) -> Fence:
        """Return a value of a timeline that the host signals."""
        return self._host_fences.create()

    def reach_host_fence(self, fence: Fence) -> None:
        """Call vkSignalSemaphore."""
        self._host_fences.reach(fence)

    # ---- semaphores
    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> spi.Imported:
        """Call vkImportSemaphoreFdKHR, see `xsem_vulkan.imports`."""
        return import_semaphore(self._gpu, desc, handle)

    def create_semaphore(self, type: SemaphoreHandleType, initial_value: int) -> VulkanSemaphore:
        """Create a VkSemaphore for export."""
        return create_semaphore(self._gpu, timeline=type.kind is SemaphoreKind.TIMELINE, initial_value=initial_value,
                                export=type.native["vulkan"][1])

    def export_semaphore(self, semaphore: VulkanSemaphore) -> OwnedHandle | None:
        """Return a new fd, owned by the caller; None for a sync file that is already signalled."""
        wanted = self._gpu.library.new("VkSemaphoreGetFdInfoKHR", semaphore=semaphore.handle,
                                       handleType=semaphore.export)
        if semaphore.export == _SYNC_FILE:
            return export_sync_file(self._gpu, wanted)
        return export_fd(self._gpu, "vkGetSemaphoreFdKHR", wanted)

    def release_semaphore(self, semaphore: VulkanSemaphore) -> None:
        """Destroy the semaphore, whose payload lives on in its importers."""
        self._gpu.destroy("vkDestroySemaphore", semaphore.handle)

    def semaphore_value(self, semaphore: VulkanSemaphore) -> int:
        """Return a timeline's current value."""
        check_timeline(semaphore, "value")
        return counter_value(self._gpu, semaphore.handle)

    def host_signal(self, semaphore: VulkanSemaphore, value: int | None) -> None:
        """Set a timeline's value."""
        check_timeline(semaphore, "signal")
        host_signal(self._gpu, semaphore.handle, value or 0)

    def host_wait(self, semaphore: VulkanSemaphore, value: int | None, timeout_ns: int) -> bool:
        """Block until a timeline reaches the value, or until the timeout."""
        check_timeline(semaphore, "wait")
        return wait_for_value(self._gpu, semaphore.handle, value or 0, timeout_ns)

    # ---- memory
    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> spi.Imported:
        """Call vkAllocateMemory with the fd, and bind a buffer to the memory, see `xsem_vulkan.imports`."""
        return import_memory(self._gpu, desc, handle)

    def create_memory(self, type: MemoryHandleType, size: int, dedicated: bool) -> tuple[VulkanMemory, int]:
        """Create a buffer on memory for export, which is not zeroed; return it with its size, at least `size` bytes."""
        made = create_memory(self._gpu, type, size, dedicated=dedicated)
        return made, made.size

    def export_memory(self, memory: VulkanMemory) -> OwnedHandle:
        """Return a new fd, owned by the caller."""
        wanted = self._gpu.library.new("VkMemoryGetFdInfoKHR", memory=memory.memory, handleType=memory.handle_type)
        return export_fd(self._gpu, "vkGetMemoryFdKHR", wanted)

    def import_host_memory(self, memory: SharedMemory) -> VulkanMemory:
        """Import the pages of the memory (VK_EXT_external_memory_host), and bind a buffer to them."""
        return import_host_memory(self._gpu, memory)

    def dlpack_device(self) -> tuple[int, int]:
        """Return DLPack's kDLVulkan and the index of the device."""
        # With the true number, no library takes a buffer for memory of the host or of CUDA.
        return (_DLPACK_VULKAN, self._index)

    def map_buffer(self, memory: VulkanMemory, offset: int, size: int) -> tuple[Mapping, None]:
        """Return a range of the memory, without an address."""
        # VkDeviceAddress is an optional feature. It must be requested at the allocation, and an exporter may not have
        # requested it.
        return Mapping(memory, offset), None

    def unmap_buffer(self, buffer: Mapping) -> None:
        """Do nothing: a mapping has no Vulkan object."""

    def release_memory(self, memory: VulkanMemory) -> None:
        """Free the memory, whose payload lives on in its importers."""
        memory.close()

    # ---- images
    def map_mipmapped_array(self, memory: VulkanMemory, desc: MipmapDesc) -> VulkanImage:
        """Create a VkImage and bind it to the memory at ``desc.offset``."""
        if memory.of_host:
            raise UnsupportedError("xsem maps no images onto memory of the host: copy between a buffer on it and an "
                                   "image", capability="mipmapped_array.host_memory", backend="vulkan")
        return map_image(self._gpu, memory, desc)

    def mipmap_level(self, array: VulkanImage, level: int) -> Level:
        """Return one level of the image."""
        return level_of(array, level)

    def image_plane(self, level: Level, plane: int) -> Level:
        """Return one plane of the level."""
        return plane_of(level, plane)

    def release_array(self, array: VulkanImage) -> None:
        """Destroy the image."""
        array.close()

    def host_buffer(self, size: int) -> tuple[HostMemory, int]:
        """Allocate coherent host memory; return it with its pointer."""
        made = host_memory(self._gpu, size)
        return made, made.address

    def release_host_buffer(self, buffer: HostMemory) -> None:
        """Free host memory of `host_buffer`."""
        buffer.close()

    # ---- other
    def native_handle(self, token: object) -> int:
        """Return the VkDevice for None, else the VkSemaphore, VkDeviceMemory, VkImage or VkBuffer of the object."""
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
            return token.memory.buffer   # covers the whole memory
        if isinstance(token, HostMemory):
            return token.buffer
        raise UnsupportedError("this object has no native handle", capability="native_handle", backend="vulkan")
