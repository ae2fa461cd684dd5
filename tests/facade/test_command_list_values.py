"""The values of a timeline rise, and a binary semaphore needs its reset."""

from __future__ import annotations

import dataclasses
import threading

import pytest
from support.fake_backend import ALL, binary, fake, set_last, timeline
from support.fixtures import Opened, calls, refused_unasked

from xsem.errors import BadArgumentError, BusyError, DriverError
from xsem.types import SignalParams

LEVEL_ZERO = dataclasses.replace(ALL, resets_on_wait=False)


# ---- values
def test_value_not_above_the_last_one_is_refused(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_signal(sem, 5)
    for value in (0, 4, 5):
        error = refused_unasked(driver, "value_not_above_last", lambda value=value: commands.append_signal(sem, value))  # type: ignore[misc]
        assert "5" in str(error)
    refused_unasked(driver, "value_not_above_last", lambda: sem.host_signal(5))
    commands.append_signal(sem, 6)
    driver.values[sem._state.token] = 6   # the list's signals are done
    sem.host_signal(7)
    refused_unasked(driver, "value_not_above_last", lambda: commands.append_signal(sem, 7))


def test_value_may_go_back_with_allow_rewind(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_signal(sem, 10_000)
    commands.append_signal(sem, SignalParams(value=1, allow_rewind=True))
    assert sem._state.last == 1
    commands.append_signal(sem, 2)
    assert len(calls(driver)) == 3


def test_first_value_of_an_imported_timeline_is_free(opened: Opened) -> None:
    device, _ = opened
    commands, sem = device.create_command_list(), timeline(device)
    set_last(sem, None)   # as after an import: the exporter's last value is unknown
    commands.append_signal(sem, 0)
    commands.append_signal(sem, 1)


def test_wait_for_a_value_signalled_long_ago_is_taken(opened: Opened) -> None:
    device, _ = opened
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_signal(sem, 100)
    commands.append_wait(sem, 1)


def test_value_of_a_failed_append_can_be_signalled_again(opened: Opened) -> None:
    device, driver = opened
    commands, sems = device.create_command_list(), [timeline(device), timeline(device)]
    commands.append_signal(sems, [3, 4])
    driver.lists[0].fail_next = DriverError("no", reason="driver")
    with pytest.raises(DriverError):
        commands.append_signal(sems, [5, 6])
    assert [sem._state.last for sem in sems] == [3, 4]
    driver.values[sems[0]._state.token] = 3   # the list's signals are done
    driver.fail_signal = DriverError("no", reason="driver")
    with pytest.raises(DriverError):
        sems[0].host_signal(5)
    driver.fail_signal = None
    assert sems[0]._state.last == 3
    commands.append_signal(sems, [5, 6])


def test_failed_append_does_not_undo_a_later_signal(opened: Opened) -> None:
    device, driver = opened
    commands, other, sem = device.create_command_list(), device.create_command_list(), timeline(device)

    def during() -> None:
        other.append_signal(sem, 9)
        raise DriverError("no", reason="driver")

    driver.lists[0].during = during
    with pytest.raises(DriverError):
        commands.append_signal(sem, 5)
    assert sem._state.last == 9


def test_value_far_above_the_last_one_is_refused() -> None:
    with fake(dataclasses.replace(ALL, max_value_difference=1000)) as (device, driver):
        commands, sem = device.create_command_list(), timeline(device)
        commands.append_signal(sem, 10)
        commands.append_wait(sem, 1010)
        refused_unasked(driver, "value_difference", lambda: commands.append_wait(sem, 1011))
        refused_unasked(driver, "value_difference", lambda: commands.append_signal(sem, 1011))
        refused_unasked(driver, "value_difference", lambda: sem.host_signal(1011))
        commands.append_signal(sem, 1010)


def test_rising_values_of_many_threads_reach_the_driver_rising(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    counter, lock = iter(range(1, 10_000)), threading.Lock()

    def signal() -> None:
        for _ in range(200):
            with lock:
                value = next(counter)
            try:
                commands.append_signal(sem, value)
            except BadArgumentError as error:
                refusals.append(error.reason)

    refusals: list[str] = []
    each = [threading.Thread(target=signal) for _ in range(4)]
    for thread in each:
        thread.start()
    for thread in each:
        thread.join()
    values = [call[2][0].value for call in calls(driver) if call[0] == "signal"]
    assert values == sorted(values)
    assert len(values) + len(refusals) == 800
    assert set(refusals) <= {"value_not_above_last"}


# ---- binary semaphores that a wait does not reset
def test_second_wait_needs_the_exporters_reset() -> None:
    with fake(LEVEL_ZERO) as (device, driver):
        commands, sem, mark = device.create_command_list(), binary(device), timeline(device)
        commands.append_wait(sem)
        error = refused_unasked(driver, "not_reset", lambda: commands.append_wait(sem), BusyError)
        assert "mark_reset" in str(error)
        refused_unasked(driver, "not_reset", lambda: commands.append_wait([mark, sem], [1, None]), BusyError)
        sem.mark_reset()
        commands.append_wait(sem)
        commands.append_wait(mark, 1)   # a timeline needs no reset
        commands.append_wait(mark, 1)
        commands.append_signal(sem)


def test_failed_wait_needs_no_reset() -> None:
    with fake(LEVEL_ZERO) as (device, driver):
        commands, first, second = device.create_command_list(), binary(device), binary(device)
        commands.append_wait(second)
        refused_unasked(driver, "not_reset", lambda: commands.append_wait([first, second], [None, None]), BusyError)
        driver.lists[0].fail_next = DriverError("no", reason="driver")
        with pytest.raises(DriverError):
            commands.append_wait(first)
        commands.append_wait(first)


def test_reset_is_optional_when_a_wait_resets(opened: Opened) -> None:
    device, _ = opened
    commands, sem = device.create_command_list(), binary(device)
    for _ in range(3):
        commands.append_wait(sem)
    sem.mark_reset()
