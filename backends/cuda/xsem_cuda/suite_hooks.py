"""Native streams and events, and a failing kernel, for the conformance suite."""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final

from xsem.errors import XsemError
from xsem.spi import NativeArray, NativeEvent, NativeQueue, QueueDriver, SuiteHooks
from xsem.types import MemoryHandleType
from xsem_cuda.allocations import create_allocation, create_physical, map_range
from xsem_cuda.context import Context
from xsem_cuda.results import NOT_READY, call

__all__ = ["CudaHooks"]

_TRAP: Final = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry fail() { trap; }
\0"""
"""A kernel that raises an exception on the device. The context is unusable after the exception."""


_ARRAY: Final = 8192
_BEHIND: Final = 4096 + 256
"""Bytes from the start of an allocation to its array: no multiple of a page, at which a dma-buf begins."""


class _Array:
    """An array of bytes, as CuPy describes it."""

    def __init__(self, address: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": (_ARRAY,), "typestr": "|u1", "strides": None, "version": 3}


class CudaHooks(SuiteHooks):
    """Streams, events and arrays of ``cuda.bindings.driver``."""

    def __init__(self, driver: Any, context: Context, device: Any) -> None:
        self._driver = driver
        self._context = context
        self._device = device

    def native_queue(self) -> NativeQueue:
        """Create a stream in the context of the device."""
        return self._stream_of(self._context)

    def foreign_queue(self) -> NativeQueue:
        """Create a stream in another context of the same device."""
        driver = self._driver
        # Since CUDA 13, the first argument is a struct of parameters.
        first = (None,) if driver.CUDA_VERSION >= 13000 else ()
        made = call(driver.cuCtxCreate, *first, 0, self._device)
        call(driver.cuCtxPopCurrent)
        return self._stream_of(Context(driver, made), lambda: call(driver.cuCtxDestroy, made))

    def _stream_of(self, context: Context, then: Callable[[], object] | None = None) -> NativeQueue:
        driver = self._driver
        with context:
            stream = call(driver.cuStreamCreate, int(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))

        def works() -> bool:
            with context:
                call(driver.cuStreamSynchronize, stream)
            return True

        def close() -> None:
            with context:
                call(driver.cuStreamDestroy, stream)
            if then is not None:
                then()

        @contextlib.contextmanager
        def capture() -> Iterator[None]:
            mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
            with context:
                call(driver.cuStreamBeginCapture, stream, mode)
            try:
                yield
            finally:
                with context:   # cuStreamEndCapture raises an error for an invalidated capture
                    call(driver.cuGraphDestroy, call(driver.cuStreamEndCapture, stream))

        return NativeQueue(stream=int(stream), handle=int(stream), works=works, close=close, simultaneous=True,
                           capture=capture)

    def native_event(self) -> NativeEvent:
        """Record an event behind a wait of the stream for a value in page-locked memory."""
        driver, context = self._driver, self._context
        with context:
            stream = call(driver.cuStreamCreate, int(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
            event = call(driver.cuEventCreate, int(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING))
            address = int(call(driver.cuMemHostAlloc, 4, int(driver.CU_MEMHOSTALLOC_DEVICEMAP)))
            value = ctypes.c_uint32.from_address(address)
            value.value = 0
            call(driver.cuStreamWaitValue32, stream, call(driver.cuMemHostGetDevicePointer, address, 0), 1, 0)
            call(driver.cuEventRecord, event, stream)

        def reach() -> None:
            value.value = 1

        def close() -> None:
            reach()
            with context:
                call(driver.cuStreamSynchronize, stream)
                call(driver.cuEventDestroy, event)
                call(driver.cuStreamDestroy, stream)
                call(driver.cuMemFreeHost, address)

        return NativeEvent(event=int(event), reach=reach, close=close,
                           works=lambda: call(driver.cuEventQuery, event) is not NOT_READY)

    def native_array(self, type: MemoryHandleType) -> NativeArray:
        """Allocate by cuMemCreate for OPAQUE_FD, and by cuMemAlloc for dma-bufs."""
        if type is MemoryHandleType.DMABUF_FD:
            return self._allocated()
        with self._context:
            made = create_allocation(self._driver, int(self._device), type, _BEHIND + _ARRAY)
        return self._array(made.base, made.close)

    def spanning_array(self, type: MemoryHandleType) -> NativeArray:
        """Allocate over the end of the first of two allocations of cuMemCreate, in one range."""
        driver, ordinal = self._driver, int(self._device)
        with contextlib.ExitStack() as undo, self._context:
            parts = [create_physical(driver, ordinal, _ARRAY, undo) for _ in range(2)]
            base = map_range(driver, ordinal, parts, undo)
            free = undo.pop_all().close
        return self._array(base + parts[0][1] - _ARRAY, free)

    def unshareable_array(self, type: MemoryHandleType) -> NativeArray:
        """Allocate by cuMemAlloc for OPAQUE_FD, and page-locked host memory for dma-bufs."""
        if type is not MemoryHandleType.DMABUF_FD:
            return self._allocated()
        driver = self._driver
        with self._context:
            address = int(call(driver.cuMemHostAlloc, _BEHIND + _ARRAY, int(driver.CU_MEMHOSTALLOC_DEVICEMAP)))
        return self._array(address, lambda: call(driver.cuMemFreeHost, address), host=True)

    def _allocated(self) -> NativeArray:
        driver = self._driver
        with self._context:
            address = int(call(driver.cuMemAlloc, _BEHIND + _ARRAY))
        return self._array(address, lambda: call(driver.cuMemFree, address))

    def _array(self, base: int, free: Callable[[], object], *, host: bool = False) -> NativeArray:
        driver, context, address = self._driver, self._context, base + _BEHIND
        array = _Array(address)

        def end() -> None:
            with context:
                free()

        finalizer = weakref.finalize(array, end)
        finalizer.atexit = False   # the driver may have ended by then

        def write(data: bytes) -> None:
            if host:
                ctypes.memmove(address, data, len(data))
                return
            with context:
                call(driver.cuMemcpyHtoD, address, data, len(data))
                call(driver.cuCtxSynchronize)   # a copy from pageable memory can return before its end

        def read(size: int) -> bytes:
            if host:
                return ctypes.string_at(address, size)
            data = bytearray(size)
            with context:
                call(driver.cuMemcpyDtoH, data, address, size)
            return bytes(data)

        return NativeArray(array=array, write=write, read=read, freed=lambda: not finalizer.alive)

    def failing_work(self) -> Callable[[QueueDriver], None] | None:
        """Return a function that launches a kernel with a trap. Return None if the driver loads no modules."""
        driver, context = self._driver, self._context
        with contextlib.suppress(XsemError), context:
            function = call(driver.cuModuleGetFunction, call(driver.cuModuleLoadData, _TRAP), b"fail")

            def fail(queue: QueueDriver) -> None:
                with context:
                    call(driver.cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, queue.native_handle, 0, 0)

            return fail
        return None
