"""Direct calls of driver functions at their addresses, without the bindings."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from typing import Any, Final

from xsem.errors import UnsupportedError, XsemError
from xsem_cuda.codes import TIMEOUT
from xsem_cuda.keyed_mutexes import timed_out
from xsem_cuda.results import call

__all__ = ["address_of", "check", "luid_of", "native_function", "native_query"]

_SINCE: Final = 10000
"""The CUDA version of most of these functions, for cuGetProcAddress: 10.0."""


def address_of(driver: Any, name: str, since: int = _SINCE) -> int | None:
    """Return the address of a function's form of a CUDA version. Return None without cuGetProcAddress, before 11.3."""
    try:
        address, _found = call(driver.cuGetProcAddress, name.encode(), since, 0)
    except UnsupportedError:
        return None
    return int(address) or None


def check(driver: Any, name: str, code: int) -> None:
    """Raise the error for a function's code. Return for code 0, or if the caller must repeat the call."""
    if code and not (code == TIMEOUT and timed_out()):
        def said() -> tuple[Any, ...]:
            return (driver.CUresult(code),)  # ValueError for a code unknown to the bindings

        said.__name__ = name
        call(said)


@functools.cache
def native_function(driver: Any, name: str, arity: int) -> Callable[..., None]:
    """Return a driver function with pointers and ints as parameters and a code as its only result."""
    # The bindings convert and check each argument, which takes longer than a short function of the driver.
    address = address_of(driver, name)
    if address is None:
        return functools.partial(call, getattr(driver, name))
    function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * arity)(address)

    def called(*arguments: int) -> None:
        while code := function(*arguments):
            check(driver, name, code)

    return called


@functools.cache
def native_query(driver: Any, name: str) -> Callable[[int], int]:
    """Return a driver function with a handle as its parameter and an int as its result."""
    address = address_of(driver, name)
    if address is None:
        return lambda handle: int(call(getattr(driver, name), handle))
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(address)

    def asked(handle: int) -> int:
        found = ctypes.c_int()
        while code := function(handle, ctypes.byref(found)):
            check(driver, name, code)
        return found.value

    return asked


def luid_of(driver: Any, device: Any) -> tuple[bytes, int] | None:
    """Return the 8 bytes of a device's LUID and its node mask. If the driver provides neither, return None."""
    # Not through the bindings: they read the LUID as a C string, so they stop at the first zero byte, or read beyond
    # the end. Nearly every LUID contains a zero byte.
    name = "cuDeviceGetLuid"
    address = address_of(driver, name)
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
    if address is not None:
        function = prototype(address)
    elif sys.platform == "win32":   # a driver before CUDA 11.3; the bindings have loaded this library
        function = prototype((name, ctypes.WinDLL("nvcuda.dll")))
    else:
        return None
    luid, mask = ctypes.create_string_buffer(8), ctypes.c_uint()
    try:
        check(driver, name, function(ctypes.addressof(luid), ctypes.addressof(mask), int(device)))
    except XsemError:  # a device without a display driver has no LUID
        return None
    return (luid.raw, mask.value) if any(luid.raw) else None
