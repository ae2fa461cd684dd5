"""A released device closes once, after all of its objects."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Self

from support.fake_backend import INFO, FakeFence, FakeStream, binary, fake, timeline
from support.fixtures import Opened
from support.releasing import memory
from support.waiting import until

import xsem
from xsem.errors import ReleasedError
from xsem.runtime.lifetime import Lifetime


def test_device_with_live_objects_closes_when_all_is_done(opened: Opened) -> None:
    device, driver = opened
    mem, sem, event = memory(device), timeline(device), device.create_event()
    buffer = mem.map_buffer()
    borrowed_event = device.event(FakeFence(99, "foreign"))
    own, borrowed = device.create_command_list(), device.command_list(FakeStream(7))
    own.append_wait(sem, 1, acquire=[mem])
    own.append_fill(buffer, b"0", wait_events=[borrowed_event], signal_event=event)
    borrowed.append_signal(binary(device), wait_events=[event])
    device.release()
    device.release()
    assert ("close",) not in driver.log
    driver.finish()
    until(lambda: ("close",) in driver.log)
    assert driver.log[-1] == ("close",)
    assert driver.log.count(("close",)) == 1


def test_device_is_released_by_the_end_of_with() -> None:
    with fake() as (device, driver), device:
        timeline(device)
    assert driver.log[-1] == ("close",)


def test_devices_close_one_after_the_other() -> None:
    another = replace(INFO, backend="another")   # a backend closes its devices one after the other anyway
    with fake() as (first, one), fake(info=another) as (second, other):
        inside, closing = threading.Event(), threading.Event()
        overlapped: list[bool] = []

        def close_first(close: Callable[[], None] = one.close) -> None:
            inside.set()
            overlapped.append(closing.wait(0.2))
            close()

        def close_second(close: Callable[[], None] = other.close) -> None:
            closing.set()
            close()

        one.close, other.close = close_first, close_second   # type: ignore[method-assign]
        each = [threading.Thread(target=device.release) for device in (first, second)]
        each[0].start()
        inside.wait()
        each[1].start()
        for thread in each:
            thread.join()
        until(closing.is_set)
        assert overlapped == [False]


def test_device_released_by_many_threads_closes_once() -> None:
    for _ in range(20):
        with fake() as (device, driver):
            for _ in range(5):
                memory(device).map_buffer()
            start = threading.Barrier(4)

            def release(device: xsem.Device = device, start: threading.Barrier = start) -> None:
                start.wait()
                device.release()

            each = [threading.Thread(target=release) for _ in range(4)]
            for thread in each:
                thread.start()
            for thread in each:
                thread.join()
        assert driver.log.count(("close",)) == 1


def test_object_created_during_device_release_is_released() -> None:
    with fake() as (device, driver):
        device_state = device._device_state
        stop = threading.Event()
        made: list[Any] = []

        def make() -> None:
            while not stop.is_set():
                try:
                    made.append(timeline(device))
                except ReleasedError:
                    return

        makers = [threading.Thread(target=make) for _ in range(3)]
        for maker in makers:
            maker.start()
        until(lambda: len(made) > 30)
        device.release()
        stop.set()
        for maker in makers:
            maker.join(10)
        assert all(sem.released for sem in made)
        until(lambda: ("close",) in driver.log)
        assert set(device_state.releaser.lifetimes) == set()


def test_poll_in_another_thread_never_meets_a_closed_device(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_wait(sem, 1)
    inside, leave = threading.Event(), threading.Event()
    original = driver.query_fence

    def done(fence: FakeFence) -> bool:
        inside.set()
        leave.wait(10)
        return original(fence)   # records a misuse if the device is closed

    commands.query()
    driver.query_fence = done  # type: ignore[method-assign]
    poller = threading.Thread(target=commands._queue.poll)
    poller.start()
    assert inside.wait(10)
    driver.query_fence = original  # type: ignore[method-assign]
    driver.finish()
    device.release()
    until(lambda: driver.released("release_semaphore"))
    sem._device_state.releaser.submit(commands._queue.lifetime)
    assert driver.released("close_list") == []
    leave.set()
    poller.join(10)
    until(lambda: ("close",) in driver.log)
    assert driver.misuse == []


def test_device_is_released_while_another_thread_frees_objects(opened: Opened) -> None:
    device, driver = opened
    releaser = device._device_state.releaser
    first, second = timeline(device), timeline(device)
    freeing, go = threading.Event(), threading.Event()

    def held() -> None:
        freeing.set()
        assert go.wait(30)

    class Read(set[weakref.ref[Lifetime]]):
        """During iteration, the free of an element returns, and the element may be removed."""

        def copy(self) -> Self:
            return type(self)(super().copy())

        def __iter__(self) -> Iterator[weakref.ref[Lifetime]]:
            for reference in super().__iter__():
                yield reference
                go.set()
                for _ in range(20):
                    if len(releaser.lifetimes) == before:
                        time.sleep(0.005)

    releaser.lifetimes = Read(list(releaser.lifetimes))
    before = len(releaser.lifetimes)
    driver.on_release = held
    second.release()
    assert freeing.wait(30)
    device.release()
    assert first.released
    until(lambda: ("close",) in driver.log)


def test_device_closes_after_objects_are_collected_in_a_cycle(opened: Opened) -> None:
    device, driver = opened
    cycle: list[Any] = [device.create_event()]   # an event starts no thread: its release waits for a later call
    cycle.append(cycle)
    del cycle
    gc.collect()
    device.release()
    until(lambda: ("close",) in driver.log)


def test_device_closes_when_released_inside_a_collected_cycle(opened: Opened) -> None:
    device, driver = opened

    class First:
        def __del__(self) -> None:
            device.release()   # the event's lifetime has left the weak set and is not yet a job

    cycle: list[Any] = [First()]
    cycle += [device.create_event(), cycle]
    del cycle
    gc.collect()
    until(lambda: ("close",) in driver.log)
