"""Test borrowed streams and events, captures and contexts. On the stand-in for libcuda."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.at_once import in_thread
from support.cuda_sim import on_stand_in
from support.frameworks import Frameworks
from support.importer import BOUND_S, Pair

import xsem
from xsem.types import MemoryHandleType, SemaphoreHandleType

TIMELINE = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD


def driver() -> Any:
    return importlib.import_module("cuda.bindings.driver")


def ask(function: Callable[..., Any], *args: Any) -> Any:
    """Make a driver call for the test itself."""
    code, *results = function(*args)
    assert int(code) == 0, (function.__name__, code)
    return results[0] if results else None


class Rig(Pair):
    """The pair of devices, with streams that the test makes on the CUDA device."""

    def __init__(self, host: xsem.Device, cuda: xsem.Device) -> None:
        super().__init__(host, cuda, TIMELINE)
        self.streams: list[Stream] = []

    def stream(self, flags: int = 1) -> Stream:
        self.streams.append(Stream(self.here, flags))
        return self.streams[-1]


@contextmanager
def rig(device: str = "cuda:0") -> Iterator[Rig]:
    """Yield a rig; its borrowed streams outlive the device and stay usable."""
    cu = driver()
    ask(cu.cuInit, 0)
    ordinal = ask(cu.cuDeviceGet, int(device.removeprefix("cuda:")))
    ask(cu.cuDevicePrimaryCtxRetain, ordinal)
    try:
        with xsem.open_device("host") as host, xsem.open_device(device) as cuda:
            at = Rig(host, cuda)
            yield at
        await_closed(cuda)
        for stream in at.streams:
            ask(cu.cuStreamSynchronize, stream.native)
            stream.destroy()
    finally:
        ask(cu.cuDevicePrimaryCtxRelease, ordinal)


def await_closed(device: xsem.Device) -> None:
    """Wait until the device makes no more driver calls."""
    deadline = time.monotonic() + BOUND_S
    while device.releasing():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@contextmanager
def context_of(device: xsem.Device) -> Iterator[None]:
    """Make the device's context current in this thread."""
    cu = driver()
    ask(cu.cuCtxPushCurrent, cu.CUcontext(device.native_handle))
    try:
        yield
    finally:
        ask(cu.cuCtxPopCurrent)


class Stream:
    """A stream of the application, with the protocol of the streams of torch and CuPy."""

    def __init__(self, device: xsem.Device, flags: int = 1) -> None:
        with context_of(device):
            self.native = ask(driver().cuStreamCreate, flags)

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, int(self.native))

    def destroy(self) -> None:
        ask(driver().cuStreamDestroy, self.native)


class DefaultStream:
    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, 0)


def current() -> int:
    return int(ask(driver().cuCtxGetCurrent))


# ---- borrowed streams
@on_stand_in
@pytest.mark.parametrize("as_int", [False, True])
def test_borrowed_stream_is_used_and_left_alone(as_int: bool) -> None:
    with rig() as at:
        stream = at.stream()
        there, here = at.semaphore()
        commands = at.here.command_list(int(stream.native) if as_int else stream)
        assert commands.native_handle == int(stream.native)
        commands.append_wait(here, 1)
        commands.append_signal(here, 2)
        commands.release()
        there.host_signal(1)
        there.host_wait(2, timeout_s=BOUND_S)
        again = at.here.command_list(stream)
        again.append_signal(here, 3)
        there.host_wait(3, timeout_s=BOUND_S)


@on_stand_in
def test_work_of_the_application_on_the_stream_is_in_order() -> None:
    with rig() as at:
        stream = at.stream()
        there, here = at.semaphore()
        memory = at.host.create_memory(MemoryHandleType.OPAQUE_FD, 4096)
        with memory.export(for_device=at.here) as desc:
            buffer = at.here.import_memory(desc).map_buffer()
        cu = driver()
        commands = at.here.command_list(stream)
        commands.append_wait(here, 1)

        def work() -> None:
            with context_of(at.here):
                ask(cu.cuMemsetD8Async, buffer.address, 9, 4096, stream.native)

        commands.append_work(work)
        commands.append_signal(here, 2)
        view = memory.map_buffer().numpy()
        assert (view == 0).all()
        there.host_signal(1)
        there.host_wait(2, timeout_s=BOUND_S)
        assert (view == 9).all()


@on_stand_in
def test_known_stream_is_found_without_a_driver_call() -> None:
    with rig() as at:
        stream, cu = at.stream(), driver()
        asked: list[object] = []
        original = cu.cuStreamGetCtx

        def observed(*args: Any) -> Any:
            asked.append(args)
            return original(*args)

        cu.cuStreamGetCtx = observed
        try:
            kept = at.here.command_list(stream)
            assert len(asked) == 1
            again = at.here.command_list(int(stream.native))
        finally:
            cu.cuStreamGetCtx = original
        assert len(asked) == 1
        assert again._queue is kept._queue


