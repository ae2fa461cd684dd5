"""Release goes on when calls of the driver fail."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from support.fake_backend import FakeFence, timeline
from support.fixtures import Opened
from support.releasing import failing, memory, rest
from support.waiting import until

import xsem
from xsem.errors import DriverError, ReleasedError


def test_failing_release_is_logged_and_the_rest_goes_on(opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    device, driver = opened
    driver.release_semaphore = failing  # type: ignore[assignment,method-assign]
    sem = timeline(device, "frames")
    sem.release()
    until(lambda: sem._lifetime.freed)
    rest(device)
    assert "releasing the semaphore 'frames' failed" in caplog.text
    device.release()
    until(lambda: ("close",) in driver.log)


def test_failing_release_does_not_end_the_releasing_thread(
    opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    device, driver = opened
    driver.unmap_buffer = failing  # type: ignore[assignment,method-assign]
    mem = memory(device)
    mem.map_buffer().release()
    mem.release()
    until(lambda: len(driver.released("release_memory")) == 1)
    assert "releasing the buffer failed" in caplog.text
    rest(device)


def test_failing_release_point_is_logged_and_the_device_closes(opened: Opened) -> None:
    device, driver = opened
    event = device.create_event()
    device.create_command_list().append_barrier(signal_event=event)
    fence = event._bound()   # a reference that lasts until after the end
    original = driver.release_fence

    def failing(fence: FakeFence) -> None:
        original(fence)
        raise DriverError("no", reason="driver")

    driver.release_fence = failing  # type: ignore[method-assign]
    driver.finish()
    device.release()
    until(lambda: ("close",) in driver.log)
    del fence


@pytest.mark.parametrize("error", [DriverError("lost", reason="lost"), RuntimeError("a defect of the backend")])
def test_failed_queue_frees_its_objects(opened: Opened, error: Exception) -> None:
    device, driver = opened
    commands, sem, mem = device.create_command_list(), timeline(device), memory(device)
    commands.append_wait(sem, 1, acquire=[mem])
    sem.release()
    driver.lists[0].fences[-1].error = error
    mem.release()
    until(lambda: {"release_semaphore", "release_memory"} == {call[0] for call in driver.log})
    with pytest.raises(DriverError):
        commands.query()
    commands.release()
    until(lambda: driver.lists[0].closed)


def test_failed_list_keeps_an_object_during_its_append(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_barrier()
    assert not commands.query()   # a marker

    def during() -> None:
        # During the driver's append, another thread releases the semaphore and sees that the list failed.
        def other() -> None:
            sem.release()
            driver.lists[0].fences[-1].error = DriverError("lost", reason="lost")
            commands._queue.poll()
            sem._device_state.releaser.submit(sem._lifetime)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join(10)
        assert driver.log == []

    driver.lists[0].during = during
    commands.append_wait(sem, 1)
    until(lambda: driver.released("release_semaphore") == [sem._state.token])


def test_marker_that_the_driver_refuses_for_now_is_tried_again(
    opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_wait(sem, 1)
    driver.lists[0].fail_next = xsem.errors.OutOfMemoryError("no memory", reason="out_of_memory")
    sem.release()   # raises no error
    assert "took no marker" in caplog.text
    until(lambda: driver.lists[0].markers == 1)
    assert driver.log == []
    driver.lists[0].reach_all()
    until(lambda: len(driver.log) == 1)
    assert not driver.misuse


def test_refused_marker_does_not_pass_for_a_failure_of_the_queue(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_wait(sem, 1)
    driver.lists[0].fail_next = DriverError("not now", reason="driver")
    with pytest.raises(DriverError):
        commands.synchronize(timeout_s=5)
    assert not commands.query()
    sem.release()
    assert driver.log == []


def test_object_is_freed_when_device_is_released_while_creating(opened: Opened) -> None:
    device, driver = opened
    original = driver.create_semaphore

    def create(type: Any, initial_value: int) -> int:
        token = original(type, initial_value)
        device.release()
        rest(device)
        assert driver.log == []   # not during a call
        return token

    driver.create_semaphore = create  # type: ignore[method-assign]
    with pytest.raises(ReleasedError):
        timeline(device)
    until(lambda: ("close",) in driver.log)
    assert len(driver.released("release_semaphore")) == 1
