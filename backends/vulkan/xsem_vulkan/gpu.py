"""An open VkDevice: its functions and its queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from xsem.spi import Lock
from xsem_vulkan.answers import Answers
from xsem_vulkan.instance import PhysicalDevice
from xsem_vulkan.loader import CData, Functions, Library

__all__ = ["Gpu", "VkQueue", "borrow_gpu", "open_gpu"]

_OF_DEVICE: Final = (
    "vkDestroyDevice", "vkGetDeviceQueue", "vkQueueSubmit", "vkCreateSemaphore", "vkDestroySemaphore",
    "vkGetSemaphoreCounterValue", "vkWaitSemaphores", "vkSignalSemaphore", "vkCreateBuffer", "vkDestroyBuffer",
    "vkGetBufferMemoryRequirements2", "vkAllocateMemory", "vkFreeMemory", "vkBindBufferMemory", "vkMapMemory",
    "vkCreateImage", "vkDestroyImage", "vkGetImageMemoryRequirements2", "vkBindImageMemory",
    "vkCreateCommandPool", "vkDestroyCommandPool", "vkAllocateCommandBuffers", "vkBeginCommandBuffer",
    "vkEndCommandBuffer", "vkCmdPipelineBarrier", "vkCmdCopyBuffer", "vkCmdFillBuffer",
    "vkCmdCopyImageToBuffer", "vkCmdCopyBufferToImage", "vkCmdCopyImage",
    "vkGetSemaphoreFdKHR", "vkImportSemaphoreFdKHR", "vkGetMemoryFdKHR", "vkGetMemoryFdPropertiesKHR",
    "vkGetMemoryHostPointerPropertiesEXT",
)


_NO_LOCK: Final = nullcontext()


class VkQueue:
    """One VkQueue. One thread at a time may use it, so each use is in ``with queue.theirs(), queue.lock:``."""

    def __init__(
        self, handle: CData, address: int, lock: Lock | None = None,
        theirs: AbstractContextManager[object] | None = None, *, unguarded: bool = False,
    ) -> None:
        self.handle = handle
        self.address = address   # the handle as a number
        self.unguarded = unguarded   # the application may use it without a lock, on the thread that calls xsem
        # Re-entrant: the application's work runs with the lock held, and may append to the same list.
        self.lock = Lock() if lock is None else lock
        self._theirs = theirs   # the application's lock
        self.users = 0   # queue drivers that submit to this VkQueue

    def theirs(self) -> AbstractContextManager[object]:
        """Return the application's lock for a use of the queue on this thread, or a context without a lock."""
        # The application's lock need not be re-entrant, so only the outermost use takes it.
        if self._theirs is None or self.lock._is_owned():   # type: ignore[attr-defined]
            return _NO_LOCK
        return self._theirs


class Gpu:
    """The state that all objects of one device share."""

    def __init__(
        self, physical: PhysicalDevice, functions: Functions, handle: CData, answers: Answers,
        queues: Sequence[VkQueue], destroy: Callable[[], None],
    ) -> None:
        self.physical = physical
        self.library: Library = physical.library
        self.vk = functions
        self.handle = handle   # VkDevice
        self.answers = answers
        self.family = answers.family.index
        self.queues = queues   # those that xsem submits to
        # Guards the owner and the uses of all images. A thread that also needs a queue takes the queue's locks first.
        self.image_lock = Lock()
        self.shared_with_host = 0   # memories of the host that are imported
        # Whether work that xsem cannot wait for is pending. Destruction of the device could hang or crash then.
        self.stuck = False
        self._destroy_device = destroy   # does nothing for a borrowed one

    def make(self, call: str, type: str, wanted: CData) -> int:
        """Call a function that creates an object, and return its handle."""
        made = self.library.ffi.new(f"{type} *")
        self.vk.do(call, self.handle, wanted, self.library.null, made)
        return int(made[0])

    def destroy(self, call: str, handle: int) -> None:
        """Call a function that destroys an object."""
        getattr(self.vk, call)(self.handle, handle, self.library.null)

    def close(self) -> None:
        """Destroy an owned device, unless it is `stuck`."""
        if not self.stuck:
            self._destroy_device()


def open_gpu(physical: PhysicalDevice, answers: Answers) -> Gpu:
    """Create a VkDevice. The result owns the instance; on an error the instance stays the caller's."""
    library = physical.library
    priorities = library.ffi.new("float[]", [1.0] * answers.queues)
    queues = library.new("VkDeviceQueueCreateInfo", queueFamilyIndex=answers.family.index,
                         queueCount=answers.queues, pQueuePriorities=priorities)
    names, kept = library.strings(sorted(answers.extensions))
    wanted = library.new("VkDeviceCreateInfo", queueCreateInfoCount=1, pQueueCreateInfos=queues,
                         enabledExtensionCount=len(kept), ppEnabledExtensionNames=names)
    library.linked("VkPhysicalDeviceTimelineSemaphoreFeatures", wanted, timelineSemaphore=1)
    made = library.ffi.new("VkDevice *")
    physical.functions.do("vkCreateDevice", physical.handle, wanted, library.null, made)
    handle = made[0]
    functions = _functions(physical, handle)

    def destroy() -> None:
        functions.vkDestroyDevice(handle, library.null)
        physical.instance.close()

    def queue(index: int) -> VkQueue:
        found = library.ffi.new("VkQueue *")
        functions.vkGetDeviceQueue(handle, answers.family.index, index, found)
        return VkQueue(found[0], library.address(found[0]))

    return Gpu(physical, functions, handle, answers, [queue(index) for index in range(answers.queues)], destroy)


def borrow_gpu(
    physical: PhysicalDevice, answers: Answers, device: int, queues: Sequence[int],
    lock: AbstractContextManager[object] | None,
) -> Gpu:
    """Wrap the application's own device, which stays the application's."""
    library = physical.library
    handle = library.ffi.cast("VkDevice", device)
    # One lock for all queues: the application passes one lock, which need not be re-entrant.
    shared = None if lock is None else Lock()
    return Gpu(physical, _functions(physical, handle), handle, answers,
               [VkQueue(library.ffi.cast("VkQueue", each), each, shared, lock, unguarded=lock is None)
                for each in queues],
               lambda: None)


def _functions(physical: PhysicalDevice, handle: CData) -> Functions:
    find = physical.functions.vkGetDeviceProcAddr
    return Functions(physical.library, lambda name: find(handle, name.encode()), _OF_DEVICE)
