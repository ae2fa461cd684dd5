"""Test imports of the host device's semaphores and memory by the OpenCL backend, on the simulated device."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.open_files import is_open, numbers
from support.opencl_facade import BINARY, BOUND_S, MEMORY, PAGE, driver_of, fd_of, list_of, opened, soon
from support.opencl_sim import on_opencl

import xsem
from xsem.errors import BadHandleError, DriverError, UnsupportedError, WrongDeviceError
from xsem.spi import ImportFailure, same_open_file
from xsem.types import Feature, MemoryDesc, OwnedHandle, SemaphoreDesc, SemaphoreHandleType
from xsem_opencl.core import array

SIZE = 16 * PAGE


def counter(name: str) -> int:
    """Return a counter of the simulated device."""
    layer = ctypes.CDLL(str(Path(os.environ["OPENCL_LAYERS"].split(":")[0])))
    layer.simcl_counter.restype = ctypes.c_int64
    value: int = layer.simcl_counter(name.encode())
    return value


# ---- the device
@on_opencl
def test_device_declares_what_its_driver_answers() -> None:
    with opened() as at:
        declared, info = at.here.capabilities, at.here.info
    assert declared.semaphore_import == {BINARY}
    assert declared.memory_import == {MEMORY}
    assert not declared.semaphore_export | declared.memory_export
    assert declared.wait_before_signal == {BINARY}
    assert declared.needs_handover
    assert declared.resets_on_wait
    assert {Feature.NATIVE_EVENTS, Feature.NATIVE_CONTEXT} <= declared.features
    assert info.uuid is not None
    assert info.uuid.bytes.startswith(b"simulated-cl")


@on_opencl(SIMCL_MISSING="cl_khr_external_semaphore_opaque_fd,cl_khr_external_memory_opaque_fd,cl_khr_device_uuid")
def test_extension_without_types_declares_nothing() -> None:
    with opened() as at:
        declared, info = at.here.capabilities, at.here.info
        assert "cl_khr_external_semaphore" in driver_of(at.here)._core.api.text(
            "clGetDeviceInfo", driver_of(at.here)._core.device, 0x1030)
    assert not declared.semaphore_import
    assert not declared.memory_import
    assert not declared.wait_before_signal
    assert not declared.needs_handover
    assert info.uuid is None


@on_opencl(SIMCL_MISSING="clEnqueueSignalSemaphoresKHR,clEnqueueAcquireExternalMemObjectsKHR")
def test_types_without_functions_declare_nothing() -> None:
    with opened() as at:
        assert not at.here.capabilities.semaphore_import
        assert not at.here.capabilities.memory_import


@on_opencl(SIMCL_DEVICES="2")
def test_descriptor_of_the_other_device_is_refused() -> None:
    with xsem.open_device("opencl:1") as other, opened() as at:
        assert other.info.uuid != at.here.info.uuid
        there = at.host.create_semaphore(BINARY)
        with there.export(for_device=other) as desc, pytest.raises(WrongDeviceError) as refused:
            at.here.import_semaphore(desc)
        assert refused.value.reason == "wrong_device"


@on_opencl(SIMCL_DEVICES="2")
def test_in_a_context_of_two_devices_objects_say_for_which() -> None:
    import pyopencl as cl

    context = cl.Context(cl.get_platforms()[0].get_devices())
    queue = cl.CommandQueue(context, context.devices[1])
    with opened("opencl", native=queue) as at:
        there, here = at.semaphore()
        mine, memory = at.memory()
        commands = at.here.command_list(queue)
        commands.append_wait(here, acquire=[memory])
        commands.append_fill(memory.map_buffer(), b"\3")
        commands.append_signal(here, release=[memory])
        assert not commands.query()
        there.host_signal()
        commands.synchronize(timeout_s=BOUND_S)
        assert (mine.map_buffer().numpy() == 3).all()


# ---- semaphores
@on_opencl
def test_wait_before_its_signal_is_pending_and_a_met_one_resets() -> None:
    with opened() as at:
        there, here = at.semaphore()
        commands, done = at.here.create_command_list(), at.here.create_event()
        for _ in range(3):
            commands.append_wait(here, signal_event=done)
            assert not done.query()
            assert not commands.query()
            there.host_signal()
            done.wait(timeout_s=BOUND_S)
            done.reset()


@on_opencl
def test_signal_comes_after_the_work_before_it() -> None:
    with opened() as at:
        (gate_there, gate), (there, here) = at.semaphore(), at.semaphore()
        commands = at.here.create_command_list()
        commands.append_wait(gate)
        commands.append_signal(here)
        with pytest.raises(xsem.WaitTimeoutError):
            there.host_wait(timeout_s=0.05)
        gate_there.host_signal()
        there.host_wait(timeout_s=BOUND_S)
        commands.synchronize(timeout_s=BOUND_S)


@on_opencl
def test_batch_waits_for_all_and_signals_all() -> None:
    with opened() as at:
        waited, signalled = [at.semaphore() for _ in range(3)], [at.semaphore() for _ in range(3)]
        commands = at.here.create_command_list()
        commands.append_wait([here for _, here in waited], [None] * 3)
        commands.append_signal([here for _, here in signalled], [None] * 3)
        for there, _ in waited[:2]:
            there.host_signal()
        assert not commands.query()
        waited[2][0].host_signal()
        commands.synchronize(timeout_s=BOUND_S)
        for there, _ in signalled:
            there.host_wait(timeout_s=BOUND_S)


@on_opencl
def test_event_lists_hold_waits_and_signals() -> None:
    with opened() as at:
        (gate_there, gate), (met_there, met), (there, here) = at.semaphore(), at.semaphore(), at.semaphore()
        first, second = at.here.create_command_list(), at.here.create_command_list()
        passed, waited, done = (at.here.create_event() for _ in range(3))
        met_there.host_signal()
        first.append_wait(gate, signal_event=passed)
        second.append_wait(met, wait_events=[passed], signal_event=waited)
        second.append_signal(here, wait_events=[passed, waited], signal_event=done)
        assert not waited.query()
        assert not done.query()
        with pytest.raises(xsem.WaitTimeoutError):
            there.host_wait(timeout_s=0.05)
        gate_there.host_signal()
        done.wait(timeout_s=BOUND_S)
        there.host_wait(timeout_s=BOUND_S)
        for each in (first, second):
            each.synchronize(timeout_s=BOUND_S)


@on_opencl
def test_event_of_an_unflushed_command_is_reached() -> None:
    import pyopencl as cl

    with opened() as at:   # on the simulated device no command begins before a flush
        there, here = at.semaphore()
        queue = cl.CommandQueue(cl.Context.from_int_ptr(at.here.native_handle))
        made, core = ctypes.c_void_p(), driver_of(at.here)._core
        core.api.do("clEnqueueSignalSemaphoresKHR", queue.int_ptr, 1, array([here.native_handle]), None, 0, None,
                    ctypes.byref(made))
        native = cl.Event.from_int_ptr(made.value or 0, retain=False)
        with pytest.raises(xsem.WaitTimeoutError):
            there.host_wait(timeout_s=0.05)
        at.here.event(native).wait(timeout_s=BOUND_S)
        there.host_wait(timeout_s=BOUND_S)
        queue.finish()


@on_opencl
def test_released_semaphore_is_freed_when_its_work_is_done() -> None:
    with opened() as at:   # the simulated device ends the process if a semaphore with queued work is freed
        there, here = at.semaphore()
        commands = at.here.create_command_list()
        commands.append_wait(here)
        lifetime = here._lifetime
        here.release()
        assert not lifetime.freed
        there.host_signal()
        commands.synchronize(timeout_s=BOUND_S)
        soon(lambda: lifetime.freed)
        with pytest.raises(xsem.ReleasedError):
            commands.append_wait(here)


@on_opencl
def test_tokens_are_released_once() -> None:
    with opened() as at:
        driver = driver_of(at.here)
        there, memory = at.host.create_semaphore(BINARY), at.host.create_memory(MEMORY, PAGE)
        with fd_of(there) as handle:
            semaphore = driver.import_semaphore(SemaphoreDesc.opaque_fd(handle, device_uuid=None), handle)
        with fd_of(memory) as handle:
            imported = driver.import_memory(
                MemoryDesc.opaque_fd(handle, allocation_size=PAGE, device_uuid=None), handle)
        mapping, _ = driver.map_buffer(imported, 1024, 1024)
        assert driver.native_handle(mapping) != driver.native_handle(imported)
        for _ in range(2):
            driver.release_semaphore(semaphore)
            driver.unmap_buffer(mapping)
            driver.release_memory(imported)


@on_opencl
def test_append_of_a_batch_with_a_bad_member_appends_nothing() -> None:
    with opened() as at:
        (there, good), (_, bad) = at.semaphore(), at.semaphore()
        bad.release()
        commands = at.here.create_command_list()
        with pytest.raises(xsem.ReleasedError):
            commands.append_signal([good, bad], [None, None])
        commands.synchronize(timeout_s=BOUND_S)
        with pytest.raises(xsem.WaitTimeoutError):
            there.host_wait(timeout_s=0.02)


# ---- file descriptors
@on_opencl
def test_fd_that_the_driver_leaves_open_is_closed_at_release() -> None:
    with opened() as at:
        driver = driver_of(at.here)
        there, memory = at.host.create_semaphore(BINARY), at.host.create_memory(MEMORY, PAGE)
        before = numbers()
        imports: tuple[tuple[Any, Callable[[OwnedHandle], Any], Callable[[Any], None]], ...] = (
            (there, lambda handle: driver.import_semaphore(SemaphoreDesc.opaque_fd(handle, device_uuid=None), handle),
             driver.release_semaphore),
            (memory, lambda handle: driver.import_memory(
                MemoryDesc.opaque_fd(handle, allocation_size=PAGE, device_uuid=None), handle), driver.release_memory),
        )
        for exported, take, release in imports:
            handle = fd_of(exported)
            number = handle.fileno()
            token = take(handle)
            assert handle.closed   # the driver owns it, for any use
            assert is_open(number)
            release(token)
            assert numbers() == before


@on_opencl(SIMCL_FD="taken")
def test_number_that_the_driver_closed_is_not_closed_again() -> None:
    with opened() as at:
        driver = driver_of(at.here)
        there = at.host.create_semaphore(BINARY)
        handle = fd_of(there)
        number = handle.fileno()
        token = driver.import_semaphore(SemaphoreDesc.opaque_fd(handle, device_uuid=None), handle)
        assert handle.closed
        assert not is_open(number)
        assert os.open(os.devnull, os.O_RDONLY) == number   # the lowest free number: another file has it now
        witness = os.dup(number)
        driver.release_semaphore(token)
        assert same_open_file(witness, number)
        os.close(witness)
        os.close(number)


@on_opencl(SIMCL_FD="kept")
def test_fd_that_driver_closes_with_the_object_is_closed_once() -> None:
    with opened() as at:
        driver = driver_of(at.here)
        there = at.host.create_semaphore(BINARY)
        before = numbers()
        handle = fd_of(there)
        number = handle.fileno()
        token = driver.import_semaphore(SemaphoreDesc.opaque_fd(handle, device_uuid=None), handle)
        handle.close()
        assert is_open(number)   # the driver owns it and still uses it
        driver.release_semaphore(token)
        assert numbers() == before


@on_opencl
def test_callers_number_is_untouched_by_import_and_release() -> None:
    with opened() as at:
        there = at.host.create_semaphore(BINARY)
        with fd_of(there) as handle:
            witness = os.dup(handle.fileno())
            here = at.here.import_semaphore(SemaphoreDesc.opaque_fd(handle, device_uuid=at.here.info.uuid))
            here.release()
            soon(lambda: here._lifetime.freed)
            assert same_open_file(witness, handle.fileno())
            os.close(witness)


@on_opencl
def test_refused_handle_is_a_bad_handle_and_left_to_the_caller() -> None:
    with opened() as at:
        number = os.memfd_create("no semaphore")
        os.ftruncate(number, PAGE)
        try:
            before = numbers()
            with pytest.raises(BadHandleError) as refused:
                at.here.import_semaphore(SemaphoreDesc.opaque_fd(number, device_uuid=at.here.info.uuid))
            assert refused.value.reason == "refused_by_driver"
            assert refused.value.code == 999   # the code came with a pointer
            assert refused.value.code_name is None
            assert refused.value.call == "clCreateSemaphoreWithPropertiesKHR"
            assert numbers() == before
        finally:
            os.close(number)


@on_opencl
def test_fate_of_a_refused_handle_is_unknown() -> None:
    with opened() as at:
        read, write = os.pipe()
        with OwnedHandle(read) as handle:
            calls: tuple[Callable[[], object], ...] = (
                lambda: driver_of(at.here).import_semaphore(SemaphoreDesc.opaque_fd(handle, device_uuid=None), handle),
                lambda: driver_of(at.here).import_memory(
                    MemoryDesc.opaque_fd(handle, allocation_size=PAGE, device_uuid=None), handle),
            )
            for call in calls:
                with pytest.raises(ImportFailure) as failure:
                    call()
                assert failure.value.fate == "unknown"
                assert isinstance(failure.value.error, BadHandleError)
                assert failure.value.error.code == 999
        os.close(write)


@on_opencl
def test_size_beyond_the_allocation_is_refused_by_code() -> None:
    with opened() as at:
        there = at.host.create_memory(MEMORY, PAGE)
        with fd_of(there) as handle, pytest.raises(ImportFailure) as failure:
            driver_of(at.here).import_memory(
                MemoryDesc.opaque_fd(handle, allocation_size=16 * PAGE, device_uuid=None), handle)
        assert isinstance(failure.value.error, BadHandleError)
        assert failure.value.error.code == 1


@on_opencl
def test_undeclared_types_are_refused_by_the_driver_object() -> None:
    with opened() as at:
        for type in (SemaphoreHandleType.SYNC_FD, SemaphoreHandleType.TIMELINE_SEMAPHORE_FD):
            with pytest.raises(UnsupportedError) as refused:
                driver_of(at.here).import_semaphore(SemaphoreDesc(type=type, handle=0, device_uuid=None), None)
            assert refused.value.capability == f"semaphore.import.{type.value}"
        with pytest.raises(UnsupportedError):
            driver_of(at.here).create_semaphore(BINARY, 0)


# ---- memory
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
def test_what_each_side_writes_the_other_reads() -> None:
    with opened() as at:
        mine, here = at.memory(SIZE)
        view, target = mine.map_buffer().numpy(), here.map_buffer()
        (there, gate), (back_there, back) = at.semaphore(), at.semaphore()
        commands, host = at.here.create_command_list(), at.here.host_buffer(SIZE)
        view[...] = 7
        commands.append_wait(gate, acquire=[here])
        commands.append_copy(host, target)
        commands.append_fill(target, b"\1\2\3\4")
        commands.append_signal(back, release=[here])
        view[0] = 8   # before the signal, so the copy reads this value
        there.host_signal()
        back_there.host_wait(timeout_s=BOUND_S)
        assert (host.numpy() == [8] + [7] * (SIZE - 1)).all()
        assert (view.reshape(-1, 4) == [1, 2, 3, 4]).all()
        commands.synchronize(timeout_s=BOUND_S)
        del view


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
        commands.append_copy(second, first)
        commands.append_fill(first.view((50,), "uint8", offset=50), b"\x55")
        commands.append_signal(gate, release=[here])
        commands.synchronize(timeout_s=BOUND_S)
        expected[PAGE + 7:PAGE + 107] = expected[13:113]
        expected[63:113] = 0x55
        assert (view == expected).all()
        assert (first.copy_to_host()[50:] == 0x55).all()
        second.copy_from_host(np.full(100, 3, dtype="uint8"))
        assert (view[PAGE + 7:PAGE + 107] == 3).all()
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


@on_opencl
def test_addresses_of_two_memories_do_not_meet() -> None:
    with opened() as at:
        (_, first), (_, second) = at.memory(PAGE), at.memory(PAGE)
        a, b = first.map_buffer(), second.map_buffer()
        assert abs(a.address - b.address) > PAGE
        commands = at.here.create_command_list()
        driver = list_of(commands)
        with pytest.raises(xsem.BadArgumentError):
            driver.append_fill(a.address, b"\0", 2 * PAGE, (), False)
        old = a.address
        a.release()
        first.release()
        soon(lambda: first._lifetime.freed)
        _, third = at.memory(PAGE)
        assert third.map_buffer().address != old
        with pytest.raises(xsem.BadArgumentError):
            driver.append_fill(old, b"\0", PAGE, (), False)


@on_opencl
def test_memory_with_array_outlives_its_release() -> None:
    with opened() as at:
        _, here = at.memory(SIZE)
        with pytest.raises(BufferError):
            here.map_buffer().numpy()
        assert here.map_buffer(overlap=True).__dlpack_device__() == (4, 0)


# ---- failures
@on_opencl
def test_failed_append_leaves_no_event_and_can_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened() as at:
        there, here = at.semaphore()
        commands, done = at.here.create_command_list(), at.here.create_event()
        driver = list_of(commands)
        real = driver._core.flush
        released: list[Any] = []
        find = driver._api.find

        def note(name: str) -> Any:
            released.append(name)
            return find(name)

        def fail(_queue: int) -> None:
            raise DriverError("planted", reason="driver_error")

        monkeypatch.setattr(driver._core, "flush", fail)
        monkeypatch.setattr(driver._api, "find", note)
        with pytest.raises(DriverError, match="planted"):
            commands.append_signal(here, signal_event=done)
        assert "clReleaseEvent" in released
        monkeypatch.undo()
        assert driver._core.flush != fail
        real(driver.key)
        there.host_wait(timeout_s=BOUND_S)   # the signal was enqueued: only the flush failed
        commands.append_signal(here, signal_event=done)
        there.host_wait(timeout_s=BOUND_S)
        done.wait(timeout_s=BOUND_S)
