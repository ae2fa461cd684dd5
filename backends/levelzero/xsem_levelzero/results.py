"""Level Zero's result codes: their names and the xsem errors for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from xsem.errors import (
    BusyError,
    DeviceLostError,
    DriverError,
    OutOfMemoryError,
    UnsupportedError,
    XsemError,
)

__all__ = ["INVALID", "NOT_READY", "NO_MEMORY", "RESULTS", "SUCCESS", "UNSUPPORTED", "error_of", "name_of"]

SUCCESS: Final = 0
NOT_READY: Final = 1
DEVICE_LOST: Final = 0x70000001
OUT_OF_HOST_MEMORY: Final = 0x70000002
OUT_OF_DEVICE_MEMORY: Final = 0x70000003
DEVICE_REQUIRES_RESET: Final = 0x70000006
INSUFFICIENT_PERMISSIONS: Final = 0x70010000
UNINITIALIZED: Final = 0x78000001
UNSUPPORTED_VERSION: Final = 0x78000002
UNSUPPORTED_FEATURE: Final = 0x78000003
INVALID_ARGUMENT: Final = 0x78000004
INVALID_NULL_HANDLE: Final = 0x78000005
HANDLE_OBJECT_IN_USE: Final = 0x78000006
INVALID_ENUMERATION: Final = 0x7800000C
UNSUPPORTED_ENUMERATION: Final = 0x7800000D
UNSUPPORTED_SIZE: Final = 0x78000009
UNSUPPORTED_IMAGE_FORMAT: Final = 0x7800000E
INVALID_COMMAND_LIST_TYPE: Final = 0x78000019

_NAMES: Final[Mapping[int, str]] = {
    DEVICE_LOST: "DEVICE_LOST",
    OUT_OF_HOST_MEMORY: "OUT_OF_HOST_MEMORY",
    OUT_OF_DEVICE_MEMORY: "OUT_OF_DEVICE_MEMORY",
    0x70000004: "MODULE_BUILD_FAILURE",
    0x70000005: "MODULE_LINK_FAILURE",
    DEVICE_REQUIRES_RESET: "DEVICE_REQUIRES_RESET",
    0x70000007: "DEVICE_IN_LOW_POWER_STATE",
    INSUFFICIENT_PERMISSIONS: "INSUFFICIENT_PERMISSIONS",
    0x70010001: "NOT_AVAILABLE",
    0x70020000: "DEPENDENCY_UNAVAILABLE",
    UNINITIALIZED: "UNINITIALIZED",
    UNSUPPORTED_VERSION: "UNSUPPORTED_VERSION",
    UNSUPPORTED_FEATURE: "UNSUPPORTED_FEATURE",
    INVALID_ARGUMENT: "INVALID_ARGUMENT",
    INVALID_NULL_HANDLE: "INVALID_NULL_HANDLE",
    HANDLE_OBJECT_IN_USE: "HANDLE_OBJECT_IN_USE",
    0x78000007: "INVALID_NULL_POINTER",
    0x78000008: "INVALID_SIZE",
    UNSUPPORTED_SIZE: "UNSUPPORTED_SIZE",
    0x7800000A: "UNSUPPORTED_ALIGNMENT",
    0x7800000B: "INVALID_SYNCHRONIZATION_OBJECT",
    INVALID_ENUMERATION: "INVALID_ENUMERATION",
    UNSUPPORTED_ENUMERATION: "UNSUPPORTED_ENUMERATION",
    UNSUPPORTED_IMAGE_FORMAT: "UNSUPPORTED_IMAGE_FORMAT",
    INVALID_COMMAND_LIST_TYPE: "INVALID_COMMAND_LIST_TYPE",
    0x7800000F: "INVALID_NATIVE_BINARY",
    0x78000010: "INVALID_GLOBAL_NAME",
    0x78000011: "INVALID_KERNEL_NAME",
    0x78000012: "INVALID_FUNCTION_NAME",
    0x78000013: "INVALID_GROUP_SIZE_DIMENSION",
    0x78000014: "INVALID_GLOBAL_WIDTH_DIMENSION",
    0x78000015: "INVALID_KERNEL_ARGUMENT_INDEX",
    0x78000016: "INVALID_KERNEL_ARGUMENT_SIZE",
    0x78000017: "INVALID_KERNEL_ATTRIBUTE_VALUE",
    0x78000018: "INVALID_MODULE_UNLINKED",
    0x7800001A: "OVERLAPPING_REGIONS",
    0x7800001C: "INVALID_KERNEL_HANDLE",
    0x78000020: "SURVIVABILITY_MODE_DETECTED",
    0x78000021: "ADDRESS_NOT_FOUND",
    0x78000024: "INVALID_GRAPH",
    0x78000025: "GRAPH_CAPTURE_UNSUPPORTED",
    0x78000026: "GRAPH_CAPTURE_INVALIDATED",
    0x78000027: "GRAPH_CAPTURE_MERGE_ATTEMPT",
    0x78000028: "COMMAND_LIST_NOT_CAPTURING",
    0x78000029: "GRAPH_UNJOINED_FORKS",
    0x7800002A: "GRAPH_INTERNAL_EVENT",
    0x7FFFFFFE: "UNKNOWN",
}
_OTHERS: Final[Mapping[int, str]] = {   # not ZE_RESULT_ERROR_…
    0x70020001: "ZE_RESULT_WARNING_DROPPED_DATA",
    0x7800001B: "ZE_RESULT_WARNING_ACTION_REQUIRED",
    0x7800001D: "ZE_RESULT_EXT_RTAS_BUILD_RETRY",
    0x7800001E: "ZE_RESULT_EXT_RTAS_BUILD_DEFERRED",
    0x7800001F: "ZE_RESULT_EXT_ERROR_OPERANDS_INCOMPATIBLE",
    0x78000022: "ZE_RESULT_QUERY_TRUE",
    0x78000023: "ZE_RESULT_QUERY_FALSE",
    0x7FF00001: "ZE_RESULT_EXP_ERROR_DEVICE_IS_NOT_VERTEX",
    0x7FF00002: "ZE_RESULT_EXP_ERROR_VERTEX_IS_NOT_DEVICE",
    0x7FF00003: "ZE_RESULT_EXP_ERROR_REMOTE_DEVICE",
    0x7FF00004: "ZE_RESULT_EXP_ERROR_OPERANDS_INCOMPATIBLE",
    0x7FF00005: "ZE_RESULT_EXP_RTAS_BUILD_RETRY",
    0x7FF00006: "ZE_RESULT_EXP_RTAS_BUILD_DEFERRED",
}
RESULTS: Final[Mapping[int, str]] = {
    SUCCESS: "ZE_RESULT_SUCCESS", NOT_READY: "ZE_RESULT_NOT_READY", **_OTHERS,
    **{code: f"ZE_RESULT_ERROR_{name}" for code, name in _NAMES.items()},
}
"""Names by code, for all codes of the specification up to 1.17."""

UNSUPPORTED: Final = frozenset({UNSUPPORTED_VERSION, UNSUPPORTED_FEATURE, UNSUPPORTED_ENUMERATION,
                                UNSUPPORTED_IMAGE_FORMAT, UNSUPPORTED_SIZE, 0x7800000A, 0x78000025})
INVALID: Final = frozenset({INVALID_ARGUMENT, INVALID_NULL_HANDLE, 0x78000007, 0x78000008, 0x7800000B,
                            INVALID_ENUMERATION, INVALID_COMMAND_LIST_TYPE})
_LOST: Final = frozenset({DEVICE_LOST, DEVICE_REQUIRES_RESET})
NO_MEMORY: Final = frozenset({OUT_OF_HOST_MEMORY, OUT_OF_DEVICE_MEMORY})


def name_of(code: int) -> str | None:
    """The name ``"ZE_RESULT_…"`` of a code; None for an unknown code."""
    return RESULTS.get(code)


def error_of(call: str, code: int) -> XsemError:
    """Return the error for a code, with `call`, `code` and `code_name`."""
    fields: dict[str, Any] = {"call": call, "code": code, "code_name": name_of(code)}
    if code in _LOST:
        return DeviceLostError("the device is lost: earlier work on it failed for good", reason="device_lost",
                               from_earlier_work=True, **fields)
    if code in NO_MEMORY:
        return OutOfMemoryError("the device or the host is out of memory", reason="out_of_memory", **fields)
    if code in UNSUPPORTED:
        return UnsupportedError("the Level Zero driver does not support this here", capability=call,
                                reason="not_supported", **fields)
    if code == UNINITIALIZED:
        return DriverError("Level Zero is not initialised in this process, or its driver does not have this function",
                           reason="not_initialized", **fields)
    if code == HANDLE_OBJECT_IN_USE:
        return BusyError("the driver still uses the object", reason="in_use", **fields)
    if code in INVALID:
        return DriverError("the Level Zero driver refused an argument", reason="invalid_value", **fields)
    if code == INSUFFICIENT_PERMISSIONS:
        return DriverError("the Level Zero driver lacks a permission: check /dev/dri", reason="operating_system",
                           **fields)
    if name_of(code) is None:
        return DriverError(f"{call} failed with a code that this xsem does not know", reason="unknown_code", **fields)
    return DriverError(f"{call} failed", reason="driver_error", **fields)
