"""The simulated OpenCL device, by raw calls through the real loader: its properties, waits and signals."""

from __future__ import annotations

import ctypes
import struct
import threading

import pytest
from support import opencl_raw as cl
from support.opencl_rig import PAGE, TIMELINE, rig
from support.opencl_sim import on_opencl

import xsem


def u32(value: bytes) -> int:
    return int.from_bytes(value, "little")


# ---- properties
@on_opencl
def test_device_is_a_gpu_that_only_imports_opaque_fds() -> None:
    with rig() as at:
        assert at.devices_of(cl.GPU) == at.devices
        assert at.devices_of(cl.CPU) == []
        assert at.of_device(0x1000) == struct.pack("<Q", 5)
        names = at.of_device(0x1030).rstrip(b"\0").decode().split()
        assert names[-len(cl.EXTENSIONS):] == list(cl.EXTENSIONS)
        assert set(cl.EXTENSIONS) <= set(at.info("clGetPlatformInfo", at.platform, 0x0904)[:-1].decode().split())
        versions = at.of_device(0x1060)
        rows = [versions[at:at + 68] for at in range(0, len(versions), 68)]
        listed = {row[4:].rstrip(b"\0").decode(): u32(row[:4]) for row in rows}
        assert all(listed[name] == 1 << 22 for name in cl.EXTENSIONS)
        assert (u32(at.of_device(0x204C)), u32(at.of_device(0x204D)), at.of_device(0x204E)) == (1, cl.OPAQUE_FD, b"")
        assert u32(at.of_device(0x204F)) == cl.MEMORY_OPAQUE_FD
        assert all(at.functions.values())


@on_opencl(SIMCL_DEVICES="2")
def test_two_devices_have_names_and_uuids_of_their_own() -> None:
    with rig(0, 1) as at:
        assert [at.of_device(0x102B, each) for each in at.devices] == [
            b"simulated OpenCL GPU 0\0", b"simulated OpenCL GPU 1\0"]
        uuids = {at.of_device(0x106A, each) for each in at.devices}
        assert len(uuids) == 2
        assert {len(each) for each in uuids} == {16}


@on_opencl(SIMCL_MISSING="cl_khr_external_memory,clEnqueueWaitSemaphoresKHR")
def test_removed_extension_and_function_are_missing() -> None:
    with rig() as at:
        assert b"cl_khr_external_memory " not in at.of_device(0x1030)
        assert b"cl_khr_semaphore " in at.of_device(0x1030)
        with pytest.raises(cl.CodeError, match="-30"):
            at.of_device(0x204F)
        assert at.functions["clEnqueueWaitSemaphoresKHR"] is None
        assert at.functions["clEnqueueSignalSemaphoresKHR"] is not None
        _, fd = at.memory_fd()
        assert at.buffer_code(PAGE, cl.MEMORY_OPAQUE_FD, fd)[0] == cl.INVALID_PROPERTY


# ---- waits and signals
@on_opencl
def test_wait_holds_later_work_until_the_signal() -> None:
    with rig() as at:
        there, here = at.semaphore()
        answer_there, answer = at.semaphore()
        view, memory = at.memory()
        queue = at.stream()
        waited = at.waits(queue, here)
        assert at.acquire(queue, [memory]) == 0
        filled = at.fill(queue, memory, ord("b"), 8)
        at.events.append(filled)
        assert at.give_back(queue, [memory]) == 0
        signalled = at.signals(queue, answer)
        at.flush(queue)
        assert at.held(waited)
        assert at.status(filled) > cl.COMPLETE
        assert at.status(signalled) > cl.COMPLETE
        assert view[:8] == bytes(8)
        there.host_signal()
        answer_there.host_wait(timeout_s=20)
        assert view[:9] == b"bbbbbbbb\0"
        assert at.reached(signalled)
        assert (at.status(waited), at.status(filled), at.status(signalled)) == (0, 0, 0)
        assert not at.signalled(here)


@on_opencl
def test_unflushed_work_does_not_begin() -> None:
    with rig() as at:
        there, here = at.semaphore()
        queue = at.stream()
        signalled = at.signals(queue, here)
        assert at.held(signalled)
        with pytest.raises(xsem.XsemError):
            there.host_wait(timeout_s=0)
        at.flush(queue)
        there.host_wait(timeout_s=20)
        assert at.reached(signalled)


@on_opencl(SIMCL_FLUSH="unneeded")
def test_unflushed_work_begins_when_configured() -> None:
    with rig() as at:
        there, here = at.semaphore()
        at.signals(at.stream(), here)
        there.host_wait(timeout_s=20)


@on_opencl
@pytest.mark.parametrize("flush", ["clFinish", "clWaitForEvents", "clReleaseCommandQueue", "blocking read"])
def test_other_calls_flush_too(flush: str) -> None:
    with rig() as at:
        there, here = at.semaphore()
        _, memory = at.memory()
        queue = at.queue()
        event = at.signals(queue, here)
        if flush == "clFinish":
            at.finish(queue)
        elif flush == "clWaitForEvents":
            at.call("clWaitForEvents", ctypes.c_uint32(1), cl.handles([event]))
        elif flush == "blocking read":
            assert at.acquire(queue, [memory]) == 0
            at.read(queue, memory, 1)
        at.call("clReleaseCommandQueue", ctypes.c_void_p(queue))
        there.host_wait(timeout_s=20)
        assert at.reached(event)


