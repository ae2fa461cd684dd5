"""Signals and waits with arrays that are made once. Each call writes the values and calls the driver.

The bindings copy both lists element by element at each call. For one semaphore, this copy takes as long as the driver's
function. For several semaphores, the copy takes longer than the rest of the call. The callables of this module call the
driver's function directly, with arrays that are laid out once.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from xsem.spi import PreparedCall
from xsem_cuda.direct import address_of, check
from xsem_cuda.fences import Fence
from xsem_cuda.semaphores import SemaphoreToken

__all__ = ["prepared"]

# Size of CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS and ..._WAIT_PARAMS, in bytes. The first 8 bytes are the fence's value.
_PARAMS_SIZE: Final = 144


def prepared(
    driver: Any, name: str, semaphores: Sequence[SemaphoreToken], stream: Any, issue: Callable[..., Fence | None]
) -> PreparedCall | None:
    """Return a callable that calls a driver function for these semaphores.

    Parameters
    ----------
    driver : module
        ``cuda.bindings.driver``.
    name : str
        cuSignalExternalSemaphoresAsync or cuWaitExternalSemaphoresAsync.
    semaphores : sequence of SemaphoreToken
    stream : CUstream
    issue : callable
        ``issue(function, arguments, wait_fences, want_fence)`` waits for the fences, calls the function, and records
        the requested fence.

    Returns
    -------
    PreparedCall or None
        None: the driver does not provide the function's address.
    """
    address = address_of(driver, name)
    if not address:
        return None
    count = len(semaphores)
    natives = (ctypes.c_void_p * count)(*[each.address for each in semaphores])
    params = bytearray(_PARAMS_SIZE * count)
    where = (ctypes.c_char * len(params)).from_buffer(params)
    # Not stdcall on Windows: 64-bit code has one calling convention. No argtypes: ctypes would check them at each call,
    # and the arguments are always the same.
    function = ctypes.CFUNCTYPE(ctypes.c_int)(address)
    arguments = (ctypes.c_void_p(ctypes.addressof(natives)), ctypes.c_void_p(ctypes.addressof(where)),
                 ctypes.c_uint(count), ctypes.c_void_p(int(stream)))
    fence = memoryview(params).cast("Q")
    # One call writes all values, and again the zeros between the values.
    write = struct.Struct("=" + f"Q{_PARAMS_SIZE - 8}x" * count).pack_into

    def one(
        value: int | None, wait_fences: Sequence[Fence], want_fence: bool, _alive: object = (natives, where)
    ) -> Fence | None:
        if wait_fences or want_fence:
            return issue(one, (value, (), False), wait_fences, want_fence)
        fence[0] = value or 0   # a binary semaphore has no value
        while code := function(*arguments):
            check(driver, name, code)
        return None

    def several(
        values: Sequence[int], wait_fences: Sequence[Fence], want_fence: bool, _alive: object = (natives, where)
    ) -> Fence | None:
        if wait_fences or want_fence:
            return issue(several, (values, (), False), wait_fences, want_fence)
        write(params, 0, *values)
        while code := function(*arguments):
            check(driver, name, code)
        return None

    return one if count == 1 else several
