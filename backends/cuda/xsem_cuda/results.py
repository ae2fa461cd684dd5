"""`call`, which makes every driver call, and the mapping of the driver's codes to errors of xsem."""

# Section 6.20 of the CUDA driver API lists the codes of each external-resource function. Any other code, except those
# in `_OWN`, comes from asynchronous work that was enqueued earlier.

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from xsem.errors import (
    BadHandleError,
    BusyError,
    DeviceLostError,
    DriverError,
    OutOfMemoryError,
    UnsupportedError,
    WaitTimeoutError,
    XsemError,
)
from xsem.spi import fd_limit_error
from xsem_cuda import codes
from xsem_cuda.causes import WAIT, causes_of
from xsem_cuda.keyed_mutexes import timed_out

__all__ = ["NOT_READY", "call"]

_UNFINISHED: Final = 600   # CUDA_ERROR_NOT_READY
_CAPTURES: Final = range(900, 909)

# Device unavailable, ECC, NVLink, contained, and the faults of kernels. From then on, the context answers every call
# with this code.
_LOST: Final = frozenset({46, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721})

_NVSCISYNC: Final = "cuDeviceGetNvSciSyncAttributes"
# The object that each of these calls expects behind its handle. If it is another object, the handle is bad.
_TAKES: Final[Mapping[str, str]] = {
    "cuImportExternalSemaphore": "a semaphore", "cuImportExternalMemory": "memory",
    _NVSCISYNC: "an NvSciSync attribute list"}
_IMPORTS: Final[Mapping[str, str]] = {   # the capability of each of these calls
    "cuImportExternalSemaphore": "semaphore.import", "cuImportExternalMemory": "memory.import"}

# Codes about a call's own arguments, the thread's context or the process: every driver function may return them.
# Section 6.20 lists fewer codes for most of its functions. The driver also returns unlisted codes (all measured):
# INVALID_VALUE for an import with flags, for an empty batch and for a wait of a destroyed semaphore; INVALID_CONTEXT
# for a thread without a context. No asynchronous failure has one of these codes.
_OWN: Final = frozenset({
    codes.INVALID_VALUE, codes.OUT_OF_MEMORY, codes.NOT_INITIALIZED, codes.DEINITIALIZED, codes.NO_DEVICE,
    codes.INVALID_DEVICE, codes.INVALID_CONTEXT, codes.OPERATING_SYSTEM, codes.INVALID_HANDLE, codes.NOT_SUPPORTED,
    codes.ALREADY_REGISTERED, codes.NOT_REGISTERED})

# The machine is not ready, or the library does not fit it; codes of MPS. No asynchronous failure has one of them.
_MACHINE: Final = frozenset({34, *range(802, 811)})
# The codes that a driver may return if it cannot open a file. The start of CUDA opens many.
_WITHOUT_FD: Final = frozenset({codes.OUT_OF_MEMORY, codes.NO_DEVICE, codes.OPERATING_SYSTEM, codes.UNKNOWN})
_OPENING: Final = {"cuInit": 32, "cuDevicePrimaryCtxRetain": 32}


class _NotReady:
    def __repr__(self) -> str:
        return "NOT_READY"


NOT_READY: Final = _NotReady()
"""Result of `call` for a query of unfinished work."""


