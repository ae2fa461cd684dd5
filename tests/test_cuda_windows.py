"""Windows' handle types, down to the driver: imported, used, released. On the stand-in, which plays that platform."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from cuda_sim import on_stand_in

from xsem.errors import WaitTimeoutError
from xsem.spi import CommandListDriver
from xsem.types import (
    Kind,
    MemoryDesc,
    MemoryHandleType,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
    SignalParams,
    WaitParams,
)

S, M = SemaphoreHandleType, MemoryHandleType
SEMAPHORES = [S.OPAQUE_WIN32, S.OPAQUE_WIN32_KMT, S.D3D12_FENCE, S.D3D11_FENCE, S.D3D11_KEYED_MUTEX,
              S.D3D11_KEYED_MUTEX_KMT, S.TIMELINE_SEMAPHORE_WIN32]
MEMORIES = [M.OPAQUE_WIN32, M.OPAQUE_WIN32_KMT, M.D3D12_HEAP, M.D3D12_RESOURCE, M.D3D11_RESOURCE, M.D3D11_RESOURCE_KMT]
KMT = 0x4000_0040  # such a handle is a number of the system's, nothing to duplicate or close
BOUND_S = 20.0


@contextmanager
def opened() -> Iterator[Any]:
    from xsem_cuda._backend import CudaBackend

    device = CudaBackend("win32").open(0)
    yield device
    device.close()


@contextmanager
def nt_handle() -> Iterator[OwnedHandle]:
    """A number that stands for an NT handle: here it is an fd, which must be open afterwards."""
    with OwnedHandle(os.eventfd(0)) as handle:
        yield handle
        os.fstat(handle.fileno())


def is_done(device: Any, commands: CommandListDriver) -> bool:
    point = commands.append_barrier((), True)
    deadline = time.monotonic() + BOUND_S
    while not device.done(point):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    device.release_point(point)
    return True


def use(device: Any, semaphore: Any, kind: Kind) -> None:
    """Signal it, then wait for that."""
    commands = device.create_command_list()
    if kind is Kind.KEYED_MUTEX:
        commands.append_wait([semaphore], [WaitParams(key=0)], (), (), False)
        commands.append_signal([semaphore], [SignalParams(key=3)], (), (), False)
        commands.append_wait([semaphore], [WaitParams(key=3, timeout_ms=20_000)], (), (), False)
        commands.append_signal([semaphore], [SignalParams(key=0)], (), (), False)
    else:
        value = 2**40 if kind is Kind.TIMELINE else None
        commands.append_signal([semaphore], [SignalParams(value=value)], (), (), False)
        commands.append_wait([semaphore], [WaitParams(value=value)], (), (), False)
    assert is_done(device, commands)
    commands.close()


@on_stand_in(SIMCUDA_PLATFORM="windows")
@pytest.mark.parametrize("handle_type", SEMAPHORES)
def test_semaphore_of_each_type_is_imported_by_handle_and_used(handle_type: SemaphoreHandleType) -> None:
    with opened() as device:
        assert handle_type in device.capabilities.semaphore_import
        if handle_type in (S.OPAQUE_WIN32_KMT, S.D3D11_KEYED_MUTEX_KMT):
            semaphore = device.import_semaphore(SemaphoreDesc(type=handle_type, handle=KMT), None)
        else:
            with nt_handle() as handle:
                semaphore = device.import_semaphore(SemaphoreDesc(type=handle_type, handle=handle.fileno()), handle)
        use(device, semaphore, handle_type.kind)
        device.release_semaphore(semaphore)
        device.release_semaphore(semaphore)  # given up once: a second destroy would bring the process down


@on_stand_in(SIMCUDA_PLATFORM="windows")
@pytest.mark.parametrize(
    "handle_type", [each for each in SEMAPHORES if each not in (S.OPAQUE_WIN32_KMT, S.D3D11_KEYED_MUTEX_KMT)]
)
def test_semaphores_of_one_name_are_one(handle_type: SemaphoreHandleType) -> None:
    with opened() as device:
        desc = SemaphoreDesc(type=handle_type, name="Local\\frames-ß")
        first, second = device.import_semaphore(desc, None), device.import_semaphore(desc, None)
        commands = device.create_command_list()
        if handle_type.kind is Kind.KEYED_MUTEX:
            commands.append_wait([first], [WaitParams(key=0)], (), (), False)
            commands.append_signal([first], [SignalParams(key=7)], (), (), False)
            commands.append_wait([second], [WaitParams(key=7)], (), (), False)
        else:
            value = 7 if handle_type.kind is Kind.TIMELINE else None
            commands.append_signal([first], [SignalParams(value=value)], (), (), False)
            commands.append_wait([second], [WaitParams(value=value)], (), (), False)
        assert is_done(device, commands)
        commands.close()
        for each in (first, second):
            device.release_semaphore(each)


@on_stand_in(SIMCUDA_PLATFORM="windows")
def test_keyed_mutex_that_nobody_releases_ends_in_a_timeout() -> None:
    with opened() as device:
        mutex = device.import_semaphore(SemaphoreDesc(type=S.D3D11_KEYED_MUTEX_KMT, handle=KMT), None)
        commands = device.create_command_list()
        commands.append_wait([mutex], [WaitParams(key=9, timeout_ms=20)], (), (), False)
        # The driver tells with a later call.
        deadline = time.monotonic() + BOUND_S
        with pytest.raises(WaitTimeoutError) as caught:
            while time.monotonic() < deadline:
                commands.append_signal([mutex], [SignalParams(key=9)], (), (), False)
                time.sleep(0.005)
        assert (caught.value.reason, caught.value.code) == ("timeout", 909)
        assert is_done(device, commands)
        commands.close()
        device.release_semaphore(mutex)


@on_stand_in(SIMCUDA_PLATFORM="windows")
@pytest.mark.parametrize("handle_type", MEMORIES)
def test_memory_of_each_type_is_imported_mapped_and_used(handle_type: MemoryHandleType) -> None:
    with opened() as device:
        assert handle_type in device.capabilities.memory_import
        if handle_type in (M.OPAQUE_WIN32_KMT, M.D3D11_RESOURCE_KMT):
            memory = device.import_memory(MemoryDesc(type=handle_type, handle=KMT, allocation_size=8192), None)
        else:
            with nt_handle() as handle:
                desc = MemoryDesc(type=handle_type, handle=handle.fileno(), allocation_size=8192)
                memory = device.import_memory(desc, handle)
        buffer, address = device.map_buffer(memory, 4096, 4096)
        commands = device.create_command_list()
        commands.append_fill(address, b"\x07", 4096, (), False)
        assert is_done(device, commands)
        commands.close()
        for _ in range(2):
            device.unmap_buffer(buffer)
            device.release_memory(memory)


@on_stand_in(SIMCUDA_PLATFORM="windows", SIMCUDA_DEVICES="2")
def test_devices_have_luids_of_8_bytes_with_zeros_among_them() -> None:
    from xsem_cuda._backend import CudaBackend

    backend = CudaBackend("win32")
    assert [info.luid for info in backend.devices()] == [bytes([0xF4, 3, 1 + each, 0, 0, 0, 0, 0]) for each in (0, 1)]
    assert backend.details(0)["luid_node_mask"] == "0x1"
