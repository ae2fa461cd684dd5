"""Signals and waits of timelines with arrays that are made once. Each call writes the values and calls the driver.

The bindings copy both lists element by element at each call. For one semaphore this takes as long as the driver itself,
for several it takes longer than the rest. So these calls use the driver's function directly, with memory laid out once.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from xsem_cuda.direct import address_of, check
from xsem_cuda.semaphores import SemaphoreToken

__all__ = ["prepared"]

# Size of CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS and ..._WAIT_PARAMS, in bytes. The fence's value is the first 8.
_PARAMS_SIZE: Final = 144


def prepared(
    driver: Any, name: str, semaphores: Sequence[SemaphoreToken], stream: Any
) -> Callable[[Any], None] | None:
    """Return a callable that calls a driver function for these semaphores.

    Parameters
    ----------
    driver : module
        ``cuda.bindings.driver``.
    name : str
        cuSignalExternalSemaphoresAsync or cuWaitExternalSemaphoresAsync.
    semaphores : sequence of SemaphoreToken
    stream : CUstream

    Returns
    -------
    callable or None
        It takes one value for one semaphore, and a sequence of values for several. None: the driver does not provide
        the function's address.
    """
    address = address_of(driver, name)
    return _append(driver, name, address, semaphores, stream) if address else None


def _append(
    driver: Any, name: str, address: int, semaphores: Sequence[SemaphoreToken], stream: Any
) -> Callable[[Any], None]:
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
    # Writes all values in one call, and the zeros between them again.
    write = struct.Struct("=" + f"Q{_PARAMS_SIZE - 8}x" * count).pack_into

    def one(value: int, _alive: object = (natives, where)) -> None:
        fence[0] = value
        while code := function(*arguments):
            check(driver, name, code)

    def several(values: Sequence[int], _alive: object = (natives, where)) -> None:
        try:
            write(params, 0, *values)
        except struct.error as error:
            raise ValueError(str(error)) from error
        while code := function(*arguments):
            check(driver, name, code)

    return one if count == 1 else several
