"""In-order queues, created by the backend or borrowed from the application."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_void_p
from typing import Final

from xsem.errors import BadArgumentError, DriverError, UnsupportedError, WouldBlockError, WrongDeviceError
from xsem.spi import CopyQueue, ImageCopyQueue, ImageRegion, SemaphoreQueue, queue_handle
from xsem.types import SignalParams, WaitParams
from xsem_opencl import cl, steps
from xsem_opencl.core import Core
from xsem_opencl.fences import Fence, UserEvents, event_list
from xsem_opencl.images import Image
from xsem_opencl.memory import HostBuffer, Mapping, Memory, SharedWithHost
from xsem_opencl.results import INVALID_VALUE
from xsem_opencl.semaphores import Semaphore
from xsem_opencl.steps import Pitched, Step

__all__ = ["CommandQueue", "borrowed_queue", "number_of"]

_LONGEST_PATTERN: Final = 128


class CommandQueue(SemaphoreQueue, CopyQueue, ImageCopyQueue):
    """One in-order queue."""

    def __init__(self, core: Core, handle: int, *, lent: object | None = None) -> None:
        self.identity = handle
        self.native_handle = handle
        self._handle = handle   # cl_command_queue
        self._core = core
        self._api = core.api
        self._lent = lent   # the application's queue, kept alive; None for an owned queue
        self._user_events = UserEvents(core)
        if lent is not None:
            core.api.do("clRetainCommandQueue", handle)   # the application keeps its own reference

    # ---- semaphores
    def append_wait(
        self, semaphores: Sequence[Semaphore], params: Sequence[WaitParams], wait_fences: Sequence[Fence],
        acquire: Sequence[Memory | SharedWithHost], want_fence: bool,
    ) -> Fence | None:
        """Call clEnqueueWaitSemaphoresKHR, then clEnqueueAcquireExternalMemObjectsKHR for memory."""
        # A wait for a user event is a barrier, because NVIDIA's driver holds its caller in a function of semaphores.
        first = [steps.barrier()] if not semaphores or any(fence.of_host for fence in wait_fences) else []
        wait = [steps.semaphores("clEnqueueWaitSemaphoresKHR", semaphores, params)] if semaphores else []
        return self._enqueue(wait_fences, want_fence, *first, *wait, *steps.handover(cl.ACQUIRE, acquire))

    def append_signal(
        self, semaphores: Sequence[Semaphore], params: Sequence[SignalParams], wait_fences: Sequence[Fence],
        release: Sequence[Memory | SharedWithHost], want_fence: bool,
    ) -> Fence | None:
        """Call clEnqueueReleaseExternalMemObjectsKHR for memory, then clEnqueueSignalSemaphoresKHR."""
        if semaphores and self._core.signal_blocks and self._user_events.unset():
            raise WouldBlockError(
                "this list waits for a timeline of the host, and NVIDIA's driver holds the thread that appends a "
                "signal of a semaphore behind such a wait: append the signal after the wait is met, or on another list",
                reason="would_block")
        signal = (steps.semaphores("clEnqueueSignalSemaphoresKHR", semaphores, params) if semaphores
                  else steps.barrier())
        return self._enqueue(wait_fences, want_fence, *steps.handover(cl.GIVE_BACK, release), signal)

    # ---- work
    def append_barrier(self, wait_fences: Sequence[Fence], want_fence: bool) -> Fence | None:
        """Call clEnqueueBarrierWithWaitList."""
        return self._enqueue(wait_fences, want_fence, steps.barrier())

    def append_copy(
        self, dst: Mapping | HostBuffer, dst_offset: int, src: Mapping | HostBuffer, src_offset: int, size: int,
        wait_fences: Sequence[Fence], want_fence: bool,
    ) -> Fence | None:
        """Call clEnqueueCopyBuffer, …ReadBuffer or …WriteBuffer, or copy through a temporary buffer on the device."""
        (to_buffer, to), (from_buffer, out_of) = steps.place(dst, dst_offset), steps.place(src, src_offset)
        if to_buffer and from_buffer:
            return self._enqueue(wait_fences, want_fence, steps.copy_buffer(to_buffer, to, from_buffer, out_of, size))
        if from_buffer:
            return self._enqueue(wait_fences, want_fence, steps.read_buffer(from_buffer, out_of, size, to))
        if to_buffer:
            return self._enqueue(wait_fences, want_fence, steps.write_buffer(to_buffer, to, size, out_of))
        with self._scratch(size) as scratch:
            return self._enqueue(wait_fences, want_fence, steps.write_buffer(scratch, 0, size, out_of),
                                 steps.read_buffer(scratch, 0, size, to))

    def append_region_copy(
        self, level: Image, region: ImageRegion, buffer: Mapping | HostBuffer, offset: int, row_pitch: int,
        slice_pitch: int, read: bool, wait_fences: Sequence[Fence], want_fence: bool,
    ) -> Fence | None:
        """Call clEnqueueReadImage or …WriteImage for host memory, else clEnqueueCopyImageToBuffer or …BufferToImage."""
        mem, at = steps.place(buffer, offset)
        if not mem:
            return self._enqueue(wait_fences, want_fence, steps.copy_image_and_host(
                level, level.box(region), at, row_pitch, slice_pitch, read=read))
        try:
            return self._device_copy(
                level, region, Pitched(mem, at, row_pitch, slice_pitch), wait_fences, want_fence, read=read)
        except DriverError as error:
            if error.code != INVALID_VALUE or not level.counts_layers_as_rows:
                raise
            # NVIDIA's driver takes such an image only with host memory (580.159.04).
            raise UnsupportedError(
                "the driver copies an image of one dimension with layers only to and from host memory: use a host "
                "buffer", capability="image_copy.layers_of_rows", reason="not_supported") from error

    def _device_copy(
        self, level: Image, region: ImageRegion, pitched: Pitched, wait_fences: Sequence[Fence], want_fence: bool, *,
        read: bool,
    ) -> Fence | None:
        box = level.box(region)
        width, height, _ = region.extent
        row, count = width * level.element_size, region.slices
        if (pitched.row_pitch == row or height == 1) and (pitched.slice_pitch == row * height or count == 1):
            return self._enqueue(wait_fences, want_fence, steps.copy_image_and_buffer(
                level, box, pitched.buffer, pitched.offset, read=read))
        # The function takes no pitches, so rows with padding go through a temporary buffer on the device.
        with self._scratch(row * height * count) as scratch:
            image = steps.copy_image_and_buffer(level, box, scratch, 0, read=read)
            tight, rows = Pitched(scratch, 0, row, row * height), (row, height, count)
            if read:
                return self._enqueue(wait_fences, want_fence, image, steps.copy_rows(pitched, tight, rows))
            return self._enqueue(wait_fences, want_fence, steps.copy_rows(tight, pitched, rows), image)

    def append_image_copy(
        self, dst: Image, dst_region: ImageRegion, src: Image, src_region: ImageRegion, wait_fences: Sequence[Fence],
        want_fence: bool,
    ) -> Fence | None:
        """Call clEnqueueCopyImage for images of one format, and copy through a temporary buffer for others."""
        to, out_of = dst.box(dst_region), src.box(src_region)
        region = to[1]
        if region == out_of[1] and (dst.desc.format, dst.desc.channels) == (src.desc.format, src.desc.channels):
            return self._enqueue(wait_fences, want_fence, steps.copy_image(dst, to[0], src, out_of[0], region))
        with self._scratch(math.prod(region) * dst.element_size) as scratch:
            return self._enqueue(wait_fences, want_fence,
                                 steps.copy_image_and_buffer(src, out_of, scratch, 0, read=True),
                                 steps.copy_image_and_buffer(dst, to, scratch, 0, read=False))

    def append_fill(
        self, dst: Mapping | HostBuffer, offset: int, pattern: bytes, size: int, wait_fences: Sequence[Fence],
        want_fence: bool,
    ) -> Fence | None:
        """Call clEnqueueFillBuffer."""
        to_buffer, to = steps.place(dst, offset)
        length = len(pattern)
        if length & (length - 1) or length > _LONGEST_PATTERN or (to_buffer and to % length):
            raise BadArgumentError(
                f"OpenCL fills with a pattern of 1, 2, 4, … {_LONGEST_PATTERN} bytes, at a multiple of this length, "
                f"not with {length} bytes at {to if to_buffer else 0}; copy from a filled host buffer instead",
                reason="bad_pattern",
            )
        data = ctypes.create_string_buffer(pattern, length)
        if to_buffer:
            return self._enqueue(wait_fences, want_fence, steps.fill_buffer(to_buffer, to, data, size))
        with self._scratch(size) as scratch:
            return self._enqueue(wait_fences, want_fence, steps.fill_buffer(scratch, 0, data, size),
                                 steps.read_buffer(scratch, 0, size, to))

    def append_work(self, work: Callable[[], object]) -> None:
        """Call `work`, then submit its commands to the device."""
        try:
            work()
        finally:
            self._core.flush(self._handle)

    def close(self) -> None:
        """Release the reference to the queue."""
        self._lent = None
        self._user_events.close()
        self._api.do("clReleaseCommandQueue", self._handle)

    # ---- inside
    @contextmanager
    def _scratch(self, size: int) -> Iterator[int]:
        """Create a temporary buffer on the device, and release it behind the commands that use it."""
        made = self._api.make("clCreateBuffer", self._core.context, cl.MEM_READ_WRITE, size, None)
        try:
            yield made
        finally:
            self._api.do("clReleaseMemObject", made)   # OpenCL frees it when the commands that use it are complete

    def _enqueue(self, wait_fences: Sequence[Fence], want_fence: bool, *calls: Step) -> Fence | None:
        """Enqueue the calls: the first waits for `wait_fences`, and the event of the last is the fence."""
        event = c_void_p()
        count, events = event_list(wait_fences)
        for call in calls:
            location = byref(event) if want_fence and call is calls[-1] else None
            enqueue = self._api.make if call.name == cl.MAP else self._api.do
            enqueue(call.name, self._handle, *call.arguments, count, events, location)
            for memory in call.memories:
                memory.handed(call.name)
            count, events = 0, None
        try:
            # Without it, commands may stay in the host, and another queue or another API that waits for them would wait
            # for ever.
            self._core.flush(self._handle)
        except BaseException:
            if event.value:
                self._api.do("clReleaseEvent", event.value)
            raise
        self._user_events.add(wait_fences)
        return Fence(event.value or 0) if want_fence else None


def number_of(core: Core, stream: object) -> int:
    """Return the cl_command_queue of a pyopencl.CommandQueue, or of an int."""
    # Other objects of pyopencl have an `int_ptr`, too.
    if not isinstance(stream, int | core.api.library.pyopencl.CommandQueue):
        raise BadArgumentError(
            f"{type(stream).__name__} is not a queue: a pyopencl.CommandQueue, or a cl_command_queue as an int, is "
            "needed", reason="not_a_stream",
        )
    return queue_handle(stream, "cl_command_queue")


def borrowed_queue(core: Core, stream: object, *, in_order: bool) -> int:
    """Return the cl_command_queue of the application's queue, after checks."""
    handle = number_of(core, stream)
    for key, expected, what in ((cl.QUEUE_DEVICE, core.device, "device"), (cl.QUEUE_CONTEXT, core.context, "context")):
        actual = core.api.number("clGetCommandQueueInfo", handle, key)
        if actual != expected:
            raise WrongDeviceError(
                f"the queue belongs to another {what}", expected=f"{what} {expected:#x}", actual=f"{what} {actual:#x}",
                reason="wrong_device" if what == "device" else "wrong_context",
                likely_causes=("pass the context that it belongs to: open_device('opencl', native=queue.context)",),
            )
    properties = core.api.number("clGetCommandQueueInfo", handle, cl.QUEUE_PROPERTIES)
    if properties & cl.QUEUE_OUT_OF_ORDER or not in_order:
        raise BadArgumentError(
            "the queue executes out of order, so a wait in it would not delay later commands: create a queue without "
            "OUT_OF_ORDER_EXEC_MODE_ENABLE", reason="out_of_order",
        )
    return handle
