"""Test the end of the host's command lists at the driver interface: a failure, a close, the close of the device."""

from __future__ import annotations

import ctypes
import threading

import pytest
from support.fake_backend import until
from support.host_peers import (
    BINARY,
    LONG_NS,
    TIMELINE,
    barrier,
    fail,
    failed,
    import_again,
    signal_of,
    there,
    wait_for,
    workers,
)

from xsem.errors import DriverError, ReleasedError
from xsem.types import SemaphoreHandleType
from xsem_host.device import HostDevice


# ---- failure
def test_work_that_raises_stops_the_list_and_later_signals(driver: HostDevice) -> None:
    semaphore = driver.create_semaphore(TIMELINE, 0)
    commands, other = driver.create_queue(), driver.create_queue()
    before = barrier(commands)
    ran: list[int] = []
    go = threading.Event()
    commands.append_barrier([driver.borrow_event(go)], False)
    commands.append_work(fail)
    commands.append_work(lambda: ran.append(1))
    after = signal_of(commands, semaphore, 1)
    go.set()
    assert isinstance(failed(driver, after).__cause__, ZeroDivisionError)
    assert driver.query_fence(before), "a fence that was reached before must stay reached"
    with pytest.raises(DriverError) as again:
        commands.append_work(lambda: ran.append(2))
    assert isinstance(again.value.__cause__, ZeroDivisionError)
    with pytest.raises(DriverError):
        driver.query_fence(after)
    assert driver.semaphore_value(semaphore) == 0
    assert ran == []
    assert barrier(other).wait(LONG_NS)
    until(lambda: workers() == [f"xsem-host-list-{other.identity}"])
    driver.release_semaphore(semaphore)


def test_work_that_exits_stops_the_list_and_not_the_process(driver: HostDevice) -> None:
    def leave() -> None:
        raise SystemExit(3)

    commands = driver.create_queue()
    go = threading.Event()
    commands.append_barrier([driver.borrow_event(go)], False)
    commands.append_work(leave)
    fence = barrier(commands)
    go.set()
    assert isinstance(failed(driver, fence).__cause__, SystemExit)


def test_failure_reaches_the_waiting_lists_with_its_cause(driver: HostDevice) -> None:
    first, second, third = (driver.create_queue() for _ in range(3))
    go = threading.Event()
    first.append_barrier([driver.borrow_event(go)], False)
    first.append_work(fail)
    last = barrier(third, barrier(second, barrier(first)))
    go.set()
    failure = failed(driver, last)
    assert isinstance(failure.__cause__, ZeroDivisionError)
    assert "theirs" in failure.message


def test_each_report_of_a_failure_is_a_new_exception(driver: HostDevice) -> None:
    commands = driver.create_queue()
    go = threading.Event()
    commands.append_barrier([driver.borrow_event(go)], False)
    commands.append_work(fail)
    fence = barrier(commands)
    go.set()
    one, two = failed(driver, fence), failed(driver, fence)
    assert one is not two
    assert one.__cause__ is two.__cause__


# ---- close
@pytest.mark.timeout(20)
def test_close_ends_a_worker_that_waits(driver: HostDevice) -> None:
    timeline, binary = driver.create_semaphore(TIMELINE, 0), driver.create_semaphore(BINARY, 0)
    for semaphore, value in ((timeline, 1), (binary, None)):
        commands = driver.create_queue()
        wait_for(commands, semaphore, value)
        commands.close()
    stuck = driver.create_queue()
    stuck.append_barrier([driver.borrow_event(threading.Event())], False)
    stuck.close()
    until(lambda: not workers())
    driver.release_semaphore(timeline)
    driver.release_semaphore(binary)


