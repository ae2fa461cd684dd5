"""Signals and waits with arrays that are made once. Each call writes the values and calls the driver.

The bindings copy both lists element by element at each call. For one semaphore, this copy takes as long as the driver's
function. For several semaphores, the copy takes longer than the rest of the call. The callables of this module call the
driver's function directly, with arrays that are laid out once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final

from xsem.spi import NativeCall, PreparedCall
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
    block = bytearray(_PARAMS_SIZE * count)
    params = (ctypes.c_char * len(block)).from_buffer(block)

    def failed(code: int) -> None:
        check(driver, name, code)

    def with_fences(call: NativeCall, values: Any, wait_fences: Sequence[Fence], want_fence: bool) -> Fence | None:
        return issue(call, (values,), wait_fences, want_fence)

    return NativeCall(address, (ctypes.addressof(natives), ctypes.addressof(params), count, int(stream)), block,
                      _PARAMS_SIZE, failed=failed, with_fences=with_fences, kept=(natives, params))
