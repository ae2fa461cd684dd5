"""Test frames through every operation of a list, with events between them, also in the compiled form of xsem."""

from __future__ import annotations

from functools import partial

import numpy as np
from support.each_device import EVERY, on_each, sides
from support.importer import BOUND_S

HALF = 4096


@on_each(*EVERY)
def test_frames_pass_through_every_operation_in_order(name: str) -> None:
    with sides(name) as at:
        (drawn_there, drawn), (filtered_there, filtered) = at.semaphore(), at.semaphore()
        there, here = at.memory(2 * HALF)
        picture, margin, theirs = here.map_buffer(0, HALF), here.map_buffer(HALF, HALF), there.map_buffer()
        staging, commands = at.here.host_buffer(HALF), at.here.create_command_list()
        in_order: list[int] = []
        for frame in range(1, 7):   # repeated appends are prepared ones
            waited, copied, marked = (at.here.create_event() for _ in range(3))
            commands.append_wait(drawn, at.value(frame), acquire=at.handover(here), signal_event=waited)
            commands.append_copy(staging, picture, wait_events=[waited], signal_event=copied)
            commands.append_fill(margin, bytes([frame]), wait_events=[copied])
            commands.append_work(partial(in_order.append, frame))
            commands.append_barrier(signal_event=marked)
            commands.append_signal(filtered, at.value(frame), release=at.handover(here), wait_events=[waited, marked])
            theirs.copy_from_host(np.full(2 * HALF, 100 + frame, np.uint8))
            assert not waited.query()
            assert not copied.query()
            at.signal(drawn_there, frame)
            at.wait(filtered_there, frame)
            marked.wait(timeout_s=BOUND_S)
            assert (staging.numpy() == 100 + frame).all()
            found = theirs.copy_to_host()
            assert (found[:HALF] == 100 + frame).all()
            assert (found[HALF:] == frame).all()
        assert in_order == [1, 2, 3, 4, 5, 6]
        commands.synchronize(timeout_s=BOUND_S)   # the exporter sees the signal before the operation is done
        assert commands.query()
        assert at.here.pending() == ()
