"""Test recordings of CUDA, captured once and launched with new values. On the stand-in for libcuda."""

from __future__ import annotations

import ctypes
import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.cuda_recorder import Recorder
from support.cuda_sim import on_stand_in
from support.importer import BOUND_S, Pair

import xsem
from xsem.types import Feature, SemaphoreHandleType
from xsem_cuda.backend import _attributes as attributes_of
from xsem_cuda.capabilities import capabilities_of
from xsem_cuda.context import Context
from xsem_cuda.points import Points
from xsem_cuda.queue import StreamList

TIMELINE = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
BINARY = SemaphoreHandleType.OPAQUE_FD
SIZE = 4096


def driver() -> Any:
    return importlib.import_module("cuda.bindings.driver")


def ask(function: Callable[..., Any], *args: Any) -> Any:
    """Make a driver call for the test itself."""
    code, *results = function(*args)
    assert int(code) == 0, (function.__name__, code)
    return results[0] if results else None


class Rig(Pair):
    """The pair of devices, with a command list of the CUDA device."""

    def __init__(self, host: xsem.Device, cuda: xsem.Device) -> None:
        super().__init__(host, cuda, TIMELINE)
        self.commands = cuda.create_command_list()

    def buffer(self) -> tuple[Any, xsem.Buffer]:
        """Return the exporter's view of a memory, and the mapping of the same memory."""
        there, imported = self.memory(SIZE)
        return there.map_buffer().numpy(), imported.map_buffer()

    @property
    def stream(self) -> Any:
        return driver().CUstream(self.commands.native_handle)


@contextmanager
def rig() -> Iterator[Rig]:
    with xsem.open_device("host") as host, xsem.open_device("cuda:0") as cuda:
        yield Rig(host, cuda)


@contextmanager
def failures(which: bytes) -> Iterator[None]:
    """Have the stand-in's functions fail in this block, in the form of SIMCUDA_FAIL."""
    library = ctypes.CDLL("libcuda.so.1")
    library.simcuda_fail(which, None)
    try:
        yield
    finally:
        library.simcuda_fail(None, None)


@contextmanager
def borrowed(at: Rig, flags: int = 1) -> Iterator[tuple[xsem.CommandList, Any]]:
    cu = driver()
    native = cu.CUcontext(at.here.native_handle)
    ask(cu.cuCtxPushCurrent, native)
    try:
        stream = ask(cu.cuStreamCreate, flags)
        yield at.here.command_list(int(stream)), stream
        ask(cu.cuStreamSynchronize, stream)
    finally:
        ask(cu.cuCtxPopCurrent)


class Calls(Recorder):
    """A recorder that acts as a driver and makes only empty graphs."""

    def _cuStreamEndCapture(self, _stream: Any) -> tuple[Any, ...]:  # noqa: N802
        return (self._types.CUgraph(self._new()),)

    def _cuGraphGetNodes(self, _graph: Any, _count: int = 0) -> tuple[Any, ...]:  # noqa: N802
        return ([], 0)

    def _cuGraphInstantiate(self, _graph: Any, _flags: int) -> tuple[Any, ...]:  # noqa: N802
        return (self._types.CUgraphExec(self._new()),)


def recorded_calls(work: Callable[[StreamList], object], **codes: int) -> list[str]:
    """Return the driver's functions that `work` calls on a list, without those for contexts."""
    cuda = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    calls = Calls(cuda)
    calls.codes.update(codes)
    context = Context(calls, cuda.CUcontext(0xC0))
    work(StreamList(calls, context, Points(calls, context), 0x5000))
    return [name for name in calls.names if not name.startswith("cuCtx")]


# ---- driver calls
def test_recording_is_a_capture_an_instance_and_its_launches() -> None:
    def work(commands: StreamList) -> None:
        commands.begin_recording()
        recording = commands.end_recording()
        commands.replay(recording, [])
        commands.replay(recording, [])
        commands.release_recording(recording)
        commands.release_recording(recording)

    mode = "cuThreadExchangeStreamCaptureMode"
    assert recorded_calls(work) == [
        "cuStreamIsCapturing", "cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphGetNodes", mode,
        "cuGraphInstantiate", mode, "cuGraphLaunch", "cuGraphLaunch", mode, "cuGraphExecDestroy", "cuGraphDestroy",
        mode, mode, mode]


@pytest.mark.parametrize("function", ["cuGraphGetNodes", "cuGraphInstantiate"])
def test_graph_that_cannot_be_used_is_destroyed(function: str) -> None:
    def work(commands: StreamList) -> None:
        commands.begin_recording()
        with pytest.raises(xsem.OutOfMemoryError):
            commands.end_recording()

    assert recorded_calls(work, **{function: 2})[-1] == "cuGraphDestroy"


