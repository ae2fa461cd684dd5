"""Native queues, for the conformance suite."""

from __future__ import annotations

from collections.abc import Callable

from xsem.spi import NativeQueue, SuiteHooks
from xsem_vulkan.gpu import Gpu
from xsem_vulkan.results import check

__all__ = ["VulkanHooks"]


class VulkanHooks(SuiteHooks):
    """VkQueues of a device."""

    def __init__(self, gpu: Gpu, open_another: Callable[[], Gpu]) -> None:
        self._gpu = gpu
        self._open_another = open_another   # another VkDevice of the same GPU, owned by the caller

    def native_queue(self) -> NativeQueue:
        """Return the first VkQueue of the device."""
        return _queue_of(self._gpu)   # Vulkan does not destroy queues

    def foreign_queue(self) -> NativeQueue:
        """Return the first VkQueue of another VkDevice."""
        other = self._open_another()
        return _queue_of(other, other.close)


def _queue_of(gpu: Gpu, close: Callable[[], None] = lambda: None) -> NativeQueue:
    queue = gpu.queues[0]

    def works() -> bool:
        with queue.theirs(), queue.lock:
            check("vkQueueSubmit", gpu.vk.vkQueueSubmit(queue.handle, 0, gpu.library.null, 0))
        return True

    return NativeQueue(stream=queue.address, handle=queue.address, works=works, close=close, simultaneous=True)
