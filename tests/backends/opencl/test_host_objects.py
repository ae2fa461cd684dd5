"""Timelines and memory of the host on an OpenCL device, on the simulated device."""

from __future__ import annotations

from support.opencl_facade import BINARY, BOUND_S, driver_of, opened
from support.opencl_sim import on_opencl

from xsem.types import MemoryHandleType, SemaphoreHandleType

TIMELINE = SemaphoreHandleType.HOST_TIMELINE_FD
MEMORY = MemoryHandleType.HOST_MEMORY_FD


@on_opencl
def test_memory_is_mapped_while_the_other_side_has_it() -> None:
    with opened() as at:
        frames, memory = at.here.create_semaphore(TIMELINE), at.here.create_memory(MEMORY, 4096)
        commands, token = at.here.create_command_list(), memory._token()
        assert not token.mapped
        commands.append_signal(frames, 1, release=[memory])
        assert token.mapped
        commands.append_wait(frames, 1, acquire=[memory])
        assert not token.mapped
        commands.append_wait(frames, 1, acquire=[memory])   # the device reads the pages again
        assert not token.mapped
        commands.append_signal(frames, 2, release=[memory])
        commands.append_signal(frames, 3, release=[memory])
        commands.synchronize(timeout_s=BOUND_S)
        memory.release()   # while it is mapped
    assert token.handle


@on_opencl
def test_signal_of_the_driver_behind_a_bridged_wait_does_not_hold_the_caller() -> None:
    with opened() as at:
        there = at.host.create_semaphore(BINARY)
        with there.export(for_device=at.here) as desc:
            here = at.here.import_semaphore(desc)
        frames, commands = at.here.create_semaphore(TIMELINE), at.here.create_command_list()
        commands.append_wait(frames, 1)
        commands.append_signal([here, frames], [None, 2])   # returns, and is not made
        assert frames.value() == 0
        page = frames._state.page
        assert page is not None
        page.signal(1)
        there.host_wait(timeout_s=BOUND_S)
        frames.host_wait(2, timeout_s=BOUND_S)
        assert driver_of(at.here) is not None
