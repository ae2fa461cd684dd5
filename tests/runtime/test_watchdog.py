"""The watchdog: its reports, their number, and its lifetime."""

from __future__ import annotations

import gc
import logging
import math
import os
import threading
import types
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.at_once import threads
from support.fake_backend import FakeDriver, FakeList, hold_next, open_fake, timeline
from support.fixtures import Opened
from support.waiting import until

import xsem
from xsem.errors import BadArgumentError, OutOfMemoryError
from xsem.runtime.diagnostics import watchdog
from xsem.runtime.diagnostics.pending_operations import overdue_lists
from xsem.types import PendingOp

AT_ONCE = 0.001


def make_older(commands: xsem.CommandList, seconds: float) -> None:
    """Move the only operation of a list into the past."""
    operations = commands._queue.progress.operations
    operation, = commands._queue.pending()
    operations[0] = operation._replace(appended_at=operation.appended_at - seconds)


class Looks:
    """Counts the rounds of the watchdog, so that a test can wait for more of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        original = watchdog._look

        def look(*arguments: Any) -> Any:
            answer = original(*arguments)
            self.count += 1
            return answer

        monkeypatch.setattr(watchdog, "_look", look)

    def more(self, count: int = 3) -> None:
        wanted = self.count + count
        until(lambda: self.count >= wanted)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    monkeypatch.setattr(watchdog, "_SHORTEST_S", 0.001)
    monkeypatch.setattr(watchdog, "_ANSWER_S", 10)   # a busy machine must not look like a blocked driver
    return Looks(monkeypatch)


def test_stuck_list_is_logged_once(opened: Opened, looks: Looks, caplog: pytest.LogCaptureFixture) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device, "frames")
    driver.values[sem._state.token] = 5
    commands.append_wait(sem, 7)
    device.watch(after_s=AT_ONCE)
    until(lambda: caplog.records)
    looks.more(5)
    record, = caplog.records
    assert (record.name, record.levelno, record.threadName) == ("xsem", logging.WARNING, "xsem-watch-fake:0")
    for part in ("wait timeline_semaphore_fd 'frames' 7 on fake:0/list-1", "now 5", "last signalled here 0",
                 "no known signaller", f"xsem pending {os.getpid()} tells"):
        assert part in record.getMessage()


def test_idle_and_young_work_is_not_reported(opened: Opened, looks: Looks) -> None:
    device, driver = opened
    reports: list[tuple[PendingOp, ...]] = []
    device.watch(after_s=AT_ONCE, report=reports.append)
    looks.more()
    driver.everything_is_done = True
    commands = device.create_command_list()
    commands.append_barrier()
    driver.finish()
    commands.query()
    looks.more()
    assert reports == []


def test_work_is_reported_when_it_is_old_enough(opened: Opened, looks: Looks) -> None:
    device, _ = opened
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_wait(sem, 1)
    reports: list[tuple[PendingOp, ...]] = []
    device.watch(after_s=3600, report=reports.append)
    asker = watchdog._Asker("xsem-ask-test", 3600)

    def look() -> set[tuple[str, int]]:
        return watchdog._look(device._queues, 3600, reports.append, set(), asker)

    assert look() == set()
    make_older(commands, 3600)
    assert look() == {("fake:0/list-1", commands._queue.last_seq)}
    assert [op.age_s >= 3600 for op in reports[0]] == [True]
    assert looks.count == 2


def test_report_has_all_that_is_pending_on_the_stuck_lists(opened: Opened, looks: Looks) -> None:
    device, driver = opened
    stuck, done = device.create_command_list(), device.create_command_list()
    sem = timeline(device)
    stuck.append_wait(sem, 1)
    stuck.append_work(lambda: None)
    done.append_barrier()
    done.query()
    driver.lists[1].reach_all()
    reports: list[tuple[PendingOp, ...]] = []
    device.watch(after_s=AT_ONCE, report=reports.append)
    until(lambda: reports)
    looks.more()
    assert [[op.operation for op in report] for report in reports] == [["wait", "work"]]


def test_each_stall_is_reported_once(opened: Opened, looks: Looks) -> None:
    device, driver = opened
    commands, sem, work = device.create_command_list(), timeline(device), []
    for value in (1, 2, 3):
        commands.append_wait(sem, value)
        commands.append_work(lambda: work.append(1))
    reports: list[tuple[PendingOp, ...]] = []
    device.watch(after_s=AT_ONCE, report=reports.append)
    until(lambda: len(reports) == 1)
    looks.more()
    driver.values[sem._state.token] = 1   # the first wait is met, and the list is stuck at the work behind it
    until(lambda: len(reports) == 2)
    looks.more()
    assert [report[0].operation for report in reports] == ["wait", "work"]
    other = device.create_command_list()
    other.append_wait(sem, 9)
    until(lambda: len(reports) == 3)
    assert [op.value for op in reports[2]] == [9]
    looks.more()
    assert len(reports) == 3


def test_list_that_is_stuck_again_is_reported_again(opened: Opened, looks: Looks) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    reports: list[tuple[PendingOp, ...]] = []
    device.watch(after_s=AT_ONCE, report=reports.append)
    for count in (1, 2, 3):
        commands.append_wait(sem, count)
        until(lambda count=count: len(reports) == count)  # type: ignore[misc]
        driver.lists[0].reach_all()
        until(lambda: not commands._queue.pending())


def test_second_watch_replaces_the_first(opened: Opened, looks: Looks) -> None:
    device, _ = opened
    commands, sem = device.create_command_list(), timeline(device)
    first: list[Any] = []
    second: list[Any] = []
    device.watch(after_s=AT_ONCE, report=first.append)
    device.watch(after_s=AT_ONCE, report=second.append)
    until(lambda: len(threads("watch")) == 1)
    commands.append_wait(sem, 1)
    until(lambda: second)
    looks.more()
    assert first == []


def test_report_that_raises_is_logged_and_the_watch_goes_on(
    opened: Opened, looks: Looks, caplog: pytest.LogCaptureFixture
) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    calls: list[int] = []

    def report(pending: tuple[PendingOp, ...]) -> None:
        calls.append(len(pending))
        raise ZeroDivisionError

    device.watch(after_s=AT_ONCE, report=report)
    commands.append_wait(sem, 1)
    until(lambda: "report function of watch() raised" in caplog.text)
    driver.lists[0].reach_all()
    commands.append_wait(sem, 2)
    until(lambda: len(calls) >= 2)


def test_report_may_use_the_device(opened: Opened, looks: Looks) -> None:
    device, _ = opened
    commands, sem = device.create_command_list(), timeline(device)
    reports: list[int] = []

    def report(pending: tuple[PendingOp, ...]) -> None:
        sem.host_signal(1)
        device.release()
        reports.append(len(pending))

    device.watch(after_s=AT_ONCE, report=report)
    commands.append_wait(sem, 1)
    until(lambda: reports == [1])
    until(lambda: not threads("watch"))
    assert looks.count >= 1


def test_watch_ends_with_the_device(opened: Opened) -> None:
    device, _ = opened
    device.watch(after_s=3600)   # the watchdog sleeps for a quarter of an hour
    until(lambda: threads("watch"))
    device.release()
    until(lambda: not threads("watch"))


def test_watch_does_not_keep_a_device_alive_or_outlive_it() -> None:
    device, driver = open_fake()
    device.watch(after_s=3600)
    until(lambda: threads("watch"))
    device_state = weakref.ref(device._device_state)
    held = [device]
    del device
    with pytest.warns(ResourceWarning):
        held.clear()
    until(lambda: ("close",) in driver.log)
    until(lambda: not threads("watch"))
    gc.collect()
    until(lambda: device_state() is None)


def test_watch_meets_no_closed_device(opened: Opened, looks: Looks) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_wait(sem, 1)
    inside, leave = threading.Event(), threading.Event()
    original = driver.semaphore_value

    def value(token: int) -> int:
        inside.set()
        leave.wait(10)
        return original(token)   # records a misuse if the device or the semaphore is gone

    driver.semaphore_value = value  # type: ignore[assignment,method-assign]
    device.watch(after_s=AT_ONCE, report=lambda _: None)
    assert inside.wait(10)
    driver.finish()
    device.release()
    assert ("close",) not in driver.log
    leave.set()
    until(lambda: ("close",) in driver.log)
    assert driver.misuse == []
    assert looks.count >= 0


@pytest.mark.parametrize("after_s", [0, -1, math.nan, True, "1", None])
def test_bad_time_is_refused(opened: Opened, after_s: Any) -> None:
    device, _ = opened
    with pytest.raises(BadArgumentError) as caught:
        device.watch(after_s=after_s)
    assert caught.value.reason == "bad_timeout"
    assert not threads("watch")


@pytest.mark.parametrize("after_s", [math.inf, 1e300, 10**400], ids=["inf", "1e300", "10**400"])
def test_never_reached_time_is_accepted(opened: Opened, after_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    device, _ = opened
    failed: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    device.watch(after_s=after_s)
    until(lambda: threads("watch"))
    device.release()
    until(lambda: not threads("watch"))
    assert failed == []


def test_tiny_time_does_not_spin(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    device, _ = opened
    waits: list[float | None] = []

    class Event(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout)
            return super().wait(timeout)

    monkeypatch.setattr(watchdog, "threading", types.SimpleNamespace(Event=Event, Thread=threading.Thread))
    device.watch(after_s=1e-12)
    until(lambda: len(waits) > 2)
    device.release()
    until(lambda: not threads("watch"))
    assert set(waits) == {0.01}


def test_report_that_cannot_be_called_is_refused(opened: Opened) -> None:
    device, _ = opened
    with pytest.raises(BadArgumentError) as caught:
        device.watch(after_s=1.0, report="print")  # type: ignore[arg-type]
    assert caught.value.reason == "not_callable"
    assert not threads("watch")


# ---- a driver that blocks its callers
class Held:
    """A driver with one lock: a blocked append holds it, and each of xsem's own calls needs it."""

    def __init__(self, driver: FakeDriver) -> None:
        self._lock = threading.RLock()
        self.askers: list[str] = []
        original = driver._own

        def locked(what: str) -> None:
            self.askers.append(threading.current_thread().name)
            with self._lock:
                original(what)

        driver._own = locked  # type: ignore[method-assign]

    @contextmanager
    def appending(self, commands: xsem.CommandList, stream: FakeList) -> Iterator[None]:
        """Hold an append of another thread in the driver."""
        inside, go = hold_next(stream)
        during, stream.during = stream.during, None

        def locked() -> None:
            with self._lock:
                assert during is not None
                during()

        stream.during = locked
        thread = threading.Thread(target=commands.append_barrier)
        thread.start()
        assert inside.wait(10)
        try:
            yield
        finally:
            go.set()
            thread.join()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "_SHORTEST_S", 0.001)
    monkeypatch.setattr(watchdog, "_ANSWER_S", 0.001)


