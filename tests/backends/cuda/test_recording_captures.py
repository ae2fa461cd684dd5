"""Recordings leave borrowed streams and captures of the application whole. On the stand-in for libcuda."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.cuda_recording import Rig, ask, driver, rig
from support.cuda_sim import on_stand_in
from support.importer import BOUND_S

import xsem


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
