"""Memory that OpenCL imports changes hands, and both sides read and write it. On the simulated device."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.opencl_facade import BOUND_S, PAGE, driver_of, list_of, opened, soon
from support.opencl_sim import on_opencl

import xsem
from xsem.errors import UnsupportedError

SIZE = 16 * PAGE


def counter(name: str) -> int:
    """Return a counter of the simulated device."""
    layer = ctypes.CDLL(str(Path(os.environ["OPENCL_LAYERS"].split(":")[0])))
    layer.simcl_counter.restype = ctypes.c_int64
    value: int = layer.simcl_counter(name.encode())
    return value


@on_opencl
@pytest.mark.parametrize("handed_back", [False, True])
def test_acquired_memory_is_given_back_before_its_release(
    monkeypatch: pytest.MonkeyPatch, handed_back: bool
) -> None:
    with opened() as at:
        _, here = at.memory(SIZE)
        there, gate = at.semaphore()
        commands, api = at.here.create_command_list(), driver_of(at.here)._core.api
        there.host_signal()
        commands.append_wait(gate, acquire=[here])
        if handed_back:
            commands.append_signal(gate, release=[here])
        commands.synchronize(timeout_s=BOUND_S)
        called: list[str] = []
        do = api.do

        def noted(name: str, *given: Any) -> Any:
            called.append(name)
            return do(name, *given)

        monkeypatch.setattr(api, "do", noted)
        here.release()
        soon(lambda: "clReleaseMemObject" in called)
        assert ("clEnqueueReleaseExternalMemObjectsKHR" in called) == (not handed_back)
        assert called[-1] == "clReleaseMemObject"


@on_opencl
def test_memory_is_used_only_between_acquire_and_release() -> None:
    with opened() as at:
        _, here = at.memory(SIZE)
        _, gate = at.semaphore()
        target, commands = here.map_buffer(), at.here.create_command_list()
        before = counter("unacquired")
        commands.append_signal(gate)
        commands.append_wait(gate, acquire=[here])
        commands.append_fill(target, b"\1")
        commands.append_signal(gate, release=[here])
        commands.synchronize(timeout_s=BOUND_S)
        assert counter("unacquired") == before
        commands.append_fill(target, b"\2")   # the device counts an access without an acquire
        commands.synchronize(timeout_s=BOUND_S)
        assert counter("unacquired") == before + 1


@on_opencl
def test_memory_changes_hands_after_waits_and_before_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the calls: the first one waits for the events, and the last one makes the event of the operation."""
    with opened() as at:
        _, here = at.memory(SIZE)
        _, gate = at.semaphore()
        commands, other = at.here.create_command_list(), at.here.create_command_list()
        passed, waited = at.here.create_event(), at.here.create_event()
        other.append_barrier(signal_event=passed)
        api, seen = list_of(commands)._api, []
        do = api.do

        def note(name: str, *arguments: Any) -> None:
            do(name, *arguments)
            if name.startswith("clEnqueue"):
                seen.append((name, arguments[-3], arguments[-1] is not None))

        monkeypatch.setattr(api, "do", note)
        commands.append_signal(gate, release=[here], wait_events=[passed], signal_event=waited)
        assert seen == [("clEnqueueReleaseExternalMemObjectsKHR", 1, False), ("clEnqueueSignalSemaphoresKHR", 0, True)]
        seen.clear()
        waited.wait(timeout_s=BOUND_S)
        waited.reset()
        commands.append_wait(gate, acquire=[here], wait_events=[passed], signal_event=waited)
        assert seen == [("clEnqueueWaitSemaphoresKHR", 1, False), ("clEnqueueAcquireExternalMemObjectsKHR", 0, True)]
        waited.wait(timeout_s=BOUND_S)
        commands.synchronize(timeout_s=BOUND_S)
        other.synchronize(timeout_s=BOUND_S)


@on_opencl
def test_events_hold_the_release_of_memory_before_a_signal() -> None:
    with opened() as at:
        mine, here = at.memory(SIZE)
        (gate_there, gate), (there, done) = at.semaphore(), at.semaphore()
        held, commands, passed = at.here.create_command_list(), at.here.create_command_list(), at.here.create_event()
        held.append_wait(gate, signal_event=passed)
        commands.append_signal(done, release=[here], wait_events=[passed])
        with pytest.raises(xsem.WaitTimeoutError):
            there.host_wait(timeout_s=0.05)
        gate_there.host_signal()
        there.host_wait(timeout_s=BOUND_S)
        for each in (held, commands):
            each.synchronize(timeout_s=BOUND_S)
        mine.release()


@on_opencl
def test_copies_at_offsets_need_no_alignment() -> None:
    with opened() as at:
        mine, here = at.memory(SIZE)
        view = mine.map_buffer().numpy()
        view[...] = np.arange(SIZE, dtype="uint32").astype("uint8")
        expected = view.copy()
        first, second = here.map_buffer(13, 100), here.map_buffer(PAGE + 7, 100)
        _, gate = at.semaphore()
        commands = at.here.create_command_list()
        commands.append_signal(gate)
        commands.append_wait(gate, acquire=[here])
        commands.append_copy(second.view((60,), "uint8", offset=40), first.view((60,), "uint8", offset=20))
        commands.append_fill(first.view((50,), "uint8", offset=50), b"\x55")
        commands.append_signal(gate, release=[here])
        commands.synchronize(timeout_s=BOUND_S)
        expected[PAGE + 47:PAGE + 107] = expected[33:93]
        expected[63:113] = 0x55
        assert (view == expected).all()
        assert (first.copy_to_host()[50:] == 0x55).all()
        assert (first.view((8,), "uint8", offset=46).copy_to_host() == expected[59:67]).all()
        second.view((90,), "uint8", offset=10).copy_from_host(np.full(90, 3, dtype="uint8"))
        expected[PAGE + 17:PAGE + 107] = 3
        assert (view == expected).all()
        del view


@on_opencl
def test_pattern_is_refused_when_offset_is_not_its_multiple() -> None:
    with opened() as at:
        _, here = at.memory(SIZE)
        commands = at.here.create_command_list()
        with pytest.raises(xsem.BadArgumentError) as refused:
            commands.append_fill(here.map_buffer(2, 64), b"\1\2\3\4")
        assert refused.value.reason == "bad_pattern"


@on_opencl
def test_mapping_is_a_pyopencl_buffer_over_the_exporters_bytes() -> None:
    import pyopencl as cl

    with opened() as at:
        context = cl.Context.from_int_ptr(at.here.native_handle)
        queue = cl.CommandQueue(context)
        mine, here = at.memory(SIZE)
        view = mine.map_buffer().numpy()
        whole, part = here.map_buffer(), here.map_buffer(PAGE, 2 * PAGE, overlap=True)
        assert whole.native_handle == here.native_handle
        assert part.native_handle == part.native_handle != here.native_handle
        buffers: list[Any] = [cl.Buffer.from_int_ptr(each.native_handle) for each in (whole, part)]
        assert [each.size for each in buffers] == [SIZE, 2 * PAGE]
        _, gate = at.semaphore()
        commands = at.here.command_list(queue)
        commands.append_signal(gate)
        commands.append_wait(gate, acquire=[here])
        for buffer, value, size in ((buffers[0], 1, SIZE), (buffers[1], 2, 2 * PAGE)):
            cl.enqueue_fill_buffer(queue, buffer, np.array(value, dtype="uint8"), 0, size)
        commands.append_signal(gate, release=[here])
        commands.synchronize(timeout_s=BOUND_S)
        assert (view[:PAGE] == 1).all()
        assert (view[PAGE:3 * PAGE] == 2).all()
        assert (view[3 * PAGE:] == 1).all()
        del buffers, buffer, view
        queue.finish()


@on_opencl
def test_unaligned_mapping_has_no_handle_and_names_the_alignment() -> None:
    with opened() as at:
        _, here = at.memory(SIZE)
        with pytest.raises(UnsupportedError, match="multiples of 128 bytes") as refused:
            _ = here.map_buffer(100, 100).native_handle
        assert refused.value.capability == "native_handle"
