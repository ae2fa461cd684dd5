"""Command lists: every append is one submission to a queue, finished when the append returns."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

from xsem.errors import DeviceLostError, XsemError
from xsem.spi import QueueDriver
from xsem.types import SignalParams, WaitParams
from xsem_vulkan.addresses import AddressSpace
from xsem_vulkan.commands import Commands
from xsem_vulkan.gpu import Gpu, Queue
from xsem_vulkan.images import Level
from xsem_vulkan.loader import CData
from xsem_vulkan.memory import HostMemory, VulkanMemory
from xsem_vulkan.semaphores import Fence, Timeline, VulkanSemaphore
from xsem_vulkan.submission import Submission

__all__ = ["VulkanList"]

_keys: Final = itertools.count(1)

Waits = list[tuple[int, int]]


class VulkanList(QueueDriver):
    """One in-order list. Its timeline counts its operations, so every operation has a fence without further cost.

    Each operation contains a full barrier. Later operations of the list therefore see its results, and no other user of
    the queue needs to know them.
    """

    def __init__(
        self, gpu: Gpu, queue: Queue, addresses: AddressSpace, forget: Callable[[VulkanList], None], *,
        borrowed: bool = False,
    ) -> None:
        self._gpu = gpu
        self.queue = queue
        self._addresses = addresses
        self._forget = forget
        self._submission = Submission(gpu)
        self._timeline = Timeline(gpu)
        try:
            self._commands = Commands(gpu)
        except BaseException:
            self._timeline.drop()
            raise
        # The facade distinguishes queues by `identity`, so two lists on one queue need different identities. A negative number is
        # never a VkQueue.
        self.identity = queue.address if borrowed or queue.lists == 0 else -next(_keys)

    # ---- appending
    def append_barrier(self, wait_fences: Sequence[Fence], want_fence: bool) -> Fence | None:
        """Append a full barrier that waits for the fences."""
        return self._append(self._commands.barrier, self._open(wait_fences), [], want_fence)

    def append_wait(
        self, semaphores: Sequence[VulkanSemaphore], params: Sequence[WaitParams], wait_fences: Sequence[Fence],
        acquire: Sequence[VulkanMemory], want_fence: bool,
    ) -> Fence | None:
        """Append a barrier that waits for fences and semaphores. With `acquire`, it also acquires the memory."""
        waits = self._open(wait_fences)
        waits += [(semaphore.handle, param.value or 0) for semaphore, param in zip(semaphores, params, strict=True)]
        return self._hand(acquire, waits, [], want_fence, acquire=True)

    def append_signal(
        self, semaphores: Sequence[VulkanSemaphore], params: Sequence[SignalParams], wait_fences: Sequence[Fence],
        release: Sequence[VulkanMemory], want_fence: bool,
    ) -> Fence | None:
        """Append a barrier and the signals. With `release`, the barrier also releases the memory."""
        signals = [(semaphore.handle, param.value or 0) for semaphore, param in zip(semaphores, params, strict=True)]
        return self._hand(release, self._open(wait_fences), signals, want_fence, acquire=False)

    def append_copy(
        self, dst: int, src: int, size: int, wait_fences: Sequence[Fence], want_fence: bool
    ) -> Fence | None:
        """Append a copy between barriers."""
        places = self._addresses.find(dst, size), self._addresses.find(src, size)
        self._recycle()
        commands = self._commands.copy(*places, size)
        return self._append_once(commands, None, self._open(wait_fences), [], want_fence)

    def append_fill(
        self, dst: int, pattern: bytes, size: int, wait_fences: Sequence[Fence], want_fence: bool
    ) -> Fence | None:
        """Append a fill between barriers."""
        place = self._addresses.find(dst, size)
        self._recycle()
        commands, scratch = self._commands.fill(place, pattern, size)
        return self._append_once(commands, scratch, self._open(wait_fences), [], want_fence)

    def append_level_copy(
        self, level: Level, address: int, read: bool, wait_fences: Sequence[Fence], want_fence: bool
    ) -> Fence | None:
        """Copy a whole level of an image to or from host memory, after an acquire barrier if the image needs one."""
        place = self._addresses.find(address, level.size)
        with level.image.lock:
            self._recycle()
            commands = self._commands.level_copy(level, place, read=read)
            fence = self._append_once(commands, None, self._open(wait_fences), [], want_fence)
            level.image.owned = True
            level.image.used(self._timeline, self._timeline.appended)
        return fence

    def append_work(self, work: Callable[[], object]) -> None:
        """Call `work` with the queue locked: `work` may submit to it."""
        with self.queue.lock:
            work()

    def close(self) -> None:
        """Destroy the list's own objects. Its timeline stays while a fence of the list exists."""
        if self._idle():
            self._commands.close()
        else:
            # The list is closed after a driver error with work still pending. Objects that this work uses must not be
            # destroyed.
            self._gpu.stuck = True
        self._timeline.drop()
        self._forget(self)

    # ---- inside
    def _hand(
        self, memories: Sequence[VulkanMemory], waits: Waits, signals: Waits, want_fence: bool, *, acquire: bool
    ) -> Fence | None:
        if not memories:
            return self._append(self._commands.barrier, waits, signals, want_fence)
        self._recycle()
        with ExitStack() as held:
            images = []
            # Lock the images in one order for all lists. Copy the set, because another thread may release an image
            # meanwhile.
            for image in sorted((image for memory in memories for image in tuple(memory.images)),
                                key=lambda each: each.image):
                held.enter_context(image.lock)
                if not image.closed and (acquire or image.owned):
                    images.append(image)
            commands = self._commands.handover(memories, images, acquire=acquire)
            fence = self._append_once(commands, None, waits, signals, want_fence)
            for memory in memories:
                memory.handed_over = True
            for image in images:
                image.owned = acquire
                image.used(self._timeline, self._timeline.appended)
        return fence

    def _append_once(
        self, commands: CData, scratch: HostMemory | None, waits: Waits, signals: Waits, want_fence: bool
    ) -> Fence | None:
        """Append a command buffer that was recorded for one submission."""
        try:
            fence = self._append(commands, waits, signals, want_fence)
        except BaseException:
            self._commands.put_back(commands, scratch)
            raise
        self._commands.lend(self._timeline.appended, commands, scratch)
        return fence

    def _append(self, commands: CData, waits: Waits, signals: Waits, want_fence: bool) -> Fence | None:
        timeline = self._timeline
        value = timeline.appended + 1
        with self.queue.lock:
            self._submission.submit(self.queue, waits, commands, [*signals, (timeline.handle, value)])
        timeline.appended = value
        return Fence(timeline, value) if want_fence else None

    def _open(self, fences: Sequence[Fence]) -> Waits:
        """The semaphores to wait for. A signalled fence needs none."""
        return [(fence.timeline.handle, fence.value) for fence in fences if not fence.timeline.reached(fence.value)]

    def _recycle(self) -> None:
        oldest = self._commands.oldest_busy
        if oldest is not None and self._timeline.reached(oldest):
            self._commands.recycle(self._timeline.known)

    def _idle(self) -> bool:
        try:
            return self._timeline.reached(self._timeline.appended)
        except DeviceLostError:
            return True   # pending work of a lost device counts as complete
        except XsemError:
            return False
