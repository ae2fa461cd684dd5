"""A queue's operations in flight: cost, memory, markers, and the refusal of appends."""

from __future__ import annotations

import dataclasses
import gc
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.at_once import ctrl_c_in, in_thread, in_threads, restless
from support.fake_backend import (
    ALL,
    FakeDriver,
    FakePoint,
    FakeStream,
    binary,
    fake,
    hold_next,
    timeline,
    until,
    values_of,
)
from support.fixtures import Opened

import xsem
from xsem.errors import BusyError, DriverError, OutOfMemoryError, ReleasedError, WouldBlockError
from xsem.runtime.queues.completion import MARK_EVERY
from xsem.types import MemoryHandleType


def limited(limit: int) -> Any:
    return fake(dataclasses.replace(ALL, max_pending=limit))


def finish(commands: xsem.CommandList, driver: FakeDriver) -> None:
    """Complete all operations of the first list, and let xsem notice it."""
    commands.query()   # appends a marker
    driver.lists[0].reach_all()
    assert commands.query()


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
        commands.append_signal(sem, next(value))   # the first append prepares the later ones
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
        while len(commands._queue.operations) % MARK_EVERY != MARK_EVERY // 2:
            commands.append_wait(sem, 1)
        before = driver.calls
        costs.append((python_calls(lambda: commands.append_wait(sem, 1)), driver.calls - before))
    assert costs[0] == costs[1]
    assert costs[0][1] == 1


def test_append_costs_the_same_with_and_without_60_other_lists(opened: Opened) -> None:
    device, _ = opened
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_wait(sem, 1)
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
        while commands._queue._slots - commands._queue._polled > 100:
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
        assert len(queue.operations) <= 2 * MARK_EVERY
        assert len(queue._markers) <= 2 * MARK_EVERY
    assert len(device_state._fences) < 4 * MARK_EVERY
    assert len(device_state.releaser.lifetimes) < 10
    assert len(device_state.releaser.later) < 10
    assert len(sem._lifetime.uses) == 2   # the list, and its prepared wait
    assert driver.lists[0].markers == 0   # fences of its events replace markers
    assert driver.lists[1].markers == 10_000 + 10_000 // MARK_EVERY
    living = [point for point in driver.points if not point.released]
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


def test_lists_wrapping_one_stream_share_its_queue(opened: Opened) -> None:
    device, driver = opened
    first, second = device.command_list(FakeStream(7)), device.command_list(FakeStream(7))
    sem = timeline(device)
    first.append_wait(sem, 1)
    first.release()
    assert not second.query()
    assert [op.operation for op in device.pending()] == ["wait"]
    assert driver.lists[0].calls
    assert driver.lists[1].closed   # the driver's second list of the stream was not needed
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


# ---- the driver's limit
def test_append_is_refused_exactly_when_the_driver_would_block() -> None:
    limit = 20
    with limited(limit) as (device, driver):
        commands, sem = device.create_command_list(), timeline(device)
        commands.append_wait(sem, 1)
        values = iter(range(2, 100))
        with pytest.raises(WouldBlockError) as caught:
            for value in values:
                commands.append_signal(sem, value)
        assert caught.value.reason == "would_block"
        assert "list-1" in str(caught.value)
        # The list is full; its last operation is the marker that tells when there is room again.
        assert len(driver.lists[0].calls) == limit
        assert driver.lists[0].calls[-1][0] == "barrier"
        assert sem._state.last_signalled == next(values) - 2


def test_refused_append_leaves_everything_as_it_was() -> None:
    with limited(10) as (device, driver):
        commands, sem, other = device.create_command_list(), timeline(device), timeline(device)
        event = device.create_event()
        commands.append_wait(sem, 1)
        with pytest.raises(WouldBlockError):
            for value in range(1, 100):
                commands.append_signal(other, value)
        calls, last = list(driver.lists[0].calls), other._state.last_signalled
        for _ in range(3):
            with pytest.raises(WouldBlockError):
                commands.append_signal(other, 100, signal_event=event)
            with pytest.raises(WouldBlockError):
                commands.append_work(lambda: pytest.fail("called"))
        assert driver.lists[0].calls == calls
        assert other._state.last_signalled == last
        other_list = device.create_command_list()
        other_list.append_barrier(signal_event=event)   # the event is still unbound