def test_graph_is_destroyed_also_where_its_instance_cannot_be() -> None:
    def work(commands: StreamList) -> None:
        commands.begin_recording()
        recording = commands.end_recording()
        with pytest.raises(xsem.OutOfMemoryError):
            commands.release_recording(recording)

    assert "cuGraphDestroy" in recorded_calls(work, cuGraphExecDestroy=2)


# ---- recorded operations run in replays, with the values of the replay
@on_stand_in
def test_device_declares_recording() -> None:
    with rig() as at:
        assert Feature.RECORDING in at.here.capabilities.features


@on_stand_in
def test_nothing_recorded_runs_before_its_replay() -> None:
    with rig() as at:
        drawn_there, drawn = at.semaphore()
        filtered_there, filtered = at.semaphore()
        view, buffer = at.buffer()
        drawn_there.host_signal(1)
        with at.commands.record() as recording:
            at.commands.append_wait(drawn, 1)
            at.commands.append_fill(buffer, b"\x07")
            at.commands.append_signal(filtered, 1)
        at.commands.synchronize(timeout_s=BOUND_S)
        assert not view.any()
        assert filtered_there.value() == 0
        recording.replay()
        filtered_there.host_wait(1, timeout_s=BOUND_S)
        assert (view == 7).all()


@on_stand_in
def test_each_replay_waits_for_and_signals_its_values_in_order() -> None:
    with rig() as at:
        drawn_there, drawn = at.semaphore()
        filtered_there, filtered = at.semaphore()
        there, buffer = at.buffer()
        staging = at.here.host_buffer(SIZE)
        with at.commands.record() as recording:
            at.commands.append_wait(drawn, 1)
            at.commands.append_copy(staging, buffer)
            at.commands.append_signal(filtered, 1)
        for frame in (5, 6, 2**63, 2**64 - 1):
            recording.replay({drawn: frame, filtered: frame})
            there[:] = frame % 251
            assert not at.commands.query()
            drawn_there.host_signal(frame)
            filtered_there.host_wait(frame, timeout_s=BOUND_S)
            assert (staging.numpy() == frame % 251).all()


@on_stand_in
def test_one_semaphore_takes_a_wait_value_and_a_signal_value() -> None:
    with rig() as at:
        there, here = at.semaphore()
        with at.commands.record() as recording:
            at.commands.append_wait(here, 1)
            at.commands.append_signal(here, 2)
        for frame in (10, 20):
            recording.replay({here: (frame + 1, frame + 2)})
            there.host_signal(frame)
            assert not at.commands.query()
            there.host_signal(frame + 1)
            there.host_wait(frame + 2, timeout_s=BOUND_S)
            assert there.value() == frame + 2


@on_stand_in
def test_values_not_given_are_those_recorded_also_after_others() -> None:
    with rig() as at:
        there, here = at.semaphore()
        gate_there, gate = at.semaphore()
        with at.commands.record() as recording:
            at.commands.append_wait(gate, 3)
            at.commands.append_signal(here, xsem.SignalParams(value=4, allow_rewind=True))
        gate_there.host_signal(100)
        for given, expected in (({here: 9, gate: 50}, 9), (None, 4), ({gate: 100}, 4), ({here: 7}, 7)):
            recording.replay(given)
            at.commands.synchronize(timeout_s=BOUND_S)
            assert there.value() == expected
        recording.replay({here: 8, gate: 101})
        assert not at.commands.query()
        recording.replay({here: 9})   # the earlier replay keeps its values
        gate_there.host_signal(101)
        at.commands.synchronize(timeout_s=BOUND_S)
        assert there.value() == 9


@on_stand_in
def test_batches_take_each_value_and_binary_semaphores_none() -> None:
    with rig() as at:
        shared = [at.semaphore() for _ in range(5)]
        ready_there, ready = at.semaphore(BINARY)
        done_there, done = at.semaphore(BINARY)
        with at.commands.record() as recording:
            at.commands.append_wait(ready)
            at.commands.append_signal([done, *(here for _, here in shared)], [
                None, 1, 2, 3, xsem.SignalParams(value=4, allow_rewind=True), 5])
        for add in (10, 20):
            recording.replay({shared[1][1]: add, shared[4][1]: (1, 2 * add)} | {
                shared[at][1]: add + at for at in (0, 2)})
            assert not at.commands.query()
            ready_there.host_signal()
            done_there.host_wait(timeout_s=BOUND_S)
            at.commands.synchronize(timeout_s=BOUND_S)
            assert [there.value() for there, _ in shared] == [add, add, add + 2, 4, 2 * add]
        with pytest.raises(xsem.BadArgumentError) as caught:
            recording.replay({done: 1})
        assert caught.value.reason == "not_a_timeline"


