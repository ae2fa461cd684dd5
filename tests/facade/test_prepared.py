"""Repeated appends of the same semaphores, which xsem prepares: each has the checks of the first one."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from support.at_once import in_threads, restless
from support.fake_backend import (
    ALL,
    FakeStream,
    batch,
    binary,
    fake,
    hold_next,
    last_of,
    set_last,
    timeline,
    values_of,
)
from support.fixtures import Opened
from support.waiting import until

import xsem
from xsem.errors import (
    BadArgumentError,
    BadHandleError,
    DriverError,
    ForkedError,
    ReleasedError,
    WaitTimeoutError,
    WouldBlockError,
)
from xsem.runtime.queues.room import MARK_EVERY
from xsem.types import SemaphoreHandleType, SignalParams, WaitParams


# ---- appended operations
@pytest.mark.parametrize("operation", ["signal", "wait"])
def test_each_call_appends_its_values(opened: Opened, operation: str) -> None:
    device, driver = opened
    commands, sems, one = device.create_command_list(), batch(device, 3), timeline(device)
    append = getattr(commands, f"append_{operation}")
    prepared, single, sequence = partial(append, sems), partial(append, one), partial(append, [one])
    prepared([1, 2, 3])
    prepared((5, 4, 6))
    single(7)
    sequence([8])
    prepared([7, 8, 2**64 - 1])
    assert values_of(driver, operation) == [(1, 2, 3), (5, 4, 6), (7,), (8,), (7, 8, 2**64 - 1)]
    tokens = [tuple(call[1]) for call in driver.lists[0].calls]
    assert tokens[0] == tuple(each._state.token for each in sems)
    assert tokens[2] == (one._state.token,)
    pending = device.pending()
    assert [op.value for op in pending] == [1, 2, 3, 5, 4, 6, 7, 8, 7, 8, 2**64 - 1]
    assert {op.operation for op in pending} == {operation}


def test_other_kinds_and_parameters_are_taken_as_by_an_append(opened: Opened) -> None:
    device, driver = opened
    commands, sem, mark = device.create_command_list(), timeline(device), binary(device)
    mutex = device.create_semaphore(SemaphoreHandleType.D3D11_KEYED_MUTEX)
    partial(commands.append_signal, mark)()
    both = partial(commands.append_signal, [mark, sem])
    both([None, 5])
    both([None, SignalParams(value=3, allow_rewind=True)])
    partial(commands.append_signal, [mutex])([SignalParams(key=4)])
    partial(commands.append_wait, [mutex])([WaitParams(key=4, timeout_ms=5)])
    assert values_of(driver, "signal") == [(None,), (None, 5), (None, 3), (None,)]
    assert sem._state.last == 3


def test_timelines_take_parameters_too(opened: Opened) -> None:
    device, driver = opened
    commands, sems = device.create_command_list(), batch(device, 2)
    prepared = partial(commands.append_signal, sems)
    prepared([5, 6])
    prepared([SignalParams(value=3, allow_rewind=True), 7])
    assert last_of(sems) == [3, 7]
    prepared([4, 8])
    assert values_of(driver, "signal") == [(5, 6), (3, 7), (4, 8)]


def test_recorded_values_are_those_of_the_call(opened: Opened) -> None:
    device, _ = opened
    commands, sems = device.create_command_list(), batch(device, 2)
    prepared, values = partial(commands.append_signal, sems), [2, 3]
    prepared(values)
    values[:] = [99, 98]
    assert [op.value for op in device.pending()] == [2, 3]
    assert last_of(sems) == [2, 3]


# ---- refusals
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(("values", "reason"), [
    ([True, 9], "not_an_int"), ([9.0, 9], "not_an_int"), (["9", 9], "not_an_int"), ([9], "params_mismatch"),
    ([9, 9, 9], "params_mismatch"), (9, "params_mismatch"), (None, "params_mismatch"), ([9, -1], "value_out_of_range"),
    ([9, 2**64], "value_out_of_range"), ([9, None], "value_required"), ([9, WaitParams(value=9)], "wrong_params"),
    ([9, 2], "value_not_above_last"), ([1, 9], "value_not_above_last")])
def test_bad_values_append_nothing(opened: Opened, values: Any, reason: str, warm: bool) -> None:
    device, driver = opened
    commands, sems = device.create_command_list(), batch(device, 2)
    prepared = partial(commands.append_signal, sems)
    if warm:
        prepared([1, 2])
    else:
        commands.append_signal(sems, [1, 2])
    with pytest.raises(BadArgumentError) as caught:
        prepared(values)
    assert caught.value.reason == reason
    assert values_of(driver, "signal") == [(1, 2)]
    assert last_of(sems) == [1, 2]
    prepared([3, 3])
    assert last_of(sems) == [3, 3]


@pytest.mark.parametrize(("values", "reason"), [
    ([True, 9], "not_an_int"), ([9, 1.5], "not_an_int"), ([9], "params_mismatch"), ([9, -1], "value_out_of_range"),
    ([9, 2**64], "value_out_of_range"), ([9, SignalParams(value=9)], "wrong_params")])
def test_bad_values_wait_for_nothing(opened: Opened, values: Any, reason: str) -> None:
    device, driver = opened
    commands = device.create_command_list()
    prepared = partial(commands.append_wait, batch(device, 2))
    prepared([5, 6])
    with pytest.raises(BadArgumentError) as caught:
        prepared(values)
    assert caught.value.reason == reason
    assert values_of(driver, "wait") == [(5, 6)]


@pytest.mark.parametrize(("value", "reason"), [
    (True, "not_an_int"), (1.5, "not_an_int"), (-1, "value_out_of_range"), (2**64, "value_out_of_range"),
    (5, "value_not_above_last"), (None, "value_required")])
def test_bad_value_is_refused_also_after_good_ones(opened: Opened, value: Any, reason: str) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    prepared = partial(commands.append_signal, sem)
    commands.append_signal(sem, 4)
    prepared(5)
    with pytest.raises(BadArgumentError) as caught:
        prepared(value)
    assert caught.value.reason == reason
    assert values_of(driver, "signal") == [(4,), (5,)]
    commands.append_signal(sem, 6)
    assert sem._state.last == 6


# ---- order of values among several signallers
def test_values_signalled_by_others_are_seen_and_seen_by_others(opened: Opened) -> None:
    device, driver = opened
    commands, other, sems = device.create_command_list(), device.create_command_list(), batch(device, 3)
    prepared, overlapping = partial(commands.append_signal, sems), partial(other.append_signal, sems[1:])
    prepared([5, 5, 5])
    with pytest.raises(BadArgumentError):
        other.append_signal(sems[0], 5)
    with pytest.raises(BadArgumentError):
        overlapping([6, 5])
    overlapping([6, 7])
    other.append_signal(sems[0], 6)
    with pytest.raises(BadArgumentError):
        prepared([7, 7, 7])
    driver.values[sems[0]._state.token] = 6   # the lists' signals are done
    sems[0].host_signal(8)
    with pytest.raises(BadArgumentError):
        prepared([8, 8, 8])
    prepared([9, 8, 8])
    with pytest.raises(BadArgumentError):
        sems[2].host_signal(8)
    assert last_of(sems) == [9, 8, 8]
    assert values_of(driver, "signal") == [(5, 5, 5), (9, 8, 8)]


def test_prepared_single_signals_see_the_values_of_a_batch(opened: Opened) -> None:
    device, driver = opened
    commands, sems = device.create_command_list(), batch(device, 2)
    prepared, single = partial(commands.append_signal, sems), partial(commands.append_signal, sems[0])
    commands.append_signal(sems[0], 1)
    single(2)
    for value in (5, 6):
        prepared([value, value])
        with pytest.raises(BadArgumentError):
            single(value)
    single(7)
    with pytest.raises(BadArgumentError):
        prepared([7, 7])
    assert values_of(driver, "signal") == [(1,), (2,), (5, 5), (6, 6), (7,)]


def test_bool_is_refused_also_after_a_first_value_of_0(opened: Opened) -> None:
    device, driver = opened
    commands, sems = device.create_command_list(), batch(device, 2)
    for sem in sems:
        set_last(sem, None)   # as after an import: 0 may be the first value
    prepared = partial(commands.append_signal, sems)
    prepared([0, 0])
    with pytest.raises(BadArgumentError) as caught:
        prepared([True, 1])
    assert caught.value.reason == "not_an_int"
    prepared([1, 1])
    assert values_of(driver, "signal") == [(0, 0), (1, 1)]


def test_threads_that_signal_the_same_semaphores_never_go_back(opened: Opened) -> None:
    device, driver = opened
    driver.everything_is_done = True
    sems, numbers, take = batch(device, 4), iter(range(1, 4001)), threading.Lock()

    def work(_index: int) -> None:
        prepared = partial(device.create_command_list().append_signal, sems)
        for _ in range(300):
            with take:
                prepared([next(numbers)] * 4)

    in_threads(4, work)
    assert last_of(sems) == [1200] * 4


# ---- failures
@pytest.mark.parametrize("count", [1, 3])
def test_append_that_the_driver_refuses_changes_nothing(opened: Opened, count: int) -> None:
    device, driver = opened
    commands, sems = device.create_command_list(), batch(device, count)
    prepared = partial(commands.append_signal, sems if count > 1 else sems[0])

    def call(value: int) -> None:
        prepared([value] * count if count > 1 else value)

    for value in (4, 5):
        call(value)
    # Two are ValueErrors, like the error of a value out of range, but the driver raises them.
    for failure in (DriverError("no", reason="driver"), BadHandleError("no", reason="driver"), UnicodeError("no")):
        driver.lists[0].fail_next = failure
        with pytest.raises(type(failure)) as caught:
            call(9)
        if isinstance(caught.value, xsem.XsemError):
            assert caught.value.backend == "fake"
        assert last_of(sems) == [5] * count
    assert len(device.pending()) == 2 * count
    call(6)
    assert last_of(sems) == [6] * count


def test_work_that_failed_stops_prepared_calls(opened: Opened) -> None:
    device, driver = opened
    commands, sems = device.create_command_list(), batch(device, 2)
    prepared = partial(commands.append_signal, sems)
    prepared([1, 1])
    commands.append_wait(sems[0], 1)
    commands.append_signal(sems[0], 2)
    with pytest.raises(ZeroDivisionError):
        commands.append_work(lambda: 1 / 0)
    for append in (commands.append_wait, commands.append_signal):
        with pytest.raises(DriverError):
            append(sems[0], 9)
    with pytest.raises(DriverError) as caught:
        prepared([5, 5])
    assert caught.value.reason == "work_failed"
    assert len(driver.lists[0].calls) == 3


def test_failed_list_refuses_prepared_calls(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    prepared = partial(commands.append_signal, sem)
    prepared(1)
    commands.query()
    driver.lists[0].fences[-1].error = DriverError("gone", reason="driver")
    with pytest.raises(DriverError):
        commands.query()
    with pytest.raises(DriverError):
        prepared(2)
    driver.lists[0].fences[-1].error = None
    assert values_of(driver, "signal") == [(1,)]


# ---- release
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("operation", ["signal", "wait"])
def test_released_semaphore_is_refused_and_freed_after_last_use(
    opened: Opened, operation: str, count: int
) -> None:
    device, driver = opened
    commands, sems = device.create_command_list(), batch(device, count)
    prepared = partial(getattr(commands, f"append_{operation}"), sems if count > 1 else sems[0])
    values = [[5] * count, [6] * count, [7] * count] if count > 1 else [5, 6, 7]
    prepared(values[0])
    prepared(values[1])
    sems[-1].release()
    with pytest.raises(ReleasedError):
        prepared(values[2])
    other = timeline(device)
    other.release()   # by its end the releasing thread would also have freed the first semaphore
    if operation == "signal":
        until(lambda: driver.released("release_semaphore"))
        assert driver.released("release_semaphore") == [other._state.token]
    assert sems[-1]._state.token not in driver.released("release_semaphore")
    driver.finish()
    until(lambda: sems[-1]._state.token in driver.released("release_semaphore"))
    assert len(values_of(driver, operation)) == 2


def test_idle_semaphore_is_freed_though_it_is_prepared(opened: Opened) -> None:
    device, driver = opened
    driver.finish()
    commands, sems = device.create_command_list(), batch(device, 2)
    prepared = partial(commands.append_signal, sems)
    prepared([1, 1])
    sems[0].release()
    until(lambda: driver.released("release_semaphore") == [sems[0]._state.token])
    with pytest.raises(ReleasedError):
        prepared([2, 2])


@pytest.mark.parametrize("what", ["list", "device"])
def test_released_list_or_device_refuses_prepared_calls(opened: Opened, what: str) -> None:
    device, driver = opened
    driver.finish()
    commands, sems = device.create_command_list(), batch(device, 2)
    prepared = partial(commands.append_signal, sems)
    prepared([1, 1])
    commands.append_signal(sems[0], 2)
    (commands if what == "list" else device).release()
    with pytest.raises(ReleasedError):
        prepared([3, 3])
    with pytest.raises(ReleasedError):
        commands.append_signal(sems[0], 3)
    assert values_of(driver, "signal") == [(1, 1), (2,)]


def test_released_list_of_a_borrowed_stream_refuses_calls(opened: Opened) -> None:
    device, driver = opened
    first, second = device.command_list(FakeStream(9)), device.command_list(FakeStream(9))
    sem = timeline(device)
    prepared = partial(first.append_signal, sem)
    prepared(1)
    first.release()
    with pytest.raises(ReleasedError):
        prepared(2)
    second.append_signal(sem, 2)
    assert len(driver.lists[0].calls) == 2


def test_prepared_call_in_a_capture_pins_its_semaphores(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.command_list(FakeStream(9)), timeline(device)
    prepared = partial(commands.append_signal, sem)
    prepared(1)
    driver.lists[0].capture = True
    prepared(2)
    driver.lists[0].capture = False
    assert [op.value for op in device.pending()] == [1]
    sem.release()
    driver.finish()
    other = timeline(device)
    other.release()
    until(lambda: driver.released("release_semaphore"))
    assert driver.released("release_semaphore") == [other._state.token]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_prepared_call_in_a_forked_child_is_refused(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    import xsem.runtime.forks

    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    prepared = partial(commands.append_signal, sem)
    prepared(1)
    with monkeypatch.context() as child:
        child.setattr(xsem.runtime.forks.clock, "now", xsem.runtime.forks.clock.now + 1)   # as at the start of a child
        with pytest.raises(ForkedError):
            prepared(2)
        with pytest.raises(ForkedError):
            commands.append_signal(sem, 2)
    assert values_of(driver, "signal") == [(1,)]


# ---- operations in flight
def test_many_calls_keep_the_queue_small_or_are_refused(opened: Opened) -> None:
    with fake(dataclasses.replace(ALL, max_pending=1020)) as (device, driver):
        commands, sems = device.create_command_list(), batch(device, 2)
        prepared, gate = partial(commands.append_signal, sems), partial(commands.append_wait, timeline(device))
        gate(1)
        count = 0

        def fill_up() -> None:
            nonlocal count
            while count < 5000:
                count += 1
                prepared([count, count])

        with pytest.raises(WouldBlockError):
            fill_up()
        assert len(driver.lists[0].calls) <= 1020
        with pytest.raises(WaitTimeoutError) as caught:
            commands.synchronize(timeout_s=0.01)
        assert caught.value.pending[0].operation == "wait"
        driver.finish()
        commands.synchronize(timeout_s=5)
        for value in range(count, count + 10 * MARK_EVERY):
            prepared([value, value])
            assert len(commands._queue.pending()) <= 2 * MARK_EVERY
        assert len(sems[0]._lifetime.uses) == 1


def test_pending_prepared_wait_holds_releases(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    prepared = partial(commands.append_wait, sem)
    prepared(1)
    assert device._queues.has_pending_wait()
    for fence in driver.lists[0].fences:
        fence.reached = True
    assert not device._queues.has_pending_wait()
    commands.append_wait(sem, 2)
    assert device._queues.has_pending_wait()


@pytest.mark.timeout(30)
def test_two_threads_append_one_after_the_other(opened: Opened) -> None:
    device, driver = opened
    commands, sems = device.create_command_list(), batch(device, 2)
    prepared = [partial(commands.append_signal, each) for each in sems]
    (inside, go), threads = hold_next(driver.lists[0]), []
    for call in prepared:
        threads.append(threading.Thread(target=call, args=(1,)))
        threads[-1].start()
        assert inside.wait(10)
    threads[1].join(0.1)
    assert threads[1].is_alive()
    go.set()
    for thread in threads:
        thread.join()
    assert values_of(driver) == [(1,), (1,)]


def test_call_runs_the_jobs_of_finalizers_only(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    device, _ = opened
    prepared = partial(device.create_command_list().append_signal, timeline(device))
    done: list[int] = []
    releaser = device._device_state.releaser
    monkeypatch.setattr(releaser._thread, "wake", lambda: None)   # otherwise the thread may be first
    releaser.post(partial(done.append, 1))
    prepared(1)
    assert done == [1]
    monkeypatch.setattr(releaser, "drain", lambda: pytest.fail("looked"))
    prepared(2)
    monkeypatch.undo()


def test_value_is_accepted_once_from_several_signallers(opened: Opened) -> None:
    device, driver = opened
    driver.everything_is_done = True
    sems = batch(device, 2)
    lists = [device.create_command_list() for _ in range(4)]
    both, one, two = (partial(commands.append_signal, each)
                      for commands, each in zip(lists, (sems, sems[0], sems[0]), strict=False))
    calls: list[Callable[[int], object]] = [
        lambda value: both([value, value]), one, two,
        lambda value: lists[3].append_signal(sems[0], SignalParams(value=value)),
    ]
    taken: list[list[int]] = [[] for _ in calls]

    def signal(index: int) -> None:
        for value in range(1, 4000):
            with contextlib.suppress(BadArgumentError):
                calls[index](value)
                taken[index].append(value)

    with restless():
        in_threads(len(calls), signal)
    every = [value for values in taken for value in values]
    assert len(every) == len(set(every))
    assert last_of(sems) == [3999, max(taken[0], default=0)]
