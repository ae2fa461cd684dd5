"""In-order queues, created by the backend or borrowed from the application."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from ctypes import byref, c_size_t, c_void_p
from typing import Any, Final

from xsem.errors import BadArgumentError, DriverError, UnsupportedError, WrongDeviceError
from xsem.spi import CopyQueue, ImageCopyQueue, ImageRegion, SemaphoreQueue, queue_handle
from xsem.types import SignalParams, WaitParams
from xsem_opencl import cl
from xsem_opencl.core import Core, array
from xsem_opencl.fences import Fence, event_list
from xsem_opencl.images import Box, Image
from xsem_opencl.memory import HostBuffer, Mapping, Memory
from xsem_opencl.results import INVALID_VALUE
from xsem_opencl.semaphores import Semaphore, payloads

__all__ = ["CommandQueue", "borrowed_queue", "number_of"]

_LONGEST_PATTERN: Final = 128
_Rows = tuple[int, int, int, int]   # cl_mem, offset, row pitch and slice pitch
_Enqueue = Callable[[int, Any, Any], None]


class CommandQueue(SemaphoreQueue, CopyQueue, ImageCopyQueue):
    """One in-order queue."""

    def __init__(self, core: Core, handle: int, *, lent: object | None = None) -> None:
        self.identity = handle
        self.native_handle = handle
        self._handle = handle   # cl_command_queue
        self._core = core
        self._api = core.api
        self._lent = lent   # the application's queue, kept alive; None for an owned queue
        if lent is not None:
            core.api.do("clRetainCommandQueue", handle)   # the application keeps its own reference

    # ---- semaphores
    def append_wait(
        self, semaphores: Sequence[Semaphore], params: Sequence[WaitParams], wait_fences: Sequence[Fence],
        acquire: Sequence[Memory], want_fence: bool,
    ) -> Fence | None:
        """Call clEnqueueWaitSemaphoresKHR, then clEnqueueAcquireExternalMemObjectsKHR for memory."""

        def wait(count: int, events: Any, event: Any) -> None:
            self._do("clEnqueueWaitSemaphoresKHR", *_batch(semaphores, params), count, events, event)

        steps: list[_Enqueue] = [wait]
        if acquire:
            steps.append(self._handover(cl.ACQUIRE, acquire))
        return self._enqueue(steps, wait_fences, want_fence)

    def append_signal(
        self, semaphores: Sequence[Semaphore], params: Sequence[SignalParams], wait_fences: Sequence[Fence],
        release: Sequence[Memory], want_fence: bool,
    ) -> Fence | None:
        """Call clEnqueueReleaseExternalMemObjectsKHR for memory, then clEnqueueSignalSemaphoresKHR."""

        def signal(count: int, events: Any, event: Any) -> None:
            self._do("clEnqueueSignalSemaphoresKHR", *_batch(semaphores, params), count, events, event)

        steps: list[_Enqueue] = [signal]
        if release:
            steps.insert(0, self._handover(cl.GIVE_BACK, release))
        return self._enqueue(steps, wait_fences, want_fence)

    def _handover(self, name: str, memories: Sequence[Memory]) -> _Enqueue:
        objects = [handle for memory in memories for handle in (memory.handle, *tuple(memory.images))]

        def hand_over(count: int, events: Any, event: Any) -> None:
            self._do(name, len(objects), array(objects), count, events, event)
            for memory in memories:
                memory.acquired = name == cl.ACQUIRE

        return hand_over

    # ---- work
    def append_barrier(self, wait_fences: Sequence[Fence], want_fence: bool) -> Fence | None:
        """Call clEnqueueBarrierWithWaitList."""
        return self._enqueue(
            [lambda count, events, event: self._do("clEnqueueBarrierWithWaitList", count, events, event)],
            wait_fences, want_fence)

    def append_copy(
        self, dst: Mapping | HostBuffer, dst_offset: int, src: Mapping | HostBuffer, src_offset: int, size: int,
        wait_fences: Sequence[Fence], want_fence: bool,
    ) -> Fence | None:
        """Call clEnqueueCopyBuffer, …ReadBuffer or …WriteBuffer, or copy through a temporary buffer on the device."""
        (to_buffer, to), (from_buffer, out_of) = _place(dst, dst_offset), _place(src, src_offset)
        if to_buffer and from_buffer:
            return self._enqueue(
                [lambda count, events, event: self._do("clEnqueueCopyBuffer", from_buffer, to_buffer, out_of, to, size,
                                                       count, events, event)],
                wait_fences, want_fence)
        if from_buffer:
            return self._enqueue([self._read(from_buffer, out_of, size, to)], wait_fences, want_fence)
        if to_buffer:
            return self._enqueue([self._write(to_buffer, to, size, out_of)], wait_fences, want_fence)
        return self._through_scratch(
            lambda scratch: [self._write(scratch, 0, size, out_of), self._read(scratch, 0, size, to)],
            size, wait_fences, want_fence)

    def append_region_copy(
        self, level: Image, region: ImageRegion, buffer: Mapping | HostBuffer, offset: int, row_pitch: int,
        slice_pitch: int, read: bool, wait_fences: Sequence[Fence], want_fence: bool,
    ) -> Fence | None:
        """Call clEnqueueReadImage or …WriteImage for host memory, else clEnqueueCopyImageToBuffer or …BufferToImage."""
        mem, at = _place(buffer, offset)
        if not mem:
            return self._enqueue([self._host_image(level, level.box(region), at, row_pitch, slice_pitch, read=read)],
                                 wait_fences, want_fence)
        try:
            return self._device_copy(level, region, mem, at, row_pitch, slice_pitch, wait_fences, want_fence, read=read)
        except DriverError as error:
            if error.code != INVALID_VALUE or not level.desc.layers or level.desc.extent[1]:
                raise
            # NVIDIA's driver takes such an image only with host memory (580.159.04).
            raise UnsupportedError(
                "the driver copies an image of one dimension with layers only to and from host memory: use a host "
                "buffer", capability="image_copy.layers_of_rows", reason="not_supported") from error

    def _device_copy(
        self, level: Image, region: ImageRegion, mem: int, at: int, row_pitch: int, slice_pitch: int,
        wait_fences: Sequence[Fence], want_fence: bool, *, read: bool,
    ) -> Fence | None:
        box = level.box(region)
        width, height, _ = region.extent
        row, count = width * level.element_size, region.slices
        size = row * height * count
        if (row_pitch == row or height == 1) and (slice_pitch == row * height or count == 1):
            return self._enqueue([self._buffer_image(level, box, mem, at, read=read)], wait_fences, want_fence)

        # The functions take no pitches, so rows with padding go through a temporary buffer on the device.
        def steps(scratch: int) -> Sequence[_Enqueue]:
            tight, padded = (scratch, 0, row, row * height), (mem, at, row_pitch, slice_pitch)
            image = self._buffer_image(level, box, scratch, 0, read=read)
            if read:
                return [image, self._rows(padded, tight, (row, height, count))]
            return [self._rows(tight, padded, (row, height, count)), image]

        return self._through_scratch(steps, size, wait_fences, want_fence)

    def append_image_copy(
        self, dst: Image, dst_region: ImageRegion, src: Image, src_region: ImageRegion, wait_fences: Sequence[Fence],
        want_fence: bool,
    ) -> Fence | None:
        """Call clEnqueueCopyImage for images of one format, and copy through a temporary buffer for others."""
        (to, region), (origin, other) = dst.box(dst_region), src.box(src_region)
        if region == other and (dst.desc.format, dst.desc.channels) == (src.desc.format, src.desc.channels):
            start, end, box = _size3(origin), _size3(to), _size3(region)
            return self._enqueue(
                [lambda count, events, event: self._do("clEnqueueCopyImage", src.handle, dst.handle, start, end, box,
                                                       count, events, event)], wait_fences, want_fence)
        return self._through_scratch(
            lambda scratch: [self._buffer_image(src, (origin, other), scratch, 0, read=True),
                             self._buffer_image(dst, (to, region), scratch, 0, read=False)],
            math.prod(region) * dst.element_size, wait_fences, want_fence)

    def append_fill(
        self, dst: Mapping | HostBuffer, offset: int, pattern: bytes, size: int, wait_fences: Sequence[Fence],
        want_fence: bool,
    ) -> Fence | None:
        """Call clEnqueueFillBuffer."""
        to_buffer, to = _place(dst, offset)
        length = len(pattern)
        if length & (length - 1) or length > _LONGEST_PATTERN or (to_buffer and to % length):
            raise BadArgumentError(
                f"OpenCL fills with a pattern of 1, 2, 4, … {_LONGEST_PATTERN} bytes, at a multiple of this length, "
                f"not with {length} bytes at {to if to_buffer else 0}; copy from a filled host buffer instead",
                reason="bad_pattern",
            )
        data = ctypes.create_string_buffer(pattern, length)

        def fill(buffer: int, at: int) -> _Enqueue:
            return lambda count, events, event: self._do("clEnqueueFillBuffer", buffer, data, length, at, size,
                                                         count, events, event)

        if to_buffer:
            return self._enqueue([fill(to_buffer, to)], wait_fences, want_fence)
        return self._through_scratch(lambda scratch: [fill(scratch, 0), self._read(scratch, 0, size, to)],
                                     size, wait_fences, want_fence)

    def append_work(self, work: Callable[[], object]) -> None:
        """Call `work`, then submit its commands to the device."""
        try:
            work()
        finally:
            self._core.flush(self._handle)

    def close(self) -> None:
        """Release the reference to the queue."""
        self._lent = None
        self._api.do("clReleaseCommandQueue", self._handle)

    # ---- inside
    def _do(self, name: str, *arguments: Any) -> None:
        """Call a function whose first argument is the queue."""
        self._api.do(name, self._handle, *arguments)

    def _read(self, buffer: int, offset: int, size: int, pointer: int) -> _Enqueue:
        return lambda count, events, event: self._do("clEnqueueReadBuffer", buffer, cl.CL_FALSE, offset, size,
                                                     pointer, count, events, event)

    def _write(self, buffer: int, offset: int, size: int, pointer: int) -> _Enqueue:
        return lambda count, events, event: self._do("clEnqueueWriteBuffer", buffer, cl.CL_FALSE, offset, size,
                                                     pointer, count, events, event)

    def _host_image(
        self, image: Image, box: tuple[Box, Box], pointer: int, row_pitch: int, slice_pitch: int, *, read: bool
    ) -> _Enqueue:
        name = "clEnqueueReadImage" if read else "clEnqueueWriteImage"
        origin, region = map(_size3, box)
        if image.desc.layers and not image.desc.extent[1]:
            # For images of one dimension with layers, drivers take either pitch as the distance of the layers.
            row_pitch = slice_pitch
        pitches = row_pitch, slice_pitch if image.has_slices else 0
        return lambda count, events, event: self._do(name, image.handle, cl.CL_FALSE, origin, region, *pitches, pointer,
                                                     count, events, event)

    def _buffer_image(self, image: Image, box: tuple[Box, Box], mem: int, offset: int, *, read: bool) -> _Enqueue:
        origin, region = map(_size3, box)
        if read:
            return lambda count, events, event: self._do("clEnqueueCopyImageToBuffer", image.handle, mem, origin,
                                                         region, offset, count, events, event)
        return lambda count, events, event: self._do("clEnqueueCopyBufferToImage", mem, image.handle, offset, origin,
                                                     region, count, events, event)

    def _rows(self, dst: _Rows, src: _Rows, region: Box) -> _Enqueue:
        (to, at, *to_pitches), (out_of, from_, *from_pitches) = dst, src
        start, end, box = _size3((from_, 0, 0)), _size3((at, 0, 0)), _size3(region)
        return lambda count, events, event: self._do("clEnqueueCopyBufferRect", out_of, to, start, end, box,
                                                     *from_pitches, *to_pitches, count, events, event)

    def _through_scratch(
        self, steps: Callable[[int], Sequence[_Enqueue]], size: int, wait_fences: Sequence[Fence], want_fence: bool
    ) -> Fence | None:
        scratch = self._api.make("clCreateBuffer", self._core.context, cl.MEM_READ_WRITE, size, None)
        try:
            return self._enqueue(steps(scratch), wait_fences, want_fence)
        finally:
            self._api.do("clReleaseMemObject", scratch)  # freed when the commands that use it are complete

    def _enqueue(
        self, steps: Sequence[_Enqueue], wait_fences: Sequence[Fence], want_fence: bool
    ) -> Fence | None:
        """Enqueue the steps: the first waits for `wait_fences`, and the event of the last is the fence."""
        event = c_void_p()
        count, events = event_list(wait_fences)
        for number, step in enumerate(steps, 1):
            last = number == len(steps)
            step(count, events, byref(event) if want_fence and last else None)
            count, events = 0, None
        try:
            # Without it, commands may stay in the host, and another queue or another API that waits for them would wait
            # for ever.
            self._core.flush(self._handle)
        except BaseException:
            if event.value:
                self._api.do("clReleaseEvent", event.value)
            raise
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


def _batch(semaphores: Sequence[Semaphore], params: Sequence[Any]) -> tuple[int, Any, Any]:
    return len(semaphores), array([each.handle for each in semaphores]), payloads(semaphores, params)


def _place(buffer: Mapping | HostBuffer, offset: int) -> tuple[int, int]:
    """Return the cl_mem and the offset in it; for host memory, 0 and a pointer."""
    if isinstance(buffer, HostBuffer):
        return 0, buffer.address + offset
    return buffer.memory.handle, buffer.offset + offset


def _size3(numbers: Box) -> Any:
    return (c_size_t * 3)(*numbers)
