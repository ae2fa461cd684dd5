"""Test the release of a device and of all its objects, by several threads, while all of its work is pending."""

from __future__ import annotations

from typing import Any

from support.at_once import in_threads
from support.each_device import EVERY, on_each, sides
from support.importer import BOUND_S, soon

import xsem

SIZE = 4096


@on_each(*EVERY)
def test_everything_is_released_at_once_while_all_is_pending(name: str) -> None:
    with sides(name) as at:
        (gate_there, gate), (done_there, done), (there, memory) = at.semaphore(), at.semaphore(), at.memory(SIZE)
        buffer, staging = memory.map_buffer(), at.here.host_buffer(SIZE)
        first, second = at.here.create_command_list(), at.here.create_command_list()
        copied = at.here.create_event()
        first.append_wait(gate, at.value(1), acquire=at.handover(memory))
        first.append_fill(buffer, b"\5")
        first.append_copy(staging, buffer, signal_event=copied)
        second.append_barrier(wait_events=[copied])
        second.append_signal(done, at.value(3), release=at.handover(memory))
        everything = (gate, done, buffer, memory, staging, first, second, copied, at.here)

        # None of these calls may wait: the exporter signals only below.
        def release(_index: int) -> None:
            for each in everything:
                each.release()

        in_threads(2, release)
        release(0)
        assert "device" in " ".join(at.here.releasing())
        assert not contents(there).any()
        at.signal(gate_there, 1)
        at.wait(done_there, 3)
        assert (contents(there) == 5).all()
        soon(lambda: not at.here.releasing())


def contents(memory: xsem.Memory) -> Any:
    with memory.map_buffer() as buffer:
        return buffer.copy_to_host(timeout_s=BOUND_S)