@on_opencl
def test_wait_takes_the_signal_when_its_turn_comes() -> None:
    with rig() as at:
        there, here = at.semaphore()
        queue, gate = at.stream(), at.user_event()
        at.events += [gate, at.marker(queue, [gate])]
        waited = at.waits(queue, here)
        at.flush(queue)
        there.host_signal()
        assert at.held(waited)
        assert at.signalled(here)
        at.set_event(gate)
        assert at.reached(waited)
        assert not at.signalled(here)


@on_opencl
def test_wait_and_signal_depend_on_events_of_other_queues() -> None:
    with rig() as at:
        first_there, first = at.semaphore()
        there, here = at.semaphore()
        answer_there, answer = at.semaphore()
        one, other = at.stream(), at.stream()
        before = at.waits(one, first)
        waited = at.waits(other, here, after=(before,))
        at.signals(other, answer, after=(before,))
        at.flush(one)
        at.flush(other)
        there.host_signal()
        assert at.held(waited)
        first_there.host_signal()
        assert at.reached(waited)
        answer_there.host_wait(timeout_s=20)


@on_opencl
def test_semaphores_of_one_call_are_handled_together() -> None:
    with rig() as at:
        first, second = at.semaphore(), at.semaphore()
        third, fourth = at.semaphore(), at.semaphore()
        queue = at.stream()
        waited = at.waits(queue, first[1], second[1])
        at.signals(queue, third[1], fourth[1])
        at.flush(queue)
        second[0].host_signal()
        assert at.held(waited)
        first[0].host_signal()
        third[0].host_wait(timeout_s=20)
        fourth[0].host_wait(timeout_s=20)


@on_opencl
def test_waits_in_many_queues_do_not_block_each_other() -> None:
    """The number of waits is greater than the number of PoCL's threads."""
    with rig() as at:
        pairs = [(at.semaphore(), at.semaphore(), at.stream()) for _ in range(24)]
        for (_, here), (_, answer), queue in pairs:
            at.waits(queue, here)
            at.signals(queue, answer)
            at.flush(queue)
        for (there, _), (answered, _), _ in reversed(pairs):
            there.host_signal()
            answered.host_wait(timeout_s=20)


@on_opencl
def test_user_event_in_a_signals_list_holds_the_caller() -> None:
    with rig() as at:
        there, here = at.semaphore()
        queue, gate = at.stream(), at.user_event()
        at.events.append(gate)
        thread = threading.Thread(target=at.signals, args=(queue, here), kwargs={"after": (gate,)})
        thread.start()
        thread.join(cl.SOON_S)
        assert thread.is_alive()
        at.set_event(gate)
        thread.join(20)
        assert not thread.is_alive()
        at.flush(queue)
        there.host_wait(timeout_s=20)


@on_opencl
def test_user_event_in_a_waits_list_does_not_hold_the_caller() -> None:
    with rig() as at:
        there, here = at.semaphore()
        queue, gate = at.stream(), at.user_event()
        at.events.append(gate)
        waited = at.waits(queue, here, after=(gate,))
        at.flush(queue)
        there.host_signal()
        assert at.held(waited)
        at.set_event(gate)
        assert at.reached(waited)


@on_opencl
def test_timeline_imports_as_binary_and_its_payload_is_used() -> None:
    with rig() as at:
        there, here = at.semaphore(TIMELINE)
        answer_there, answer = at.semaphore(TIMELINE)
        queue = at.stream()
        code, waited = at.wait(queue, [here], values=[3])
        assert code == 0
        assert at.signal(queue, [answer], values=[4], event=False)[0] == 0
        at.events.append(waited)
        at.flush(queue)
        there.host_signal(2)
        assert at.held(waited)
        there.host_signal(3)
        answer_there.host_wait(4, timeout_s=20)
        assert at.reached(waited)


@on_opencl
@pytest.mark.parametrize("signals", [False, True])
def test_failed_event_fails_its_dependents_and_takes_no_signal(signals: bool) -> None:
    with rig() as at:
        there, here = at.semaphore()
        failing, other = at.stream(), at.stream()
        gate = at.user_event()
        after = at.marker(failing, [gate])
        at.events += [gate, after]
        event = at.signals(other, here, after=(after,)) if signals else at.waits(other, here, after=(after,))
        at.flush(failing)
        at.flush(other)
        if not signals:
            there.host_signal()
        at.set_event(gate, -5)
        assert at.reached(event)
        assert at.status(event) < 0
        assert at.signalled(here) is not signals


@on_opencl
def test_threads_release_semaphores_right_after_completion() -> None:
    failures: list[BaseException] = []
    with rig() as at:
        exports = [(at.exported(), at.exported(), at.stream()) for _ in range(4)]

        def rounds(there: xsem.Semaphore, fd: int, answered: xsem.Semaphore, answer_fd: int, queue: int) -> None:
            try:
                for _ in range(50):
                    here, answer = at.import_fd(fd), at.import_fd(answer_fd)
                    _, waited = at.wait(queue, [here])
                    _, signalled = at.signal(queue, [answer])
                    at.flush(queue)
                    there.host_signal()
                    answered.host_wait(timeout_s=20)
                    assert at.reached(signalled)
                    assert at.release(here) == at.release(answer) == 0
                    at.release_event(waited)
                    at.release_event(signalled)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=rounds, args=(*one, *other, queue)) for one, other, queue in exports]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []
