"""Signals and waits of timelines whose arrays are made once: each call writes the values, and calls the driver.

For several semaphores the bindings copy both lists element by element at each call, which takes longer than the rest.
So those calls go to the driver's own function, on memory that is laid out once.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from xsem.errors import UnsupportedError
from xsem_cuda._call import call
from xsem_cuda._semaphores import SemaphoreToken

__all__ = ["prepared"]

# CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS and ..._WAIT_PARAMS: 144 bytes each, and the fence's value is the first 8.
_PARAMS_SIZE: Final = 144

_SINCE: Final = 10000
"""The version of CUDA whose functions these are."""


def prepared(
    driver: Any, function: Callable[..., Any], params: Callable[[], Any], semaphores: Sequence[SemaphoreToken],
    stream: Any,
) -> Callable[[Any], None] | None:
    """What calls `function` for these semaphores: with a value for one, with a list for several.

    None where the driver does not give the function's address.

    Parameters
    ----------
    driver : module
        ``cuda.bindings.driver``.
    function : callable
        Its cuSignalExternalSemaphoresAsync or cuWaitExternalSemaphoresAsync.
    params : type
        The structure of its parameters.
    """
    if len(semaphores) == 1:
        return _one(function, params(), semaphores[0], stream)
    try:
        address, _found = call(driver.cuGetProcAddress, function.__name__.encode(), _SINCE, 0)
    except UnsupportedError:
        return None
    return _several(driver, function.__name__, address, semaphores, stream) if address else None


def _one(function: Callable[..., Any], params: Any, semaphore: SemaphoreToken, stream: Any) -> Callable[[Any], None]:
    fence = params.params.fence
    natives, structs = [semaphore.native], [params]

    def append(value: int) -> None:
        fence.value = value
        outcome: tuple[Any, ...] | Exception
        try:
            said = function(natives, structs, 1, stream)
            if not said[0]:
                return
            outcome = said
        except (ValueError, RuntimeError) as error:
            outcome = error
        _report(function.__name__, outcome)

    return append


def _several(
    driver: Any, name: str, address: int, semaphores: Sequence[SemaphoreToken], stream: Any
) -> Callable[[Any], None]:
    count = len(semaphores)
    natives = (ctypes.c_void_p * count)(*[each.address for each in semaphores])
    params = bytearray(_PARAMS_SIZE * count)
    where = (ctypes.c_char * len(params)).from_buffer(params)
    # Writes all values at once, and the zeros between them again.
    write = struct.Struct("=" + f"Q{_PARAMS_SIZE - 8}x" * count).pack_into
    # Not stdcall on Windows: 64-bit code has one convention.
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p)(address)
    # Made once: to convert them at each call would take as long as the call.
    arguments = (ctypes.c_void_p(ctypes.addressof(natives)), ctypes.c_void_p(ctypes.addressof(where)),
                 ctypes.c_uint(count), ctypes.c_void_p(int(stream)))

    def append(values: Sequence[int], _alive: object = (natives, where)) -> None:
        try:
            write(params, 0, *values)
        except struct.error as error:
            raise ValueError(str(error)) from error
        code = function(*arguments)
        if code:
            try:
                said = (driver.CUresult(code),)
            except ValueError as error:
                _report(name, error)
            else:
                _report(name, said)

    return append


def _report(name: str, outcome: tuple[Any, ...] | Exception) -> None:
    """Raise the error that stands for what the function returned, or for what the bindings raised."""

    def said() -> tuple[Any, ...]:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    said.__name__ = name
    call(said)