def test_closed_list_ends_its_thread_and_unused_list_has_none(driver: HostDevice) -> None:
    used, unused = driver.create_queue(), driver.create_queue()
    names = [f"xsem-host-list-{each.identity}" for each in (used, unused)]

    def running() -> list[str]:   # without those of earlier tests
        return [each for each in workers() if each in names]

    assert running() == []
    assert barrier(used).wait(LONG_NS)
    assert running() == names[:1]
    used.close()
    unused.close()
    until(lambda: not running())


def test_close_drops_pending_operations_and_their_points_fail(driver: HostDevice) -> None:
    semaphore = driver.create_semaphore(TIMELINE, 0)
    commands, other = driver.create_queue(), driver.create_queue()
    ran: list[int] = []
    inside = wait_for(commands, semaphore, 1)
    until(lambda: commands._queue.empty())
    commands.append_work(lambda: ran.append(1))
    behind = barrier(commands)
    waiting = barrier(other, behind)
    commands.close()
    for fence in (inside, behind):
        with pytest.raises(ReleasedError) as failure:
            driver.wait_fence(fence, LONG_NS)
        assert failure.value.reason == "released"
        with pytest.raises(ReleasedError):
            driver.query_fence(fence)
    assert isinstance(failed(driver, waiting).__cause__, ReleasedError)
    with pytest.raises(ReleasedError):
        commands.append_barrier((), False)
    driver.host_signal(semaphore, 1)
    until(lambda: workers() == [])
    assert ran == []
    driver.release_semaphore(semaphore)


@pytest.mark.parametrize("type", [TIMELINE, BINARY])
@pytest.mark.timeout(20)
def test_release_under_a_closed_list_leaves_other_files_alone(
    driver: HostDevice, type: SemaphoreHandleType
) -> None:
    for _ in range(5):
        value = 1 if type is TIMELINE else None
        semaphore = driver.create_semaphore(type, 0)
        commands = driver.create_queue()
        wait_for(commands, semaphore, value)
        until(lambda: commands._queue.empty())  # noqa: B023
        commands.close()
        driver.release_semaphore(semaphore)
        others = [driver.create_semaphore(BINARY, 0) for _ in range(3)]
        for other in others:
            driver.host_signal(other, None)
        until(lambda: not workers())
        for other in others:
            assert driver.host_wait(other, None, 0), "the worker took another semaphore's signal"
            driver.release_semaphore(other)


@pytest.mark.timeout(20)
def test_close_waits_for_a_copy_that_is_under_way(driver: HostDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, go = threading.Event(), threading.Event()

    def slow(dst: int, src: int, size: int) -> None:
        inside.set()
        assert go.wait(20)

    commands = driver.create_queue()
    buffer, _ = driver.host_buffer(8)
    monkeypatch.setattr(ctypes, "memmove", slow)
    fence = there(commands.append_copy(buffer, 0, buffer, 4, 3, (), True))
    assert inside.wait(20)
    closing = threading.Thread(target=commands.close)
    closing.start()
    until(lambda: commands._closed)
    closing.join(0.05)
    assert closing.is_alive()
    go.set()
    closing.join()
    assert fence.wait(LONG_NS)
    driver.release_host_buffer(buffer)


@pytest.mark.timeout(20)
def test_close_does_not_wait_for_work(driver: HostDevice) -> None:
    go = threading.Event()
    commands = driver.create_queue()
    commands.append_work(lambda: go.wait(20))
    until(lambda: commands._queue.empty())
    commands.close()
    go.set()


@pytest.mark.timeout(20)
def test_close_of_the_device_closes_the_lists_that_are_left(driver: HostDevice) -> None:
    semaphore = driver.create_semaphore(TIMELINE, 0)
    other = HostDevice()
    joined = import_again(other, TIMELINE, semaphore)
    fences = [wait_for(other.create_queue(), joined, 1) for _ in range(3)]
    other.close()
    for fence in fences:
        with pytest.raises(ReleasedError):
            other.wait_fence(fence, LONG_NS)
    until(lambda: not workers())
    other.release_semaphore(joined)
    driver.release_semaphore(semaphore)
