"""Native streams and events, and a failing kernel, for the conformance suite."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from typing import Any, Final

from xsem.errors import XsemError
from xsem.spi import NativeEvent, NativeQueue, QueueDriver, SuiteHooks
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


class CudaHooks(SuiteHooks):
    """Streams and events of ``cuda.bindings.driver``.

    Parameters
    ----------
    driver : module
        ``cuda.bindings.driver``.
    context : Context
        The context of the device.
    device : CUdevice
    """

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

        return NativeQueue(stream=int(stream), handle=int(stream), works=works, close=close, capture=capture)

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
