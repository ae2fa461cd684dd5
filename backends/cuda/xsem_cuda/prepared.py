"""Signals and waits with prepared arrays. Each call writes the values and calls the driver."""

# The bindings copy both lists element by element at each call. For one semaphore, this copy takes as long as the
# driver's function. For several semaphores, the copy takes longer than the rest of the call. This module calls the
# driver's function directly and makes the arrays once.

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

from xsem.spi.native_call import NativeCall
from xsem_cuda.direct import address_of, check
from xsem_cuda.fences import Fence
from xsem_cuda.semaphores import PARAMS_SIZE, SemaphoreToken
from xsem_cuda.stream_calls import StreamCalls

__all__ = ["PreparedSemaphores", "prepared"]


class PreparedSemaphores(NativeCall):
    """A signal or a wait of these semaphores on one stream."""

    __slots__ = ("_calls",)

    def __init__(
        self, driver: Any, name: str, address: int, semaphores: Sequence[SemaphoreToken], calls: StreamCalls,
        stream: int,
    ) -> None:
        count = len(semaphores)
        natives = (ctypes.c_void_p * count)(*[each.address for each in semaphores])
        block = bytearray(PARAMS_SIZE * count)
        params = (ctypes.c_char * len(block)).from_buffer(block)
        super().__init__(address, (ctypes.addressof(natives), ctypes.addressof(params), count, stream), block,
                         PARAMS_SIZE, failed=functools.partial(check, driver, name), kept=(natives, params))
        self._calls = calls

    def append(self, values: Any, wait_fences: Sequence[Fence] = (), want_fence: bool = False) -> Fence | None:
        """Wait for the fences, call the function, and record the requested fence."""
        if not (wait_fences or want_fence):
            self.call(values)
            return None
        calls = self._calls
        event = calls.begin(wait_fences, want_fence)
        try:
            self.call(values)
        except BaseException:
            calls.cancel(event)
            raise
        return calls.end(event)


def prepared(
    driver: Any, name: str, semaphores: Sequence[SemaphoreToken], calls: StreamCalls, stream: int
) -> PreparedSemaphores | None:
    """Return `PreparedSemaphores` with these arguments. Without the function's address, return None."""
    address = address_of(driver, name)
    return PreparedSemaphores(driver, name, address, semaphores, calls, stream) if address else None
