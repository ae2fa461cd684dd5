"""Test the host's command lists at the driver interface."""

from __future__ import annotations

import _thread
import threading
import time
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest
from support.host_peers import (
    BINARY,
    LONG_NS,
    MEMORY,
    SLICE_NS,
    TIMELINE,
    barrier,
    content,
    failed,
    fill,
    signal_of,
    there,
    three_asleep,
    wait_for,
    workers,
)

from xsem.errors import BusyError, DriverError, OutOfMemoryError
from xsem.types import SignalParams, WaitParams
from xsem_host import queue as host_queue
from xsem_host.device import HostDevice


# ---- order
def test_operation_without_a_wanted_point_gives_none(driver: HostDevice) -> None:
    semaphore = driver.create_semaphore(TIMELINE, 0)
    commands = driver.create_queue()
    assert commands.append_signal([semaphore], [SignalParams(value=1)], (), (), False) is None
    assert commands.append_wait([semaphore], [WaitParams(value=1)], (), (), False) is None
    assert commands.append_barrier((), False) is None
    assert driver.wait_fence(barrier(commands), LONG_NS)
    driver.release_semaphore(semaphore)


def test_blocked_lists_do_not_spin(driver: HostDevice) -> None:
    timeline, binary = driver.create_semaphore(TIMELINE, 0), driver.create_semaphore(BINARY, 0)
    lists = [driver.create_queue() for _ in range(4)]
    wait_for(lists[0], timeline, 1)
    wait_for(lists[1], binary)
    fence = barrier(lists[2], driver.borrow_event(threading.Event()))
    barrier(lists[3], driver.borrow_event(Future()))
    began, used = time.monotonic(), time.process_time()
    assert not driver.wait_fence(fence, 600_000_000)
    assert time.process_time() - used < 0.2 * (time.monotonic() - began)
    for commands in lists:
        commands.close()
    driver.release_semaphore(timeline)
    driver.release_semaphore(binary)


@pytest.mark.timeout(10)
def test_a_fence_wakes_all_that_wait_for_it(driver: HostDevice) -> None:
    semaphore = driver.create_semaphore(TIMELINE, 0)
    commands = driver.create_queue()
    fence = wait_for(commands, semaphore, 1)
    with three_asleep(lambda: driver.wait_fence(fence, LONG_NS)) as met:
        driver.host_signal(semaphore, 1)
    assert met == [True] * 3
    driver.release_semaphore(semaphore)


# ---- borrowed events
@pytest.mark.parametrize("make", [threading.Event, Future])
def test_borrowed_event_holds_a_list(driver: HostDevice, make: Any) -> None:
    native = make()
    commands = driver.create_queue()
    event = driver.borrow_event(native)
    fence = barrier(commands, event)
    assert not fence.wait(SLICE_NS)
    assert not driver.query_fence(event)
    native.set() if isinstance(native, threading.Event) else native.set_result(None)
    assert fence.wait(LONG_NS)
    assert driver.query_fence(event)
    assert driver.wait_fence(event, 0)
    driver.release_fence(event)


@pytest.mark.parametrize("end", ["exception", "cancelled"])
def test_future_without_a_result_fails_the_waiting_list(driver: HostDevice, end: str) -> None:
    native: Future[None] = Future()
    semaphore = driver.create_semaphore(TIMELINE, 0)
    commands = driver.create_queue()
    event = driver.borrow_event(native)
    barrier(commands, event)
    after = signal_of(commands, semaphore, 1)
    if end == "cancelled":
        assert native.cancel()
    else:
        native.set_exception(ZeroDivisionError("theirs"))
    for fence in (event, after):
        failure = failed(driver, fence)
        assert not isinstance(failure.__cause__, CancelledError)
        assert end == "cancelled" or isinstance(failure.__cause__, ZeroDivisionError)
        with pytest.raises(DriverError):
            driver.query_fence(fence)
    assert driver.semaphore_value(semaphore) == 0
    driver.release_semaphore(semaphore)


def test_waiting_for_a_future_leaves_one_callback_with_it(driver: HostDevice) -> None:
    native: Future[None] = Future()
    event = driver.borrow_event(native)
    for _ in range(20):
        assert not driver.wait_fence(event, 1000)
    assert len(native._done_callbacks) == 1  # type: ignore[attr-defined]


