"""OpenCL imports the host's semaphores, and waits and signals keep their order. On the simulated device."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from support.opencl_facade import BINARY, BOUND_S, MEMORY, driver_of, list_of, opened
from support.opencl_sim import on_opencl

import xsem
from xsem.errors import DriverError
from xsem.types import Feature, MemoryHandleType
from xsem_opencl.core import array


# ---- the device
@on_opencl
def test_device_declares_what_its_driver_answers() -> None:
    with opened() as at:
        declared, info = at.here.capabilities, at.here.info
    assert declared.semaphore_import == declared.wait_before_signal == {BINARY, *declared.bridged}
    assert declared.memory_import == {MEMORY, MemoryHandleType.HOST_MEMORY_FD}
    assert declared.semaphore_export == declared.bridged
    assert declared.memory_export == {MemoryHandleType.HOST_MEMORY_FD}
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
    assert declared.semaphore_import == declared.wait_before_signal == declared.bridged
    assert declared.memory_import == declared.memory_export
    assert info.uuid is None


@on_opencl(SIMCL_MISSING="clEnqueueSignalSemaphoresKHR,clEnqueueAcquireExternalMemObjectsKHR")
def test_types_without_functions_declare_nothing() -> None:
    with opened() as at:
        declared = at.here.capabilities
        assert declared.semaphore_import == declared.bridged
        assert declared.memory_import == declared.memory_export


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
        real(driver.identity)
        there.host_wait(timeout_s=BOUND_S)   # the signal was enqueued: only the flush failed
        commands.append_signal(here, signal_event=done)
        there.host_wait(timeout_s=BOUND_S)
        done.wait(timeout_s=BOUND_S)
