"""Functions of the driver that are called at their addresses, past the bindings."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from xsem.errors import UnsupportedError, XsemError
from xsem_cuda._call import call
from xsem_cuda._mutexes import TIMEOUT, timed_out

__all__ = ["address_of", "check", "luid_of"]

_SINCE: Final = 10000
"""The version of CUDA whose functions these are."""


def address_of(driver: Any, name: str) -> int | None:
    """A function's address; None where the driver does not tell it (older than CUDA 11.3)."""
    try:
        address, _found = call(driver.cuGetProcAddress, name.encode(), _SINCE, 0)
    except UnsupportedError:
        return None
    return int(address) or None


def check(driver: Any, name: str, code: int) -> None:
    """Raise the error that stands for what the function returned; nothing where the function is to be called again."""
    if code and not (code == TIMEOUT and timed_out()):
        def said() -> tuple[Any, ...]:
            return (driver.CUresult(code),)  # a ValueError where it is no code that the bindings know

        said.__name__ = name
        call(said)


def luid_of(driver: Any, device: Any) -> tuple[bytes, int] | None:
    """The 8 bytes of a device's LUID, and its node mask; None where the driver gives none.

    The bindings read it as a text: they stop at the first zero byte, which nearly every LUID has, or read beyond it.
    """
    name = "cuDeviceGetLuid"
    address = address_of(driver, name)
    if address is None:
        return None
    luid, mask = ctypes.create_string_buffer(8), ctypes.c_uint()
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)(address)
    try:
        check(driver, name, function(ctypes.addressof(luid), ctypes.addressof(mask), int(device)))
    except XsemError:  # a device without a display driver has none
        return None
    return (luid.raw, mask.value) if any(luid.raw) else None
