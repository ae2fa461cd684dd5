"""Queue drivers: every append is one submission to a VkQueue, finished when the append returns."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from xsem.errors import DeviceLostError, XsemError
from xsem.spi import Callers, CopyQueue, ImageCopyQueue, ImageRegion, SemaphoreQueue
from xsem.types import SignalParams, WaitParams
from xsem_vulkan.commands import Commands
from xsem_vulkan.gpu import Gpu, VkQueue
from xsem_vulkan.images import Level, VulkanImage
from xsem_vulkan.loader import CData
from xsem_vulkan.memory import Buffer, HostMemory, VulkanMemory
from xsem_vulkan.semaphores import Fence, Timeline, VulkanSemaphore
from xsem_vulkan.submission import Submission

__all__ = ["VulkanQueue"]

Waits = list[tuple[int, int]]


# A timeline counts the operations, so each operation has a fence without further cost. Each operation contains a full
# barrier, so later operations on the VkQueue see its results, also those of other users of the VkQueue.
class VulkanQueue(SemaphoreQueue, CopyQueue, ImageCopyQueue):
    """One in-order queue."""

    def __init__(
        self, gpu: Gpu, queue: VkQueue, forget: Callable[[VulkanQueue], None], *, borrowed: bool = False
    ) -> None:
        self._gpu = gpu
        self.queue = queue   # several drivers can share it
        # Without a lock, the application may submit to the queue on its thread at any time.
        self.callers = Callers.APPLICATION if queue.unguarded else Callers.ONE_AT_A_TIME
        self._forget = forget
        self._submission = Submission(gpu)
        self._timeline = Timeline(gpu)
        try:
            self._commands = Commands(gpu)
        except BaseException:
            self._timeline.drop()
            raise
        # The facade treats two drivers with one identity as one queue. Therefore a second driver on the VkQueue has
        # another identity.
        self.identity: Hashable = queue.address if borrowed or queue.users == 0 else object()
        self.native_handle = queue.address

    # ---- appending
    def append_barrier(self, wait_fences: Sequence[Fence], want_fence: bool) -> Fence | None:
        """Append a full barrier that waits for the fences."""
        return self._append(self._commands.barrier, self._open(wait_fences), [], want_fence)

    def append_wait(
        self, semaphores: Sequence[VulkanSemaphore], params: Sequence[WaitParams], wait_fences: Sequence[Fence],
        acquire: Sequence[VulkanMemory], want_fence: bool,
    ) -> Fence | None:
        """Append a barrier that waits for fences and semaphores, and acquires memory."""
        waits = self._open(wait_fences)
        waits += [(semaphore.handle, param.value or 0) for semaphore, param in zip(semaphores, params, strict=True)]
        return self._hand(acquire, waits, [], want_fence, acquire=True)

    def append_signal(
        self, semaphores: Sequence[VulkanSemaphore], params: Sequence[SignalParams], wait_fences: Sequence[Fence],
        release: Sequence[VulkanMemory], want_fence: bool,
    ) -> Fence | None:
        """Append a barrier that releases memory, and the signals."""
        signals = [(semaphore.handle, param.value or 0) for semaphore, param in zip(semaphores, params, strict=True)]
        return self._hand(release, self._open(wait_fences), signals, want_fence, acquire=False)

    def append_copy(
        self, dst: Buffer, dst_offset: int, src: Buffer, src_offset: int, size: int, wait_fences: Sequence[Fence],
        want_fence: bool,
    ) -> Fence | None:
        """Append a copy between barriers."""
        places = dst.place(dst_offset, size), src.place(src_offset, size)
        self._recycle()
        commands = self._commands.copy(*places, size)
        return self._append_once(commands, None, self._open(wait_fences), [], want_fence)

    def append_fill(
        self, dst: Buffer, offset: int, pattern: bytes, size: int, wait_fences: Sequence[Fence], want_fence: bool
    ) -> Fence | None:
        """Append a fill between barriers."""
        place = dst.place(offset, size)
        self._recycle()
        commands, scratch = self._commands.fill(place, pattern, size)
        return self._append_once(commands, scratch, self._open(wait_fences), [], want_fence)

    def append_region_copy(
        self, level: Level, region: ImageRegion, buffer: Buffer, offset: int, row_pitch: int, slice_pitch: int,
        read: bool, wait_fences: Sequence[Fence], want_fence: bool,
    ) -> Fence | None:
        """Append vkCmdCopyImageToBuffer or vkCmdCopyBufferToImage, after an acquire barrier if the image needs one."""
        width, height, _ = region.extent
        size = ((region.slices - 1) * slice_pitch + (height - 1) * row_pitch + width * level.element_size)
        place = buffer.place(offset, size)
        return self._append_image_work(
            [level.image],
            lambda: self._commands.region_copy(level, region, place, row_pitch, slice_pitch, read=read),
            wait_fences, want_fence)

    def append_image_copy(
        self, dst: Level, dst_region: ImageRegion, src: Level, src_region: ImageRegion, wait_fences: Sequence[Fence],
        want_fence: bool,
    ) -> Fence | None:
        """Append vkCmdCopyImage, after an acquire barrier for each image that needs one."""
        return self._append_image_work(
            [dst.image, src.image], lambda: self._commands.image_copy(dst, dst_region, src, src_region), wait_fences,
            want_fence)

    def append_work(self, work: Callable[[], object]) -> None:
        """Call `work` with the VkQueue locked: `work` may submit to it."""
        with self.queue.theirs(), self.queue.lock:
            work()

    def close(self) -> None:
        """Destroy the driver's own objects, except its timeline while a fence of the queue exists."""
        if self._idle():
            self._commands.close()
        else:
            # After a driver error, work can be pending at the close of the queue. The objects that this work uses must
            # not be destroyed.
            self._gpu.stuck = True
        self._timeline.drop()
        self._forget(self)

    # ---- inside
    def _append_image_work(
        self, images: Sequence[VulkanImage], record: Callable[[], CData], wait_fences: Sequence[Fence],
        want_fence: bool,
    ) -> Fence | None:
        """Append the commands of `record`, which use images."""
        with self.queue.theirs(), self.queue.lock, self._gpu.image_lock:
            self._recycle()
            commands = record()
            for image in images:
                image.used(self._timeline, self._timeline.appended + 1)
            fence = self._append_once(commands, None, self._open(wait_fences), [], want_fence)
            for image in images:
                image.owned = True
        return fence

    def _hand(
        self, memories: Sequence[VulkanMemory], waits: Waits, signals: Waits, want_fence: bool, *, acquire: bool
    ) -> Fence | None:
        if not memories:
            barrier = self._commands.host_barrier if self._gpu.shared_with_host else self._commands.barrier
            return self._append(barrier, waits, signals, want_fence)
        self._recycle()
        with self.queue.theirs(), self.queue.lock, self._gpu.image_lock:
            images = [image for memory in memories for image in memory.images if acquire or image.owned]
            commands = self._commands.handover(memories, images, acquire=acquire)
            for image in images:
                image.used(self._timeline, self._timeline.appended + 1)
            fence = self._append_once(commands, None, waits, signals, want_fence)
            for memory in memories:
                memory.handed_over = True
            for image in images:
                image.owned = acquire
        return fence

    def _append_once(
        self, commands: CData, scratch: HostMemory | None, waits: Waits, signals: Waits, want_fence: bool
    ) -> Fence | None:
        """Append a command buffer that was recorded for one submission."""
        self._commands.lend(self._timeline.appended + 1, commands, scratch)
        try:
            return self._append(commands, waits, signals, want_fence)
        except Exception:   # after Ctrl-C, they may be submitted
            self._commands.take_back()
            raise

    def _append(self, commands: CData, waits: Waits, signals: Waits, want_fence: bool) -> Fence | None:
        timeline = self._timeline
        with self.queue.theirs(), self.queue.lock:
            # Ctrl-C can come after the submission, and no value may be signalled twice. A skipped value does no harm.
            timeline.appended += 1
            try:
                self._submission.submit(self.queue, waits, commands, [*signals, (timeline.handle, timeline.appended)])
            except Exception:
                timeline.appended -= 1
                raise
        return Fence(timeline, timeline.appended) if want_fence else None

    def _open(self, fences: Sequence[Fence]) -> Waits:
        """The semaphores of the fences that are not yet signalled."""
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
