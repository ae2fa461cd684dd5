"""A list that failed raises from then on, and the other lists work."""

from __future__ import annotations

from typing import Any

import pytest
from support.fake_backend import timeline
from support.fixtures import Opened
from support.waiting import until

from xsem.errors import DriverError, OutOfMemoryError


def test_failed_list_raises_from_then_on_and_others_work(opened: Opened) -> None:
    device, driver = opened
    commands, other, sem = device.create_command_list(), device.create_command_list(), timeline(device)
    commands.append_wait(sem, 1)
    assert not commands.query()
    lost = DriverError("lost", reason="lost", code=700)
    lost.__cause__ = OSError("why")
    driver.lists[0].fences[-1].error = lost
    raised = []
    for ask in (commands.query, commands.synchronize, commands.append_barrier, lambda: commands.append_signal(sem, 1),
                lambda: commands.append_work(print)):
        with pytest.raises(DriverError, match="lost") as caught:
            ask()
        raised.append(caught.value)
        assert isinstance(caught.value.__cause__, OSError)
    assert len({id(error) for error in raised}) == len(raised)   # no error collects the tracebacks of the others
    assert all(error is not lost for error in raised)
    assert sem._state.last is None or sem._state.last == 0
    assert device.pending() == ()
    other.append_signal(sem, 1)


@pytest.mark.parametrize("ask", ["query", "wait", "synchronize", "pending", "await"])
def test_failure_seen_through_an_event_or_a_wait_stops_the_list(opened: Opened, ask: str) -> None:
    device, driver = opened
    commands, event = device.create_command_list(), device.create_event()
    commands.append_barrier(signal_event=event)
    driver.lists[0].fences[-1].error = DriverError("lost", reason="lost")
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
    driver.lists[0].fences[-1].error = OutOfMemoryError("out", reason="out_of_memory")
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
