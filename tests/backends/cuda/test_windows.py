"""Test import, use and release of the Windows handle types. On the stand-in, which simulates Windows."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.cuda_sim import on_stand_in
from support.importer import soon

import xsem
from xsem.facade.device import Device
from xsem.spi import QueueDriver
from xsem.types import (
    MemoryDesc,
    MemoryHandleType,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
    SemaphoreKind,
    SignalParams,
    WaitParams,
)

S, M = SemaphoreHandleType, MemoryHandleType
SEMAPHORES = [S.OPAQUE_WIN32, S.OPAQUE_WIN32_KMT, S.D3D12_FENCE, S.D3D11_FENCE, S.D3D11_KEYED_MUTEX,
              S.D3D11_KEYED_MUTEX_KMT, S.TIMELINE_SEMAPHORE_WIN32]
MEMORIES = [M.OPAQUE_WIN32, M.OPAQUE_WIN32_KMT, M.D3D12_HEAP, M.D3D12_RESOURCE, M.D3D11_RESOURCE, M.D3D11_RESOURCE_KMT]
KMT = 0x4000_0040  # a global number of the system, without duplicates and without a close
BOUND_S = 20.0


@contextmanager
def windows_device() -> Iterator[Any]:
    from xsem_cuda.backend import CudaBackend

    device = CudaBackend("win32").open(0)
    yield device
    device.close()


@contextmanager
def nt_handle() -> Iterator[OwnedHandle]:
    """Yield an fd that stands for an NT handle; it must be open afterwards."""
    with OwnedHandle(os.eventfd(0)) as handle:
        yield handle
        os.fstat(handle.fileno())


def is_done(device: Any, commands: QueueDriver) -> bool:
    fence = commands.append_barrier((), True)
    deadline = time.monotonic() + BOUND_S
    while not device.query_fence(fence):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    device.release_fence(fence)
    return True


def use(device: Any, semaphore: Any, kind: SemaphoreKind) -> None:
    """Signal the semaphore, then wait for the signal."""
    commands = device.create_queue()
    if kind is SemaphoreKind.KEYED_MUTEX:
        commands.append_wait([semaphore], [WaitParams(key=0)], (), (), False)
        commands.append_signal([semaphore], [SignalParams(key=3)], (), (), False)
        commands.append_wait([semaphore], [WaitParams(key=3, timeout_ms=20_000)], (), (), False)
        commands.append_signal([semaphore], [SignalParams(key=0)], (), (), False)
    else:
        value = 2**40 if kind is SemaphoreKind.TIMELINE else None
        commands.append_signal([semaphore], [SignalParams(value=value)], (), (), False)
        commands.append_wait([semaphore], [WaitParams(value=value)], (), (), False)
    assert is_done(device, commands)
    commands.close()


@on_stand_in(SIMCUDA_PLATFORM="windows")
@pytest.mark.parametrize("handle_type", SEMAPHORES)
def test_semaphore_of_each_type_is_imported_by_handle_and_used(handle_type: SemaphoreHandleType) -> None:
    with windows_device() as device:
        assert handle_type in device.capabilities.semaphore_import
        if handle_type in (S.OPAQUE_WIN32_KMT, S.D3D11_KEYED_MUTEX_KMT):
            semaphore = device.import_semaphore(SemaphoreDesc(type=handle_type, handle=KMT), None).token
        else:
            with nt_handle() as handle:
                desc = SemaphoreDesc(type=handle_type, handle=handle.fileno())
                semaphore = device.import_semaphore(desc, handle).token
        use(device, semaphore, handle_type.kind)
        device.release_semaphore(semaphore)


@on_stand_in(SIMCUDA_PLATFORM="windows")
def test_signed_handle_reaches_the_driver_as_the_same_bits() -> None:
    # The bindings themselves raise a TypeError for a negative int.
    signed = -0x3FFF_FFC0   # a KMT handle of 32 bits, read as a signed int
    with windows_device() as device:
        semaphore = device.import_semaphore(SemaphoreDesc(type=S.OPAQUE_WIN32_KMT, handle=signed), None).token
        use(device, semaphore, SemaphoreKind.BINARY)
        device.release_semaphore(semaphore)
        desc = MemoryDesc(type=M.OPAQUE_WIN32_KMT, handle=signed, allocation_size=8192)
        device.release_memory(device.import_memory(desc, None).token)


@on_stand_in(SIMCUDA_PLATFORM="windows")
@pytest.mark.parametrize(
    "handle_type", [each for each in SEMAPHORES if each not in (S.OPAQUE_WIN32_KMT, S.D3D11_KEYED_MUTEX_KMT)]
)
def test_semaphores_of_one_name_are_one(handle_type: SemaphoreHandleType) -> None:
    with windows_device() as device:
        desc = SemaphoreDesc(type=handle_type, name="Local\\frames-ß")
        first, second = device.import_semaphore(desc, None).token, device.import_semaphore(desc, None).token
        commands = device.create_queue()
        if handle_type.kind is SemaphoreKind.KEYED_MUTEX:
            commands.append_wait([first], [WaitParams(key=0)], (), (), False)
            commands.append_signal([first], [SignalParams(key=7)], (), (), False)
            commands.append_wait([second], [WaitParams(key=7)], (), (), False)
        else:
            value = 7 if handle_type.kind is SemaphoreKind.TIMELINE else None
            commands.append_signal([first], [SignalParams(value=value)], (), (), False)
            commands.append_wait([second], [WaitParams(value=value)], (), (), False)
        assert is_done(device, commands)
        commands.close()
        for each in (first, second):
            device.release_semaphore(each)


class Frames:
    """A device of the facade, a keyed mutex that is free with key 0, and a timeline."""

    def __init__(self) -> None:
        from xsem_cuda.backend import CudaBackend

        backend = CudaBackend("win32")
        self.device = Device(backend.devices()[0], backend.open(0))
        self.mutex = self.device.import_semaphore(SemaphoreDesc.d3d11_keyed_mutex_kmt(KMT))
        self.timeline = self.timeline_of("Local\\turns")

    def timeline_of(self, name: str) -> xsem.Semaphore:
        return self.device.import_semaphore(SemaphoreDesc.timeline_win32(name=name, device_uuid=None))

    def all_arrive_but_those_of(self, commands: xsem.CommandList, other: xsem.CommandList) -> None:
        """Check that the wait failed one list, and that the other list did all of its work."""
        other.synchronize(timeout_s=BOUND_S)
        for call in (lambda: commands.synchronize(timeout_s=BOUND_S), commands.query, commands.append_barrier):
            with pytest.raises(xsem.DriverError) as caught:
                call()
            assert (caught.value.reason, caught.value.from_earlier_work) == ("mutex_timeout", True)
            assert (caught.value.call, caught.value.code) == ("cuWaitExternalSemaphoresAsync", 909)


@contextmanager
def frames() -> Iterator[Frames]:
    at = Frames()
    with at.device:
        yield at
    soon(lambda: not at.device.releasing())


@on_stand_in(SIMCUDA_PLATFORM="windows")
def test_timeout_of_a_keyed_mutex_fails_the_list_of_its_wait() -> None:
    with frames() as at:
        commands, other = at.device.create_command_list(), at.device.create_command_list()
        commands.append_wait(at.mutex, WaitParams(key=9, timeout_ms=20))   # no release uses this key
        ran = at.device.create_event()
        commands.append_barrier(signal_event=ran)
        value = 0

        def failed() -> bool:
            # The next driver call of any kind returns the error.
            nonlocal value
            value += 1
            other.append_signal(at.timeline, value)
            try:
                return commands.query()
            except xsem.DriverError as error:
                return error.reason == "mutex_timeout"

        soon(failed)
        other.append_wait(at.timeline, value)
        at.all_arrive_but_those_of(commands, other)
        with pytest.raises(xsem.DriverError) as caught:
            ran.query()
        assert caught.value.reason == "mutex_timeout"


TOLD_BY: dict[str, tuple[str, Callable[[Frames, xsem.CommandList], object]]] = {
    "signal": ("cuSignalExternalSemaphoresAsync",
               lambda at, other: other.append_signal(at.timeline, SignalParams(value=5))),
    "signal of a value alone": ("cuSignalExternalSemaphoresAsync",
                                lambda at, other: other.append_signal(at.timeline, 5)),
    "wait": ("cuWaitExternalSemaphoresAsync", lambda at, other: other.append_wait(at.timeline, WaitParams(value=4))),
    "fill": ("cuMemsetD8Async", lambda at, other: other.append_fill(at.device.host_buffer(64), b"x")),
    "query": ("cuEventQuery", lambda _, other: other.query()),
    "import": ("cuImportExternalSemaphore", lambda at, _: at.timeline_of("Local\\other")),
    "event": ("cuEventRecord", lambda at, other: other.append_barrier(signal_event=at.device.create_event())),
}


@on_stand_in(SIMCUDA_PLATFORM="windows")
@pytest.mark.parametrize("told_by", TOLD_BY)
def test_call_that_tells_of_a_keyed_mutex_is_made_again(told_by: str) -> None:
    name, call = TOLD_BY[told_by]
    with frames() as at:
        commands, other = at.device.create_command_list(), at.device.create_command_list()
        for value in (2, 4):   # the second signal with only values is a prepared one
            other.append_signal(at.timeline, value)
        commands.append_wait(at.mutex, WaitParams(key=0, timeout_ms=1))
        with answering(name, 909):
            call(at, other)
        if "signal" in told_by:
            other.append_wait(at.timeline, 5)   # the driver has the signal
        at.all_arrive_but_those_of(commands, other)
        commands.release()
        fresh = at.device.create_command_list()
        fresh.append_signal(at.mutex, SignalParams(key=0))
        fresh.synchronize(timeout_s=BOUND_S)


@on_stand_in(SIMCUDA_PLATFORM="windows")
def test_timeout_in_a_replay_fails_the_list_of_the_replay() -> None:
    with frames() as at:
        commands = at.device.create_command_list()
        with commands.record() as recording:
            commands.append_wait(at.mutex, WaitParams(key=9, timeout_ms=20))
        commands.synchronize(timeout_s=BOUND_S)   # recorded operations do not run
        recording.replay()
        with pytest.raises(xsem.DriverError) as caught:
            commands.synchronize(timeout_s=BOUND_S)
        assert caught.value.reason == "mutex_timeout"
        recording.release()


@on_stand_in(SIMCUDA_PLATFORM="windows")
def test_mutex_that_is_acquired_in_time_is_not_suspected_later() -> None:
    with frames() as at:
        commands = at.device.create_command_list()
        commands.append_wait(at.mutex, WaitParams(key=0, timeout_ms=1))
        commands.append_signal(at.mutex, SignalParams(key=0))
        commands.synchronize(timeout_s=BOUND_S)
        with answering("cuSignalExternalSemaphoresAsync", 909), pytest.raises(xsem.DriverError) as caught:
            commands.append_signal(at.timeline, 1)   # the error belongs to another stream of the application
        assert (caught.value.reason, caught.value.from_earlier_work) == ("earlier_work_failed", True)
        commands.synchronize(timeout_s=BOUND_S)
        with answering("cuWaitExternalSemaphoresAsync", 909), pytest.raises(xsem.WaitTimeoutError):
            commands.append_wait(at.mutex, WaitParams(key=0, timeout_ms=1))
        commands.synchronize(timeout_s=BOUND_S)


@contextmanager
def answering(name: str, code: int) -> Iterator[None]:
    """Have the driver's function return that code at its next call and do nothing."""
    library = ctypes.CDLL("libcuda.so.1")
    library.simcuda_fail(f"{name}:{code}:1".encode(), None)
    try:
        yield
    finally:
        library.simcuda_fail(None, None)