# ---- limits
def test_more_lists_than_declared_are_refused(driver: HostDevice) -> None:
    made = [driver.create_queue() for _ in range(driver.capabilities.independent_lists)]
    with pytest.raises(BusyError) as refusal:
        driver.create_queue()
    assert refusal.value.reason == "too_many_lists"
    made.pop().close()
    driver.create_queue()
    assert len({each.identity for each in made}) == len(made)


def test_list_whose_worker_cannot_start_has_nothing_appended(
    driver: HostDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    commands = driver.create_queue()
    ran: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(host_queue, "start_new_thread", full)
        with pytest.raises(OutOfMemoryError):
            commands.append_work(lambda: ran.append(1))
    commands.append_work(lambda: ran.append(2))
    assert barrier(commands).wait(LONG_NS)
    assert ran == [2]


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()], ids=repr)
def test_list_works_on_the_last_thread_that_can_be_had(
    driver: HostDevice, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def full(thread: threading.Thread) -> None:
        raise error

    commands = driver.create_queue()
    ran: list[int] = []
    monkeypatch.setattr(threading.Thread, "start", full)
    commands.append_work(lambda: ran.append(1))
    assert barrier(commands).wait(LONG_NS)
    assert ran == [1]


def test_interrupted_start_of_the_worker_starts_one(driver: HostDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: Any) -> None:
        _thread.start_new_thread(*arguments)
        raise KeyboardInterrupt

    commands = driver.create_queue()
    with monkeypatch.context() as patched:
        patched.setattr(host_queue, "start_new_thread", interrupted)
        with pytest.raises(KeyboardInterrupt):
            commands.append_work(lambda: None)
    for _ in range(3):
        assert barrier(commands).wait(LONG_NS)
    assert workers().count(f"xsem-host-list-{commands.identity}") == 1


# ---- copy and fill
@pytest.mark.parametrize(
    ("pattern", "size"),
    [(b"x", 1), (b"x", 3 << 20), (b"abc", 3_000_003), (bytes(range(256)), 256), (bytes(range(251)) * 5000, 2_510_000)],
    ids=lambda value: str(len(value) if isinstance(value, bytes) else value),
)
def test_copy_and_fill_of_any_length(driver: HostDevice, pattern: bytes, size: int) -> None:
    one, address = driver.host_buffer(size + 2)
    two, target = driver.host_buffer(size + 2)
    fill(address, b"<" + bytes(size) + b">")
    commands = driver.create_queue()
    commands.append_fill(one, 1, pattern, size, (), False)
    fence = there(commands.append_copy(two, 0, one, 0, size + 2, (), True))
    assert fence.wait(LONG_NS)
    assert content(target, size + 2) == b"<" + pattern * (size // len(pattern)) + b">"
    commands.close()
    driver.release_host_buffer(one)
    driver.release_host_buffer(two)


def test_copy_within_a_buffer_may_overlap(driver: HostDevice) -> None:
    buffer, address = driver.host_buffer(10)
    fill(address, b"0123456789")
    commands = driver.create_queue()
    fence = there(commands.append_copy(buffer, 2, buffer, 0, 8, (), True))
    assert fence.wait(LONG_NS)
    assert content(address, 10) == b"0101234567"
    commands.close()
    driver.release_host_buffer(buffer)


def test_copy_and_fill_count_from_the_start_of_the_mapping(driver: HostDevice) -> None:
    memory, _ = driver.create_memory(MEMORY, 4096, False)
    (whole, start), (part, at) = driver.map_buffer(memory, 0, 4096), driver.map_buffer(memory, 1000, 100)
    assert at == start + 1000
    commands = driver.create_queue()
    commands.append_fill(part, 10, b"ab", 4, (), False)
    fence = there(commands.append_copy(whole, 2, part, 9, 6, (), True))
    assert fence.wait(LONG_NS)
    assert content(start + 1009, 6) == b"\0abab\0"
    assert content(start, 9) == b"\0\0\0abab\0\0"
    commands.close()
    driver.unmap_buffer(whole)
    driver.unmap_buffer(part)
    driver.release_memory(memory)
