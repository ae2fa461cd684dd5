"""`call`, which makes every driver call, and the mapping of the driver's codes to errors of xsem.

Section 6.20 of the CUDA driver API lists the codes of each external-resource function. Any other code, except those in
`_OWN`, comes from asynchronous work that was enqueued earlier.
"""

from __future__ import annotations

import re
import sys
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
from xsem_cuda.keyed_mutexes import TIMEOUT, timed_out

__all__ = ["INVALID_CONTEXT", "INVALID_VALUE", "NOT_READY", "NO_DEVICE", "UNKNOWN", "call"]

INVALID_VALUE: Final = 1
_OUT_OF_MEMORY: Final = 2
_NOT_INITIALIZED: Final = 3
_DEINITIALIZED: Final = 4
NO_DEVICE: Final = 100
INVALID_CONTEXT: Final = 201
_OPERATING_SYSTEM: Final = 304
_INVALID_HANDLE: Final = 400
_NOT_READY_CODE: Final = 600
_NOT_PERMITTED: Final = 800
_NOT_SUPPORTED: Final = 801
_FIRST_CAPTURE: Final = 900
_LAST_CAPTURE: Final = 908
UNKNOWN: Final = 999

# Device unavailable, ECC, NVLink, contained, and the faults of kernels. From then on, the context answers every call
# with this code.
_LOST: Final = frozenset({46, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721})

_IMPORT_SEMAPHORE: Final = "cuImportExternalSemaphore"
_IMPORT_MEMORY: Final = "cuImportExternalMemory"
_WAIT: Final = "cuWaitExternalSemaphoresAsync"
_NVSCISYNC: Final = "cuDeviceGetNvSciSyncAttributes"
# The object that each of these calls expects behind its handle. If it is another object, the handle is bad.
_TAKES: Final[Mapping[str, str]] = {
    _IMPORT_SEMAPHORE: "semaphore", _IMPORT_MEMORY: "memory", _NVSCISYNC: "NvSciSync attribute list"}

# Codes about a call's own arguments, the thread's context or the process: every driver function may return them.
# Section 6.20 lists fewer codes for most of its functions. The driver also returns unlisted codes (all measured):
# INVALID_VALUE for an import with flags, for an empty batch and for a wait of a destroyed semaphore; INVALID_CONTEXT
# for a thread without a context. No asynchronous failure has one of these codes.
_OWN: Final = frozenset({INVALID_VALUE, _OUT_OF_MEMORY, _NOT_INITIALIZED, _DEINITIALIZED, NO_DEVICE, 101,
                         INVALID_CONTEXT, _OPERATING_SYSTEM, _INVALID_HANDLE, _NOT_SUPPORTED})

_NO_RESOURCE: Final = ("the process has reached its limit of handles",) if sys.platform == "win32" else (
    "the process has reached its limit of open files", "the user has no permission on /dev/nvidia*")

_CAUSES: Final[Mapping[tuple[str, int], tuple[str, ...]]] = {
    (_IMPORT_SEMAPHORE, _INVALID_HANDLE): ("the handle is not a semaphore exported on this device",),
    (_IMPORT_MEMORY, _INVALID_HANDLE): ("the handle is not memory exported on this device",),
    (_IMPORT_SEMAPHORE, UNKNOWN): (
        "the handle is not a semaphore exported on this device",
        "the exporter runs on another driver release"),
    (_IMPORT_MEMORY, UNKNOWN): (
        "the handle is not memory exported on this device", "the exporter runs on another driver release"),
    (_IMPORT_MEMORY, INVALID_VALUE): (
        "allocation_size differs from the exporter's", "dedicated differs from the allocation's"),
    (_IMPORT_SEMAPHORE, _OPERATING_SYSTEM): _NO_RESOURCE,
    (_IMPORT_MEMORY, _OPERATING_SYSTEM): _NO_RESOURCE,
    ("cuExternalMemoryGetMappedBuffer", INVALID_VALUE): ("the range ends beyond the imported memory",),
    ("cuExternalMemoryGetMappedMipmappedArray", INVALID_VALUE): (
        "extent, format, flags or levels differ from the exporter's image",
        "the image is dedicated and the memory was imported without dedicated=True"),
    (_NVSCISYNC, INVALID_VALUE): ("a required permission is already set in the attribute list",),
    (_WAIT, INVALID_VALUE): (
        "NvSciSync: the fence belongs to another NvSciSyncObj, or no signal has written it",),
    ("cuSignalExternalSemaphoresAsync", _NOT_SUPPORTED): (
        "the NvSciSync attributes were made without CUDA_NVSCISYNC_ATTR_SIGNAL",),
    (_WAIT, _NOT_SUPPORTED): (
        "the NvSciSync attributes were made without CUDA_NVSCISYNC_ATTR_WAIT",),
}
_FORK_CAUSE: Final = ("the process was forked after CUDA was started",)


class _NotReady:
    def __repr__(self) -> str:
        return "NOT_READY"


NOT_READY: Final = _NotReady()
"""Result of `call` for a query of unfinished work."""


def call(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of ``cuda.bindings.driver`` and return its results without the code.

    Parameters
    ----------
    function : callable
        A function of ``cuda.bindings.driver``.
    *args : object
        Its arguments.

    Returns
    -------
    object
        One result; a tuple for no result or several; `NOT_READY` for a query of unfinished work.

    Raises
    ------
    XsemError
        The class for the code, with ``call``, ``code`` and ``code_name``.
    """
    try:
        result = function(*args)
    except (ValueError, RuntimeError) as error:
        raise _from_bindings(function.__name__, error) from error
    code = result[0]
    if code:
        if code == _NOT_READY_CODE and function.__name__.endswith("Query"):
            return NOT_READY
        if code == TIMEOUT and timed_out():
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
    causes = _CAUSES.get((name, code), ())
    fields: dict[str, Any] = {"call": name, "code": code, "code_name": code_name, "likely_causes": causes}
    earlier = code not in _OWN
    if code in _LOST:
        return DeviceLostError("the CUDA context is lost: earlier work on it failed for good", reason="device_lost",
                               from_earlier_work=True, **fields)
    if code == _DEINITIALIZED:
        return DeviceLostError("the CUDA driver is shutting down", reason="driver_shut_down", **fields)
    if code == _OUT_OF_MEMORY:
        return OutOfMemoryError("the device or the host is out of memory", reason="out_of_memory", **fields)
    if code == TIMEOUT and name == _WAIT:
        return WaitTimeoutError("a keyed mutex was not released within timeout_ms", reason="timeout", **fields)
    if _FIRST_CAPTURE <= code <= _LAST_CAPTURE:
        return BusyError("a stream capture is in progress and does not permit this call", reason="capturing", **fields)
    if code == _NOT_PERMITTED:
        # Any call can return it (cudaStreamAddCallback: "no CUDA function may be called from callback").
        return DriverError("CUDA functions cannot be called from a host function of a stream", reason="not_permitted",
                           **fields)
    what = _TAKES.get(name)
    if what is not None:
        if code == _INVALID_HANDLE:
            return BadHandleError(f"the driver does not accept the handle as {what}", reason="refused_by_driver",
                                  **fields)
        if code == _NOT_SUPPORTED and name == _NVSCISYNC:
            return UnsupportedError("the driver does not support NvSciSync attributes for this device",
                                    capability="semaphore.import.nvscisync", reason="not_supported", **fields)
        if code == _NOT_SUPPORTED:
            return UnsupportedError(f"the driver does not import {what} of this type here",
                                    capability=f"{what}.import", reason="not_supported", **fields)
    if earlier and code_name is not None:
        return DriverError(f"{name} reports an error of work that was enqueued earlier", reason="earlier_work_failed",
                           from_earlier_work=True, **fields)
    if code == _NOT_INITIALIZED:
        fields["likely_causes"] = causes or _FORK_CAUSE
        return DriverError("the CUDA driver is not initialized in this process; start processes with the spawn method",
                           reason="not_initialized", **fields)
    if code == INVALID_VALUE:
        return DriverError("the driver refused an argument", reason="invalid_value", **fields)
    if code == _INVALID_HANDLE:
        return DriverError("the driver does not know the handle", reason="invalid_handle", **fields)
    if code == INVALID_CONTEXT:
        return DriverError("the CUDA context is not valid", reason="invalid_context", **fields)
    if code == _NOT_SUPPORTED:
        return DriverError("the driver does not support this operation here", reason="not_supported", **fields)
    if code == _OPERATING_SYSTEM:
        return DriverError("a call to the operating system failed inside the driver", reason="operating_system",
                           **fields)
    if code_name is None:
        return DriverError(f"{name} failed with a code that these bindings do not know: try a newer cuda-python",
                           reason="unknown_code", from_earlier_work=earlier, **fields)
    return DriverError(f"{name} failed", reason="driver_error", **fields)
