"""OpenCL's result codes: their names and the xsem errors for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from xsem.errors import (
    BadHandleError,
    DeviceLostError,
    DriverError,
    OutOfMemoryError,
    UnsupportedError,
    XsemError,
)
from xsem.spi import fd_limit_error

__all__ = ["CODES", "INVALID_VALUE", "PLATFORM_NOT_FOUND", "SUCCESS", "error_of", "failed_work", "import_error"]

SUCCESS: Final = 0
DEVICE_NOT_AVAILABLE: Final = -2
MEM_OBJECT_ALLOCATION_FAILURE: Final = -4
OUT_OF_RESOURCES: Final = -5
OUT_OF_HOST_MEMORY: Final = -6
IMAGE_FORMAT_NOT_SUPPORTED: Final = -10
MISALIGNED_SUB_BUFFER_OFFSET: Final = -13
FAILED_EVENTS: Final = -14
INVALID_VALUE: Final = -30
INVALID_OPERATION: Final = -59
PLATFORM_NOT_FOUND: Final = -1001
NVIDIA_ILLEGAL_ACCESS: Final = -9999

# Names by code, for the codes that the functions in use return
CODES: Final[Mapping[int, str]] = {
    SUCCESS: "CL_SUCCESS",
    -1: "CL_DEVICE_NOT_FOUND",
    DEVICE_NOT_AVAILABLE: "CL_DEVICE_NOT_AVAILABLE",
    MEM_OBJECT_ALLOCATION_FAILURE: "CL_MEM_OBJECT_ALLOCATION_FAILURE",
    OUT_OF_RESOURCES: "CL_OUT_OF_RESOURCES",
    OUT_OF_HOST_MEMORY: "CL_OUT_OF_HOST_MEMORY",
    -8: "CL_MEM_COPY_OVERLAP",
    -9: "CL_IMAGE_FORMAT_MISMATCH",
    IMAGE_FORMAT_NOT_SUPPORTED: "CL_IMAGE_FORMAT_NOT_SUPPORTED",
    -12: "CL_MAP_FAILURE",
    MISALIGNED_SUB_BUFFER_OFFSET: "CL_MISALIGNED_SUB_BUFFER_OFFSET",
    FAILED_EVENTS: "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
    INVALID_VALUE: "CL_INVALID_VALUE",
    -31: "CL_INVALID_DEVICE_TYPE",
    -32: "CL_INVALID_PLATFORM",
    -33: "CL_INVALID_DEVICE",
    -34: "CL_INVALID_CONTEXT",
    -35: "CL_INVALID_QUEUE_PROPERTIES",
    -36: "CL_INVALID_COMMAND_QUEUE",
    -37: "CL_INVALID_HOST_PTR",
    -38: "CL_INVALID_MEM_OBJECT",
    -39: "CL_INVALID_IMAGE_FORMAT_DESCRIPTOR",
    -40: "CL_INVALID_IMAGE_SIZE",
    -57: "CL_INVALID_EVENT_WAIT_LIST",
    -58: "CL_INVALID_EVENT",
    INVALID_OPERATION: "CL_INVALID_OPERATION",
    -61: "CL_INVALID_BUFFER_SIZE",
    -64: "CL_INVALID_PROPERTY",
    -65: "CL_INVALID_IMAGE_DESCRIPTOR",
    PLATFORM_NOT_FOUND: "CL_PLATFORM_NOT_FOUND_KHR",
    -1142: "CL_INVALID_SEMAPHORE_KHR",
}

_NO_MEMORY: Final = frozenset({MEM_OBJECT_ALLOCATION_FAILURE, OUT_OF_HOST_MEMORY})
# OpenCL has no code for a full table of file descriptors. A driver returns one of these. NVIDIA's start opens several
# files: with 16 and 24 free descriptors clCreateContext is -9999, and with 2 the loader finds no driver (H200,
# 580.159.04).
_WITHOUT_FD: Final = frozenset({-1, DEVICE_NOT_AVAILABLE, MEM_OBJECT_ALLOCATION_FAILURE, OUT_OF_RESOURCES,
                                OUT_OF_HOST_MEMORY, 999, -9999, PLATFORM_NOT_FOUND})
_OPENING: Final = {"clGetPlatformIDs": 32, "clGetDeviceIDs": 32, "clCreateContext": 32}
_UNSUPPORTED: Final = frozenset({IMAGE_FORMAT_NOT_SUPPORTED, INVALID_OPERATION})
# NVIDIA's driver returns 999 for an import of a closed fd or a pipe, and 1 for a size that is too large. These are
# CUDA's codes, not OpenCL's (measured on an H200, driver 580.159). The driver returns a pointer with them.
_REFUSALS: Final = frozenset({INVALID_VALUE, -33, -38, INVALID_OPERATION, -61, -64, -1142, 1, 999})


def error_of(call: str, code: int, causes: tuple[str, ...] = ()) -> XsemError:
    """Return the error for a code, with `call`, `code` and `code_name`."""
    fields: dict[str, Any] = {"call": call, "code": code, "code_name": CODES.get(code), "likely_causes": causes}
    full = fd_limit_error(call, _OPENING.get(call, 1), **fields) if code in _WITHOUT_FD else None
    if full is not None:
        return full
    if code == DEVICE_NOT_AVAILABLE:
        return DeviceLostError("the device is not available any more: open it again", reason="device_lost",
                               from_earlier_work=True, **fields)
    if code in _NO_MEMORY:
        return OutOfMemoryError("the device or the host is out of memory; release something, or ask for less",
                                reason="out_of_memory", **fields)
    if code == OUT_OF_RESOURCES:
        fields["likely_causes"] = (*causes, "the device is out of memory", "earlier work on the device failed")
        return DriverError("the device lacks resources for this OpenCL call, or earlier work on the device failed",
                           reason="driver_error", from_earlier_work=True, **fields)
    if code in (FAILED_EVENTS, NVIDIA_ILLEGAL_ACCESS):
        return DriverError("earlier work on the device failed", reason="driver_error", from_earlier_work=True,
                           **fields)
    if code in _UNSUPPORTED:
        return UnsupportedError("the OpenCL driver does not support this here", capability=call,
                                reason="not_supported", **fields)
    if code in CODES:
        return DriverError("the OpenCL driver refused an argument", reason="invalid_value", **fields)
    return DriverError(f"{call} failed with a code that this xsem does not know", reason="unknown_code",
                       from_earlier_work=True, **fields)


def import_error(error: XsemError, what: str) -> XsemError:
    """Return the error of a failed import: unless the code names another cause, the handle is bad."""
    if error.code not in _REFUSALS or error.reason == "fd_limit":
        return error
    return BadHandleError(
        f"the driver does not take the handle as {what}", reason="refused_by_driver", call=error.call, code=error.code,
        code_name=error.code_name,
        likely_causes=("it was not exported on this device", "its type or its size differs from the descriptor's",
                       *error.likely_causes),
    )


def failed_work(code: int) -> DriverError:
    """Return the error of a command whose execution status is negative."""
    return DriverError("a command of this list failed on the device", reason="driver_error", from_earlier_work=True,
                       call="the command", code=code, code_name=CODES.get(code))
