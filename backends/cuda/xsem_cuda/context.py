"""The current context and the capture mode of driver calls."""

# Each thread has its own current context. The backend makes the device's context current only around calls that need a
# current context. If the device's context is already current, the backend changes nothing. Afterwards, the current
# context of the thread is the same as before.
#
# Each thread also has its own stream-capture mode. The backend makes its calls in the relaxed mode, so that captures of
# other threads stay valid. Appends, and the calls that begin and end a recording, use the mode of the thread, because a
# capture permits these calls.
#
# Measured on an H200 (tests/drivers/h200.json):
# - Imports, destroys of semaphores and memory, frees, cuMemHostAlloc, cuEventQuery, cuGraphInstantiate and
#   cuGraphExecDestroy invalidate a capture of another thread in GLOBAL mode. In the relaxed mode, these calls
#   invalidate no capture. The call itself fails with CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and the capture ends with
#   CUDA_ERROR_STREAM_CAPTURE_INVALIDATED.
# - The creation and the destruction of events and streams invalidate no capture on this driver release. Other driver
#   releases were not measured, so these rare calls also run in the relaxed mode.
# - Imports, allocations, and the creation of events and streams need a current context. cuDestroyExternalSemaphore,
#   cuMemFree, cuMemFreeHost, cuEventQuery and cuEventDestroy also work on a thread without a context.
# - The need of mappings, images and cuDestroyExternalMemory for a context was not measured. The backend makes these
#   calls with the context and in the relaxed mode.

from __future__ import annotations

import threading
from typing import Any

from xsem.errors import XsemError
from xsem_cuda.codes import INVALID_CONTEXT
from xsem_cuda.results import call

__all__ = ["Context", "Quiet"]


class Context:
    """Makes the CUDA context current, for ``with``. Several threads can enter it, each repeatedly."""

    def __init__(self, driver: Any, native: Any) -> None:
        self.native = native
        self.address = int(native)
        self.quiet = Quiet(driver, self)
        self._current = driver.cuCtxGetCurrent
        self._push = driver.cuCtxPushCurrent
        self._pop = driver.cuCtxPopCurrent
        self._entries = _Entries()

    def __enter__(self) -> None:
        pushed = int(call(self._current)) != self.address
        if pushed:
            call(self._push, self.native)
        self._entries.stack.append(pushed)

    def __exit__(self, *exc: object) -> None:
        if self._entries.stack.pop():
            call(self._pop)


class Quiet:
    """Makes the stream-capture mode of the calling thread relaxed, for ``with``. A thread can enter it repeatedly."""

    def __init__(self, driver: Any, context: Context) -> None:
        self._exchange = driver.cuThreadExchangeStreamCaptureMode
        self._relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self._context = context
        self._entries = _Entries()

    def __enter__(self) -> None:
        stack = self._entries.stack
        stack.append(None if stack else self._swap(self._relaxed))

    def __exit__(self, *exc: object) -> None:
        before = self._entries.stack.pop()
        if before is not None:
            self._swap(before)

    def _swap(self, mode: Any) -> Any:
        try:
            return call(self._exchange, mode)
        except XsemError as error:
            # According to its documentation, the function can require a current context. The mode belongs to the
            # thread, not to the context.
            if error.code != INVALID_CONTEXT:
                raise
            with self._context:
                return call(self._exchange, mode)


class _Entries(threading.local):
    """The entries of the calling thread, the innermost entry last."""

    def __init__(self) -> None:
        # Of a context: whether the exit pops it. Of the relaxed mode: the mode before, or None for an inner entry.
        self.stack: list[Any] = []
