"""The host's command lists, at the driver interface."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from fake_backend import until

from xsem.errors import BusyError, DriverError
from xsem.types import SemaphoreHandleType, SignalParams, WaitParams
from xsem_host.device import HostDevice
from xsem_host.lists import HostList

TIMELINE = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
BINARY = SemaphoreHandleType.OPAQUE_FD
SLICE_NS = 5_000_000
LONG_NS = 20_000_000_000


@pytest.fixture
def device() -> Iterator[HostDevice]:
    fds = set(os.listdir("/proc/self/fd"))
    made = HostDevice()
    yield made
    made.close()
    until(lambda: not workers())
    assert set(os.listdir("/proc/self/fd")) == fds


def workers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("xsem-host-list")]


def wait_for(commands: HostList, semaphore: object, value: int | None = None, want: bool = False) -> object:
    return commands.append_wait([semaphore], [WaitParams(value=value)], (), (), want)  # type: ignore[list-item]


def signal_of(commands: HostList, semaphore: object, value: int | None = None, want: bool = False) -> object:
    return commands.append_signal([semaphore], [SignalParams(value=value)], (), (), want)  # type: ignore[list-item]


def test_list_runs_in_order_behind_a_wait(device: HostDevice) -> None:
    semaphore = device.create_semaphore(TIMELINE, 0)
    commands = device.create_command_list()
    ran: list[str] = []
    wait_for(commands, semaphore, 1)
    commands.append_work(lambda: ran.append("first"))
    commands.append_work(lambda: ran.append("second"))
    point = signal_of(commands, semaphore, 2, want=True)
    assert not device.wait(point, SLICE_NS)  # type: ignore[arg-type]
    assert ran == []
    device.host_signal(semaphore, 1)
    assert device.host_wait(semaphore, 2, LONG_NS)
    assert device.wait(point, LONG_NS)  # type: ignore[arg-type]
    assert ran == ["first", "second"]
    device.release_semaphore(semaphore)


def test_batch_waits_for_all_and_signals_all(device: HostDevice) -> None:
    timeline, binary = device.create_semaphore(TIMELINE, 0), device.create_semaphore(BINARY, 0)
    commands = device.create_command_list()
    point = commands.append_wait([timeline, binary], [WaitParams(value=1), WaitParams()], (), (), True)
    device.host_signal(timeline, 1)
    assert not point.wait(SLICE_NS)  # type: ignore[union-attr]
    device.host_signal(binary, None)
    assert point.wait(LONG_NS)  # type: ignore[union-attr]
    commands.append_signal([timeline, binary], [SignalParams(value=5), SignalParams()], (), (), False)
    assert device.host_wait(timeline, 5, LONG_NS)
    assert device.host_wait(binary, None, LONG_NS)
    device.release_semaphore(timeline)
    device.release_semaphore(binary)


def test_lists_are_independent_and_ordered_by_points(device: HostDevice) -> None:
    semaphore = device.create_semaphore(TIMELINE, 0)
    blocked, free = device.create_command_list(), device.create_command_list()
    assert blocked.key != free.key
    ran = threading.Event()
    gate = wait_for(blocked, semaphore, 1, want=True)
    free.append_work(ran.set)
    assert ran.wait(20)
    after = free.append_barrier([gate], True)  # type: ignore[list-item]
    assert not after.wait(SLICE_NS)  # type: ignore[union-attr]
    device.host_signal(semaphore, 1)
    assert after.wait(LONG_NS)  # type: ignore[union-attr]
    device.release_semaphore(semaphore)


@pytest.mark.parametrize("make", [threading.Event, Future])
def test_foreign_event_gates_a_list(device: HostDevice, make: type) -> None:
    native = make()
    commands = device.create_command_list()
    point = commands.append_barrier([device.open_event(native)], True)
    assert not point.wait(SLICE_NS)  # type: ignore[union-attr]
    native.set() if isinstance(native, threading.Event) else native.set_result(None)
    assert point.wait(LONG_NS)  # type: ignore[union-attr]


def test_foreign_event_of_another_sort_is_a_type_error(device: HostDevice) -> None:
    with pytest.raises(TypeError):
        device.open_event(object())


def test_work_that_raises_stops_the_list_and_nothing_behind_it_is_signalled(device: HostDevice) -> None:
    semaphore = device.create_semaphore(TIMELINE, 0)
    commands, other = device.create_command_list(), device.create_command_list()
    before = commands.append_barrier((), True)
    go = threading.Event()

    def fail() -> None:
        go.wait(20)
        raise ZeroDivisionError("theirs")

    commands.append_work(fail)
    after = signal_of(commands, semaphore, 1, want=True)
    go.set()
    with pytest.raises(DriverError) as failure:
        device.wait(after, LONG_NS)  # type: ignore[arg-type]
    assert failure.value.reason == "work_failed"
    assert failure.value.from_earlier_work
    assert isinstance(failure.value.__cause__, ZeroDivisionError)
    assert device.done(before), "what was reached before stays reached"  # type: ignore[arg-type]
    with pytest.raises(DriverError):
        commands.append_work(lambda: None)
    with pytest.raises(DriverError):
        device.done(after)  # type: ignore[arg-type]
    assert device.semaphore_value(semaphore) == 0
    assert other.append_barrier((), True).wait(LONG_NS)  # type: ignore[union-attr]
    device.release_semaphore(semaphore)


def test_close_ends_a_worker_that_waits(device: HostDevice) -> None:
    timeline, binary = device.create_semaphore(TIMELINE, 0), device.create_semaphore(BINARY, 0)
    for semaphore, value in ((timeline, 1), (binary, None)):
        commands = device.create_command_list()
        wait_for(commands, semaphore, value)
        commands.close()
    stuck = device.create_command_list()
    stuck.append_barrier([device.open_event(threading.Event())], False)
    stuck.close()
    until(lambda: not workers())
    device.release_semaphore(timeline)
    device.release_semaphore(binary)


def test_copy_and_fill_of_any_length(device: HostDevice) -> None:
    token, address = device.host_buffer(3_000_003)
    other, target = device.host_buffer(3_000_003)
    commands = device.create_command_list()
    commands.append_fill(address, b"abc", 3_000_003, (), False)
    point = commands.append_copy(target, address, 3_000_003, (), True)
    assert point.wait(LONG_NS)  # type: ignore[union-attr]
    assert ctypes.string_at(target, 3_000_003) == b"abc" * 1_000_001
    del token, other


def test_more_lists_than_promised_are_refused(device: HostDevice) -> None:
    made = [device.create_command_list() for _ in range(device.capabilities.independent_lists)]
    with pytest.raises(BusyError):
        device.create_command_list()
    made.pop().close()
    device.create_command_list()


def test_many_threads_append_to_many_lists(device: HostDevice) -> None:
    semaphore = device.create_semaphore(TIMELINE, 0)
    lists = [device.create_command_list() for _ in range(4)]
    counts = [0] * 4

    def count(index: int) -> None:
        counts[index] += 1

    def run(index: int) -> None:
        for _ in range(500):
            lists[index].append_work(lambda: count(index))

    threads = [threading.Thread(target=run, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for commands in lists:
        assert commands.append_barrier((), True).wait(LONG_NS)  # type: ignore[union-attr]
    assert counts == [500] * 4
    device.release_semaphore(semaphore)
