"""Driver functions that xsem calls directly at their addresses, without the bindings."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

from xsem.errors import UnsupportedError, XsemError
from xsem_cuda.keyed_mutexes import TIMEOUT, timed_out
from xsem_cuda.results import call

__all__ = ["address_of", "capture_query", "check", "luid_of"]

_SINCE: Final = 10000
"""The CUDA version of these functions, for cuGetProcAddress: 10.0."""


def address_of(driver: Any, name: str) -> int | None:
    """Return the address of a driver function; None if the driver is older than CUDA 11.3 (no cuGetProcAddress)."""
    try:
        address, _found = call(driver.cuGetProcAddress, name.encode(), _SINCE, 0)
    except UnsupportedError:
        return None
    return int(address) or None


def check(driver: Any, name: str, code: int) -> None:
    """Raise the error for a function's code. Return if the code is 0, or if the caller must repeat the call."""
    if code and not (code == TIMEOUT and timed_out()):
        def said() -> tuple[Any, ...]:
            return (driver.CUresult(code),)  # ValueError for a code that the bindings do not know

        said.__name__ = name
        call(said)


def capture_query(driver: Any, stream: int) -> Callable[[], bool] | None:
    """Return a function that tells whether a stream is in a capture; None if the driver does not provide the address.

    Each append to a stream that the application can capture makes this query, so the arguments are created once.
    """
    name = "cuStreamIsCapturing"
    address = address_of(driver, name)
    if address is None:
        return None
    status = ctypes.c_int()
    function = ctypes.CFUNCTYPE(ctypes.c_int)(address)
    arguments = (ctypes.c_void_p(stream), ctypes.c_void_p(ctypes.addressof(status)))

    def capturing() -> bool:
        while code := function(*arguments):
            check(driver, name, code)
        return status.value != 0   # CU_STREAM_CAPTURE_STATUS_NONE

    return capturing


def luid_of(driver: Any, device: Any) -> tuple[bytes, int] | None:
    """Return the 8 bytes of a device's LUID and its node mask; None if the driver does not provide them.

    The bindings read the LUID as a C string. They stop at the first zero byte, which nearly every LUID contains, or
    they read beyond the end. So this function does not use them.
    """
    name = "cuDeviceGetLuid"
    address = address_of(driver, name)
    if address is None:
        return None
    luid, mask = ctypes.create_string_buffer(8), ctypes.c_uint()
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)(address)
    try:
        check(driver, name, function(ctypes.addressof(luid), ctypes.addressof(mask), int(device)))
    except XsemError:  # a device without a display driver has no LUID
        return None
    return (luid.raw, mask.value) if any(luid.raw) else None
