"""Signals and waits with prepared arrays. Each call writes the values and calls the driver."""

# The bindings copy both lists element by element at each call. For one semaphore, this copy takes as long as the
# driver's function. For several semaphores, the copy takes longer than the rest of the call. This module calls the
# driver's function directly and makes the arrays once.

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Sequence
from typing import Any

from xsem.spi import NativeAppend
from xsem_cuda.direct import address_of, check
from xsem_cuda.fences import Fence
from xsem_cuda.semaphores import PARAMS_SIZE, SemaphoreToken
from xsem_cuda.stream_calls import StreamCalls

__all__ = ["PreparedSemaphores", "prepared"]


class PreparedSemaphores:
    """A signal or a wait of these semaphores on one stream."""

    __slots__ = ("_arguments", "_calls", "_failed", "_first", "_function", "_params", "_several", "native")

    def __init__(
        self, driver: Any, name: str, address: int, semaphores: Sequence[SemaphoreToken], calls: StreamCalls,
        stream: int,
    ) -> None:
        count = len(semaphores)
        natives = (ctypes.c_void_p * count)(*[each.address for each in semaphores])
        self._params = bytearray(PARAMS_SIZE * count)
        params = (ctypes.c_char * len(self._params)).from_buffer(self._params)
        self._failed = functools.partial(check, driver, name)
        self.native = NativeAppend(
            (address, self._failed), (ctypes.addressof(natives), ctypes.addressof(params), count, stream),
            self._params, PARAMS_SIZE, (natives, params))
        self._first = memoryview(self._params)[:8].cast("Q")
        self._several = None if count == 1 else struct.Struct("=" + f"Q{PARAMS_SIZE - 8}x" * count).pack_into
        # Without argtypes: ctypes would check them at each call, and the arguments never change.
        self._arguments = tuple(map(ctypes.c_void_p, self.native.arguments))
        self._function = ctypes.CFUNCTYPE(ctypes.c_int)(address)
        self._calls = calls

    def __call__(self, values: Any, wait_fences: Sequence[Fence], want_fence: bool) -> Fence | None:
        """Wait for the fences, call the function, and record the requested fence."""
        if not (wait_fences or want_fence):
            self._call(values)
            return None
        calls = self._calls
        event = calls.begin(wait_fences, want_fence)
        try:
            self._call(values)
        except BaseException:
            calls.cancel(event)
            raise
        return calls.end(event)

    def _call(self, values: Any) -> None:
        while True:
            if self._several is None:
                self._first[0] = values or 0
            else:
                self._several(self._params, 0, *values)
            code = self._function(*self._arguments)
            if not code:
                return
            self._failed(code)   # a signal handler may write other values meanwhile


def prepared(
    driver: Any, name: str, semaphores: Sequence[SemaphoreToken], calls: StreamCalls, stream: int
) -> PreparedSemaphores | None:
    """Return `PreparedSemaphores` with these arguments. Without the function's address, return None."""
    address = address_of(driver, name)
    return PreparedSemaphores(driver, name, address, semaphores, calls, stream) if address else None
