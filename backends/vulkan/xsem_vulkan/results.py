"""VkResult codes: their names and the xsem errors for them."""

from __future__ import annotations

from typing import Final, NoReturn, TypedDict

from xsem.errors import (
    BackendUnavailableError,
    BadHandleError,
    BusyError,
    DeviceLostError,
    DriverError,
    OutOfMemoryError,
    UnsupportedError,
    XsemError,
)
from xsem.spi import fd_limit_error
from xsem_vulkan import constants

__all__ = ["check", "code_name", "device_lost", "error_for", "import_error"]

_NAMES: Final[dict[int, str]] = {
    value: name for name, value in vars(constants).items()
    if name in ("VK_SUCCESS", "VK_NOT_READY", "VK_TIMEOUT", "VK_INCOMPLETE") or name.startswith("VK_ERROR_")
}

_NO_MEMORY: Final = {
    constants.VK_ERROR_OUT_OF_HOST_MEMORY: "the host is out of memory",
    constants.VK_ERROR_OUT_OF_DEVICE_MEMORY: "the device is out of memory",
    constants.VK_ERROR_OUT_OF_POOL_MEMORY: "a pool of the driver is exhausted",
    constants.VK_ERROR_FRAGMENTED_POOL: "a pool of the driver is fragmented",
    constants.VK_ERROR_FRAGMENTATION: "the driver's memory is fragmented",
    constants.VK_ERROR_MEMORY_MAP_FAILED: "the driver cannot map the memory",
}
_MISSING: Final = {
    constants.VK_ERROR_LAYER_NOT_PRESENT: ("a layer", "vulkan_layer"),
    constants.VK_ERROR_EXTENSION_NOT_PRESENT: ("an extension", "vulkan_extension"),
    constants.VK_ERROR_FEATURE_NOT_PRESENT: ("a feature", "vulkan_feature"),
    constants.VK_ERROR_FORMAT_NOT_SUPPORTED: ("a format", "vulkan_format"),
}


# The codes with which drivers report that they could open no file (SwiftShader: INCOMPATIBLE_DRIVER of the loader,
# INITIALIZATION_FAILED, OUT_OF_DEVICE_MEMORY and INVALID_EXTERNAL_HANDLE; the specification: TOO_MANY_OBJECTS).
_WITHOUT_FD: Final = frozenset({
    constants.VK_ERROR_OUT_OF_HOST_MEMORY, constants.VK_ERROR_OUT_OF_DEVICE_MEMORY,
    constants.VK_ERROR_INITIALIZATION_FAILED, constants.VK_ERROR_TOO_MANY_OBJECTS,
    constants.VK_ERROR_INVALID_EXTERNAL_HANDLE, constants.VK_ERROR_INCOMPATIBLE_DRIVER, constants.VK_ERROR_UNKNOWN})
# These calls open several files, and close them when one of them cannot be opened.
_OPENING: Final = {"vkCreateInstance": 32, "vkEnumeratePhysicalDevices": 32, "vkCreateDevice": 32}
_NO_MORE_DEVICES: Final = (
    # 580.159.04 on an H200 creates 14 devices in a process, by one thread as by many.
    "the process has as many devices as the driver creates (NVIDIA's: 14): release some, or open one and share it",
    "the GPU has no memory left for another device, or has failed (dmesg)")
# Measured on an H200 (580.159.04), see `xsem_vulkan.nodes`.
_AFTER_REFUSAL: Final = ("the driver refused a handle earlier in this process: NVIDIA's driver then fails other calls "
                         "until the process ends")
# Likely causes of VK_ERROR_INITIALIZATION_FAILED and of missing device memory, by call
_CAUSES: Final = {
    "vkCreateDevice": _NO_MORE_DEVICES, "vkCreateSemaphore": (_AFTER_REFUSAL,),
    "vkImportSemaphoreFdKHR": (_AFTER_REFUSAL,), "vkAllocateMemory": (_AFTER_REFUSAL,),
}


class _Source(TypedDict):
    backend: str
    call: str
    code: int
    code_name: str | None