def test_append_works_again_after_progress() -> None:
    with limited(10) as (device, driver):
        commands, sem = device.create_command_list(), timeline(device)
        for round_ in range(5):
            with pytest.raises(WouldBlockError):
                for _ in range(100):
                    commands.append_wait(sem, 1 + round_)
            assert not commands.query()
            driver.lists[0].reach_all()
            commands.append_wait(sem, 1)
            finish(commands, driver)
        assert len(commands._queue.operations) == 0


def test_nothing_is_refused_without_a_wait() -> None:
    with limited(10) as (device, driver):
        commands, sem = device.create_command_list(), timeline(device)
        for value in range(1, 200):
            commands.append_signal(sem, value)
        # Markers are still appended, so that the end is noticed.
        finish(commands, driver)
        assert len(commands._queue.operations) == 0


def test_nothing_is_refused_behind_a_wait_that_is_done() -> None:
    with limited(10) as (device, driver):
        commands, sem = device.create_command_list(), timeline(device)
        commands.append_wait(sem, 1)
        assert not commands.query()
        driver.lists[0].reach_all()
        for value in range(1, 100):
            commands.append_signal(sem, value)


def test_append_is_refused_behind_a_wait_for_an_event() -> None:
    with limited(10) as (device, _):
        commands, sem = device.create_command_list(), timeline(device)
        borrowed_event = device.event(FakePoint(1, "foreign"))
        commands.append_barrier(wait_events=[borrowed_event])
        with pytest.raises(WouldBlockError):
            for value in range(1, 100):
                commands.append_signal(sem, value)


def test_release_and_synchronize_work_when_the_list_is_full() -> None:
    with limited(10) as (device, driver):
        commands, sem = device.create_command_list(), timeline(device)
        with pytest.raises(WouldBlockError):
            for _ in range(100):
                commands.append_wait(sem, 1)
        with pytest.raises(xsem.WaitTimeoutError):
            commands.synchronize(timeout_s=0)
        sem.release()
        commands.release()
        assert len(driver.lists[0].calls) == 10   # at most the limit of the driver
        driver.finish()
        until(lambda: driver.released("release_semaphore") and driver.lists[0].closed)


def test_device_that_names_no_limit_refuses_nothing(opened: Opened) -> None:
    device, _ = opened
    commands, sem = device.create_command_list(), timeline(device)
    for _ in range(5000):
        commands.append_wait(sem, 1)


