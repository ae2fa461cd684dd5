"""The cost of an append and the memory of a list do not grow with what is pending."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest
from support.fake_backend import FakeFence, FakeStream, finish, timeline
from support.fixtures import Opened
from support.waiting import until

import xsem
from xsem.errors import DriverError, ReleasedError
from xsem.runtime.queues.room import MARK_EVERY


def python_calls(run: Callable[[], object]) -> int:
    """Count the calls of Python and C functions. Unlike time, the count is the same on any machine."""
    count = 0

    def profile(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.collect()
    gc.disable()
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


@pytest.mark.slow
# ---- cost
def test_append_costs_the_same_with_10_and_10000_live_objects(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    value = iter(range(1, 100))
    kept: list[Any] = []
    costs = []
    for count in (10, 10_000):
        while len(kept) < count:
            other = timeline(device)
            commands.append_signal(other, 1)
            kept.append(other)
        finish(commands, driver)
        device.pending()   # releases the fences of the markers
        for _ in range(2):
            commands.append_signal(sem, next(value))   # at the second append, the driver prepares the later ones
        before = driver.calls
        costs.append((python_calls(lambda: commands.append_signal(sem, next(value))), driver.calls - before))
    assert costs[0] == costs[1]
    assert costs[0][1] == 1


def test_append_costs_the_same_with_few_and_10000_pending(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    costs, appended = [], 0
    for count in (MARK_EVERY // 2, 10_000 + MARK_EVERY // 2):
        while appended < count:
            commands.append_wait(sem, 1)
            appended += 1
        while len(commands._queue.pending()) % MARK_EVERY != MARK_EVERY // 2:
            commands.append_wait(sem, 1)
        before = driver.calls
        costs.append((python_calls(lambda: commands.append_wait(sem, 1)), driver.calls - before))
    assert costs[0] == costs[1]
    assert costs[0][1] == 1


def test_append_costs_the_same_with_and_without_60_other_lists(opened: Opened) -> None:
    device, _ = opened
    commands, sem = device.create_command_list(), timeline(device)
    for _ in range(2):
        commands.append_wait(sem, 1)   # at the second append, the driver prepares the later ones
    costs, lists = [python_calls(lambda: commands.append_wait(sem, 1))], []
    for _ in range(60):
        lists.append(device.create_command_list())
        lists[-1].append_wait(sem, 1)
    commands.append_wait(sem, 1)
    costs.append(python_calls(lambda: commands.append_wait(sem, 1)))
    assert costs[0] == costs[1]


def test_append_costs_the_same_with_10_and_2000_events_pending(opened: Opened) -> None:
    device, driver = opened
    commands = device.create_command_list()
    events: list[xsem.Event] = []

    def append() -> None:
        events.append(device.create_event())
        commands.append_barrier(signal_event=events[-1])

    costs = []
    for count in (10, 2000):
        while len(events) < count:
            append()
        while commands._queue.state.given - commands._queue.room.polled > 100:
            append()
        before = driver.calls
        costs.append((python_calls(append), driver.calls - before))
    assert costs[0] == costs[1]


def test_release_costs_the_same_after_10_and_10000_appends(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    costs, appended = [], 0
    for count in (10, 10_000):
        while appended < count:
            commands.append_wait(sem, 1)
            appended += 1
        other = timeline(device)
        commands.append_wait(other, 1)
        before = driver.calls
        # Driver calls only: the releasing thread may start at any moment, and the profile does not see it.
        other.release()
        costs.append(driver.calls - before)
    assert max(costs) <= 4


# ---- memory
def test_queue_stays_small_in_a_long_run_without_release(opened: Opened) -> None:
    device, driver = opened
    driver.everything_is_done = True
    commands, sem = device.create_command_list(), timeline(device)
    event, waiting = device.create_event(), device.create_command_list()
    for value in range(1, 40_001, 4):
        commands.append_wait(sem, value)
        commands.append_work(lambda: None)
        commands.append_signal(sem, value, signal_event=event)
        waiting.append_barrier(wait_events=[event])
        event.reset()
    device_state = device._device_state
    for queue in (commands._queue, waiting._queue):
        assert len(queue.pending()) <= 2 * MARK_EVERY
        assert len(queue.markers()) <= 2 * MARK_EVERY
    assert len(device_state._fences) < 4 * MARK_EVERY
    assert len(device_state.releaser.lifetimes) < 10
    assert len(sem._lifetime.uses) == 1   # the list
    assert driver.lists[0].markers == 0   # fences of its events replace markers
    assert driver.lists[1].markers == 10_000 + 10_000 // MARK_EVERY
    living = [fence for fence in driver.fences if not fence.released]
    assert len(living) < 4 * MARK_EVERY


def test_stream_that_comes_and_goes_leaves_nothing(opened: Opened) -> None:
    device, driver = opened
    driver.everything_is_done = True
    for handle in range(1, 1001):
        commands = device.command_list(FakeStream(handle))
        commands.append_barrier()
        del commands
    assert len(device._queues._queues) < 150
    assert len(device._device_state.releaser.lifetimes) < 300
    assert sum(not each.closed for each in driver.lists) < 150


def test_streams_that_are_busy_or_wrapped_keep_their_queues(opened: Opened) -> None:
    device, driver = opened
    wrapped = device.command_list(FakeStream(1))
    busy = device.command_list(FakeStream(2))
    wrapped.append_barrier()
    busy.append_barrier()
    del busy
    for handle in range(3, 300):
        device.command_list(FakeStream(handle))
    assert device._queues._queues[1] is wrapped._queue
    assert 2 in device._queues._queues
    assert not driver.lists[0].closed
    assert not driver.lists[1].closed


@pytest.mark.parametrize("known", [True, False], ids=["identity", "no identity"])
def test_lists_wrapping_one_stream_share_its_queue(opened: Opened, known: bool) -> None:
    device, driver = opened
    driver.tells_identity = known
    first, second = device.command_list(FakeStream(7)), device.command_list(FakeStream(7))
    sem = timeline(device)
    first.append_wait(sem, 1)
    first.release()
    assert not second.query()
    assert [op.operation for op in device.pending()] == ["wait"]
    assert driver.lists[0].calls
    # Without an identity, a second list of the driver is opened and closed.
    assert [each.closed for each in driver.lists] == ([0] if known else [0, 1])
    second.append_wait(sem, 2)
    with pytest.raises(ReleasedError):
        first.append_wait(sem, 3)


def test_own_list_borrowed_by_its_handle_shares_its_queue(opened: Opened) -> None:
    device, _ = opened
    own = device.create_command_list()
    borrowed = device.command_list(own.native_handle)
    borrowed.append_barrier()
    assert not own.query()
    assert len(device._queues._queues) == 1
    borrowed.release()
    own.append_barrier()
    own.release()
    with pytest.raises(ReleasedError):
        borrowed.query()


# ---- fences and idle lists
def test_poll_queries_fences_once_when_all_are_reached(opened: Opened) -> None:
    device, driver = opened
    commands = device.create_command_list()
    events = [device.create_event() for _ in range(100)]
    for event in events:
        commands.append_barrier(signal_event=event)
    driver.lists[0].reach_all()
    before = driver.calls
    assert commands.query()
    assert driver.calls - before <= 3
    assert len(commands._queue.pending()) == 0


def test_refused_append_leaves_an_idle_list_idle(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    driver.lists[0].fail_next = DriverError("no", reason="driver")
    with pytest.raises(DriverError):
        commands.append_signal(sem, 1)
    assert commands.query()
    commands.append_signal(sem, 1)
    assert not commands.query()
    driver.lists[0].fail_next = DriverError("no", reason="driver")
    with pytest.raises(DriverError):
        commands.append_signal(sem, 2)
    assert not commands.query()   # the first operation is not done
    driver.lists[0].reach_all()
    assert commands.query()


def test_events_that_are_never_queried_cost_few_queries(opened: Opened) -> None:
    device, driver = opened
    driver.everything_is_done = True
    commands, sem, event = device.create_command_list(), timeline(device), device.create_event()
    asked: list[FakeFence] = []
    original = driver.query_fence

    def done(fence: FakeFence) -> bool:
        asked.append(fence)
        return original(fence)

    driver.query_fence = done  # type: ignore[method-assign]
    for value in range(1, 10 * MARK_EVERY):
        event.reset()
        commands.append_signal(sem, value, signal_event=event)
    assert len(asked) <= 3 * 10   # at most three queries for each MARK_EVERY operations
    assert len([fence for fence in driver.fences if not fence.released]) <= 2 * MARK_EVERY


def test_fences_of_markers_are_released_before_their_list_closes(opened: Opened) -> None:
    device, driver = opened
    commands = device.create_command_list()
    commands.append_barrier()
    assert not commands.query()   # a marker
    fences, closed = driver.lists[0].fences, list[int]()
    original = driver.lists[0].close

    def close() -> None:
        closed.extend(fence.released for fence in fences)
        original()

    driver.lists[0].close = close  # type: ignore[method-assign]
    driver.finish()
    commands.release()
    until(lambda: closed)
    assert closed == [1]