def code_name(code: int) -> str | None:
    """Vulkan's name for a VkResult; None for an unknown code."""
    return _NAMES.get(code)


def check(call: str, code: int) -> int:
    """Return a success code (VK_TIMEOUT is one), and raise the error for an error code."""
    if code < 0:
        raise error_for(call, code)
    return code


def error_for(call: str, code: int) -> XsemError:
    """Return the error for a code of `call`."""
    full = fd_limit_error(call, _OPENING.get(call, 1), **_from(call, code)) if code in _WITHOUT_FD else None
    if full is not None:
        return full
    if code in _NO_MEMORY:
        causes = _CAUSES.get(call, ()) if code == constants.VK_ERROR_OUT_OF_DEVICE_MEMORY else ()
        return OutOfMemoryError(f"{_NO_MEMORY[code]}; release something, or ask for less", reason="out_of_memory",
                                likely_causes=causes, **_from(call, code))
    if code in _MISSING:
        what, capability = _MISSING[code]
        return UnsupportedError(f"the driver lacks {what} that {call} needs", reason="not_supported",
                                capability=capability, **_from(call, code))
    if code == constants.VK_ERROR_DEVICE_LOST:
        return DeviceLostError("the device is lost: earlier work on it failed, or it was removed; open it again",
                               reason="device_lost", from_earlier_work=True, **_from(call, code))
    if code == constants.VK_ERROR_TOO_MANY_OBJECTS:
        # The specification assigns this code to functions that create fds if the process has no free fd number.
        if call.endswith("FdKHR"):
            return BusyError("the process has no free fd number; release something, or raise RLIMIT_NOFILE",
                             reason="fd_limit", **_from(call, code))
        return BusyError("the driver cannot create more objects of this kind; release some", reason="too_many_objects",
                         **_from(call, code))
    if code == constants.VK_ERROR_INVALID_EXTERNAL_HANDLE:
        return BadHandleError("the driver does not take the handle as an object of this device and driver",
                              reason="refused_by_driver", **_from(call, code))
    if code == constants.VK_ERROR_INCOMPATIBLE_DRIVER:
        return BackendUnavailableError(
            "the Vulkan loader finds no driver that it can use", reason="no_driver", likely_causes=(
                "the GPU vendor's Vulkan driver is not installed (Mesa's: mesa-vulkan-drivers)",
                "the container lacks the GPU's graphics capability (NVIDIA_DRIVER_CAPABILITIES=all)",
                "VK_DRIVER_FILES or VK_ICD_FILENAMES names a missing file",
            ), **_from(call, code))
    if code in _NAMES:
        causes = _CAUSES.get(call, ()) if code == constants.VK_ERROR_INITIALIZATION_FAILED else ()
        return DriverError(f"{call} failed with {_NAMES[code]}", reason="driver_error", likely_causes=causes,
                           **_from(call, code))
    return DriverError(f"{call} failed with a code that xsem has no name for", reason="unknown_code",
                       **_from(call, code))


# Besides the specification's code, those of SwiftShader and lavapipe for another driver's file.
_REFUSALS: Final = frozenset({
    constants.VK_ERROR_INITIALIZATION_FAILED, constants.VK_ERROR_MEMORY_MAP_FAILED, constants.VK_ERROR_UNKNOWN,
    constants.VK_ERROR_INVALID_EXTERNAL_HANDLE})


def import_error(error: XsemError, causes: tuple[str, ...] = ()) -> XsemError:
    """Return the error of a failed import: unless the code names another cause, the handle is bad."""
    if error.code not in _REFUSALS or error.call is None or error.reason == "fd_limit":
        return error
    return BadHandleError("the driver does not take the handle as an object of this device and driver",
                          reason="refused_by_driver", likely_causes=causes, **_from(error.call, error.code))


def device_lost(call: str) -> NoReturn:
    """Raise DeviceLostError for a driver that reports a lost device without the code."""
    raise error_for(call, constants.VK_ERROR_DEVICE_LOST)


def _from(call: str, code: int) -> _Source:
    return {"backend": "vulkan", "call": call, "code": code, "code_name": code_name(code)}
