"""A list stays usable with work that is called at once, with locks, Ctrl-C and captures."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest
from support.at_once import ctrl_c_in, in_thread, in_threads, restless, threads
from support.fake_backend import FakeFence, FakeStream, binary, hold_next, timeline, values_of
from support.fixtures import Opened
from support.waiting import until

import xsem
from xsem.errors import BusyError
from xsem.types import MemoryHandleType


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
    assert len(commands._queue.pending()) == 0


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
@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C ends no wait for a lock on Windows")
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
    with pytest.raises(KeyboardInterrupt), ctrl_c_in("test_ctrl_c_ends_an_append_that_waits_for_another_append"):
        commands.append_signal(sem, 2)
    go.set()
    thread.join()
    commands.append_signal(sem, 2)
    in_thread(lambda: commands.append_signal(other, 3))
    assert values_of(driver)[2:] == [(2,), (2,), (3,)]


# ---- captures
def test_event_of_a_captured_operation_is_not_asked(opened: Opened) -> None:
    device, driver = opened
    commands, event, other = device.command_list(FakeStream(7)), device.create_event(), device.create_event()
    driver.lists[0].capture = True
    commands.append_barrier(signal_event=event)
    commands.append_barrier(wait_events=[event], signal_event=other)   # a wait for it is allowed in the capture
    assert driver.lists[0].calls[1][1] == (driver.fences[0],)
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
    assert len(commands._queue.pending()) == 1
    assert commands.native_handle == driver.lists[0].identity
    commands.append_signal(sem, 2)   # the ordinary append, then a prepared append
    commands.append_signal(sem, 3)
    assert len(commands._queue.pending()) == 1
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
    borrowed_event = device.event(FakeFence(7, "foreign"))

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
    until(lambda: not threads())
    assert driver.log == []