@on_stand_in(SIMCUDA_PLATFORM="windows")
@pytest.mark.parametrize("handle_type", MEMORIES)
def test_memory_of_each_type_is_imported_mapped_and_used(handle_type: MemoryHandleType) -> None:
    with windows_device() as device:
        assert handle_type in device.capabilities.memory_import
        if handle_type in (M.OPAQUE_WIN32_KMT, M.D3D11_RESOURCE_KMT):
            memory = device.import_memory(MemoryDesc(type=handle_type, handle=KMT, allocation_size=8192), None).token
        else:
            with nt_handle() as handle:
                desc = MemoryDesc(type=handle_type, handle=handle.fileno(), allocation_size=8192)
                memory = device.import_memory(desc, handle).token
        buffer, _ = device.map_buffer(memory, 4096, 4096)
        commands = device.create_queue()
        commands.append_fill(buffer, 0, b"\x07", 4096, (), False)
        assert is_done(device, commands)
        commands.close()
        device.unmap_buffer(buffer)
        device.release_memory(memory)


@on_stand_in(SIMCUDA_PLATFORM="windows", SIMCUDA_DEVICES="2")
def test_devices_have_luids_of_8_bytes_with_zeros_among_them() -> None:
    from xsem_cuda.backend import CudaBackend

    backend = CudaBackend("win32")
    assert [info.luid for info in backend.devices()] == [bytes([0xF4, 3, 1 + each, 0, 0, 0, 0, 0]) for each in (0, 1)]
    assert backend.details(0)["luid_node_mask"] == "0x1"
