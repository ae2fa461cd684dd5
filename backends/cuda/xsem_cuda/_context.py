"""CUDA contexts: a device's primary context, or one that the application lent.

CUDA's current context belongs to the thread. xsem makes its own current only around calls that need it, and only where
another one is: afterwards the thread has the one that it had, or none.
"""

from __future__ import annotations

import threading
from typing import Any

from xsem.errors import XsemError
from xsem_cuda._call import INVALID_CONTEXT, call

__all__ = ["Context", "Quiet"]


class Context:
    """A context for ``with``: current inside. May be entered by many threads, and again by one that is in it.

    Parameters
    ----------
    driver : module
        ``cuda.bindings.driver``.
    native : CUcontext
    """

    def __init__(self, driver: Any, native: Any) -> None:
        self.native = native
        self.address = int(native)
        self._current = driver.cuCtxGetCurrent
        self._push = driver.cuCtxPushCurrent
        self._pop = driver.cuCtxPopCurrent
        self._entered = threading.local()

    def __enter__(self) -> None:
        pushed = int(call(self._current)) != self.address
        if pushed:
            call(self._push, self.native)
        try:
            self._entered.pushed.append(pushed)
        except AttributeError:
            self._entered.pushed = [pushed]

    def __exit__(self, *exc: object) -> None:
        if self._entered.pushed.pop():
            call(self._pop)


class Quiet:
    """Relaxed stream-capture mode of the calling thread, for ``with``; may be entered again inside.

    An event query or a free from a thread in the default mode invalidates a capture that another thread has under way
    (measured: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and the capture ends with ..._INVALIDATED).
    """

    def __init__(self, driver: Any, context: Context) -> None:
        self._exchange = driver.cuThreadExchangeStreamCaptureMode
        self._relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self._context = context
        self._inside = threading.local()

    def __enter__(self) -> None:
        inside = self._inside
        depth = getattr(inside, "depth", 0)
        if depth == 0:
            inside.before = self._swap(self._relaxed)
        inside.depth = depth + 1

    def __exit__(self, *exc: object) -> None:
        inside = self._inside
        inside.depth -= 1
        if inside.depth == 0:
            self._swap(inside.before)

    def _swap(self, mode: Any) -> Any:
        try:
            return call(self._exchange, mode)
        except XsemError as error:
            # The function may ask for a current context, says its documentation; the mode is the thread's all the same.
            if error.code != INVALID_CONTEXT:
                raise
            with self._context:
                return call(self._exchange, mode)
