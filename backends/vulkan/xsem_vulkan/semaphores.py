"""Semaphores for export and import, and the timelines that count a queue's operations."""

from __future__ import annotations

import os
import time
from typing import Final

from xsem.errors import UnsupportedError
from xsem.spi import Lock
from xsem.types import OwnedHandle
from xsem_vulkan import constants as vk
from xsem_vulkan.gpu import Gpu
from xsem_vulkan.results import check, device_lost

__all__ = ["Fence", "HostFences", "Timeline", "VulkanSemaphore", "check_timeline", "counter_value",
           "create_semaphore", "export_fd", "export_sync_file", "host_signal", "wait_for_value"]

_NO_VALUE: Final = 2**64 - 1
_NO_FD: Final = -1


class VulkanSemaphore:
    """A VkSemaphore, binary or timeline."""

    def __init__(self, handle: int, *, timeline: bool, export: int = 0) -> None:
        self.handle = handle
        self.timeline = timeline
        self.export = export   # the bit of the handle type for export, 0 for none


def check_timeline(semaphore: object, what: str) -> None:
    """Refuse a host operation on a binary semaphore: Vulkan's host functions support only timelines."""
    if not isinstance(semaphore, VulkanSemaphore) or not semaphore.timeline:
        raise UnsupportedError(f"Vulkan has no {what} of a binary semaphore on the host; append it to a list",
                               capability=f"binary.{what}", backend="vulkan")


def create_semaphore(gpu: Gpu, *, timeline: bool, initial_value: int = 0, export: int = 0) -> VulkanSemaphore:
    """Create a semaphore, for export as the handle type with the bit `export`, 0 for none."""
    library = gpu.library
    wanted = library.new("VkSemaphoreCreateInfo")
    if timeline:
        library.linked("VkSemaphoreTypeCreateInfo", wanted, semaphoreType=vk.VK_SEMAPHORE_TYPE_TIMELINE,
                       initialValue=initial_value)
    if export:
        library.linked("VkExportSemaphoreCreateInfo", wanted, handleTypes=export)
    return VulkanSemaphore(gpu.make("vkCreateSemaphore", "VkSemaphore", wanted), timeline=timeline, export=export)


def export_fd(gpu: Gpu, call: str, wanted: object) -> OwnedHandle:
    """Call vkGetSemaphoreFdKHR or vkGetMemoryFdKHR, and return a new fd, owned by the caller."""
    return OwnedHandle(_new_fd(gpu, call, wanted))


def export_sync_file(gpu: Gpu, wanted: object) -> OwnedHandle | None:
    """Return the sync file of a submitted signal, owned by the caller; None if the signal is complete."""
    # lavapipe 26.2 blocks until the signal is complete, so the result there is always None.
    fd = _new_fd(gpu, "vkGetSemaphoreFdKHR", wanted)
    return None if fd == _NO_FD else OwnedHandle(fd)


def _new_fd(gpu: Gpu, call: str, wanted: object) -> int:
    fd = gpu.library.ffi.new("int *", _NO_FD)
    gpu.vk.do(call, gpu.handle, wanted, fd)
    if fd[0] != _NO_FD:
        # Child processes inherit lavapipe's fds (Mesa 22.3 and 25.0), but not SwiftShader's.
        os.set_inheritable(fd[0], False)
    return int(fd[0])


def counter_value(gpu: Gpu, handle: int) -> int:
    """Return a timeline's current value."""
    value = gpu.library.ffi.new("uint64_t *")
    code = gpu.vk.vkGetSemaphoreCounterValue(gpu.handle, handle, value)
    check("vkGetSemaphoreCounterValue", code)
    return int(value[0])


# NVIDIA's vkWaitSemaphores looks for a later signal of CUDA every 10 ms, and at the end of its timeout. For a signal at
# 0.3 ms, a timeout of 50 ms ended the wait after 10.3 ms, and timeouts of 0.02 to 1 ms after 0.3 ms (H200, 580.159.04).
# Thus a wait consists of calls with short timeouts. In a long wait, a timeout is an eighth of the time waited so far.
_FIRST_SLICE_NS: Final = 500_000