@pytest.mark.parametrize("same", [True, False], ids=["the list that waits", "another list"])
def test_report_comes_while_an_append_is_held_in_the_driver(
    opened: Opened, impatient: None, caplog: pytest.LogCaptureFixture, same: bool
) -> None:
    device, driver = opened
    waiting, other, sem = device.create_command_list(), device.create_command_list(), timeline(device, "frames")
    driver.values[sem._state.token] = 5
    driver.timeout_causes = ("the moon is full",)
    waiting.append_wait(sem, 7)
    other.append_signal(sem, 1)
    held = Held(driver)
    reports: list[tuple[PendingOp, ...]] = []
    with held.appending(waiting if same else other, driver.lists[0 if same else 1]):
        device.watch(after_s=AT_ONCE, report=reports.append)
        until(lambda: reports)
        # A value that only the driver knows is unknown. The blocked append is reported, too.
        assert [(op.operation, op.value, op.current_value) for op in reports[0] if op.operation != "barrier"] == [
            ("wait", 7, None), ("signal", 1, None)]
        assert [op.operation for op in reports[0]].count("barrier") == 1
        assert reports[0][0].possible_signallers == ()
        assert "fake:0 does not answer" in caplog.text
        assert "likely: the moon is full" in caplog.text
    assert device.pending()[0].current_value == 5   # the driver answers again