def call(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of the bindings. Return its one result, a tuple of none or several, or `NOT_READY`."""
    try:
        result = function(*args)
    except (ValueError, RuntimeError) as error:
        raise _from_bindings(function.__name__, error) from error
    code = result[0]
    if code:
        if code == _UNFINISHED and function.__name__.endswith("Query"):
            return NOT_READY
        if code == codes.TIMEOUT and timed_out():
            return call(function, *args)
        raise _from_code(function.__name__, int(code), code.name)
    return result[1] if len(result) == 2 else result[1:]


def _from_bindings(name: str, error: Exception) -> Exception:
    """Return the error for an exception of the bindings: an unknown code, or a missing driver function."""
    text = str(error)
    if isinstance(error, ValueError):
        unknown = re.match(r"(\d+) is not a valid", text)
        if unknown is None:
            return error
        # The driver has already acted. The enum of the bindings is older than the driver.
        return _from_code(name, int(unknown[1]), None)
    return UnsupportedError(
        f"the CUDA driver does not have {name}: install a newer driver ({text})", capability=name,
        reason="driver_too_old", call=name,
    )


def _from_code(name: str, code: int, code_name: str | None) -> XsemError:
    fields: dict[str, Any] = {"call": name, "code": code, "code_name": code_name}
    full = fd_limit_error(name, _OPENING.get(name, 1), **fields) if code in _WITHOUT_FD else None
    if full is not None:
        return full
    fields["likely_causes"] = causes_of(name, code)
    if code in _LOST:
        return DeviceLostError(
            "the CUDA context is lost, because earlier work on it failed: every later call fails; start a new process",
            reason="device_lost", from_earlier_work=True, **fields)
    if code == codes.DEINITIALIZED:
        return DeviceLostError("the CUDA driver is shutting down: release the devices before the process ends",
                               reason="driver_shut_down", **fields)
    if code == codes.OUT_OF_MEMORY:
        return OutOfMemoryError(
            f"the device or the host has no memory left for {name}: release something, or ask for less",
            reason="out_of_memory", **fields)
    if code == codes.TIMEOUT and name == WAIT:
        return WaitTimeoutError("a keyed mutex was not released within timeout_ms", reason="timeout", **fields)
    if code in _CAPTURES:
        return BusyError("a stream capture is in progress and does not permit this call: make it before or after the "
                         "capture", reason="capturing", **fields)
    if code == codes.NOT_PERMITTED:
        # Any call can return it (cudaStreamAddCallback: "no CUDA function may be called from callback").
        return DriverError("CUDA functions cannot be called from a host function of a stream: call xsem from another "
                           "thread", reason="not_permitted", **fields)
    if code in _MACHINE:
        return DriverError(f"{name} failed, because the machine or the CUDA library is not in order: run nvidia-smi",
                           reason="driver_error", **fields)
    what = _TAKES.get(name)
    if what is not None:
        if code == codes.INVALID_HANDLE:
            return BadHandleError(
                f"the driver does not take the handle as {what}: pass the exported handle, with the descriptor of its "
                "type", reason="refused_by_driver", **fields)
        if code == codes.NOT_SUPPORTED and name == _NVSCISYNC:
            return UnsupportedError("the driver does not support NvSciSync attributes for this device",
                                    capability="semaphore.import.nvscisync", reason="not_supported", **fields)
        if code == codes.NOT_SUPPORTED:
            return UnsupportedError(f"the driver does not import {what} of this type here: export it as another type",
                                    capability=_IMPORTS[name], reason="not_supported", **fields)
    earlier = code not in _OWN
    if earlier and code_name is not None:
        return DriverError(f"{name} reports an error of work that was enqueued earlier: examine that work",
                           reason="earlier_work_failed", from_earlier_work=True, **fields)
    if code == codes.NOT_INITIALIZED:
        return DriverError("the CUDA driver is not initialized in this process; start processes with the spawn method",
                           reason="not_initialized", **fields)
    if code == codes.INVALID_VALUE:
        return DriverError(f"the driver refused an argument of {name}", reason="invalid_value", **fields)
    if code == codes.INVALID_HANDLE:
        return DriverError(f"the driver does not know a handle that {name} got: create or open the object again",
                           reason="invalid_handle", **fields)
    if code == codes.INVALID_CONTEXT:
        return DriverError(f"the CUDA context of {name} is not valid: open the device again", reason="invalid_context",
                           **fields)
    if code == codes.NOT_SUPPORTED:
        return DriverError(f"the driver does not support {name} with these arguments here", reason="not_supported",
                           **fields)
    if code == codes.OPERATING_SYSTEM:
        return DriverError(f"a call to the operating system failed inside the driver, in {name}: check the limits of "
                           "the process, and the log of the kernel", reason="operating_system", **fields)
    if code_name is None:
        return DriverError(f"{name} failed with a code that these bindings do not know: try a newer cuda-python",
                           reason="unknown_code", from_earlier_work=earlier, **fields)
    return DriverError(f"{name} failed", reason="driver_error", **fields)