# ---- work that is called at once
def test_work_may_append_to_its_own_list(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    driver.everything_is_done = True

    def work() -> None:
        commands.append_signal(sem, 1)
        assert commands.query()   # the operations appended inside are done, the work itself is not

    commands.append_work(work)
    driver.everything_is_done = False
    marks = driver.lists[0].markers
    assert not commands.query()   # so this needs a marker behind the work
    assert driver.lists[0].markers == marks + 1
    driver.lists[0].reach_all()
    assert commands.query()
    assert device.pending() == ()
    assert len(commands._queue.operations) == 0


def test_work_may_release_its_own_list(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    driver.everything_is_done = True

    def work() -> None:
        commands.append_signal(sem, 1)
        commands.release()
        assert not driver.lists[0].closed

    commands.append_work(work)
    until(lambda: driver.lists[0].closed)


def test_work_may_wait_for_earlier_operations(opened: Opened) -> None:
    device, driver = opened
    commands = device.create_command_list()
    commands.append_barrier()
    driver.everything_is_done = True
    driver.lists[0].reach_all()
    commands.append_work(lambda: commands.synchronize(timeout_s=5))
    assert commands.query()


# ---- locks
def test_query_and_release_wait_for_no_lock_of_the_list(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_wait(sem, 1)
    held, leave = threading.Event(), threading.Event()
    answers: list[Any] = []

    def hold() -> None:
        with commands._queue.lock:
            held.set()
            leave.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(10)

    def ask() -> None:
        answers.append(commands.query())
        answers.append(len(device.pending()))
        sem.release()
        commands.release()
        device.release()
        answers.append("released")

    asker = threading.Thread(target=ask)
    asker.start()
    asker.join(10)
    assert answers == [False, 1, "released"]
    assert driver.lists[0].markers == 0
    leave.set()
    holder.join(10)
    until(lambda: driver.lists[0].markers == 1)


@pytest.mark.timeout(20)
def test_synchronize_times_out_while_an_append_blocks_elsewhere(opened: Opened) -> None:
    device, driver = opened
    commands = device.create_command_list()
    inside, leave = hold_next(driver.lists[0])
    appender = threading.Thread(target=commands.append_barrier)
    appender.start()
    assert inside.wait(10)
    with pytest.raises(xsem.WaitTimeoutError):
        commands.synchronize(timeout_s=0.02)
    leave.set()
    appender.join(10)


def test_appends_of_many_threads_reach_the_driver_one_at_a_time(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    with restless():
        in_threads(4, lambda _: [commands.append_wait(sem, 1) for _ in range(300)])
    assert [call[0] for call in driver.lists[0].calls].count("wait") == 1200
    pending = commands._queue.pending()
    assert [operation.seq for operation in pending] == sorted(operation.seq for operation in pending)
    assert len(pending) == 1200


# ---- Ctrl-C
@pytest.mark.timeout(30)
@pytest.mark.parametrize("operation", ["signal", "wait"])
def test_ctrl_c_in_a_prepared_append_leaves_the_list_usable(opened: Opened, operation: str) -> None:
    """Between any two calls inside the append: Python checks for signals at calls and returns."""
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    append = commands.append_signal if operation == "signal" else commands.append_wait
    append(sem, 1)
    reached = 0
    for at in range(1, 100):
        seen = 0

        def interrupt(frame: Any, event: str, _arg: object, at: int = at) -> None:
            nonlocal seen
            if event != "c_call" and frame.f_code.co_filename.endswith(("queues/queue.py", "prepared_append.py")):
                seen += 1
                if seen == at:
                    raise KeyboardInterrupt

        try:
            sys.setprofile(interrupt)
            append(sem, 2 * at)
        except KeyboardInterrupt:
            reached = at
        finally:
            sys.setprofile(None)
        in_thread(lambda at=at: append(sem, 2 * at + 1))  # type: ignore[misc]
        if seen < at:
            break
    assert reached >= 5
    assert values_of(driver)[-1] == (2 * (reached + 1) + 1,)


@pytest.mark.timeout(30)
def test_ctrl_c_ends_an_append_that_waits_for_another_append(opened: Opened) -> None:
    device, driver = opened
    commands, sem, other = device.create_command_list(), timeline(device), timeline(device)
    for each in (sem, other):
        commands.append_signal(each, 1)
    inside, go = hold_next(driver.lists[0])
    thread = threading.Thread(target=commands.append_signal, args=(other, 2))
    thread.start()
    assert inside.wait(10)
    with pytest.raises(KeyboardInterrupt), ctrl_c_in("append_signal"):
        commands.append_signal(sem, 2)
    go.set()
    thread.join()
    commands.append_signal(sem, 2)
    in_thread(lambda: commands.append_signal(other, 3))
    assert values_of(driver)[2:] == [(2,), (2,), (3,)]


# ---- failure
def test_failed_list_raises_from_then_on_and_others_work(opened: Opened) -> None:
    device, driver = opened
    commands, other, sem = device.create_command_list(), device.create_command_list(), timeline(device)
    commands.append_wait(sem, 1)
    assert not commands.query()
    lost = DriverError("lost", reason="lost", code=700)
    lost.__cause__ = OSError("why")
    driver.lists[0].points[-1].error = lost
    raised = []
    for ask in (commands.query, commands.synchronize, commands.append_barrier, lambda: commands.append_signal(sem, 1),
                lambda: commands.append_work(print)):
        with pytest.raises(DriverError, match="lost") as caught:
            ask()
        raised.append(caught.value)
        assert isinstance(caught.value.__cause__, OSError)
    assert len({id(error) for error in raised}) == len(raised)   # no error collects the tracebacks of the others
    assert all(error is not lost for error in raised)
    assert sem._state.last_signalled is None or sem._state.last_signalled == 0
    assert device.pending() == ()
    other.append_signal(sem, 1)


@pytest.mark.parametrize("ask", ["query", "wait", "synchronize", "pending", "await"])
def test_failure_seen_through_an_event_or_a_wait_stops_the_list(opened: Opened, ask: str) -> None:
    device, driver = opened
    commands, event = device.create_command_list(), device.create_event()
    commands.append_barrier(signal_event=event)
    driver.lists[0].points[-1].error = DriverError("lost", reason="lost")
    if ask == "pending":
        assert device.pending() == ()
    elif ask == "await":
        called: list[Any] = []
        event.add_done_callback(called.append)
        until(lambda: called)
    else:
        with pytest.raises(DriverError, match="lost"):
            if ask == "query":
                event.query()
            elif ask == "wait":
                event.wait()
            else:
                commands.synchronize()
    with pytest.raises(DriverError, match="lost"):
        commands.append_barrier()


def test_any_error_of_a_fence_is_a_failure_of_the_list(opened: Opened) -> None:
    device, driver = opened
    commands = device.create_command_list()
    commands.append_barrier()
    commands.query()
    driver.lists[0].points[-1].error = OutOfMemoryError("out", reason="out_of_memory")
    with pytest.raises(DriverError) as caught:
        commands.query()
    assert caught.value.from_earlier_work
    assert isinstance(caught.value.__cause__, OutOfMemoryError)


def test_refused_append_is_not_a_failure_of_the_list(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    driver.lists[0].fail_next = DriverError("not this one", reason="driver", code=1)
    with pytest.raises(DriverError) as caught:
        commands.append_wait(sem, 1)
    assert caught.value.backend == "fake"
    commands.append_wait(sem, 1)
    driver.lists[0].reach_all()
    commands.query()
    driver.lists[0].reach_all()
    assert commands.query()


def test_failure_of_earlier_work_seen_by_a_marker_stops_the_list(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_wait(sem, 1)
    driver.lists[0].fail_next = DriverError("lost", reason="lost", from_earlier_work=True)
    sem.release()
    until(lambda: driver.released("release_semaphore"))
    with pytest.raises(DriverError, match="lost"):
        commands.query()


# ---- captures
def test_event_of_a_captured_operation_is_not_asked(opened: Opened) -> None:
    device, driver = opened
    commands, event, other = device.command_list(FakeStream(7)), device.create_event(), device.create_event()
    driver.lists[0].capture = True
    commands.append_barrier(signal_event=event)
    commands.append_barrier(wait_events=[event], signal_event=other)   # a wait for it is allowed in the capture
    assert driver.lists[0].calls[1][1] == (driver.points[0],)
    before = driver.calls
    for ask in (event.query, event.wait, lambda: event.add_done_callback(print), lambda: next(event.__await__())):
        with pytest.raises(BusyError) as caught:
            ask()
        assert caught.value.reason == "capturing"
    assert driver.calls == before
    event.reset()
    driver.lists[0].capture = False
    commands.append_barrier(signal_event=event)
    assert not event.query()


def test_own_list_can_be_captured_after_its_handle_is_read(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    driver.lists[0].capture = True
    commands.append_signal(sem, 1)   # the check for a capture costs a driver call, so it is not made yet
    assert len(commands._queue.operations) == 1
    assert commands.native_handle == driver.lists[0].key
    commands.append_signal(sem, 2)   # the ordinary append, then a prepared append
    commands.append_signal(sem, 3)
    assert len(commands._queue.operations) == 1
    for ask in (commands.query, commands.synchronize):
        with pytest.raises(BusyError) as caught:
            ask()
        assert caught.value.reason == "capturing"
    assert driver.lists[0].markers == 0
    driver.lists[0].capture = False
    assert not commands.query()
    assert driver.lists[0].markers == 1


def test_wait_for_a_borrowed_event_can_start_a_capture(opened: Opened) -> None:
    device, driver = opened
    commands, bound = device.create_command_list(), device.create_event()
    borrowed_event = device.event(FakePoint(7, "foreign"))

    def join() -> None:
        driver.lists[0].capture = True

    driver.lists[0].during = join
    commands.append_barrier(wait_events=[borrowed_event], signal_event=bound)
    assert device.pending() == ()
    for ask in (commands.query, bound.query):
        with pytest.raises(BusyError) as caught:
            ask()
        assert caught.value.reason == "capturing"
    driver.lists[0].capture = False
    commands.append_barrier()
    assert not commands.query()


def test_capture_does_not_count_towards_the_limit() -> None:
    with limited(10) as (device, driver):
        commands, sem = device.command_list(FakeStream(7)), timeline(device)
        driver.lists[0].capture = True
        for _ in range(100):
            commands.append_wait(sem, 1)
        driver.lists[0].capture = False
        commands.append_wait(sem, 1)
        assert [op.operation for op in device.pending()] == ["wait"]


def test_memory_of_a_capture_that_is_dropped_lives_on(opened: Opened) -> None:
    device, driver = opened
    commands = device.command_list(FakeStream(7))
    driver.lists[0].capture = True
    mem = device.create_memory(MemoryHandleType.OPAQUE_FD, 4096)
    commands.append_wait(binary(device), acquire=[mem])
    driver.lists[0].capture = False
    del mem
    driver.finish()
    device.pending()
    until(lambda: not any(thread.name.startswith("xsem-") for thread in threading.enumerate()))
    assert driver.log == []


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
    assert len(commands._queue.operations) == 0


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
