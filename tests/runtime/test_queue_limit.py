"""An append is refused where the driver's limit of pending operations would make it block."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from support.fake_backend import ALL, FakeFence, FakeStream, fake, finish, timeline
from support.fixtures import Opened
from support.waiting import until

import xsem
from xsem.errors import WouldBlockError


def limited(limit: int) -> Any:
    return fake(dataclasses.replace(ALL, max_pending=limit))


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
        assert sem._state.last == next(values) - 2


def test_refused_append_leaves_everything_as_it_was() -> None:
    with limited(10) as (device, driver):
        commands, sem, other = device.create_command_list(), timeline(device), timeline(device)
        event = device.create_event()
        commands.append_wait(sem, 1)
        with pytest.raises(WouldBlockError):
            for value in range(1, 100):
                commands.append_signal(other, value)
        calls, last = list(driver.lists[0].calls), other._state.last
        for _ in range(3):
            with pytest.raises(WouldBlockError):
                commands.append_signal(other, 100, signal_event=event)
            with pytest.raises(WouldBlockError):
                commands.append_work(lambda: pytest.fail("called"))
        assert driver.lists[0].calls == calls
        assert other._state.last == last
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
        assert len(commands._queue.pending()) == 0


def test_nothing_is_refused_without_a_wait() -> None:
    with limited(10) as (device, driver):
        commands, sem = device.create_command_list(), timeline(device)
        for value in range(1, 200):
            commands.append_signal(sem, value)
        # Markers are still appended, so that the end is noticed.
        finish(commands, driver)
        assert len(commands._queue.pending()) == 0


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
        borrowed_event = device.event(FakeFence(1, "foreign"))
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


# ---- captures
def test_capture_does_not_count_towards_the_limit() -> None:
    with limited(10) as (device, driver):
        commands, sem = device.command_list(FakeStream(7)), timeline(device)
        driver.lists[0].capture = True
        for _ in range(100):
            commands.append_wait(sem, 1)
        driver.lists[0].capture = False
        commands.append_wait(sem, 1)
        assert [op.operation for op in device.pending()] == ["wait"]