@on_stand_in
def test_several_recordings_of_a_list_keep_their_own_values() -> None:
    with rig() as at:
        there, here = at.semaphore()
        recordings = []
        for value in (1, 2):
            with at.commands.record() as recording:
                at.commands.append_signal(here, value)
            recordings.append(recording)
        for value in (3, 4, 5, 6):
            recordings[value % 2].replay({here: value})
            at.commands.synchronize(timeout_s=BOUND_S)
            assert there.value() == value
        recordings[0].release()
        recordings[1].replay({here: 7})
        at.commands.synchronize(timeout_s=BOUND_S)
        assert there.value() == 7


@on_stand_in
def test_empty_recording_is_replayed() -> None:
    with rig() as at:
        with at.commands.record() as recording:
            at.commands.append_barrier()
        recording.replay()
        at.commands.synchronize(timeout_s=BOUND_S)


@on_stand_in
def test_application_work_is_recorded_with_replaceable_values() -> None:
    with rig() as at:
        cu = driver()
        there, here = at.semaphore()
        view, buffer = at.buffer()
        calls: list[int] = []

        def work() -> None:
            calls.append(1)
            ask(cu.cuMemsetD8Async, buffer.address, 9, SIZE, at.stream)
            params = cu.CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS()
            params.params.fence.value = 5
            native = cu.CUexternalSemaphore(here.native_handle)
            ask(cu.cuSignalExternalSemaphoresAsync, [native], [params], 1, at.stream)

        with at.commands.record() as recording:
            at.commands.append_wait(here, 1)
            at.commands.append_work(work)
        assert not view.any()
        for value in (10, 20):
            view[:] = 0
            recording.replay({here: value})
            there.host_signal(value)
            at.commands.synchronize(timeout_s=BOUND_S)
            assert (view == 9).all()
            assert there.value() == value
        assert calls == [1]


# ---- events
@on_stand_in
def test_events_of_a_recording_are_refused_outside_it() -> None:
    with rig() as at:
        there, here = at.semaphore()
        other = at.here.create_command_list()
        outside, inside = at.here.create_event(), at.here.create_event()
        at.commands.append_barrier(signal_event=outside)
        with at.commands.record() as recording:
            at.commands.append_signal(here, 1, signal_event=inside)
            at.commands.append_barrier(wait_events=[inside])
            for call in (inside.query, lambda: other.append_barrier(wait_events=[inside]),
                         lambda: at.commands.append_barrier(wait_events=[outside])):
                with pytest.raises(xsem.BusyError):
                    call()
        with pytest.raises(xsem.BusyError) as caught:
            at.commands.append_barrier(wait_events=[inside])
        assert caught.value.reason == "capture_isolation"
        recording.replay()
        there.host_wait(1, timeout_s=BOUND_S)


@on_stand_in
def test_recordings_under_way_at_once_do_not_mix() -> None:
    with rig() as at:
        (there, here), (_, unused) = at.semaphore(), at.semaphore()
        other = at.here.create_command_list()
        event = at.here.create_event()
        with at.commands.record() as first, other.record() as second:
            at.commands.append_signal(here, 1, signal_event=event)
            with pytest.raises(xsem.BusyError) as caught:
                other.append_signal(unused, 1, wait_events=[event])
            assert caught.value.reason == "capture_isolation"
            other.append_signal(here, 2)
        first.replay()
        at.commands.synchronize(timeout_s=BOUND_S)
        second.replay()
        there.host_wait(2, timeout_s=BOUND_S)


