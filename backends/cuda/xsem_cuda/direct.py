"""Driver functions that xsem calls directly at their addresses, without the bindings."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any, Final

from xsem.errors import UnsupportedError, XsemError
from xsem.spi import NativeFunction, NativeQuery
from xsem_cuda.keyed_mutexes import TIMEOUT, timed_out
from xsem_cuda.results import call

__all__ = ["address_of", "check", "luid_of", "native_function", "native_query"]

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


@functools.cache
def native_function(driver: Any, name: str, arity: int) -> NativeFunction:
    """Return a driver function whose parameters are pointers and ints, and whose only result is a code.

    The bindings convert and check each argument. This conversion takes longer than a short function of the driver.
    """
    address = address_of(driver, name)
    if address is None:
        return _Binding(getattr(driver, name), arity)
    return NativeFunction(address, functools.partial(check, driver, name))


class _Binding(NativeFunction):
    """The function of the bindings, for a driver that does not provide the address."""

    def __init__(self, function: Callable[..., Any], arity: int) -> None:
        self._binding = function
        self._arity = arity

    def call(self, *arguments: int) -> None:
        call(self._binding, *arguments[:self._arity])


@functools.cache
def native_query(driver: Any, name: str) -> NativeQuery:
    """Return a driver function that takes a handle and writes an int."""
    address = address_of(driver, name)
    if address is None:
        return _BindingQuery(getattr(driver, name))
    return NativeQuery(address, functools.partial(check, driver, name))


class _BindingQuery(NativeQuery):
    """The function of the bindings, for a driver that does not provide the address."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._binding = function

    def query(self, pointer: int) -> int:
        return int(call(self._binding, pointer))


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
