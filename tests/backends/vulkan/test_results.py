"""Test the errors for codes of the driver."""

from __future__ import annotations

import pickle

import pytest
from support.open_files import few_more_files

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
from xsem_vulkan import constants
from xsem_vulkan.results import check, code_name, import_error


@pytest.mark.parametrize(("name", "call", "cls", "reason"), [
    ("VK_ERROR_OUT_OF_HOST_MEMORY", "vkQueueSubmit", OutOfMemoryError, "out_of_memory"),
    ("VK_ERROR_OUT_OF_DEVICE_MEMORY", "vkAllocateMemory", OutOfMemoryError, "out_of_memory"),
    ("VK_ERROR_OUT_OF_POOL_MEMORY", "vkAllocateCommandBuffers", OutOfMemoryError, "out_of_memory"),
    ("VK_ERROR_MEMORY_MAP_FAILED", "vkMapMemory", OutOfMemoryError, "out_of_memory"),
    ("VK_ERROR_DEVICE_LOST", "vkQueueSubmit", DeviceLostError, "device_lost"),
    ("VK_ERROR_EXTENSION_NOT_PRESENT", "vkCreateDevice", UnsupportedError, "not_supported"),
    ("VK_ERROR_FEATURE_NOT_PRESENT", "vkCreateDevice", UnsupportedError, "not_supported"),
    ("VK_ERROR_TOO_MANY_OBJECTS", "vkAllocateMemory", BusyError, "too_many_objects"),
    ("VK_ERROR_TOO_MANY_OBJECTS", "vkGetMemoryFdKHR", BusyError, "fd_limit"),
    ("VK_ERROR_TOO_MANY_OBJECTS", "vkGetSemaphoreFdKHR", BusyError, "fd_limit"),
    ("VK_ERROR_INVALID_EXTERNAL_HANDLE", "vkImportSemaphoreFdKHR", BadHandleError, "refused_by_driver"),
    ("VK_ERROR_INCOMPATIBLE_DRIVER", "vkCreateInstance", BackendUnavailableError, "no_driver"),
    ("VK_ERROR_INITIALIZATION_FAILED", "vkCreateDevice", DriverError, "driver_error"),
    ("VK_ERROR_UNKNOWN", "vkQueueSubmit", DriverError, "driver_error"),
])
def test_code_is_its_error(name: str, call: str, cls: type[XsemError], reason: str) -> None:
    code = getattr(constants, name)
    with pytest.raises(cls) as raised:
        check(call, code)
    error = raised.value
    assert type(error) is cls
    assert (error.reason, error.call, error.code, error.code_name) == (reason, call, code, name)
    assert error.backend == "vulkan"
    assert call in str(error)
    assert pickle.loads(pickle.dumps(error)).__dict__ == error.__dict__


def test_every_error_code_raises_an_xsem_error() -> None:
    codes = [value for name, value in vars(constants).items() if name.startswith("VK_ERROR_")]
    assert len(codes) > 15
    for code in codes:
        with pytest.raises(XsemError):
            check("vkSomething", code)


@pytest.mark.parametrize("code", [-14, -1000999999, -2**31])
def test_unknown_code_is_a_driver_error_with_its_number(code: int) -> None:
    with pytest.raises(DriverError) as raised:
        check("vkQueueSubmit", code)
    assert raised.value.reason == "unknown_code"
    assert raised.value.code == code
    assert raised.value.code_name is None
    assert str(code) in str(raised.value)


@pytest.mark.parametrize("name", ["VK_SUCCESS", "VK_NOT_READY", "VK_TIMEOUT", "VK_INCOMPLETE"])
def test_code_of_success_is_given_back(name: str) -> None:
    code = getattr(constants, name)
    assert check("vkWaitSemaphores", code) == code
    assert code_name(code) == name


# Codes of SwiftShader and of the loader; NVIDIA's driver returns the first one for a new device.
@pytest.mark.parametrize(("name", "call", "left"), [
    ("VK_ERROR_INITIALIZATION_FAILED", "vkCreateDevice", 20), ("VK_ERROR_INITIALIZATION_FAILED", "vkCreateDevice", 0),
    ("VK_ERROR_INCOMPATIBLE_DRIVER", "vkCreateInstance", 20), ("VK_ERROR_UNKNOWN", "vkEnumeratePhysicalDevices", 20),
    ("VK_ERROR_INITIALIZATION_FAILED", "vkGetSemaphoreFdKHR", 0), ("VK_ERROR_TOO_MANY_OBJECTS", "vkGetMemoryFdKHR", 0),
    ("VK_ERROR_INVALID_EXTERNAL_HANDLE", "vkGetMemoryFdKHR", 0),
    ("VK_ERROR_OUT_OF_DEVICE_MEMORY", "vkAllocateMemory", 0), ("VK_ERROR_OUT_OF_HOST_MEMORY", "vkCreateSemaphore", 0),
])
def test_code_with_a_full_table_of_file_descriptors_is_the_limit(name: str, call: str, left: int) -> None:
    with few_more_files(left), pytest.raises(BusyError) as raised:
        check(call, getattr(constants, name))
    error = raised.value
    assert (error.reason, error.call, error.code_name) == ("fd_limit", call, name)
    assert import_error(error) is error


@pytest.mark.parametrize("name", ["VK_ERROR_DEVICE_LOST", "VK_ERROR_FEATURE_NOT_PRESENT"])
def test_other_codes_with_a_full_table_keep_their_errors(name: str) -> None:
    with few_more_files(0), pytest.raises(XsemError) as raised:
        check("vkCreateDevice", getattr(constants, name))
    assert raised.value.reason != "fd_limit"


@pytest.mark.parametrize(("name", "call", "cause"), [
    ("VK_ERROR_INITIALIZATION_FAILED", "vkCreateDevice", "as many devices as the driver creates"),
    ("VK_ERROR_OUT_OF_DEVICE_MEMORY", "vkCreateDevice", "no memory left for another device"),
    ("VK_ERROR_INITIALIZATION_FAILED", "vkCreateSemaphore", "refused a handle earlier"),
    ("VK_ERROR_OUT_OF_DEVICE_MEMORY", "vkAllocateMemory", "refused a handle earlier"),
])
def test_code_without_a_meaning_has_likely_causes(name: str, call: str, cause: str) -> None:
    with pytest.raises(XsemError) as raised:
        check(call, getattr(constants, name))
    assert name in str(raised.value)
    assert any(cause in each for each in raised.value.likely_causes)


def test_unspecific_code_is_in_the_message() -> None:
    with pytest.raises(DriverError, match="vkCreateDevice failed with VK_ERROR_INITIALIZATION_FAILED"):
        check("vkCreateDevice", constants.VK_ERROR_INITIALIZATION_FAILED)


def test_lost_device_is_from_earlier_work() -> None:
    with pytest.raises(DeviceLostError) as raised:
        check("vkQueueSubmit", constants.VK_ERROR_DEVICE_LOST)
    assert raised.value.from_earlier_work