# ---- borrowed streams
@on_stand_in
def test_borrowed_stream_is_recorded_and_its_captures_stay_whole() -> None:
    with rig() as at, borrowed(at) as (commands, stream):
        cu = driver()
        there, here = at.semaphore()
        with commands.record() as recording:
            commands.append_signal(here, 1)
        recording.replay({here: 5})
        there.host_wait(5, timeout_s=BOUND_S)
        ask(cu.cuStreamBeginCapture, stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
        for call in (lambda: recording.replay({here: 6}), commands.record().__enter__):
            with pytest.raises(xsem.BusyError) as caught:
                call()
            assert caught.value.reason == "capturing"
        graph = ask(cu.cuStreamEndCapture, stream)
        assert int(graph)
        recording.replay({here: 6})
        there.host_wait(6, timeout_s=BOUND_S)


@on_stand_in
@pytest.mark.parametrize("handle", [1, 2])
def test_default_streams_cannot_be_recorded(handle: int) -> None:
    with rig() as at:
        there, here = at.semaphore()
        commands = at.here.command_list(handle)
        with pytest.raises(xsem.UnsupportedError) as caught, commands.record():
            raise AssertionError("entered")
        assert caught.value.reason == "default_stream"
        commands.append_signal(here, 1)
        there.host_wait(1, timeout_s=BOUND_S)


@on_stand_in
def test_objects_in_a_native_capture_outlive_their_release() -> None:
    with rig() as at, borrowed(at) as (commands, stream):
        cu = driver()
        there, here = at.semaphore()
        ask(cu.cuStreamBeginCapture, stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
        commands.append_signal(here, 3)
        graph = ask(cu.cuStreamEndCapture, stream)
        here.release()
        commands.synchronize(timeout_s=BOUND_S)
        exec_ = ask(cu.cuGraphInstantiate, graph, 0)
        ask(cu.cuGraphLaunch, exec_, stream)
        there.host_wait(3, timeout_s=BOUND_S)


# ---- captures of the application
@on_stand_in
def test_recording_and_replay_leave_other_captures_whole() -> None:
    with rig() as at, borrowed(at) as (_, stream):
        cu = driver()
        there, here = at.semaphore()
        failed: list[BaseException] = []

        def elsewhere() -> None:
            try:
                with at.commands.record() as recording:
                    at.commands.append_signal(here, 1)
                recording.replay({here: 2})
                there.host_wait(2, timeout_s=BOUND_S)
                at.commands.synchronize(timeout_s=BOUND_S)
                recording.release()
                at.commands.release()
            except BaseException as error:
                failed.append(error)

        ask(cu.cuStreamBeginCapture, stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        elsewhere_failed = list(failed)
        code, graph = cu.cuStreamEndCapture(stream)
        assert not elsewhere_failed
        assert int(code) == 0
        assert int(graph)


@on_stand_in
def test_recording_ends_on_another_thread_than_it_began() -> None:
    with rig() as at:
        there, here = at.semaphore()
        recording = at.commands.record()
        recording.__enter__()
        at.commands.append_signal(here, 1)
        thread = threading.Thread(target=recording.__exit__, args=(None, None, None))
        thread.start()
        thread.join()
        recording.replay()
        there.host_wait(1, timeout_s=BOUND_S)


# ---- failures
@on_stand_in
def test_broken_recording_is_reported_and_list_stays_usable() -> None:
    with rig() as at:
        there, here = at.semaphore()
        recording = at.commands.record()
        with pytest.raises(xsem.BusyError) as caught, recording:
            at.commands.append_signal(here, 1)
            at.commands.append_work(lambda: driver().cuStreamSynchronize(at.stream))
        assert caught.value.reason == "not_recordable"
        assert caught.value.call == "cuStreamEndCapture"
        with pytest.raises(xsem.BusyError) as again:
            recording.replay()
        assert again.value.reason == "recording"
        at.commands.append_signal(here, 1)
        there.host_wait(1, timeout_s=BOUND_S)
        with at.commands.record() as second:
            at.commands.append_signal(here, 2)
        second.replay()
        there.host_wait(2, timeout_s=BOUND_S)


@on_stand_in
def test_error_in_the_block_goes_on_though_the_recording_broke() -> None:
    with rig() as at:
        there, here = at.semaphore()
        recording = at.commands.record()
        with pytest.raises(ZeroDivisionError), recording:
            driver().cuStreamSynchronize(at.stream)
            raise ZeroDivisionError
        assert recording.released
        at.commands.append_signal(here, 1)
        there.host_wait(1, timeout_s=BOUND_S)


@on_stand_in
@pytest.mark.parametrize("function", [
    "cuStreamBeginCapture_v2", "cuGraphGetNodes", "cuGraphNodeGetType", "cuGraphInstantiateWithFlags",
    "cuGraphExternalSemaphoresSignalNodeGetParams"])
def test_recording_refused_by_the_driver_leaves_list_usable(function: str) -> None:
    with rig() as at:
        there, here = at.semaphore()
        with failures(f"{function}:2".encode()), pytest.raises(xsem.OutOfMemoryError), at.commands.record():
            at.commands.append_signal(here, 1)
        at.commands.append_signal(here, 1)
        there.host_wait(1, timeout_s=BOUND_S)
        with at.commands.record() as recording:
            at.commands.append_signal(here, 2)
        recording.replay()
        there.host_wait(2, timeout_s=BOUND_S)


@on_stand_in
@pytest.mark.parametrize("function", [
    "cuGraphLaunch", "cuGraphExecExternalSemaphoresSignalNodeSetParams",
    "cuGraphExecExternalSemaphoresWaitNodeSetParams"])
def test_refused_replay_launches_nothing_and_the_next_one_works(function: str) -> None:
    with rig() as at:
        there, here = at.semaphore()
        gate_there, gate = at.semaphore()
        with at.commands.record() as recording:
            at.commands.append_wait(gate, 1)
            at.commands.append_signal(here, 1)
        with failures(f"{function}:2".encode()):
            for _ in range(2):
                with pytest.raises(xsem.OutOfMemoryError):
                    recording.replay({gate: 5, here: 6})
        at.commands.synchronize(timeout_s=BOUND_S)
        assert there.value() == 0
        recording.replay({gate: 5, here: 6})
        gate_there.host_signal(4)
        assert not at.commands.query()
        gate_there.host_signal(5)
        there.host_wait(6, timeout_s=BOUND_S)


@pytest.mark.parametrize(("version", "declared"), [(11030, False), (11040, True), (13000, True)])
def test_driver_that_is_too_old_declares_no_recording(version: int, declared: bool) -> None:
    recorder = Recorder(pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed"))
    recorder.answers["cuDriverGetVersion"] = lambda: (version,)
    recorder.answers["cuDeviceGetAttribute"] = lambda *_: (1,)
    features = capabilities_of("linux", attributes_of(recorder, 0)).features
    assert (Feature.RECORDING in features) is declared


@on_stand_in(SIMCUDA_MISSING="cuGraphExecExternalSemaphoresSignalNodeSetParams")
def test_function_that_the_driver_lacks_is_named() -> None:
    with rig() as at:
        _, here = at.semaphore()
        with at.commands.record() as recording:
            at.commands.append_signal(here, 1)
        with pytest.raises(xsem.UnsupportedError) as caught:
            recording.replay({here: 2})
        assert caught.value.reason == "driver_too_old"
        at.commands.synchronize(timeout_s=BOUND_S)


# ---- release
@on_stand_in
def test_released_recording_lets_its_pending_replay_finish() -> None:
    with rig() as at:
        gate_there, gate = at.semaphore()
        there, here = at.semaphore()
        with at.commands.record() as recording:
            at.commands.append_wait(gate, 1)
            at.commands.append_signal(here, 1)
        recording.replay()
        for each in (recording, gate, here):
            each.release()
        gate_there.host_signal(1)
        there.host_wait(1, timeout_s=BOUND_S)


@on_stand_in
def test_free_waits_for_a_replay_that_waits() -> None:
    """A free blocks the appends of all other threads until the wait is met, and one of them must meet it."""
    with rig() as at:
        gate_there, gate = at.semaphore()
        _, buffer = at.buffer()
        with at.commands.record() as recording:
            at.commands.append_wait(gate, 1)
        recording.replay()
        buffer.release()
        other = at.here.create_command_list()
        there, here = at.semaphore()
        other.append_signal(here, 1)
        there.host_wait(1, timeout_s=BOUND_S)
        gate_there.host_signal(1)
        at.commands.synchronize(timeout_s=BOUND_S)


@on_stand_in
def test_replays_take_places_and_the_last_is_refused() -> None:
    with rig() as at:
        gate_there, gate = at.semaphore()
        with at.commands.record() as recording:
            at.commands.append_wait(gate, 1)
        with pytest.raises(xsem.WouldBlockError):
            for _ in range(2000):
                recording.replay()
        gate_there.host_signal(1)
        at.commands.synchronize(timeout_s=BOUND_S)
        recording.replay()
        at.commands.synchronize(timeout_s=BOUND_S)


@on_stand_in
def test_stuck_replay_is_named_with_its_semaphore_and_value() -> None:
    with rig() as at:
        gate_there, gate = at.semaphore()
        with at.commands.record() as recording:
            at.commands.append_wait(gate, 1)
        recording.replay({gate: 7})
        with pytest.raises(xsem.WaitTimeoutError) as caught:
            at.commands.synchronize(timeout_s=0.05)
        first = caught.value.pending[0]
        assert (first.operation, first.value) == ("work", 7)
        assert first.semaphore is not None
        gate_there.host_signal(7)
        at.commands.synchronize(timeout_s=BOUND_S)
