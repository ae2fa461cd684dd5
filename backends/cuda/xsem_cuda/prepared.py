"""Signals and waits with prepared arrays. Each call writes the values and calls the driver."""

# The bindings copy both lists element by element at each call. For one semaphore, this copy takes as long as the
# driver's function. For several semaphores, the copy takes longer than the rest of the call. This module calls the
# driver's function directly and makes the arrays once.

from __future__ import annotations

import ctypes
import functools
from array import array
from collections.abc import Sequence
from typing import Any

from xsem.spi import NativeAppend
from xsem_cuda.direct import address_of, check
from xsem_cuda.fences import Fence
from xsem_cuda.semaphores import PARAMS_SIZE, SemaphoreToken
from xsem_cuda.stream_calls import StreamCalls

__all__ = ["PreparedSemaphores", "native_semaphores"]


class PreparedSemaphores:
    """A signal or a wait of some semaphores on one stream."""

    __slots__ = ("_arguments", "_calls", "_failed", "_function", "_one", "_values", "native")

    def __init__(self, native: NativeAppend, calls: StreamCalls) -> None:
        self.native = native
        address, self._failed = native.function
        # Without argtypes: ctypes would check them at each call, and the arguments never change.
        self._arguments = tuple(map(ctypes.c_void_p, native.arguments))
        self._function = ctypes.CFUNCTYPE(ctypes.c_int)(address)
        self._values = memoryview(native.values).cast("Q")[native.offset // 8::native.stride // 8]
        self._one = len(self._values) == 1
        self._calls = calls

    def __call__(self, values: Any, wait_fences: Sequence[Fence], want_fence: bool) -> Fence | None:
        """Wait for the fences, call the function, and record the requested fence."""
        if not (wait_fences or want_fence):
            self.issue(values)
            return None
        calls = self._calls
        event = calls.begin(wait_fences, want_fence)
        try:
            self.issue(values)
        except BaseException:
            calls.cancel(event)
            raise
        return calls.end(event)

    def issue(self, values: Any) -> None:
        """Call the function: with one value or None for one semaphore, with a sequence of values for several."""
        while True:
            if self._one:
                self._values[0] = values or 0
            else:
                self._values[:] = array("Q", values)
            code = self._function(*self._arguments)
            if not code:
                return
            self._failed(code)   # a signal handler may write other values meanwhile


def native_semaphores(
    driver: Any, name: str, semaphores: Sequence[SemaphoreToken], stream: int
) -> NativeAppend | None:
    """Return the call of this function for these semaphores. Without the function's address, return None."""
    address = address_of(driver, name)
    if address is None:
        return None
    count = len(semaphores)
    natives = (ctypes.c_void_p * count)(*[each.address for each in semaphores])
    values = bytearray(PARAMS_SIZE * count)
    params = (ctypes.c_char * len(values)).from_buffer(values)
    return NativeAppend(
        (address, functools.partial(check, driver, name)),
        (ctypes.addressof(natives), ctypes.addressof(params), count, stream), values, PARAMS_SIZE, (natives, params))