def wait_for_value(gpu: Gpu, handle: int, value: int, timeout_ns: int) -> bool:
    """Block until a timeline reaches the value or until the timeout; return whether it reached the value."""
    ffi = gpu.library.ffi
    handles, values = ffi.new("VkSemaphore[1]", [handle]), ffi.new("uint64_t[1]", [value])
    wanted = gpu.library.new("VkSemaphoreWaitInfo", semaphoreCount=1, pSemaphores=handles, pValues=values)
    began = time.monotonic_ns()
    waited = 0
    while True:
        slice_ns = min(max(0, timeout_ns - waited), max(_FIRST_SLICE_NS, waited // 8))
        # VK_TIMEOUT is a success code.
        if gpu.vk.do("vkWaitSemaphores", gpu.handle, wanted, slice_ns) == vk.VK_SUCCESS:
            return True
        waited = time.monotonic_ns() - began
        if waited >= timeout_ns:
            return False


def host_signal(gpu: Gpu, handle: int, value: int) -> None:
    """Set a timeline's value."""
    gpu.vk.do("vkSignalSemaphore", gpu.handle,
              gpu.library.new("VkSemaphoreSignalInfo", semaphore=handle, value=value))


class Timeline:
    """Counts the completed operations of a queue, as long as the queue or any of the queue's fences lives."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.handle = create_semaphore(gpu, timeline=True).handle
        self.appended = 0   # the value of the last operation passed to the driver
        self._reached = 0
        self._users = 1
        self._lock = Lock()

    @property
    def known(self) -> int:
        """The last value that `reached` has read."""
        return self._reached

    def reached(self, value: int) -> bool:
        """Whether operation `value` is complete, without blocking."""
        if self._reached < value:
            found = counter_value(self._gpu, self.handle)
            if found == _NO_VALUE:
                # A lost device may report this value instead of an error code.
                device_lost("vkGetSemaphoreCounterValue")
            self._reached = max(self._reached, found)
        return self._reached >= value

    def wait(self, value: int, timeout_ns: int) -> bool:
        """Block until operation `value` is complete or until the timeout; return whether it is complete."""
        if self._reached >= value:
            return True
        return wait_for_value(self._gpu, self.handle, value, timeout_ns) and self.reached(value)

    def use(self) -> None:
        """Add a user."""
        with self._lock:
            self._users += 1

    def drop(self) -> None:
        """Remove a user; the last one destroys the timeline."""
        with self._lock:
            self._users -= 1
            last = self._users == 0
        if last and not self._gpu.stuck:
            self._gpu.destroy("vkDestroySemaphore", self.handle)


class Fence:
    """A fence: one operation of a queue, and a user of the queue's timeline."""

    __slots__ = ("host", "timeline", "value")

    def __init__(self, timeline: Timeline, value: int) -> None:
        timeline.use()
        self.timeline = timeline
        self.value = value
        self.host = False   # of `HostFences`


class HostFences:
    """Fences that the host reaches: values of timelines of the device's own, one timeline for each unreached fence."""

    # The values of one timeline can only be reached in order. A timeline serves again after the release of its fence.
    # Then all submissions that wait for the fence are complete, or find its value reached.

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._unused: list[Timeline] = []
        self._lock = Lock()

    def create(self) -> Fence:
        """Return an unreached fence."""
        with self._lock:
            timeline = self._unused.pop() if self._unused else Timeline(self._gpu)
        timeline.appended += 1
        fence = Fence(timeline, timeline.appended)
        fence.host = True
        return fence

    def reach(self, fence: Fence) -> None:
        """Signal the fence."""
        host_signal(self._gpu, fence.timeline.handle, fence.value)

    def release(self, fence: Fence) -> None:
        """Keep the timeline of a reached fence for another fence."""
        fence.timeline.drop()
        with self._lock:
            self._unused.append(fence.timeline)

    def close(self) -> None:
        """Destroy the timelines."""
        for timeline in self._unused:
            timeline.drop()
