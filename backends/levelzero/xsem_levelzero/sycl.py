"""SYCL queues, as streams of torch and dpctl: the command list behind the queue.

Python's libraries give the address of a `sycl::queue` (torch.xpu.Stream.sycl_queue, dpctl.SyclQueue.addressof_ref).
Only functions of the SYCL runtime find the command list. They are exported C++ functions, so this module calls them by
their mangled names in the library that the process has loaded. It never loads the library.
"""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import byref, c_bool, c_int32, c_size_t, c_uint8, c_void_p
from typing import Any, Final

from xsem.errors import BadArgumentError, UnsupportedError

__all__ = ["list_of_sycl", "sycl_address"]

# The sonames from oneAPI 2024 on. Releases until now: 7, 8 and 9.
_LIBRARIES: Final = tuple(f"libsycl.so.{version}" for version in range(7, 20))
_GET_NATIVE: Final = "_ZNK4sycl3_V15queue9getNativeERi"
_GET_BACKEND: Final = "_ZNK4sycl3_V15queue11get_backendEv"
_IS_IN_ORDER: Final = "_ZNK4sycl3_V15queue11is_in_orderEv"
_LEVEL_ZERO: Final = 2   # sycl::backend::ext_oneapi_level_zero
_IMMEDIATE: Final = 1    # getNative: 1 for a ze_command_list_handle_t, 0 for a ze_command_queue_handle_t


def sycl_address(stream: object) -> int | None:
    """Return the address of a stream's `sycl::queue`, or None for another object."""
    address: Any = getattr(stream, "sycl_queue", None)   # torch.xpu.Stream
    if type(address) is not int:
        reference = getattr(stream, "addressof_ref", None)   # dpctl.SyclQueue
        address = reference() if callable(reference) else None
    if type(address) is not int:
        return None
    if address == 0:
        raise BadArgumentError(f"the SYCL queue of the {type(stream).__name__} is null", reason="null_stream")
    return address


def list_of_sycl(address: int) -> int:
    """Return the immediate command list of an in-order `sycl::queue` on Level Zero. The queue owns the list."""
    library = _runtime()
    queue = c_void_p(address)
    backend = int(_function(library, _GET_BACKEND, c_uint8)(queue))
    if backend != _LEVEL_ZERO:
        raise BadArgumentError(
            f"the SYCL queue has backend {backend}, not Level Zero (2): select the device with "
            "ONEAPI_DEVICE_SELECTOR=level_zero:gpu", reason="not_a_stream")
    if not _function(library, _IS_IN_ORDER, c_bool)(queue):
        raise BadArgumentError(
            "the SYCL queue is out of order, and SYCL distributes its commands over several command lists: create the "
            "queue with property in_order", reason="out_of_order")
    immediate = c_int32(0)
    handle = int(_function(library, _GET_NATIVE, c_size_t, c_void_p)(queue, byref(immediate)))
    if immediate.value != _IMMEDIATE or not handle:
        raise BadArgumentError(
            "the SYCL queue submits regular command lists, and only immediate lists take waits and signals of "
            "semaphores (rule 8): set SYCL_PI_LEVEL_ZERO_USE_IMMEDIATE_COMMANDLISTS=1", reason="not_immediate")
    return handle


def _runtime() -> Any:
    found = [each for each in map(_loaded, _LIBRARIES) if each is not None]
    if len(found) != 1:
        raise UnsupportedError(
            f"the command list of a SYCL queue needs the one SYCL runtime of the process (Linux, libsycl.so.7 or "
            f"newer), and {len(found)} are loaded: pass the ze_command_list_handle_t from SYCL's get_native",
            capability="sycl_queue", reason="sycl_runtime")
    return found[0]


def _loaded(name: str) -> Any | None:
    if sys.platform == "win32":   # other names and another ABI
        return None
    try:
        return ctypes.CDLL(name, mode=os.RTLD_NOW | getattr(os, "RTLD_NOLOAD", 0))
    except OSError:
        return None


def _function(library: Any, name: str, returns: Any, *more: Any) -> Any:
    function = getattr(library, name, None)
    if function is None:
        raise UnsupportedError(f"the SYCL runtime {library._name} has no {name}: pass the ze_command_list_handle_t "
                               "from SYCL's get_native", capability="sycl_queue", reason="sycl_runtime")
    function.argtypes, function.restype = (c_void_p, *more), returns
    return function
