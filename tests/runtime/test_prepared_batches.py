"""Repeated batches of timelines: appended as prepared appends, with the same safety."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from support.at_once import in_threads
from support.fake_backend import batch, binary, fake, last_of, set_last, timeline, values_of
from support.fixtures import Opened
from support.waiting import until

import xsem
from xsem.errors import BadArgumentError, DriverError, ReleasedError, WrongDeviceError
from xsem.runtime.lifetime import Lifetime
from xsem.runtime.queues.prepared_append import PreparedAppend
from xsem.types import MemoryHandleType, SignalParams, WaitParams

CALLS = ["append_signal", "append_wait"]


def kept(commands: xsem.CommandList, call: str, semaphores: Sequence[xsem.Semaphore]) -> PreparedAppend | None:
    """Return the prepared append of these semaphores; None if the driver has not prepared its arrays."""
    append = commands._queue.prepared.find_batch("signal" if call == "append_signal" else "wait", semaphores)
    return append if append is not None and append._repeat is not None else None


def count_of_single(commands: xsem.CommandList) -> int:
    return len(commands._queue.prepared.signals) + len(commands._queue.prepared.waits)


# ---- appended operations
@pytest.mark.parametrize("call", CALLS)
def test_each_append_has_its_values_and_semaphores(opened: Opened, call: str) -> None:
    device, driver = opened
    commands, sems = device.create_command_list(), batch(device, 3)
    append = getattr(commands, call)
    append(sems, [1, 2, 3])
    assert kept(commands, call, sems) is None   # it may not be repeated
    append(tuple(sems), (4, 4, 4))
    assert kept(commands, call, sems) is not None
    append(sems, [5, 6, 5])
    for more in (0, 20):   # alternating batches are kept, too
        append(sems[:2], [more + 7, more + 7])
        append(sems[::2], [more + 8, more + 9])
    assert None not in (kept(commands, call, sems[:2]), kept(commands, call, sems[::2]))
    append(sems, [31, 31, 2**64 - 1])
    assert values_of(driver) == [(1, 2, 3), (4, 4, 4), (5, 6, 5), (7, 7), (8, 9), (27, 27), (28, 29),
                                 (31, 31, 2**64 - 1)]
    chosen = (sems, sems, sems, sems[:2], sems[::2], sems[:2], sems[::2], sems)
    assert [list(each[1]) for each in driver.lists[0].calls] == [[one._state.token for one in each] for each in chosen]
    assert [op.value for op in device.pending()][:6] == [1, 2, 3, 4, 4, 4]
    if call == "append_signal":
        assert last_of(sems) == [31, 31, 2**64 - 1]


@pytest.mark.parametrize("call", CALLS)
def test_append_with_more_than_values_takes_the_ordinary_way(opened: Opened, call: str) -> None:
    device, driver = opened
    params = SignalParams if call == "append_signal" else WaitParams
    commands, sems, other = device.create_command_list(), batch(device, 2), device.create_command_list()
    append, event = getattr(commands, call), device.create_event()
    memories = "release" if params is SignalParams else "acquire"
    handed_over = device.create_memory(MemoryHandleType.OPAQUE_FD, 4096)
    append(sems, [1, 1])
    append(sems, [2, 2])
    append(sems, [params(value=3), 3])
    append(sems, [4, 4], signal_event=event)
    other.append_barrier(wait_events=[event])
    append(sems, [5, 5], wait_events=[event])
    append(sems, [6, 6], **{memories: [handed_over]})
    assert values_of(driver) == [(each, each) for each in range(1, 7)]
    assert [len(each[3]) for each in driver.lists[0].calls] == [0, 0, 0, 0, 1, 0]
    assert [len(each[4]) for each in driver.lists[0].calls] == [0, 0, 0, 0, 0, 1]
    if call == "append_signal":
        append(sems, [SignalParams(value=1, allow_rewind=True), 7])
        append(sems, [2, 8])
        assert last_of(sems) == [2, 8]


def test_batch_with_a_kind_without_values_is_not_prepared(opened: Opened) -> None:
    device, driver = opened
    commands, pair = device.create_command_list(), [binary(device), timeline(device)]
    for value in (1, 2, 3):
        commands.append_signal(pair, [None, value])
    assert kept(commands, "append_signal", pair) is None
    timelines = batch(device, 2)
    for value in (1, 2, 3):
        commands.append_wait(timelines, [WaitParams(value=value), value])
    assert kept(commands, "append_wait", timelines) is not None   # the parameter contains only a value
    assert values_of(driver) == [(None, 1), (None, 2), (None, 3), (1, 1), (2, 2), (3, 3)]


def test_recorded_values_are_those_of_the_call(opened: Opened) -> None:
    device, _ = opened
    commands, sems = device.create_command_list(), batch(device, 2)
    for values in ([1, 2], [3, 4], [5, 6]):
        commands.append_signal(sems, values)
        values[:] = [99, 98]
    assert [op.value for op in device.pending()] == [1, 2, 3, 4, 5, 6]
    assert last_of(sems) == [5, 6]


# ---- refusals, on the first and on repeated appends
@pytest.mark.parametrize("known_before", [False, True])
@pytest.mark.parametrize(("values", "reason"), [
    ([True, 9], "not_an_int"), ([9.0, 9], "not_an_int"), (["9", 9], "not_an_int"), ([9.5, 9.5], "not_an_int"),
    ([[9], [9]], "not_an_int"), ([9], "params_mismatch"), ([9, 9, 9], "params_mismatch"), ([], "params_mismatch"),
    (9, "params_mismatch"), (None, "params_mismatch"), ([9, -1], "value_out_of_range"),
    ([2**64, 2**64], "value_out_of_range"), ([9, None], "value_required"), ([9, WaitParams(value=9)], "wrong_params"),
    ([9, 3], "value_not_above_last"), ([1, 9], "value_not_above_last"), ([3, 3], "value_not_above_last")])
def test_bad_values_append_nothing(opened: Opened, values: Any, reason: str, known_before: bool) -> None:
    device, driver = opened
    commands, sems = device.create_command_list(), batch(device, 2)
    for value in (1, 2) if known_before else ():
        commands.append_signal(sems, [value, value])
    commands.append_signal(sems, [3, 3])
    appended = values_of(driver)
    with pytest.raises(BadArgumentError) as caught:
        commands.append_signal(sems, values)
    assert caught.value.reason == reason
    assert values_of(driver) == appended
    assert last_of(sems) == [3, 3]
    commands.append_signal(sems, [4, 4])
    assert last_of(sems) == [4, 4]


@pytest.mark.parametrize("call", CALLS)
def test_bad_semaphores_are_refused_beside_those_that_are_known(opened: Opened, call: str) -> None:
    device, driver = opened
    commands, sems = device.create_command_list(), batch(device, 2)
    append = getattr(commands, call)
    for value in (1, 2):
        append(sems, [value, value])
    bad_ones: list[Any] = [[sems[0], None], [5, sems[1]], [sems[0], sems[0]], [[], []], dict.fromkeys(sems)]
    for bad in bad_ones:
        with pytest.raises(BadArgumentError):
            append(bad, [3, 3])
    assert values_of(driver) == [(1, 1), (2, 2)]
    driver.finish()   # a pending wait would hold the releases of the other device
    with fake() as (other, _), pytest.raises(WrongDeviceError):
        append([sems[0], timeline(other)], [3, 3])
    assert values_of(driver) == [(1, 1), (2, 2)]


@pytest.mark.parametrize("call", CALLS)
def test_another_list_looks_for_itself(opened: Opened, call: str) -> None:
    device, driver = opened
    first, second, sems = device.create_command_list(), device.create_command_list(), batch(device, 2)
    for value in (1, 2):
        getattr(first, call)(sems, [value, value])
    assert kept(first, call, sems) is not None
    assert kept(second, call, sems) is None
    for value in (3, 5, 7):
        getattr(second, call)(sems, [value, value])
        getattr(first, call)(sems, [value + 1, value + 1])
    assert values_of(driver, at=0) == [(each, each) for each in (1, 2, 4, 6, 8)]
    assert values_of(driver, at=1) == [(each, each) for each in (3, 5, 7)]


def test_one_number_for_all_must_be_above_different_ones(opened: Opened) -> None:
    device, driver = opened
    commands, sems = device.create_command_list(), batch(device, 3)
    for values in ([1, 1, 1], [2, 2, 2], [5, 9, 5]):
        commands.append_signal(sems, values)
    for value in (6, 5, 9):
        with pytest.raises(BadArgumentError) as caught:
            commands.append_signal(sems, [value] * 3)
        assert caught.value.reason == "value_not_above_last"
    commands.append_signal(sems, [10] * 3)
    assert values_of(driver) == [(1, 1, 1), (2, 2, 2), (5, 9, 5), (10, 10, 10)]


def test_values_signalled_by_others_are_seen_and_seen_by_others(opened: Opened) -> None:
    device, driver = opened
    commands, sems = device.create_command_list(), batch(device, 3)
    prepared = partial(device.create_command_list().append_signal, sems[1:])
    for value in (1, 2):
        commands.append_signal(sems, [value] * 3)
    for value in (4, 5):
        commands.append_signal(sems, [value] * 3)
        prepared([value + 1] * 2)
        with pytest.raises(BadArgumentError):
            commands.append_signal(sems, [value + 1] * 3)
        commands.append_signal(sems[0], value + 1)
        with pytest.raises(BadArgumentError):
            prepared([value + 1, value + 2])
        driver.values[sems[2]._state.token] = value + 1   # the lists' signals are done
        sems[2].host_signal(value + 2)
        with pytest.raises(BadArgumentError):
            commands.append_signal(sems, [value + 2] * 3)
        for each in sems:
            set_last(each, value)   # so that the next round starts from the same value
    assert values_of(driver, at=0)[2:] == [(4, 4, 4), (5,), (5, 5, 5), (6,)]


# ---- failures and ends
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("call", CALLS)
def test_append_succeeds_when_preparing_the_next_one_fails(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, call: str, count: int,
) -> None:
    device, driver = opened
    commands, sems = device.create_command_list(), batch(device, count)

    def fails(_semaphores: object) -> None:
        raise DriverError("no", reason="driver")

    monkeypatch.setattr(driver.lists[0], call.replace("append", "prepare"), fails)
    for value in (1, 2, 3):
        if count == 1:
            getattr(commands, call)(sems[0], value)
        else:
            getattr(commands, call)(sems, [value] * count)
    assert values_of(driver) == [(1,) * count, (2,) * count, (3,) * count]


def test_append_that_the_driver_refuses_changes_nothing(opened: Opened) -> None:
    device, driver = opened
    commands, sems = device.create_command_list(), batch(device, 2)
    for value in (4, 5):
        commands.append_signal(sems, [value, value])
    driver.lists[0].fail_next = DriverError("no", reason="driver")
    with pytest.raises(DriverError):
        commands.append_signal(sems, [9, 9])
    assert last_of(sems) == [5, 5]
    assert len(device.pending()) == 4
    commands.append_signal(sems, [6, 6])
    assert last_of(sems) == [6, 6]


def test_signal_interrupted_in_the_driver_counts_as_appended(opened: Opened) -> None:
    """The driver may have the signal, so a lower value must not follow."""
    device, driver = opened
    commands, sems = device.create_command_list(), batch(device, 2)
    for value in (4, 5):
        commands.append_signal(sems, [value, value])
    driver.lists[0].fail_next = KeyboardInterrupt()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        commands.append_signal(sems, [9, 9])
    assert last_of(sems) == [9, 9]
    assert len(device.pending()) == 6
    with pytest.raises(BadArgumentError, match="9"):
        commands.append_signal(sems, [9, 9])
    commands.append_signal(sems, [10, 10])
    driver.finish()
    commands.synchronize()
    assert device.pending() == ()


@pytest.mark.parametrize("call", CALLS)
def test_released_semaphore_is_refused_and_freed_after_its_batch(opened: Opened, call: str) -> None:
    device, driver = opened
    commands, sems = device.create_command_list(), batch(device, 3)
    for value in (1, 2):
        getattr(commands, call)(sems, [value] * 3)
    token = sems[1]._state.token
    sems[1].release()
    with pytest.raises(ReleasedError):
        getattr(commands, call)(sems, [3, 3, 3])
    assert token not in driver.released("release_semaphore")
    driver.finish()
    commands.query()
    until(lambda: token in driver.released("release_semaphore"))
    assert values_of(driver) == [(1, 1, 1), (2, 2, 2)]


def test_released_list_is_refused(opened: Opened) -> None:
    device, _ = opened
    commands, sems = device.create_command_list(), batch(device, 2)
    for value in (1, 2):
        commands.append_signal(sems, [value, value])
    commands.release()
    with pytest.raises(ReleasedError):
        commands.append_signal(sems, [3, 3])


# ---- kept batches
@pytest.mark.parametrize("call", CALLS)
def test_a_batch_keeps_no_semaphore_alive(opened: Opened, call: str) -> None:
    device, driver = opened
    driver.everything_is_done = True
    commands, sems = device.create_command_list(), batch(device, 3)
    for value in (1, 2):
        getattr(commands, call)(sems, [value] * 3)
    prepared = kept(commands, call, sems)
    assert prepared is not None
    gone, tokens = [weakref.ref(each) for each in sems], [each._state.token for each in sems]
    del prepared, sems
    gc.collect()
    assert [each() for each in gone] == [None] * 3
    device.pending()
    commands.query()
    until(lambda: set(tokens) <= set(driver.released("release_semaphore")))


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("first", [False, True])
def test_semaphore_forgets_old_batches_with_passing_semaphores(opened: Opened, call: str, first: bool) -> None:
    device, driver = opened
    driver.everything_is_done = True
    commands, lasting = device.create_command_list(), timeline(device)
    for frame in range(1, 201):
        passing = timeline(device)
        both = [lasting, passing] if first else [passing, lasting]
        for value in (2 * frame, 2 * frame + 1):
            getattr(commands, call)(both, [value, value])
        assert kept(commands, call, both) is not None
        passing.release()
        commands.query()
    assert len(lasting._state.lifetime.uses) < 80
    assert count_of_single(commands) <= 33
    assert len(commands._queue.prepared._batches) <= 33


@pytest.mark.parametrize("call", CALLS)
def test_batches_that_never_come_again_are_not_prepared(opened: Opened, call: str) -> None:
    device, driver = opened
    commands, lasting = device.create_command_list(), timeline(device)
    for value, other in enumerate(batch(device, 30), 1):
        getattr(commands, call)([lasting, other], [value, value])
        assert kept(commands, call, [lasting, other]) is None
    assert count_of_single(commands) == 16
    assert values_of(driver) == [(each, each) for each in range(1, 31)]


@pytest.mark.parametrize("call", CALLS)
def test_oldest_batches_are_forgotten_and_still_appended(opened: Opened, call: str) -> None:
    device, driver = opened
    commands, lasting, others = device.create_command_list(), timeline(device), batch(device, 40)
    value = 0
    for _ in range(3):
        for other in others:
            for _ in range(2):
                value += 1
                getattr(commands, call)([lasting, other], [value, value])
    assert values_of(driver) == [(each, each) for each in range(1, 241)]
    assert kept(commands, call, [lasting, others[0]]) is None
    assert kept(commands, call, [lasting, others[-1]]) is not None
    assert count_of_single(commands) == 16


def test_threads_that_signal_the_same_semaphores_never_go_back(opened: Opened) -> None:
    device, driver = opened
    driver.everything_is_done = True
    sems, numbers, take = batch(device, 4), iter(range(1, 4001)), threading.Lock()

    def work(_index: int) -> None:
        commands = device.create_command_list()
        for _ in range(300):
            with take:
                commands.append_signal(sems, [next(numbers)] * 4)

    in_threads(4, work)
    assert last_of(sems) == [1200] * 4


def test_append_during_a_release_does_not_hide_the_release(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append in the middle of the release is refused, and so are later ones."""
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    for value in (1, 2):
        commands.append_signal(sem, value)
    refused: list[bool] = []

    def append() -> None:
        try:
            commands.append_signal(sem, 3)
        except ReleasedError:
            refused.append(True)

    releaser = device._device_state.releaser
    note_release = releaser.note_release

    def observed(lifetime: Lifetime) -> None:
        note_release(lifetime)
        append()

    monkeypatch.setattr(releaser, "note_release", observed)
    sem.release()
    monkeypatch.undo()
    appended = len(values_of(driver))
    with pytest.raises(ReleasedError):
        commands.append_signal(sem, 4)
    assert len(values_of(driver)) == appended
    assert refused == [True]