def test_driver_is_queried_on_another_thread_when_overdue(opened: Opened, looks: Looks) -> None:
    device, driver = opened
    held = Held(driver)
    commands, sem = device.create_command_list(), timeline(device)
    device.watch(after_s=3600)
    assert watchdog._look(device._queues, 3600, print, set(), watchdog._Asker("xsem-ask-test", 3600)) == set()
    commands.append_wait(sem, 1)
    reports: list[tuple[PendingOp, ...]] = []
    assert not [name for name in held.askers if name.startswith("xsem-ask")]
    device.watch(after_s=AT_ONCE, report=reports.append)
    until(lambda: reports)
    assert "xsem-ask-fake:0" in held.askers
    assert not [name for name in held.askers if name.startswith("xsem-watch")]


def test_lists_with_waits_are_queried_first(opened: Opened) -> None:
    """A query appends a marker under the list's lock. The list that gets the missing signal is not queried."""
    device, driver = opened
    signalling, waiting, sem = device.create_command_list(), device.create_command_list(), timeline(device)
    signalling.append_barrier()
    waiting.append_wait(sem, 1)
    found = overdue_lists(device._queues, 0)
    assert [name for name, _, _ in found] == ["fake:0/list-2"]
    assert (driver.lists[0].markers, driver.lists[1].markers) == (1, 1)   # the first is the barrier itself
    driver.lists[1].reach_all()
    found = overdue_lists(device._queues, 0)
    assert [name for name, _, _ in found] == ["fake:0/list-1"]


