"""Test the function that makes every driver call: codes, unknown codes, missing functions."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Self

import pytest

from xsem.errors import (
    BusyError,
    DeviceLostError,
    DriverError,
    OutOfMemoryError,
    UnsupportedError,
    XsemError,
)
from xsem_cuda.results import NOT_READY, call


class Code(int):
    """An int with a name, like an enumerator of CUresult."""

    name: str

    def __new__(cls, value: int, name: str) -> Self:
        code = super().__new__(cls, value)
        code.name = name
        return code


def returning(name: str, code: int, *results: object) -> Callable[..., Any]:
    def function(*_args: object) -> tuple[object, ...]:
        return (Code(code, f"CODE_{code}"), *results)

    function.__name__ = name
    return function


def failing(name: str, code: int) -> XsemError:
    with pytest.raises(XsemError) as caught:
        call(returning(name, code))
    error = caught.value
    assert (error.call, error.code, error.code_name) == (name, code, f"CODE_{code}")
    assert name in str(error)
    assert f"({code})" in str(error)
    return error


def test_success_gives_the_results_beside_the_code() -> None:
    assert call(returning("cuNothing", 0)) == ()
    assert call(returning("cuOne", 0, 7)) == 7
    assert call(returning("cuTwo", 0, 7, 8)) == (7, 8)


def test_arguments_reach_the_function() -> None:
    seen: list[tuple[object, ...]] = []

    def function(*args: object) -> tuple[Code]:
        seen.append(args)
        return (Code(0, "CUDA_SUCCESS"),)

    call(function, 1, "two")
    assert seen == [(1, "two")]


def test_not_ready_is_an_answer_of_queries_only() -> None:
    assert call(returning("cuEventQuery", 600)) is NOT_READY
    assert repr(NOT_READY) == "NOT_READY"   # as a failed assertion shows it
    assert call(returning("cuEventQuery", 0)) is not NOT_READY
    assert isinstance(failing("cuEventRecord", 600), DriverError)


NAMES = ("cuDestroyExternalMemory", "cuDestroyExternalSemaphore", "cuExternalMemoryGetMappedBuffer",
         "cuExternalMemoryGetMappedMipmappedArray", "cuImportExternalMemory", "cuImportExternalSemaphore",
         "cuSignalExternalSemaphoresAsync", "cuWaitExternalSemaphoresAsync")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("code", [1, 101, 201, 304, 801])
def test_code_of_bad_arguments_is_not_from_earlier_work(name: str, code: int) -> None:
    assert not getattr(failing(name, code), "from_earlier_work", False)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("code", [999, 200, 205, 911])
def test_undocumented_code_is_from_earlier_work(name: str, code: int) -> None:
    error = failing(name, code)
    assert isinstance(error, DriverError)
    assert error.from_earlier_work
    assert error.reason == "earlier_work_failed"


@pytest.mark.parametrize("code", [46, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721])
@pytest.mark.parametrize("name", ["cuSignalExternalSemaphoresAsync", "cuEventQuery"])
def test_lost_context_is_device_lost_from_earlier_work(name: str, code: int) -> None:
    error = failing(name, code)
    assert isinstance(error, DeviceLostError)
    assert error.from_earlier_work


def test_shut_down_driver_is_device_lost() -> None:
    error = failing("cuEventQuery", 4)
    assert isinstance(error, DeviceLostError)
    assert error.reason == "driver_shut_down"


@pytest.mark.parametrize("name", ["cuImportExternalMemory", "cuEventCreate"])
def test_out_of_memory_has_its_class_in_every_call(name: str) -> None:
    assert isinstance(failing(name, 2), OutOfMemoryError)


@pytest.mark.parametrize("code", range(900, 909))
def test_capture_codes_are_busy(code: int) -> None:
    error = failing("cuEventQuery", code)
    assert isinstance(error, BusyError)
    assert error.reason == "capturing"


@pytest.mark.parametrize(
    ("code", "reason"),
    [(1, "invalid_value"), (3, "not_initialized"), (100, "driver_error"), (201, "invalid_context"),
     (304, "operating_system"), (400, "invalid_handle"), (801, "not_supported")],
)
def test_ordinary_code_has_its_reason(code: int, reason: str) -> None:
    error = failing("cuStreamCreate", code)
    assert type(error) is DriverError
    assert error.reason == reason
    assert not error.from_earlier_work


def test_not_initialized_names_the_fork() -> None:
    error = failing("cuStreamCreate", 3)
    assert "spawn" in error.message
    assert any("forked" in cause for cause in error.likely_causes)   # a cause, not an instruction


def test_code_that_the_bindings_do_not_know_keeps_its_number() -> None:
    def function() -> None:
        raise ValueError("1234 is not a valid CUresult")

    function.__name__ = "cuImportExternalSemaphore"
    with pytest.raises(DriverError) as caught:
        call(function)
    error = caught.value
    assert (error.call, error.code, error.code_name, error.reason) == (
        "cuImportExternalSemaphore", 1234, None, "unknown_code")
    assert "unknown code" in str(error)


def test_lost_code_unknown_to_the_bindings_is_device_lost() -> None:
    def cuEventQuery() -> None:  # noqa: N802
        raise ValueError("721 is not a valid CUresult")

    with pytest.raises(DeviceLostError):
        call(cuEventQuery)


def test_other_value_error_of_the_bindings_is_passed_on() -> None:
    def function() -> None:
        raise ValueError("List is smaller than numExtSems")

    with pytest.raises(ValueError, match="List is smaller") as caught:
        call(function)
    assert not isinstance(caught.value, XsemError)


def test_missing_function_is_unsupported_and_named() -> None:
    def function() -> None:
        raise RuntimeError('Function "cuImportExternalSemaphore" not found')

    function.__name__ = "cuImportExternalSemaphore"
    with pytest.raises(UnsupportedError) as caught:
        call(function)
    assert caught.value.reason == "driver_too_old"
    assert caught.value.capability == "cuImportExternalSemaphore"


def test_error_can_be_pickled() -> None:
    error = failing("cuImportExternalMemory", 304)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert again.likely_causes == error.likely_causes
