"""An open VkDevice: its functions, its queues and its timelines."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from xsem_vulkan.abilities import Abilities
from xsem_vulkan.instance import PhysicalDevice
from xsem_vulkan.loader import CData, Functions, Library

__all__ = ["Gpu", "Queue", "open_gpu"]

_OF_DEVICE: Final = (
    "vkDestroyDevice", "vkGetDeviceQueue", "vkQueueSubmit", "vkCreateSemaphore", "vkDestroySemaphore",
    "vkGetSemaphoreCounterValue", "vkWaitSemaphores", "vkSignalSemaphore", "vkCreateBuffer", "vkDestroyBuffer",
    "vkGetBufferMemoryRequirements2", "vkAllocateMemory", "vkFreeMemory", "vkBindBufferMemory", "vkMapMemory",
    "vkCreateCommandPool", "vkDestroyCommandPool", "vkAllocateCommandBuffers", "vkBeginCommandBuffer",
    "vkEndCommandBuffer", "vkCmdPipelineBarrier", "vkCmdCopyBuffer", "vkCmdFillBuffer",
    "vkGetSemaphoreFdKHR", "vkImportSemaphoreFdKHR", "vkGetMemoryFdKHR", "vkGetMemoryFdPropertiesKHR",
)


class Queue:
    """One VkQueue. Vulkan wants it used by one thread at a time: that is what the lock is for."""

    def __init__(self, handle: CData, address: int) -> None:
        self.handle = handle
        self.address = address
        # Re-entrant: the application's own work holds it, and may append to the same list.
        self.lock = threading.RLock()
        self.lists = 0


class Gpu:
    """What everything on one device shares.

    Parameters
    ----------
    library, functions, handle : Library, Functions, VkDevice
        What to call, and with what.
    abilities : Abilities
        What may be asked of it.
    destroy : callable
        Gives the device back; the application's own one is left alone.
    """

    def __init__(
        self, library: Library, functions: Functions, handle: CData, abilities: Abilities, destroy: Callable[[], None]
    ) -> None:
        self.library = library
        self.vk = functions
        self.handle = handle
        self.abilities = abilities
        self.family = abilities.family.index
        self.queues = [self._queue(index) for index in range(abilities.queues)]
        self.stuck = False
        """Something is pending that cannot be waited for: to destroy the device would hang, or worse."""
        self._destroy = destroy

    def _queue(self, index: int) -> Queue:
        found = self.library.ffi.new("VkQueue *")
        self.vk.vkGetDeviceQueue(self.handle, self.family, index, found)
        return Queue(found[0], self.library.address(found[0]))

    def close(self) -> None:
        """Give the device back."""
        if not self.stuck:
            self._destroy()


def open_gpu(physical: PhysicalDevice, abilities: Abilities) -> Gpu:
    """A device of xsem's own. The instance goes with it when it is closed; on an error it stays the caller's."""
    library = physical.library
    priorities = library.ffi.new("float[]", [1.0] * abilities.queues)
    queues = library.new("VkDeviceQueueCreateInfo", queueFamilyIndex=abilities.family.index,
                         queueCount=abilities.queues, pQueuePriorities=priorities)
    names, kept = library.strings(sorted(abilities.extensions))
    wanted = library.new("VkDeviceCreateInfo", queueCreateInfoCount=1, pQueueCreateInfos=queues,
                         enabledExtensionCount=len(kept), ppEnabledExtensionNames=names)
    features = library.linked("VkPhysicalDeviceTimelineSemaphoreFeatures", wanted, timelineSemaphore=1)
    made = library.ffi.new("VkDevice *")
    physical.functions.do("vkCreateDevice", physical.handle, wanted, library.null, made)
    del features   # until here
    handle = made[0]
    find = physical.functions.vkGetDeviceProcAddr

    functions = Functions(library, lambda name: find(handle, name.encode()), _OF_DEVICE)

    def destroy() -> None:
        functions.vkDestroyDevice(handle, library.null)
        physical.instance.close()

    return Gpu(library, functions, handle, abilities, destroy)
