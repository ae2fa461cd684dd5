"""One vkQueueSubmit with structs that are created once."""

from __future__ import annotations

from collections.abc import Sequence

from xsem_vulkan import constants as vk
from xsem_vulkan.gpu import Gpu, VkQueue
from xsem_vulkan.loader import CData
from xsem_vulkan.results import check

__all__ = ["Submission"]


class _Semaphores:
    """Arrays of semaphores, values and stages, as long as the longest batch so far."""

    def __init__(self, gpu: Gpu) -> None:
        self._ffi = gpu.library.ffi
        self._room = 0
        self.handles: CData = None
        self.values: CData = None
        self.stages: CData = None
        self._grow(4)

    def _grow(self, room: int) -> None:
        self._room = room
        self.handles = self._ffi.new("VkSemaphore[]", room)
        self.values = self._ffi.new("uint64_t[]", room)
        self.stages = self._ffi.new("VkFlags[]", [vk.VK_PIPELINE_STAGE_ALL_COMMANDS_BIT] * room)

    def put(self, semaphores: Sequence[tuple[int, int]]) -> int:
        """Write the semaphores and return their number."""
        # Vulkan ignores the value of a binary semaphore.
        if len(semaphores) > self._room:
            self._grow(2 * len(semaphores))
        for index, (handle, value) in enumerate(semaphores):
            self.handles[index] = handle
            self.values[index] = value
        return len(semaphores)


# A submission with the package `vulkan` costs 13 us for its VkSubmitInfo. A submission with existing structs costs 1.3
# to 1.7 us.
class Submission:
    """The structs of one queue's submissions, used by one thread at a time."""

    def __init__(self, gpu: Gpu) -> None:
        library = gpu.library
        self._submit: CData = gpu.vk.vkQueueSubmit
        self._waits = _Semaphores(gpu)
        self._signals = _Semaphores(gpu)
        self._commands = library.ffi.new("VkCommandBuffer[1]")
        self._info = library.new("VkSubmitInfo", commandBufferCount=1, pCommandBuffers=self._commands)
        self._values = library.linked("VkTimelineSemaphoreSubmitInfo", self._info)

    def submit(
        self, queue: VkQueue, waits: Sequence[tuple[int, int]], commands: CData, signals: Sequence[tuple[int, int]]
    ) -> None:
        """Submit one command buffer after the waits and before the signals, each (VkSemaphore, value)."""
        # On an error, the submission did not happen or the device is lost (vkQueueSubmit).
        info, values = self._info, self._values
        info.waitSemaphoreCount = values.waitSemaphoreValueCount = self._waits.put(waits)
        info.signalSemaphoreCount = values.signalSemaphoreValueCount = self._signals.put(signals)
        info.pWaitSemaphores, values.pWaitSemaphoreValues = self._waits.handles, self._waits.values
        info.pWaitDstStageMask = self._waits.stages
        info.pSignalSemaphores, values.pSignalSemaphoreValues = self._signals.handles, self._signals.values
        self._commands[0] = commands
        check("vkQueueSubmit", self._submit(queue.handle, 1, info, 0))
