"""A list stays usable when a recording fails or is released. On the stand-in for libcuda."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.cuda_recorder import Recorder
from support.cuda_recording import driver, rig
from support.cuda_sim import on_stand_in
from support.importer import BOUND_S

import xsem
from xsem.types import Feature
from xsem_cuda.backend import _attributes as attributes_of
from xsem_cuda.capabilities import capabilities_of


@contextmanager
def failures(which: bytes) -> Iterator[None]:
    """Have the stand-in's functions fail in this block, in the form of SIMCUDA_FAIL."""
    library = ctypes.CDLL("libcuda.so.1")
    library.simcuda_fail(which, None)
    try:
        yield
    finally:
        library.simcuda_fail(None, None)


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
