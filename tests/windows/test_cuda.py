"""CUDA on the stand-in nvcuda.dll: imports of real NT objects by handle and by name, and their use."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest
from support import windows_objects as nt
from support.cuda_sim import on_stand_in
from support.fixtures import refused
from support.waiting import until

import xsem
from xsem.errors import BadHandleError, DriverError, UnsupportedError, WrongDeviceError
from xsem.types import (
    MemoryDesc,
    MemoryHandleType,
    OsHandleKind,
    SemaphoreDesc,
    SemaphoreHandleType,
    SemaphoreKind,
    SignalParams,
    WaitParams,
)

AnyType = SemaphoreHandleType | MemoryHandleType
S, M = SemaphoreHandleType, MemoryHandleType
SEMAPHORES = [S.OPAQUE_WIN32, S.OPAQUE_WIN32_KMT, S.D3D12_FENCE, S.D3D11_FENCE, S.D3D11_KEYED_MUTEX,
              S.D3D11_KEYED_MUTEX_KMT, S.TIMELINE_SEMAPHORE_WIN32]
MEMORIES = [M.OPAQUE_WIN32, M.OPAQUE_WIN32_KMT, M.D3D12_HEAP, M.D3D12_RESOURCE, M.D3D11_RESOURCE, M.D3D11_RESOURCE_KMT]
# Names and numbers are those of one process, because other workers run the same tests. As a signed int of 32 bits, this
# number is negative.
KMT = 0xC000_0000 | os.getpid()
SIZE = 1 << 17


@functools.cache
def stand_in() -> Any:
    if sys.platform != "win32":
        raise NotImplementedError
    library = ctypes.WinDLL("nvcuda.dll")
    library.simcuda_create_keyed_mutex.restype = ctypes.c_void_p
    return library


def kmt_name(number: int) -> str:
    return f"Local\\simcuda-kmt-{number:08x}"


def made(handle_type: AnyType, name: str | None) -> int:
    """Create the object of this type; return its handle."""
    kmt = handle_type.os_handle_kind is OsHandleKind.KMT
    if isinstance(handle_type, M):
        return nt.section(SIZE, name=kmt_name(KMT) if kmt else name)
    if handle_type.kind is SemaphoreKind.KEYED_MUTEX:
        return int(stand_in().simcuda_create_keyed_mutex(name, KMT if kmt else 0))
    if handle_type.kind is SemaphoreKind.BINARY:
        return nt.event(name=kmt_name(KMT) if kmt else name)
    return nt.timeline(name)


@contextmanager
def described(handle_type: Any, by: str) -> Iterator[tuple[Any, int]]:
    """Yield a descriptor of a new object, and a handle of the object."""
    name = f"Local\\xsem-test-ß-{os.getpid()}-{handle_type.value}" if by == "name" else None
    desc = functools.partial(MemoryDesc, allocation_size=SIZE) if isinstance(handle_type, M) else SemaphoreDesc
    with nt.closing(made(handle_type, name)) as handle:
        kmt = handle_type.os_handle_kind is OsHandleKind.KMT
        given = {"name": name} if name else {"handle": KMT if kmt else handle}
        yield desc(type=handle_type, **given), handle


TYPES: list[AnyType] = [*SEMAPHORES, *MEMORIES]
WAYS = [(each, by) for each in TYPES for by in ("handle", "name")
        if by == "handle" or each.os_handle_kind is OsHandleKind.NT]
SEMAPHORE_WAYS = [way for way in WAYS if isinstance(way[0], S)]
MEMORY_WAYS = [way for way in WAYS if isinstance(way[0], M)]


# ---- semaphores
def exchange(cuda: xsem.Device, desc: SemaphoreDesc, handle: int) -> None:
    """Order work by two imports of one object, and by the object itself."""
    first, second = cuda.import_semaphore(desc), cuda.import_semaphore(desc)
    waits, signals = cuda.create_command_list(), cuda.create_command_list()
    if desc.type.kind is SemaphoreKind.KEYED_MUTEX:
        signals.append_wait(first, WaitParams(key=0))
        signals.synchronize(timeout_s=nt.BOUND_S)
        waits.append_wait(second, WaitParams(key=3, timeout_ms=60_000))
        nt.stays_pending(waits)
        signals.append_signal(first, SignalParams(key=3))
        waits.append_signal(second, SignalParams(key=0))
        waits.synchronize(timeout_s=nt.BOUND_S)
        return
    value = 2**40 if desc.type.kind is SemaphoreKind.TIMELINE else None
    waits.append_wait(second, value)
    nt.stays_pending(waits)
    signals.append_signal(first, value)
    waits.synchronize(timeout_s=nt.BOUND_S)
    after = None if value is None else value + 1
    waits.append_wait(first, after)      # now the exporter signals
    nt.stays_pending(waits)
    exporter_signals(handle, after)
    waits.synchronize(timeout_s=nt.BOUND_S)
    final = None if value is None else value + 2
    signals.append_signal(second, final)
    signals.synchronize(timeout_s=nt.BOUND_S)
    assert exporter_sees(handle, final)


def exporter_signals(handle: int, value: int | None) -> None:
    if value is None:
        nt.kernel32().SetEvent(ctypes.c_void_p(handle))
        return
    with xsem.open_device("host") as host:
        host.import_semaphore(SemaphoreDesc.timeline_win32(handle, device_uuid=None)).host_signal(value)


def exporter_sees(handle: int, value: int | None) -> bool:
    if value is None:
        return nt.is_signalled(handle)
    with xsem.open_device("host") as host:
        return host.import_semaphore(SemaphoreDesc.timeline_win32(handle, device_uuid=None)).value() == value


@on_stand_in
@pytest.mark.parametrize(("handle_type", "by"), SEMAPHORE_WAYS)
def test_imports_of_one_semaphore_are_one_object(handle_type: SemaphoreHandleType, by: str) -> None:
    with xsem.open_device("cuda:0") as cuda, described(handle_type, by) as (desc, handle):
        assert handle_type in cuda.capabilities.semaphore_import
        exchange(cuda, desc, handle)


@on_stand_in
def test_keyed_mutex_that_is_not_released_in_time_fails_its_list() -> None:
    with xsem.open_device("cuda:0") as cuda, described(S.D3D11_KEYED_MUTEX, "handle") as (desc, _):
        mutex = cuda.import_semaphore(desc)
        commands = cuda.create_command_list()
        commands.append_wait(mutex, WaitParams(key=9, timeout_ms=20))
        with pytest.raises(DriverError) as caught:
            commands.synchronize(timeout_s=nt.BOUND_S)
        assert (caught.value.reason, caught.value.code) == ("mutex_timeout", 909)
        other = cuda.create_command_list()
        other.append_wait(mutex, WaitParams(key=0))   # the failed wait did not take it
        other.synchronize(timeout_s=nt.BOUND_S)


# ---- memory
@on_stand_in
@pytest.mark.parametrize(("handle_type", "by"), MEMORY_WAYS)
def test_imports_of_one_memory_are_the_same_bytes(handle_type: MemoryHandleType, by: str) -> None:
    with xsem.open_device("cuda:0") as cuda, described(handle_type, by) as (desc, handle):
        assert handle_type in cuda.capabilities.memory_import
        first, second = cuda.import_memory(desc), cuda.import_memory(desc)
        commands = cuda.create_command_list()
        commands.append_fill(first.map_buffer(4096, 8192), b"\x07")
        commands.synchronize(timeout_s=nt.BOUND_S)
        there = second.map_buffer(4096 + 100, 64)
        assert (there.copy_to_host() == 7).all()
        with xsem.open_device("host") as host:
            plain = MemoryDesc.opaque_win32(handle, allocation_size=SIZE, device_uuid=None)
            view = host.import_memory(plain).map_buffer().numpy()
            assert np.array_equal(np.flatnonzero(view == 7), np.arange(4096, 4096 + 8192))
            view[4096 + 100:4096 + 164] = np.arange(64)
            assert np.array_equal(there.copy_to_host(), np.arange(64))


@on_stand_in
def test_mapping_outlives_the_memory_and_the_handle() -> None:
    with xsem.open_device("cuda:0") as cuda:
        with described(M.OPAQUE_WIN32, "handle") as (desc, _):
            memory = cuda.import_memory(desc)
        buffer = memory.map_buffer(0, 4096)
        commands = cuda.create_command_list()
        commands.append_fill(buffer, b"\x05")
        commands.synchronize(timeout_s=nt.BOUND_S)
        assert (buffer.copy_to_host() == 5).all()


@on_stand_in
def test_image_in_a_section_is_read_and_written() -> None:
    with xsem.open_device("cuda:0") as cuda, described(M.D3D12_RESOURCE, "handle") as (desc, _):
        image = cuda.import_memory(desc).map_mipmapped_array(
            xsem.MipmapDesc(extent=(16, 8, 0), format="uint8", channels=4, offset=8192))
        image.level(0).write(np.full((8, 16, 4), 9, "uint8"))
        assert (image.level(0).read() == 9).all()


# ---- refusals
REFUSED: dict[str, tuple[Callable[[], int], SemaphoreHandleType | MemoryHandleType]] = {
    "section as binary": (nt.section, S.OPAQUE_WIN32), "event as fence": (nt.event, S.D3D12_FENCE),
    "section as fence": (nt.section, S.D3D11_FENCE), "event as mutex": (nt.event, S.D3D11_KEYED_MUTEX),
    "manual event": (lambda: nt.event(manual=True), S.OPAQUE_WIN32),
    "counting semaphore": (nt.counting_semaphore, S.OPAQUE_WIN32), "timeline as memory": (nt.timeline, M.D3D12_HEAP),
}


@on_stand_in
@pytest.mark.parametrize("case", REFUSED)
def test_object_of_another_sort_is_refused_by_the_driver(case: str) -> None:
    make, handle_type = REFUSED[case]
    with xsem.open_device("cuda:0") as cuda, nt.closing(make()) as handle:
        if isinstance(handle_type, MemoryHandleType):
            desc = MemoryDesc(type=handle_type, handle=handle, allocation_size=4096)
            error = refused(lambda: cuda.import_memory(desc), "refused_by_driver", BadHandleError)
        else:
            wanted = SemaphoreDesc(type=handle_type, handle=handle)
            error = refused(lambda: cuda.import_semaphore(wanted), "refused_by_driver", BadHandleError)
        assert "file descriptor" not in " ".join(error.likely_causes)
        assert "/dev" not in " ".join(error.likely_causes)


@on_stand_in
@pytest.mark.parametrize("handle_type", [S.OPAQUE_WIN32, S.OPAQUE_WIN32_KMT, S.D3D12_FENCE, M.D3D11_RESOURCE_KMT])
def test_unknown_name_or_number_is_refused(handle_type: AnyType) -> None:
    by_name = handle_type.os_handle_kind is OsHandleKind.NT
    given: dict[str, Any] = {"name": "Local\\none"} if by_name else {"handle": 0x40}
    with xsem.open_device("cuda:0") as cuda:
        if isinstance(handle_type, MemoryHandleType):
            desc = MemoryDesc(type=handle_type, allocation_size=4096, **given)
            refused(lambda: cuda.import_memory(desc), "refused_by_driver", BadHandleError)
        else:
            wanted = SemaphoreDesc(type=handle_type, **given)
            refused(lambda: cuda.import_semaphore(wanted), "refused_by_driver", BadHandleError)


@on_stand_in
def test_file_descriptors_are_not_declared() -> None:
    with xsem.open_device("cuda:0") as cuda:
        refused(lambda: cuda.import_semaphore(SemaphoreDesc.opaque_fd(3, device_uuid=None)), "unsupported",
                UnsupportedError)
        assert cuda.capabilities.memory_export == frozenset()


# ---- two GPUs
@on_stand_in(SIMCUDA_DEVICES="2")
@pytest.mark.parametrize(("handle_type", "by"), WAYS)
def test_object_of_another_gpu_is_refused_by_its_luid(handle_type: AnyType, by: str) -> None:
    infos = xsem.devices("cuda")
    assert [info.luid for info in infos] == [bytes([0xF4, 3, 1 + each, 0, 0, 0, 0, 0]) for each in (0, 1)]
    with xsem.open_device("cuda", luid=infos[1].luid) as cuda, described(handle_type, by) as (plain, _):
        assert cuda.info.id == "cuda:1"
        for luid in (infos[0].luid, infos[1].luid, None):
            desc = dataclasses.replace(plain, device_luid=luid)
            if luid == infos[0].luid:
                act = cuda.import_memory if isinstance(desc, MemoryDesc) else cuda.import_semaphore
                error = refused(functools.partial(act, desc), "wrong_device", WrongDeviceError)
                assert luid is not None
                assert isinstance(error, WrongDeviceError)
                assert error.expected == luid.hex()
            elif isinstance(desc, MemoryDesc):
                cuda.import_memory(desc).release()
            else:
                cuda.import_semaphore(desc).release()


# ---- old drivers
@on_stand_in(SIMCUDA_VERSION="10010")
def test_driver_of_10_1_has_semaphores_up_to_4_and_memory_up_to_5() -> None:
    with xsem.open_device("cuda:0") as cuda:
        assert cuda.info.driver_version == "10.1"
        assert cuda.info.luid == bytes([0xF4, 3, 1, 0, 0, 0, 0, 0])
        assert {each.native["cuda"][1] for each in cuda.capabilities.semaphore_import} == {2, 3, 4}
        assert {each.native["cuda"][1] for each in cuda.capabilities.memory_import} == {2, 3, 4, 5}
        for each in sorted(cuda.capabilities.semaphore_import):
            with described(each, "handle") as (desc, handle):
                exchange(cuda, desc, handle)
        with described(S.D3D11_FENCE, "handle") as (desc, _):
            refused(lambda: cuda.import_semaphore(desc), "unsupported", UnsupportedError)
        with described(M.D3D11_RESOURCE, "handle") as (desc, _):
            refused(lambda: cuda.import_memory(desc), "unsupported", UnsupportedError)
    assert not hasattr(stand_in(), "cuGetProcAddress")   # new in CUDA 11.3


@on_stand_in(SIMCUDA_VERSION="11020")
def test_driver_of_11_2_has_timelines() -> None:
    with xsem.open_device("cuda:0") as cuda:
        assert cuda.capabilities.semaphore_import == set(SEMAPHORES)
        assert cuda.capabilities.memory_import == set(MEMORIES)


# ---- handles
@on_stand_in
def test_handle_count_is_flat_over_many_imports() -> None:
    """10,000 imports; half of them are refused."""
    with ExitStack() as stack:
        cuda = stack.enter_context(xsem.open_device("cuda:0"))
        fence, _ = stack.enter_context(described(S.D3D12_FENCE, "handle"))
        heap, _ = stack.enter_context(described(M.D3D12_HEAP, "handle"))
        event = stack.enter_context(nt.closing(nt.event()))
        timeline = stack.enter_context(nt.closing(nt.timeline()))
        bad = SemaphoreDesc.d3d12_fence(event)
        bad_heap = MemoryDesc.d3d12_heap(timeline, allocation_size=4096)

        def some(count: int) -> int:
            for _ in range(count):
                cuda.import_semaphore(fence).release()
                memory = cuda.import_memory(heap)
                memory.map_buffer(0, 4096).release()
                memory.release()
                with pytest.raises(BadHandleError):
                    cuda.import_semaphore(bad)
                with pytest.raises(BadHandleError):
                    cuda.import_memory(bad_heap)
            until(lambda: not cuda.releasing())
            return nt.handle_count()

        before = some(10)
        assert some(2500) <= before


# ---- the rest of a frame
@on_stand_in
@pytest.mark.parametrize("borrowed", [False, True])
def test_frame_with_work_events_and_copies_is_in_order(borrowed: bool) -> None:
    with ExitStack() as stack:
        cuda = stack.enter_context(xsem.open_device("cuda:0"))
        fence, handle = stack.enter_context(described(S.D3D12_FENCE, "handle"))
        heap, _ = stack.enter_context(described(M.D3D12_HEAP, "handle"))
        drawn, pixels = cuda.import_semaphore(fence), cuda.import_memory(heap).map_buffer()
        staging, ran = cuda.host_buffer(SIZE), list[int]()
        own = cuda.create_command_list()
        commands = cuda.command_list(own.native_handle) if borrowed else own
        for frame in range(1, 6):
            copied = cuda.create_event()
            commands.append_wait(drawn, 2 * frame - 1)
            commands.append_fill(pixels, bytes([frame]))
            commands.append_copy(staging, pixels, signal_event=copied)
            commands.append_work(functools.partial(ran.append, frame))
            commands.append_signal(drawn, 2 * frame)
            assert not copied.query()
            exporter_signals(handle, 2 * frame - 1)
            copied.wait(timeout_s=nt.BOUND_S)
            assert (staging.numpy() == frame).all()
            commands.synchronize(timeout_s=nt.BOUND_S)
            assert exporter_sees(handle, 2 * frame)
        assert ran == [1, 2, 3, 4, 5]


@on_stand_in
def test_recording_is_replayed_with_new_values() -> None:
    with xsem.open_device("cuda:0") as cuda, described(S.TIMELINE_SEMAPHORE_WIN32, "name") as (desc, handle):
        timeline, commands = cuda.import_semaphore(desc), cuda.create_command_list()
        with commands.record() as recording:
            commands.append_wait(timeline, 1)
            commands.append_signal(timeline, 2)
        for value in (1, 3, 5):
            recording.replay({timeline: (value, value + 1)})
            assert not commands.query()
            exporter_signals(handle, value)
            commands.synchronize(timeout_s=nt.BOUND_S)
            assert exporter_sees(handle, value + 1)
        recording.release()


# ---- two processes
def answer(turns: SemaphoreDesc, done: SemaphoreDesc, memory: MemoryDesc, frames: int) -> None:
    """For each frame: wait on the GPU, copy the frame's bytes, and signal."""
    with xsem.open_device("cuda:0") as cuda:
        wait, signal = cuda.import_semaphore(turns), cuda.import_semaphore(done)
        pixels = cuda.import_memory(memory).map_buffer()
        for each in (turns, done, memory):
            each.close()
        commands = cuda.create_command_list()
        for frame in range(1, frames + 1):
            commands.append_wait(wait, frame)
            commands.append_copy(pixels.view((4096,), "uint8", offset=4096), pixels.view((4096,), "uint8"))
            commands.append_signal(signal)
            commands.synchronize(timeout_s=nt.BOUND_S)