@on_stand_in
def test_default_stream_of_another_device_is_refused_each_time() -> None:
    class Elsewhere(DefaultStream):
        device_index = 1

    with rig() as at:
        kept = at.here.command_list(DefaultStream())
        for _ in range(2):
            with pytest.raises(xsem.WrongDeviceError):
                at.here.command_list(Elsewhere())
        kept.append_barrier()


@on_stand_in
def test_default_stream_object_is_the_legacy_stream() -> None:
    with rig() as at:
        there, here = at.semaphore()
        commands = at.here.command_list(DefaultStream())
        assert commands.native_handle == 1
        commands.append_wait(here, 1)
        commands.append_signal(here, 2)
        there.host_signal(1)
        there.host_wait(2, timeout_s=BOUND_S)
        commands.synchronize(timeout_s=BOUND_S)


@on_stand_in(CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM="1")
def test_default_stream_object_is_legacy_in_per_thread_mode() -> None:
    with rig() as at:
        there, here = at.semaphore()
        waiting = at.here.command_list(DefaultStream())
        waiting.append_wait(here, 1)

        def elsewhere() -> None:
            # The per-thread stream of another thread would not wait behind the one of this thread.
            at.here.command_list(DefaultStream()).append_signal(here, 5)

        in_thread(elsewhere)
        assert there.value() == 0
        there.host_signal(1)
        there.host_wait(5, timeout_s=BOUND_S)
        waiting.synchronize(timeout_s=BOUND_S)


@on_stand_in
def test_own_list_is_independent_of_the_legacy_stream() -> None:
    with rig() as at:
        gate_there, gate = at.semaphore()
        there, here = at.semaphore()
        legacy = at.here.command_list(DefaultStream())
        legacy.append_wait(gate, 1)
        at.here.create_command_list().append_signal(here, 1)
        there.host_wait(1, timeout_s=BOUND_S)
        gate_there.host_signal(1)
        legacy.synchronize(timeout_s=BOUND_S)


@on_stand_in
def test_per_thread_stream_belongs_to_its_thread() -> None:
    with rig() as at:
        there, here = at.semaphore()
        mine = at.here.command_list(2)
        mine.append_wait(here, 1)

        def elsewhere() -> None:
            with pytest.raises(xsem.BadArgumentError) as caught:
                mine.append_signal(here, 9)
            assert caught.value.reason == "per_thread_stream"
            with context_of(at.here):
                for _ in range(2):
                    with pytest.raises(xsem.BadArgumentError):
                        mine.append_barrier()
            other = at.here.command_list(2)
            other.append_signal(here, 1)
            other.synchronize(timeout_s=BOUND_S)

        in_thread(elsewhere)
        there.host_wait(1, timeout_s=BOUND_S)
        mine.synchronize(timeout_s=BOUND_S)
        here.release()


# ---- events
class Event:
    """An event like torch.cuda.Event, with its handle in ``cuda_event``."""

    def __init__(self, device: xsem.Device) -> None:
        with context_of(device):
            self.native = ask(driver().cuEventCreate, 2)
        self.cuda_event = int(self.native)


# ---- two devices
@on_stand_in(SIMCUDA_DEVICES="2")
def test_two_devices_have_own_uuids_and_refuse_others_objects() -> None:
    first, second = xsem.devices("cuda")
    assert first.uuid
    assert second.uuid
    assert first.uuid != second.uuid
    with rig("cuda:0") as at, rig("cuda:1") as beside, xsem.open_device("cuda", uuid=second.uuid) as other:
        assert other.info.id == "cuda:1"
        with at.host.create_semaphore(TIMELINE).export(for_device=at.here) as desc:
            with pytest.raises(xsem.WrongDeviceError):
                other.import_semaphore(desc)
            at.here.import_semaphore(desc)
        stream = beside.stream()
        with pytest.raises(xsem.WrongDeviceError) as caught:
            at.here.command_list(stream)
        assert (caught.value.expected, caught.value.actual) == ("cuda:0", "cuda:1")
        other.command_list(stream).append_barrier()


