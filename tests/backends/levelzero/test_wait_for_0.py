"""Test waits for 0, which are met by definition, on a driver that never meets them before the first signal."""

from __future__ import annotations

import pytest
from support.levelzero_facade import BINARY, BOUND_S, opened
from support.levelzero_sim import FIFO, INTEL, LIFO, on_level_zero

NEVER = {"SIMZE_WAIT_FOR_0": "never"}


def first_frame_ends(*, between: bool = False) -> None:
    with opened() as at:
        there, free = at.semaphore()
        commands = at.here.create_command_list()
        for frame in range(1, 4):
            commands.append_wait(free, frame - 1)
            if between and frame > 1:
                commands.synchronize(timeout_s=BOUND_S)
            commands.append_signal(free, frame)
            commands.synchronize(timeout_s=BOUND_S)
        assert there.value() == 3


@on_level_zero(**NEVER)
def test_first_frame_ends() -> None:
    first_frame_ends()


@on_level_zero(**INTEL)
def test_first_frame_ends_on_intels_driver() -> None:
    first_frame_ends()


@on_level_zero(**FIFO)
def test_first_frame_ends_on_26_22() -> None:
    first_frame_ends()


@on_level_zero(**LIFO)
def test_first_frame_ends_before_26_22() -> None:
    first_frame_ends(between=True)   # a signal behind a wait that counts as unmet is refused; a wait for 0 never counts


@pytest.mark.parametrize("values", [(0,), (0, 0), (0, 5), (5, 0)])
@on_level_zero(**INTEL)
def test_batch_waits_for_its_other_entries_and_its_events(values: tuple[int, ...]) -> None:
    with opened() as at:
        pairs = [at.semaphore() for _ in values]
        first, second = at.here.create_command_list(), at.here.create_command_list()
        gate_there, gate = at.semaphore()
        before, behind = at.here.create_event(), at.here.create_event()
        first.append_wait(gate, 1, signal_event=before)
        second.append_wait([here for _, here in pairs], list(values), wait_events=[before], signal_event=behind)
        assert not behind.query()
        gate_there.host_signal(1)
        for (there, _), value in zip(pairs, values, strict=True):
            if value:
                assert not behind.query()
                there.host_signal(value)
        behind.wait(timeout_s=BOUND_S)


@on_level_zero(**INTEL)
def test_binary_semaphore_beside_a_wait_for_0_is_waited_for() -> None:
    with opened() as at:
        _, timeline = at.semaphore()
        there, binary = at.semaphore(BINARY)
        commands = at.here.create_command_list()
        commands.append_wait([timeline, binary], [0, None])
        assert not commands.query()
        there.host_signal()
        commands.synchronize(timeout_s=BOUND_S)