@on_stand_in
def test_frames_between_the_host_and_cuda_in_two_processes() -> None:
    frames = 50
    with xsem.open_device("host") as host:
        turns, done = host.create_semaphore(S.TIMELINE_SEMAPHORE_WIN32), host.create_semaphore(S.OPAQUE_WIN32)
        memory = host.create_memory(M.OPAQUE_WIN32, 8192)
        view = memory.map_buffer().numpy()
        with turns.export() as turns_desc, done.export() as done_desc, memory.export() as memory_desc:
            child = multiprocessing.get_context("spawn").Process(
                target=answer, args=(turns_desc, done_desc, memory_desc, frames))
            child.start()
        for frame in range(1, frames + 1):
            view[:4096] = frame
            turns.host_signal(frame)
            done.host_wait(timeout_s=nt.BOUND_S)
            assert (view[4096:] == frame).all()
        child.join(nt.BOUND_S)
        assert child.exitcode == 0
        child.close()


@on_stand_in
def test_processes_take_turns_with_a_keyed_mutex() -> None:
    """Each takes the mutex with its own key, and releases it with the key of the other."""
    turns = 20
    with (xsem.open_device("cuda:0") as cuda, described(S.D3D11_KEYED_MUTEX, "handle") as (mutex_desc, _),
          described(M.D3D11_RESOURCE, "handle") as (memory_desc, _)):
        child = multiprocessing.get_context("spawn").Process(
            target=nt.take_turns, args=(mutex_desc, memory_desc, turns))
        child.start()
        keyed = cuda.import_semaphore(mutex_desc)
        pixels = cuda.import_memory(memory_desc).map_buffer(0, 4096)
        host = cuda.host_buffer(4096)
        commands = cuda.create_command_list()
        for turn in range(turns):
            commands.append_wait(keyed, WaitParams(key=0, timeout_ms=int(nt.BOUND_S * 1000)))
            commands.append_copy(host, pixels)
            commands.synchronize(timeout_s=nt.BOUND_S)
            assert (host.numpy() == 3 * turn).all()
            host.numpy()[:] += 2
            commands.append_copy(pixels, host)
            commands.append_signal(keyed, SignalParams(key=1))
            commands.synchronize(timeout_s=nt.BOUND_S)
        child.join(nt.BOUND_S)
        assert child.exitcode == 0
        child.close()