# ---- contexts
@on_stand_in
def test_thread_without_a_context_has_none_afterwards() -> None:
    with rig() as at:
        there, here = at.semaphore()

        def work() -> None:
            assert current() == 0
            commands = at.here.create_command_list()
            between = at.here.create_event()
            commands.append_signal(here, 1, signal_event=between)
            assert current() == 0
            other = at.here.create_command_list()
            other.append_signal(here, 2, wait_events=[between])
            other.synchronize(timeout_s=BOUND_S)
            at.here.command_list(DefaultStream()).append_signal(here, 3)
            memory = at.host.create_memory(MemoryHandleType.OPAQUE_FD, 4096)
            with memory.export(for_device=at.here) as desc:
                imported = at.here.import_memory(desc)
            buffer = imported.map_buffer()
            buffer.copy_from_host(buffer.copy_to_host())
            for each in (buffer, imported, commands, other):
                each.release()
            assert current() == 0

        in_thread(work)
        there.host_wait(3, timeout_s=BOUND_S)


@on_stand_in(SIMCUDA_DEVICES="2")
def test_other_librarys_context_is_current_again() -> None:
    with rig("cuda:0") as at, xsem.open_device("cuda:1") as other, context_of(other):
        _there, here = at.semaphore()
        commands = at.here.command_list(DefaultStream())
        commands.append_signal(here, 1)
        commands.synchronize(timeout_s=BOUND_S)
        at.here.host_buffer(64).release()
        assert current() == other.native_handle


@on_stand_in
def test_borrowed_context_is_used_and_left_alone() -> None:
    with rig() as at:
        native = driver().CUcontext(at.here.native_handle)
        for borrowed in (native, int(native)):
            with xsem.open_device("cuda", native=borrowed) as device:
                assert device.info.id == "cuda:0"
                assert device.info.uuid == at.here.info.uuid
                assert device.native_handle == int(native)
                with at.host.create_semaphore(TIMELINE).export(for_device=device) as desc:
                    device.create_command_list().append_signal(device.import_semaphore(desc), 1)
        _there, here = at.semaphore()
        at.here.create_command_list().append_signal(here, 1)


