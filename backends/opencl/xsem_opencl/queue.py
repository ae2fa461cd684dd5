"""Command lists: in-order queues, created by the backend or borrowed from the application."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import byref, c_size_t, c_void_p
from typing import Any, Final

from xsem.errors import BadArgumentError, WrongDeviceError
from xsem.spi import QueueDriver
from xsem.types import SignalParams, WaitParams
from xsem_opencl import cl
from xsem_opencl.addresses import Addresses
from xsem_opencl.core import Core, array
from xsem_opencl.fences import Fence, event_list
from xsem_opencl.images import Image
from xsem_opencl.memory import Memory
from xsem_opencl.semaphores import Semaphore, payloads

__all__ = ["QueueList", "queue_handle"]

_LONGEST_PATTERN: Final = 128
_Enqueue = Callable[[int, Any, Any], None]


class QueueList(QueueDriver):
    """One in-order queue.

    Each append ends with clFlush. Without it, commands may stay in the host, and another queue or another API that
    waits for them would wait for ever.

    Parameters
    ----------
    handle : int
        cl_command_queue.
    lent : object
        The application's queue, kept alive; None for an owned queue.
    """

    def __init__(self, core: Core, addresses: Addresses, handle: int, *, lent: object | None = None) -> None:
        self.identity = handle
        self._core = core
        self._api = core.api
        self._addresses = addresses
        self._lent = lent
        self._left = [handle]
        if lent is not None:
            core.api.do("clRetainCommandQueue", handle)

    # ---- semaphores
    def append_wait(
        self, semaphores: Sequence[Semaphore], params: Sequence[WaitParams], wait_fences: Sequence[Fence],
        acquire: Sequence[Memory], want_fence: bool,
    ) -> Fence | None:
        """Call clEnqueueWaitSemaphoresKHR, then clEnqueueAcquireExternalMemObjectsKHR for memory."""

        def wait(count: int, events: Any, event: Any) -> None:
            self._api.do("clEnqueueWaitSemaphoresKHR", self.identity, *_batch(semaphores, params), count, events, event)

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
            self._api.do("clEnqueueSignalSemaphoresKHR", self.identity, *_batch(semaphores, params), count, events, event)

        steps: list[_Enqueue] = [signal]
        if release:
            steps.insert(0, self._handover(cl.GIVE_BACK, release))
        return self._enqueue(steps, wait_fences, want_fence)

    def _handover(self, name: str, memories: Sequence[Memory]) -> _Enqueue:
        objects = [handle for memory in memories for handle in (memory.handle, *tuple(memory.images))]

        def hand_over(count: int, events: Any, event: Any) -> None:
            self._api.do(name, self.identity, len(objects), array(objects), count, events, event)
            for memory in memories:
                memory.acquired = name == cl.ACQUIRE

        return hand_over

    # ---- work
    def append_barrier(self, wait_fences: Sequence[Fence], want_fence: bool) -> Fence | None:
        """Call clEnqueueBarrierWithWaitList."""
        return self._enqueue(
            [lambda count, events, event: self._api.do("clEnqueueBarrierWithWaitList", self.identity, count, events, event)],
            wait_fences, want_fence)

    def append_copy(
        self, dst: int, src: int, size: int, wait_fences: Sequence[Fence], want_fence: bool
    ) -> Fence | None:
        """Call clEnqueueCopyBuffer, …ReadBuffer or …WriteBuffer.

        A copy between two host buffers goes through a temporary buffer on the device.
        """
        api, key = self._api, self.identity
        to, out_of = self._addresses.find(dst, size), self._addresses.find(src, size)
        if to.buffer and out_of.buffer:
            return self._enqueue(
                [lambda count, events, event: api.do("clEnqueueCopyBuffer", key, out_of.buffer, to.buffer,
                                                     out_of.offset, to.offset, size, count, events, event)],
                wait_fences, want_fence)
        if out_of.buffer:
            return self._enqueue([self._read(out_of.buffer, out_of.offset, size, to.offset)], wait_fences, want_fence)
        if to.buffer:
            return self._enqueue([self._write(to.buffer, to.offset, size, out_of.offset)], wait_fences, want_fence)
        return self._through_scratch(
            lambda scratch: [self._write(scratch, 0, size, out_of.offset), self._read(scratch, 0, size, to.offset)],
            size, wait_fences, want_fence)

    def append_level_copy(
        self, level: Image, address: int, read: bool, wait_fences: Sequence[Fence], want_fence: bool
    ) -> Fence | None:
        """Call a non-blocking clEnqueueReadImage or clEnqueueWriteImage."""
        origin, region = (c_size_t * 3)(0, 0, 0), (c_size_t * 3)(*level.region)
        name = "clEnqueueReadImage" if read else "clEnqueueWriteImage"
        return self._enqueue(
            [lambda count, events, event: self._api.do(name, self.identity, level.handle, cl.CL_FALSE, origin, region, 0, 0,
                                                       address, count, events, event)],
            wait_fences, want_fence)

    def append_fill(
        self, dst: int, pattern: bytes, size: int, wait_fences: Sequence[Fence], want_fence: bool
    ) -> Fence | None:
        """Call clEnqueueFillBuffer.

        Raises
        ------
        BadArgumentError
            ``bad_pattern``: the shortest period of the pattern is not 1, 2, 4, … 128 bytes; or the offset in the buffer
            is not a multiple of it.
        """
        to = self._addresses.find(dst, size)
        word = _shortest_period(pattern)
        length = len(word)
        if length & (length - 1) or length > _LONGEST_PATTERN or (to.buffer and to.offset % length):
            raise BadArgumentError(
                f"OpenCL fills with patterns of 1, 2, 4, … {_LONGEST_PATTERN} bytes, at offsets that are multiples of "
                f"them, not with {length} bytes at {to.offset if to.buffer else 0}; copy from a filled host buffer "
                "instead", reason="bad_pattern",
            )
        data = ctypes.create_string_buffer(word, length)

        def fill(buffer: int, offset: int) -> _Enqueue:
            return lambda count, events, event: self._api.do("clEnqueueFillBuffer", self.identity, buffer, data, length,
                                                             offset, size, count, events, event)

        if to.buffer:
            return self._enqueue([fill(to.buffer, to.offset)], wait_fences, want_fence)
        return self._through_scratch(lambda scratch: [fill(scratch, 0), self._read(scratch, 0, size, to.offset)],
                                     size, wait_fences, want_fence)

    def append_work(self, work: Callable[[], object]) -> None:
        """Call `work`, then submit its commands to the device."""
        try:
            work()
        finally:
            self._core.flush(self.identity)

    def close(self) -> None:
        """Release the reference to the queue. A borrowed queue stays the application's."""
        self._lent = None
        try:
            handle = self._left.pop()
        except IndexError:
            return
        self._api.do("clReleaseCommandQueue", handle)

    # ---- inside
    def _read(self, buffer: int, offset: int, size: int, pointer: int) -> _Enqueue:
        return lambda count, events, event: self._api.do("clEnqueueReadBuffer", self.identity, buffer, cl.CL_FALSE, offset,
                                                         size, pointer, count, events, event)

    def _write(self, buffer: int, offset: int, size: int, pointer: int) -> _Enqueue:
        return lambda count, events, event: self._api.do("clEnqueueWriteBuffer", self.identity, buffer, cl.CL_FALSE, offset,
                                                         size, pointer, count, events, event)

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
        """Enqueue the steps: the first step waits for `wait_fences`, and the event of the last step is the fence."""
        event = c_void_p()
        count, events = event_list(wait_fences)
        for number, step in enumerate(steps, 1):
            last = number == len(steps)
            step(count, events, byref(event) if want_fence and last else None)
            count, events = 0, None
        try:
            self._core.flush(self.identity)
        except BaseException:
            if event.value:
                self._api.do("clReleaseEvent", event.value)
            raise
        return Fence(event.value or 0) if want_fence else None


def queue_handle(core: Core, stream: object, *, in_order: bool) -> int:
    """Return the cl_command_queue of a pyopencl.CommandQueue, or of an int, after checks.

    Raises
    ------
    TypeError
        `stream` has an unsupported type.
    BadArgumentError
        ``null_stream``; ``out_of_order``.
    WrongDeviceError
        ``wrong_device``, ``wrong_context``.
    """
    if isinstance(stream, core.api.library.pyopencl.CommandQueue):
        handle = int(stream.int_ptr)
    elif isinstance(stream, int) and not isinstance(stream, bool):
        handle = stream
    else:
        raise TypeError("a pyopencl.CommandQueue or a cl_command_queue as an int is needed")
    if handle <= 0:
        raise BadArgumentError("the queue is null: pass the pyopencl.CommandQueue", reason="null_stream")
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


def _shortest_period(pattern: bytes) -> bytes:
    width = 1
    while width < len(pattern):
        if len(pattern) % width == 0 and pattern == pattern[:width] * (len(pattern) // width):
            break
        width += 1
    return pattern[:width]