def test_finished_list_is_not_reported_without_an_earlier_query(opened: Opened) -> None:
    """On a slow device, a new marker is not reached at once."""
    device, driver = opened
    commands = device.create_command_list()
    reports: list[tuple[PendingOp, ...]] = []
    commands.append_barrier()
    asker = watchdog._Asker("xsem-ask-test", 3600)
    make_older(commands, 2000)   # not overdue yet
    assert watchdog._look(device._queues, 3600, reports.append, set(), asker) == set()
    driver.lists[0].reach_all()
    make_older(commands, 2000)
    assert watchdog._look(device._queues, 3600, reports.append, set(), asker) == set()
    assert reports == []


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt()], ids=repr)
def test_report_that_exits_does_not_end_the_watch(
    opened: Opened, looks: Looks, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    reports: list[tuple[PendingOp, ...]] = []

    def report(pending: tuple[PendingOp, ...]) -> None:
        reports.append(pending)
        raise error

    device.watch(after_s=AT_ONCE, report=report)
    commands.append_wait(sem, 1)
    until(lambda: "report function of watch() raised" in caplog.text)
    driver.lists[0].reach_all()
    commands.append_wait(sem, 2)
    until(lambda: len(reports) >= 2)


def test_failing_query_of_the_driver_does_not_end_the_watch(
    opened: Opened, looks: Looks, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, _ = opened
    commands, sem = device.create_command_list(), timeline(device)
    reports: list[tuple[PendingOp, ...]] = []

    def fail(*_: object) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(watchdog, "overdue_lists", fail)
    commands.append_wait(sem, 1)
    device.watch(after_s=AT_ONCE, report=reports.append)
    until(lambda: reports)
    assert "watch() cannot ask the driver" in caplog.text


def test_failed_start_of_a_watch_keeps_the_earlier_one(
    opened: Opened, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, _ = opened
    commands, sem = device.create_command_list(), timeline(device)
    reports: list[tuple[PendingOp, ...]] = []
    device.watch(after_s=AT_ONCE, report=reports.append)

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OutOfMemoryError) as caught:
            device.watch(after_s=3600)
    assert caught.value.reason == "out_of_memory"
    commands.append_wait(sem, 1)
    until(lambda: reports)