# ---- captures
@contextmanager
def capture(device: xsem.Device, stream: Stream) -> Iterator[None]:
    """Capture in the strictest mode; the capture must stay valid to its end."""
    cu = driver()
    with context_of(device):
        ask(cu.cuStreamBeginCapture, stream.native, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
        yield
        graph = ask(cu.cuStreamEndCapture, stream.native)
        assert int(graph)
        ask(cu.cuGraphDestroy, graph)


@on_stand_in
def test_capture_survives_all_that_other_threads_do() -> None:
    with rig() as at:
        stream = at.stream()
        _there, captured = at.semaphore()
        own = at.here.create_command_list()
        gate_there, gate = at.semaphore()
        own.append_wait(gate, 1)
        pending = at.here.create_event()
        own.append_barrier(signal_event=pending)

        def elsewhere() -> None:
            there, here = at.semaphore()
            memory = at.host.create_memory(MemoryHandleType.OPAQUE_FD, 4096)
            with memory.export(for_device=at.here) as desc:
                imported = at.here.import_memory(desc)
            buffer = imported.map_buffer()
            commands = at.here.create_command_list()
            done = at.here.create_event()
            commands.append_signal(here, 1, signal_event=done)
            there.host_wait(1, timeout_s=BOUND_S)
            done.wait(timeout_s=BOUND_S)
            assert not pending.query()
            assert not own.query()
            at.here.pending()
            for each in (buffer, imported, here, commands):
                each.release()

        with capture(at.here, stream):
            commands = at.here.command_list(stream)
            commands.append_signal(captured, 1)
            in_thread(elsewhere)
            elsewhere()  # this thread makes the same calls during its own capture
            commands.append_signal(captured, 2)
        gate_there.host_signal(1)
        own.synchronize(timeout_s=BOUND_S)


@on_stand_in
def test_event_of_a_capture_is_refused_outside_the_capture() -> None:
    with rig() as at:
        stream = at.stream()
        _there, here = at.semaphore()
        own = at.here.create_command_list()
        outside = at.here.create_event()
        own.append_signal(here, 1, signal_event=outside)
        with capture(at.here, stream):
            commands = at.here.command_list(stream)
            inside = at.here.create_event()
            commands.append_signal(here, 2, signal_event=inside)
            commands.append_barrier(wait_events=[inside])
            for call in (inside.query, lambda: own.append_barrier(wait_events=[inside]),
                         lambda: commands.append_barrier(wait_events=[outside])):
                with pytest.raises(xsem.BusyError):
                    call()
        own.synchronize(timeout_s=BOUND_S)


@on_stand_in
def test_capture_of_an_own_lists_stream_is_left_alone() -> None:
    with rig() as at:
        cu = driver()
        there, here = at.semaphore()
        own = at.here.create_command_list()
        with context_of(at.here):
            stream = cu.CUstream(own.native_handle)
            ask(cu.cuStreamBeginCapture, stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
            inside = at.here.create_event()
            own.append_signal(here, 1)
            own.append_signal(here, 2, signal_event=inside)
            own.append_signal(here, 3)
            for call in (own.query, own.synchronize, inside.query):
                with pytest.raises(xsem.BusyError) as caught:
                    call()
                assert caught.value.reason == "capturing"
            graph = ask(cu.cuStreamEndCapture, stream)
            own.append_signal(here, 4)
            own.synchronize(timeout_s=BOUND_S)
            assert there.value() == 4
            launched = ask(cu.cuGraphInstantiate, graph, 0)
            ask(cu.cuGraphLaunch, launched, stream)
            ask(cu.cuStreamSynchronize, stream)
            assert there.value() == 3
            for call, what in ((cu.cuGraphExecDestroy, launched), (cu.cuGraphDestroy, graph)):
                ask(call, what)


@on_stand_in
def test_own_list_joins_a_capture_by_waiting_for_its_event() -> None:
    with rig() as at:
        cu = driver()
        stream, fork, join = at.stream(), Event(at.here), Event(at.here)
        there, here = at.semaphore()
        own = at.here.create_command_list()
        with capture(at.here, stream):
            ask(cu.cuEventRecord, fork.native, stream.native)
            inside = at.here.create_event()
            own.append_signal(here, 1, wait_events=[at.here.event(fork)], signal_event=inside)
            for call in (own.query, own.synchronize, inside.query):
                with pytest.raises(xsem.BusyError) as caught:
                    call()
                assert caught.value.reason == "capturing"
            ask(cu.cuEventRecord, join.native, cu.CUstream(own.native_handle))
            ask(cu.cuStreamWaitEvent, stream.native, join.native, 0)
        own.append_signal(here, 2)
        own.synchronize(timeout_s=BOUND_S)
        assert there.value() == 2
        for event in (fork, join):
            ask(cu.cuEventDestroy, event.native)


# ---- lists as streams of other libraries
@on_stand_in
def test_list_is_a_stream_of_other_libraries() -> None:
    with rig() as at:
        stream = at.stream()
        own = at.here.create_command_list()
        assert own.__cuda_stream__() == (0, own.native_handle)
        assert at.here.command_list(stream).__cuda_stream__() == (0, int(stream.native))
        assert at.here.command_list(DefaultStream()).__cuda_stream__() == (0, 1)
        again = at.here.command_list(own)   # a list is a stream for xsem, too
        there, here = at.semaphore()
        again.append_wait(here, 1)
        own.append_signal(here, 2)
        assert not own.query()
        there.host_signal(1)
        there.host_wait(2, timeout_s=BOUND_S)
        own.synchronize(timeout_s=BOUND_S)


@on_stand_in(SIMCUDA_DEVICES="2")
@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
def test_current_stream_names_the_device_in_cuda(device: str) -> None:
    with rig(device) as at:
        commands = at.here.create_command_list()
        driver_of_list = commands._queue.driver
        before = current()
        assert driver_of_list.cuda_stream() == (commands.native_handle, int(device[-1]))  # type: ignore[attr-defined]
        assert current() == before


@on_stand_in
def test_per_thread_stream_is_current_only_on_its_thread() -> None:
    with rig() as at:
        commands = at.here.command_list(2)
        assert commands.__cuda_stream__() == (0, 2)
        refusals: list[str] = []

        def elsewhere() -> None:
            for act in (commands.__cuda_stream__, commands.as_current):
                with pytest.raises(xsem.BadArgumentError) as caught:
                    act()
                refusals.append(caught.value.reason)

        in_thread(elsewhere)
        assert refusals == ["per_thread_stream"] * 2


@on_stand_in
def test_work_of_a_framework_is_in_the_order_of_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module enqueues on its current stream, as torch does."""
    with rig() as at:
        frameworks = Frameworks()
        torch: Any = frameworks.torch()
        monkeypatch.setitem(sys.modules, "torch", torch)
        monkeypatch.delitem(sys.modules, "cupy", raising=False)
        there, here = at.semaphore()
        memory = at.host.create_memory(MemoryHandleType.OPAQUE_FD, 4096)
        with memory.export(for_device=at.here) as desc:
            buffer = at.here.import_memory(desc).map_buffer()
        commands = at.here.create_command_list()
        commands.append_wait(here, 1)
        with commands.as_current(), context_of(at.here):
            stream = driver().CUstream(torch.cuda.current_stream().ptr)
            ask(driver().cuMemsetD8Async, buffer.address, 9, 4096, stream)
        commands.append_signal(here, 2)
        seen = memory.map_buffer().numpy()
        assert not commands.query()
        assert seen[0] == 0
        there.host_signal(1)
        there.host_wait(2, timeout_s=BOUND_S)
        assert (seen == 9).all()
        commands.synchronize(timeout_s=BOUND_S)
