"""Test the errors for codes of the driver."""

from __future__ import annotations

import pickle

import pytest

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
from xsem_vulkan.results import check, code_name


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


def test_lost_device_is_from_earlier_work() -> None:
    with pytest.raises(DeviceLostError) as raised:
        check("vkQueueSubmit", constants.VK_ERROR_DEVICE_LOST)
    assert raised.value.from_earlier_work
