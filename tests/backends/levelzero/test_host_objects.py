"""Timelines and memory of the host on a Level Zero device, on the simulated driver."""

from __future__ import annotations

import pytest
from support.levelzero_facade import BOUND_S, driver_of, opened
from support.levelzero_sim import on_level_zero

from xsem.errors import UnsupportedError
from xsem.types import MemoryHandleType, SemaphoreHandleType

TIMELINE = SemaphoreHandleType.HOST_TIMELINE_FD
MEMORY = MemoryHandleType.HOST_MEMORY_FD


@on_level_zero
def test_memory_is_the_hosts_pages_at_their_own_address() -> None:
    with opened() as at:
        memory = at.here.create_memory(MEMORY, 8192)
        with memory.export() as desc:
            there = at.host.import_memory(desc)
        commands, buffer = at.here.create_command_list(), memory.map_buffer()
        commands.append_fill(buffer, b"\7")
        commands.synchronize(timeout_s=BOUND_S)
        assert (there.map_buffer().copy_to_host() == 7).all()
        assert buffer.address == memory._token().address


@on_level_zero
def test_host_fences_serve_again() -> None:
    with opened() as at:
        commands, frames = at.here.create_command_list(), at.here.create_semaphore(TIMELINE)
        for frame in range(1, 101):
            commands.append_wait(frames, frame)
            frames.host_signal(frame)
            commands.synchronize(timeout_s=BOUND_S)
        assert driver_of(at.here)._events.count <= 64


@on_level_zero(SIMZE_API="1.11")
def test_an_old_driver_has_timelines_of_the_host_and_no_memory() -> None:
    with opened() as at:
        declared = at.here.capabilities
        assert declared.semaphore_import == declared.bridged == {TIMELINE}
        with pytest.raises(UnsupportedError):
            at.here.create_memory(MEMORY, 4096)
        commands, frames = at.here.create_command_list(), at.here.create_semaphore(TIMELINE)
        commands.append_wait(frames, 1)
        commands.append_signal(frames, 2)
        frames._state.page.signal(1)   # type: ignore[union-attr]
        frames.host_wait(2, timeout_s=BOUND_S)
