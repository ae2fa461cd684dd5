"""A recording of CUDA is captured once and launched with new values. On the stand-in for libcuda."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.cuda_recorder import Recorder
from support.cuda_recording import SIZE, ask, driver, rig
from support.cuda_sim import on_stand_in
from support.importer import BOUND_S

import xsem
from xsem.types import SemaphoreHandleType
from xsem_cuda.context import Context
from xsem_cuda.fences import Fences
from xsem_cuda.queue import StreamQueue

BINARY = SemaphoreHandleType.OPAQUE_FD


class Calls(Recorder):
    """A recorder that acts as a driver and makes only empty graphs."""

    def _cuStreamEndCapture(self, _stream: Any) -> tuple[Any, ...]:  # noqa: N802
        return (self._types.CUgraph(self._new()),)

    def _cuGraphGetNodes(self, _graph: Any, _count: int = 0) -> tuple[Any, ...]:  # noqa: N802
        return ([], 0)

    def _cuGraphInstantiate(self, _graph: Any, _flags: int) -> tuple[Any, ...]:  # noqa: N802
        return (self._types.CUgraphExec(self._new()),)


def recorded_calls(work: Callable[[StreamQueue], object], **codes: int) -> list[str]:
    """Return the driver's functions that `work` calls on a list, without those for contexts."""
    cuda = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    calls = Calls(cuda)
    calls.codes.update(codes)
    context = Context(calls, cuda.CUcontext(0xC0))
    work(StreamQueue(calls, context, Fences(calls, context), 0x5000))
    return [name for name in calls.names if not name.startswith("cuCtx")]


# ---- driver calls
def test_recording_is_a_capture_an_instance_and_its_launches() -> None:
    def work(commands: StreamQueue) -> None:
        commands.begin_recording()
        recording = commands.end_recording()
        commands.replay(recording, [])
        commands.replay(recording, [])
        commands.release_recording(recording)

    mode = "cuThreadExchangeStreamCaptureMode"
    assert recorded_calls(work) == [
        "cuStreamIsCapturing", "cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphGetNodes", mode,
        "cuGraphInstantiate", mode, "cuGraphLaunch", "cuGraphLaunch", mode, "cuGraphExecDestroy", "cuGraphDestroy",
        mode]


@pytest.mark.parametrize("function", ["cuGraphGetNodes", "cuGraphInstantiate"])
def test_graph_that_cannot_be_used_is_destroyed(function: str) -> None:
    def work(commands: StreamQueue) -> None:
        commands.begin_recording()
        with pytest.raises(xsem.OutOfMemoryError):
            commands.end_recording()

    assert recorded_calls(work, **{function: 2})[-1] == "cuGraphDestroy"


def test_graph_is_destroyed_also_where_its_instance_cannot_be() -> None:
    def work(commands: StreamQueue) -> None:
        commands.begin_recording()
        recording = commands.end_recording()
        with pytest.raises(xsem.OutOfMemoryError):
            commands.release_recording(recording)

    assert "cuGraphDestroy" in recorded_calls(work, cuGraphExecDestroy=2)


# ---- recorded operations run in replays, with the values of the replay
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
