"""OpenCL's driver or xsem closes the file of an imported object, once. On the simulated device."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from support.open_files import is_open, numbers
from support.opencl_facade import BINARY, MEMORY, PAGE, driver_of, fd_of, opened
from support.opencl_sim import on_opencl

from xsem.errors import BadHandleError
from xsem.spi import ImportFailure, same_open_file
from xsem.types import MemoryDesc, OwnedHandle, SemaphoreDesc


@on_opencl
def test_fd_that_the_driver_leaves_open_is_closed_at_release() -> None:
    with opened() as at:
        driver = driver_of(at.here)
        there, memory = at.host.create_semaphore(BINARY), at.host.create_memory(MEMORY, PAGE)
        before = numbers()
        imports: tuple[tuple[Any, Callable[[OwnedHandle], Any], Callable[[Any], None]], ...] = (
            (there, lambda handle: driver.import_semaphore(SemaphoreDesc.opaque_fd(handle, device_uuid=None), handle),
             driver.release_semaphore),
            (memory, lambda handle: driver.import_memory(
                MemoryDesc.opaque_fd(handle, allocation_size=PAGE, device_uuid=None), handle), driver.release_memory),
        )
        for exported, take, release in imports:
            handle = fd_of(exported)
            number = handle.fileno()
            imported = take(handle)
            assert imported.handle == "taken"   # the driver owns it, for any use
            assert handle.detach() == number
            assert is_open(number)
            release(imported.token)
            assert numbers() == before


@on_opencl(SIMCL_FD="taken")
def test_number_that_the_driver_closed_is_not_closed_again() -> None:
    with opened() as at:
        driver = driver_of(at.here)
        there = at.host.create_semaphore(BINARY)
        handle = fd_of(there)
        number = handle.fileno()
        imported = driver.import_semaphore(SemaphoreDesc.opaque_fd(handle, device_uuid=None), handle)
        assert imported.handle == "taken"
        assert handle.detach() == number
        assert not is_open(number)
        assert os.open(os.devnull, os.O_RDONLY) == number   # the lowest free number: another file has it now
        witness = os.dup(number)
        driver.release_semaphore(imported.token)
        assert same_open_file(witness, number)
        os.close(witness)
        os.close(number)


@on_opencl(SIMCL_FD="kept")
def test_fd_that_driver_closes_with_the_object_is_closed_once() -> None:
    with opened() as at:
        driver = driver_of(at.here)
        there = at.host.create_semaphore(BINARY)
        before = numbers()
        handle = fd_of(there)
        number = handle.fileno()
        imported = driver.import_semaphore(SemaphoreDesc.opaque_fd(handle, device_uuid=None), handle)
        assert imported.handle == "taken"
        assert handle.detach() == number
        assert is_open(number)   # the driver owns it and still uses it
        driver.release_semaphore(imported.token)
        assert numbers() == before


@on_opencl
def test_refused_handle_is_a_bad_handle_and_left_to_the_caller() -> None:
    with opened() as at:
        number = os.memfd_create("no semaphore")
        os.ftruncate(number, PAGE)
        try:
            before = numbers()
            with pytest.raises(BadHandleError) as refused:
                at.here.import_semaphore(SemaphoreDesc.opaque_fd(number, device_uuid=at.here.info.uuid))
            assert refused.value.reason == "refused_by_driver"
            assert refused.value.code == 999   # the code came with a pointer
            assert refused.value.code_name is None
            assert refused.value.call == "clCreateSemaphoreWithPropertiesKHR"
            assert numbers() == before
        finally:
            os.close(number)


@on_opencl
def test_state_of_a_refused_handle_is_unknown() -> None:
    with opened() as at:
        read, write = os.pipe()
        with OwnedHandle(read) as handle:
            calls: tuple[Callable[[], object], ...] = (
                lambda: driver_of(at.here).import_semaphore(SemaphoreDesc.opaque_fd(handle, device_uuid=None), handle),
                lambda: driver_of(at.here).import_memory(
                    MemoryDesc.opaque_fd(handle, allocation_size=PAGE, device_uuid=None), handle),
            )
            for call in calls:
                with pytest.raises(ImportFailure) as failure:
                    call()
                assert failure.value.handle == "unknown"
                assert isinstance(failure.value.error, BadHandleError)
                assert failure.value.error.code == 999
        os.close(write)
