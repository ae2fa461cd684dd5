"""Release: when, on which thread and in which order objects are freed, also at unfavourable moments."""

from __future__ import annotations

import dataclasses
import gc
import logging
import queue
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.fake_backend import ALL, FakeDriver, FakePoint, FakeStream, binary, fake, open_fake, timeline, until
from support.fixtures import Opened

import xsem
from xsem.errors import BusyError, DriverError, ReleasedError
from xsem.runtime.lifetime import Lifetime, Releaser, _look
from xsem.runtime.queues.completion import MARK_EVERY
from xsem.runtime.threads import Background
from xsem.types import Capabilities, MemoryHandleType

NEVER_BLOCKS = dataclasses.replace(ALL, release_never_blocks=True)


class Unread(weakref.WeakSet[Lifetime]):
    """Accepts and removes elements; iteration or a copy fails the test."""

    def copy(self) -> Unread:
        pytest.fail("it was copied")

    def __iter__(self) -> Iterator[Lifetime]:
        pytest.fail("it was read")


def memory(device: xsem.Device) -> xsem.Memory:
    return device.create_memory(MemoryHandleType.OPAQUE_FD, 4096)


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("xsem-")}


def rest(device: xsem.Device) -> None:
    """Wait until the releasing thread has no work left and has ended."""
    until(lambda: device._device_state.releaser._thread._idle)
    until(lambda: not threads())


# ---- objects named by releasing
def test_releasing_names_released_objects_until_freed(opened: Opened) -> None:
    device, driver = opened
    commands, sem, other, mem = device.create_command_list(), timeline(device), timeline(device), memory(device)
    commands.append_wait([sem, other], [1, 1])
    assert device.releasing() == ()
    sem.release()
    buffer = mem.map_buffer()
    mem.release()   # its mapping is alive
    named = (sem._lifetime.what, mem._lifetime.what)
    assert device.releasing() == tuple(sorted(named))
    assert device.releasing() == tuple(sorted(named))   # the query changes nothing
    driver.finish()
    until(lambda: device.releasing() == (mem._lifetime.what,))
    assert len(driver.released("release_semaphore")) == 1
    assert driver.released("release_memory") == []
    buffer.release()
    until(lambda: device.releasing() == ())
    assert len(driver.released("release_memory")) == 1


def test_releasing_does_not_visit_live_objects(opened: Opened) -> None:
    device, _ = opened
    releaser = device._device_state.releaser
    sem = timeline(device)
    every = releaser.lifetimes
    releaser.lifetimes = Unread(every)
    assert device.releasing() == ()
    sem.release()
    until(lambda: device.releasing() == ())
    releaser.lifetimes = every


def test_releasing_is_in_the_order_of_names(opened: Opened) -> None:
    device, _ = opened
    commands = device.create_command_list()
    sems = [timeline(device, label) for label in "dbfaec"]
    commands.append_wait(sems, [1] * 6)
    for sem in sems:
        sem.release()
    assert [name.rpartition(" ")[2] for name in device.releasing()] == [repr(label) for label in "abcdef"]


def test_releasing_names_dropped_objects(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    what = sem._lifetime.what
    commands.append_wait(sem, 1)
    del sem
    gc.collect()
    until(lambda: device.releasing() == (what,))
    driver.finish()
    until(lambda: device.releasing() == ())
    assert len(driver.released("release_semaphore")) == 1


def test_releasing_runs_the_jobs_of_finalizers(opened: Opened) -> None:
    device, _ = opened
    done: list[int] = []
    device._device_state.releaser.post_later(lambda: done.append(1))
    assert device.releasing() == ()
    assert done == [1]


def test_releasing_names_an_object_until_the_driver_returns(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    device, driver = opened
    sem = timeline(device)
    inside, go, free = threading.Event(), threading.Event(), driver.release_semaphore

    def slow(token: Any) -> None:
        inside.set()
        assert go.wait(10)
        free(token)

    monkeypatch.setattr(driver, "release_semaphore", slow)
    sem.release()
    assert inside.wait(10)
    try:
        assert device.releasing() == (sem._lifetime.what,)
    finally:
        go.set()
    until(lambda: device.releasing() == ())
    assert len(driver.released("release_semaphore")) == 1


def test_released_device_closes_last(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_wait(sem, 1)
    device.release()
    assert device._lifetime.what in device.releasing()
    assert sem._lifetime.what in device.releasing()
    driver.finish()
    until(lambda: device.releasing() == ())
    assert ("close",) in driver.log


# ---- markers
def test_release_appends_one_marker_per_list_of_the_object(opened: Opened) -> None:
    device, driver = opened
    sem = timeline(device)
    lists = [device.create_command_list() for _ in range(4)]
    for at, commands in enumerate(lists[:3]):
        for value in range(1, 6):
            commands.append_wait(sem, 10 * at + value)
    assert [each.markers for each in driver.lists] == [0, 0, 0, 0]
    sem.release()
    assert [each.markers for each in driver.lists] == [1, 1, 1, 0]


def test_release_of_many_objects_of_a_list_shares_one_marker(opened: Opened) -> None:
    device, driver = opened
    commands = device.create_command_list()
    sems = [timeline(device) for _ in range(10)]
    for sem in sems:
        commands.append_wait(sem, 1)
    for sem in sems:
        sem.release()
    assert driver.lists[0].markers == 1


def test_appends_have_a_marker_each_256_and_no_other(opened: Opened) -> None:
    device, driver = opened
    assert MARK_EVERY == 256
    commands = device.create_command_list()
    sem = timeline(device)
    for value in range(MARK_EVERY - 1):
        commands.append_wait(sem, value)
    assert driver.lists[0].markers == 0
    for value in range(2 * MARK_EVERY + 1):
        commands.append_wait(sem, value)
    assert driver.lists[0].markers == 3


def test_unused_object_is_freed_at_once_when_no_release_blocks() -> None:
    with fake(NEVER_BLOCKS) as (device, driver):
        commands, sem = device.create_command_list(), timeline(device)
        commands.append_wait(timeline(device), 1)
        device.pending()   # runs the job of the dropped semaphore's finalizer
        marks, before = driver.lists[0].markers, driver.calls
        sem.release()
        assert len(driver.released("release_semaphore")) == 1
        assert driver.calls == before + 1
        assert driver.lists[0].markers == marks


def test_release_returns_at_once_and_frees_at_the_marker(opened: Opened) -> None:
    device, driver = opened
    commands = device.create_command_list()
    sem = timeline(device)
    commands.append_wait(sem, 1)
    sem.release()
    marker = driver.lists[0].points[-1]
    commands.append_barrier()   # later work has no effect
    assert driver.released("release_semaphore") == []
    until(lambda: threads() == {"xsem-release-fake:0"})
    marker.reached = True
    until(lambda: driver.released("release_semaphore") == [sem._state.token])
    rest(device)


def test_object_is_freed_when_all_its_lists_reach_their_markers(opened: Opened) -> None:
    device, driver = opened
    first, second = device.create_command_list(), device.create_command_list()
    sem = timeline(device)
    first.append_wait(sem, 1)
    second.append_wait(sem, 1)
    sem.release()
    driver.lists[0].reach_all()
    first.query()
    sem._device_state.releaser.submit(sem._lifetime)
    assert driver.released("release_semaphore") == []
    driver.lists[1].reach_all()
    until(lambda: len(driver.released("release_semaphore")) == 1)


def test_release_twice_frees_once(opened: Opened) -> None:
    device, driver = opened
    mem = memory(device)
    things = [timeline(device), mem, device.create_event(), device.create_command_list(), mem.map_buffer()]
    for thing in things:
        thing.release()
        thing.release()
        assert thing.released
    until(lambda: len(driver.released("release_memory")) == 1)
    assert len(driver.released("release_semaphore")) == 1
    assert len(driver.released("unmap_buffer")) == 1
    assert len(driver.released("close_list")) == 1


def test_release_by_many_threads_at_once_frees_once(opened: Opened) -> None:
    device, driver = opened
    for _ in range(50):
        commands = device.create_command_list()
        sem = timeline(device)
        commands.append_wait(sem, 1)
        driver.lists[-1].reach_all()
        start = threading.Barrier(4)

        def release(sem: xsem.Semaphore = sem, start: threading.Barrier = start) -> None:
            start.wait()
            sem.release()

        each = [threading.Thread(target=release) for _ in range(4)]
        for thread in each:
            thread.start()
        for thread in each:
            thread.join()
        driver.lists[-1].reach_all()
    until(lambda: len(driver.released("release_semaphore")) == 50)
    assert len(set(driver.released("release_semaphore"))) == 50


class Things:
    """One object of each class to release, and others to keep."""

    def __init__(self, device: xsem.Device) -> None:
        self.live = device.create_command_list()
        self.other = timeline(device)
        self.source = memory(device).map_buffer()
        self.semaphore = timeline(device)
        self.memory = memory(device)
        self.event = device.create_event()
        self.commands = device.create_command_list()
        self.buffer = memory(device).map_buffer()


USES: dict[str, Callable[[Things], object]] = {
    "semaphore value": lambda things: things.semaphore.value(),
    "semaphore export": lambda things: things.semaphore.export(),
    "semaphore mark_reset": lambda things: things.semaphore.mark_reset(),
    "semaphore host_signal": lambda things: things.semaphore.host_signal(1),
    "semaphore host_wait": lambda things: things.semaphore.host_wait(1),
    "semaphore native_handle": lambda things: things.semaphore.native_handle,
    "semaphore with": lambda things: things.semaphore.__enter__(),
    "semaphore waited for": lambda things: things.live.append_wait(things.semaphore, 1),
    "semaphore signalled": lambda things: things.live.append_signal(things.semaphore, 1),
    "semaphore in a batch": lambda things: things.live.append_wait([things.other, things.semaphore], [1, 1]),
    "memory map_buffer": lambda things: things.memory.map_buffer(),
    "memory export": lambda things: things.memory.export(),
    "memory acquired": lambda things: things.live.append_wait(things.other, 1, acquire=[things.memory]),
    "memory handed over": lambda things: things.live.append_signal(things.other, 1, release=[things.memory]),
    "event query": lambda things: things.event.query(),
    "event wait": lambda things: things.event.wait(),
    "event reset": lambda things: things.event.reset(),
    "event callback": lambda things: things.event.add_done_callback(print),
    "event awaited": lambda things: next(things.event.__await__()),
    "event waited for": lambda things: things.live.append_barrier(wait_events=[things.event]),
    "event signalled": lambda things: things.live.append_barrier(signal_event=things.event),
    "commands append_work": lambda things: things.commands.append_work(print),
    "commands append_barrier": lambda things: things.commands.append_barrier(),
    "commands append_wait": lambda things: things.commands.append_wait(things.other, 1),
    "commands append_signal": lambda things: things.commands.append_signal(things.other, 1),
    "commands append_copy": lambda things: things.commands.append_copy(things.buffer, things.source),
    "commands append_fill": lambda things: things.commands.append_fill(things.buffer, b"0"),
    "commands query": lambda things: things.commands.query(),
    "commands synchronize": lambda things: things.commands.synchronize(),
    "commands record": lambda things: things.commands.record(),
    "commands native_handle": lambda things: things.commands.native_handle,
    "buffer view": lambda things: things.buffer.view((1,), "uint8"),
    "buffer dlpack": lambda things: things.buffer.__dlpack__(),
    "buffer copied": lambda things: things.live.append_copy(things.buffer, things.source),
    "buffer filled": lambda things: things.live.append_fill(things.buffer, b"0"),
    "buffer copy_to_host": lambda things: things.buffer.copy_to_host(),
}


@pytest.mark.parametrize("use", USES)
def test_use_of_a_released_object_is_refused(opened: Opened, use: str) -> None:
    device, driver = opened
    things = Things(device)
    getattr(things, use.split(maxsplit=1)[0]).release()
    appended = [len(each.calls) for each in driver.lists]
    with pytest.raises(ReleasedError) as caught:
        USES[use](things)
    assert caught.value.reason == "released"
    assert [len(each.calls) for each in driver.lists] == appended


@pytest.mark.parametrize("use", USES)
def test_use_after_the_device_was_released_is_refused(use: str) -> None:
    with fake() as (device, _):
        things = Things(device)
        device.release()
        assert getattr(things, use.split(maxsplit=1)[0]).released
        with pytest.raises(ReleasedError):
            USES[use](things)


@pytest.mark.parametrize("call", [
    lambda device: timeline(device), lambda device: memory(device), lambda device: device.create_event(),
    lambda device: device.create_command_list(), lambda device: device.command_list(FakeStream(7)),
    lambda device: device.event(FakePoint(1, "foreign")), lambda device: device.host_buffer(1),
    lambda device: device.pending(), lambda device: device.watch(after_s=1.0), lambda device: device.__enter__(),
    lambda device: device.native_handle,
])
def test_use_of_a_released_device_is_refused(call: Callable[[xsem.Device], object]) -> None:
    with fake() as (device, _):
        device.release()
        with pytest.raises(ReleasedError):
            call(device)


# ---- order and threads
def test_buffers_are_freed_before_memory_before_the_device(opened: Opened) -> None:
    device, driver = opened
    mem = memory(device)
    buffers = [mem.map_buffer(offset, 1024) for offset in (0, 1024)]
    view = buffers[0].view((4,), "uint8")
    sem = timeline(device)
    device.release()
    assert all(each.released for each in (mem, sem, view, *buffers))
    until(lambda: ("close",) in driver.log)
    order = [call[0] for call in driver.log if call[0] != "release_semaphore"]
    assert order == ["unmap_buffer", "unmap_buffer", "release_memory", "close"]
    assert len(driver.released("release_semaphore")) == 1


def test_memory_released_first_is_freed_after_its_buffer(opened: Opened) -> None:
    device, driver = opened
    mem = memory(device)
    buffer = mem.map_buffer()
    mem.release()
    rest(device)
    assert driver.log == []
    buffer.release()
    until(lambda: len(driver.log) == 2)
    assert [call[0] for call in driver.log] == ["unmap_buffer", "release_memory"]


def test_only_the_releasing_thread_frees_memory(opened: Opened) -> None:
    device, driver = opened
    mem = memory(device)
    mem.map_buffer().release()
    mem.release()
    until(lambda: len(driver.released("release_memory")) == 1)
    assert driver.threads == {"xsem-release-fake:0"}


def test_other_calls_go_on_while_an_unmap_blocks(opened: Opened) -> None:
    device, driver = opened
    commands, sem, mem = device.create_command_list(), timeline(device), memory(device)
    driver.unblock.clear()
    mem.map_buffer().release()
    until(lambda: driver.threads)
    commands.append_signal(sem, 1)
    sem.release()
    mem.release()
    assert not commands.query()
    assert device.pending()[0].operation == "signal"
    driver.lists[0].reach_all()
    assert commands.query()
    assert driver.log == []
    driver.unblock.set()
    until(lambda: {"unmap_buffer", "release_memory", "release_semaphore"} == {call[0] for call in driver.log})


def test_objects_are_freed_by_the_caller_when_frees_never_block() -> None:
    with fake(NEVER_BLOCKS) as (device, driver):
        mem = memory(device)
        buffer = mem.map_buffer()
        buffer.release()
        mem.release()
        assert [call[0] for call in driver.log] == ["unmap_buffer", "release_memory"]
        assert driver.threads == {threading.current_thread().name}
        assert threads() == set()


def test_thread_ends_when_nothing_is_pending_and_comes_back(opened: Opened) -> None:
    device, driver = opened
    for round_ in range(1, 4):
        memory(device).release()
        while len(driver.released("release_memory")) < round_:
            rest(device)
        rest(device)


# ---- holds
@pytest.mark.parametrize("capabilities", [ALL, NEVER_BLOCKS], ids=["blocks", "never blocks"])
def test_array_keeps_a_released_mapping_until_collected(capabilities: Capabilities) -> None:
    with fake(capabilities) as (device, driver):
        driver.dlpack = (1, 0)
        mem = memory(device)
        buffer = mem.map_buffer()
        capsule = buffer.__dlpack__()
        buffer.release()
        mem.release()
        device.release()
        rest(device)
        assert driver.log == []
        del capsule
        until(lambda: [call[0] for call in driver.log] == ["unmap_buffer", "release_memory", "close"])


def test_object_is_freed_after_the_call_in_progress(opened: Opened) -> None:
    device, driver = opened
    sem = timeline(device)
    inside, leave = threading.Event(), threading.Event()

    def on_wait() -> None:
        inside.set()
        assert leave.wait(10)
        driver.values[sem._state.token] = 1

    driver.on_wait = on_wait
    waiter = threading.Thread(target=lambda: sem.host_wait(1))
    waiter.start()
    assert inside.wait(10)
    sem.release()
    device.release()
    rest(device)
    assert driver.log == []
    leave.set()
    waiter.join(10)
    until(lambda: [call[0] for call in driver.log] == ["release_semaphore", "close"])


def test_objects_of_a_capture_stay_until_the_device_closes(opened: Opened) -> None:
    device, driver = opened
    commands = device.command_list(FakeStream(7))
    driver.lists[0].capture = True
    sem, mem = timeline(device), memory(device)
    commands.append_wait(sem, 1, acquire=[mem])
    commands.append_signal(sem, 2)
    driver.lists[0].capture = False
    later = timeline(device)
    driver.lists[0].capture = True
    commands.append_wait(later, 1)
    driver.lists[0].capture = False
    sem.release()
    mem.release()
    rest(device)
    driver.finish()
    assert commands.query()
    later.release()   # although all is done now: the graph may be launched again
    rest(device)
    assert driver.log == []
    device.release()
    until(lambda: ("close",) in driver.log)
    assert (len(driver.released("release_semaphore")), len(driver.released("release_memory"))) == (2, 1)


def test_release_during_a_captured_append_blocks_no_thread(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.command_list(FakeStream(7)), timeline(device)

    def during() -> None:
        thread = threading.Thread(target=sem.release)
        thread.start()
        thread.join(10)

    driver.lists[0].capture = True
    driver.lists[0].during = during
    commands.append_wait(sem, 1)
    driver.lists[0].capture = False
    rest(device)
    assert driver.log == []


def test_nothing_is_appended_to_a_capture_by_xsem(opened: Opened) -> None:
    device, driver = opened
    commands = device.command_list(FakeStream(7))
    sem = timeline(device)
    commands.append_signal(sem, 1)
    driver.lists[0].capture = True
    for value in range(2, 2 * MARK_EVERY):
        commands.append_signal(sem, value)
    sem.release()
    for ask in (commands.query, lambda: commands.synchronize(timeout_s=5)):
        with pytest.raises(BusyError) as caught:
            ask()
        assert caught.value.reason == "capturing"
    device.pending()
    assert driver.lists[0].markers == 0
    driver.lists[0].capture = False
    assert not commands.query()
    assert driver.lists[0].markers == 1
    driver.finish()
    assert commands.query()


def test_own_calls_are_quiet_and_the_applications_are_not(opened: Opened) -> None:
    device, driver = opened
    commands = device.create_command_list()
    sem = timeline(device)
    for value in range(1, MARK_EVERY + 2):
        commands.append_signal(sem, value)
    for (what, *_), quiet in zip(driver.lists[0].calls, driver.lists[0].quiet_calls, strict=True):
        assert quiet == (what == "barrier")
    assert driver.lists[0].markers == 1


# ---- drivers that fail
def test_failing_release_is_logged_and_the_rest_goes_on(opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    device, driver = opened
    driver.release_semaphore = _failing  # type: ignore[assignment,method-assign]
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
    driver.unmap_buffer = _failing  # type: ignore[assignment,method-assign]
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
    point = event._bound()   # a reference that lasts until after the end
    original = driver.release_point

    def failing(point: FakePoint) -> None:
        original(point)
        raise DriverError("no", reason="driver")

    driver.release_point = failing  # type: ignore[method-assign]
    driver.finish()
    device.release()
    until(lambda: ("close",) in driver.log)
    del point


@pytest.mark.parametrize("error", [DriverError("lost", reason="lost"), RuntimeError("a defect of the backend")])
def test_failed_queue_frees_its_objects(opened: Opened, error: Exception) -> None:
    device, driver = opened
    commands, sem, mem = device.create_command_list(), timeline(device), memory(device)
    commands.append_wait(sem, 1, acquire=[mem])
    sem.release()
    driver.lists[0].points[-1].error = error
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
            driver.lists[0].points[-1].error = DriverError("lost", reason="lost")
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


# ---- dropped objects
def test_dropped_objects_are_freed_soon(opened: Opened) -> None:
    device, driver = opened
    things = [timeline(device), memory(device).map_buffer()]
    kept = weakref.ref(things[0])
    things.clear()
    gc.collect()
    assert kept() is None
    until(lambda: {"release_semaphore", "unmap_buffer", "release_memory"} == {call[0] for call in driver.log})
    assert driver.threads == {"xsem-release-fake:0"}


def test_dropped_object_in_use_is_freed_when_its_work_is_done(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_wait(sem, 1)
    del sem
    until(lambda: driver.lists[0].markers == 1)
    assert driver.log == []
    driver.lists[0].reach_all()
    until(lambda: len(driver.released("release_semaphore")) == 1)


def test_dropped_list_is_closed_when_its_work_is_done(opened: Opened) -> None:
    device, driver = opened
    commands = device.create_command_list()
    commands.append_work(lambda: None)
    del commands
    until(lambda: driver.lists[0].markers == 1)
    assert not driver.lists[0].closed
    driver.lists[0].reach_all()
    until(lambda: driver.lists[0].closed)


def test_dropped_event_and_wrapper_start_no_thread(opened: Opened) -> None:
    device, _ = opened
    before = len(device._device_state.releaser.lifetimes)
    for _ in range(3):
        event = device.create_event()
        commands = device.command_list(FakeStream(7))
        commands.append_barrier(signal_event=event)
        del event, commands
        assert device._device_state.releaser._thread._idle
    device.pending()   # any call runs the jobs of their finalizers
    assert len(device._device_state.releaser.lifetimes) == before + 1   # the lifetime of the stream


def test_dropped_fence_is_released_by_a_later_call(opened: Opened) -> None:
    device, driver = opened
    commands, event = device.create_command_list(), device.create_event()
    commands.append_barrier(signal_event=event)
    point = driver.points[0]
    driver.lists[0].reach_all()
    event.wait()
    event.reset()
    device.pending()
    assert point.released == 1


def test_dropped_device_warns_and_closes() -> None:
    device, driver = open_fake()
    commands = device.create_command_list()
    commands.append_wait(timeline(device), 1)
    held = [device, commands]
    del device, commands
    with pytest.warns(ResourceWarning, match="unreleased <Device fake:0"):
        held.clear()
    until(lambda: driver.lists[0].markers == 1)
    assert ("close",) not in driver.log
    driver.finish()
    until(lambda: ("close",) in driver.log)
    assert driver.misuse == []


def test_dropped_device_closes_when_warnings_are_errors() -> None:
    device, driver = open_fake()
    unraisable: list[Any] = []
    original, sys.unraisablehook = sys.unraisablehook, unraisable.append
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ResourceWarning)
            del device
            gc.collect()
    finally:
        sys.unraisablehook = original
    assert [type(each.exc_value) for each in unraisable] == [ResourceWarning]
    until(lambda: ("close",) in driver.log)


def test_released_device_is_dropped_without_a_warning() -> None:
    device, driver = open_fake()
    with device:
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del device
        gc.collect()
    until(lambda: ("close",) in driver.log)


def test_objects_keep_their_device() -> None:
    device, driver = open_fake()
    sem = timeline(device)
    del device
    gc.collect()
    rest(sem.device)
    assert driver.log == []
    sem.device.release()
    until(lambda: ("close",) in driver.log)


class Owner:
    """An object of the application that releases its resources when it is collected."""

    def __init__(self, *owned: Any) -> None:
        self.owned = owned
        self.cycle = self

    def __del__(self) -> None:
        for each in self.owned:
            each.release()


@pytest.mark.timeout(20)
def test_finalizer_may_release_while_any_lock_is_held(opened: Opened) -> None:
    device, driver = opened
    commands, device_state = device.create_command_list(), device._device_state
    owned = [timeline(device) for _ in range(4)]
    for sem in owned:
        commands.append_wait(sem, 1)
    event = device.create_event()
    commands.append_barrier(signal_event=event)
    locks = [device_state.releaser.lock, device._queues.lock, commands._queue.lock, owned[0]._state.host_order]
    for lock, sem in zip(locks, owned, strict=True):
        with lock:
            Owner(sem, event)
            gc.collect()
        assert sem.released
    driver.finish()
    until(lambda: len(driver.released("release_semaphore")) == 4)


def test_release_by_a_finalizer_during_an_append_waits_for_it(opened: Opened) -> None:
    device, driver = opened
    commands, sem, other = device.create_command_list(), timeline(device), timeline(device)
    commands.append_wait(sem, 1)
    driver.everything_is_done = True

    def during() -> None:
        Owner(sem, other)
        gc.collect()

    driver.lists[0].during = during
    commands.append_wait(other, 1)   # a marker during the append would report this operation as done
    until(lambda: len(driver.log) == 2)
    assert driver.lists[0].markers == 1
    assert [call[0] for call in driver.lists[0].calls] == ["wait", "wait", "barrier"]


# ---- the device
def test_device_with_live_objects_closes_when_all_is_done(opened: Opened) -> None:
    device, driver = opened
    mem, sem, event = memory(device), timeline(device), device.create_event()
    buffer = mem.map_buffer()
    borrowed_event = device.event(FakePoint(99, "foreign"))
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
    original = driver.done

    def done(point: FakePoint) -> bool:
        inside.set()
        leave.wait(10)
        return original(point)   # records a misuse if the device is closed

    commands.query()
    driver.done = done  # type: ignore[method-assign]
    poller = threading.Thread(target=commands._queue.poll)
    poller.start()
    assert inside.wait(10)
    driver.done = original  # type: ignore[method-assign]
    driver.finish()
    device.release()
    until(lambda: driver.released("release_semaphore"))
    sem._device_state.releaser.submit(commands._lifetime)
    assert driver.released("close_list") == []
    leave.set()
    poller.join(10)
    until(lambda: ("close",) in driver.log)
    assert driver.misuse == []


def test_device_is_released_while_another_thread_frees_objects(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, driver = opened
    releaser = device._device_state.releaser
    first, second = timeline(device), timeline(device)
    freeing, go = threading.Event(), threading.Event()
    free = driver.release_semaphore

    def held(token: Any) -> None:
        freeing.set()
        assert go.wait(30)
        free(token)

    class Read(weakref.WeakSet[Lifetime]):
        """During iteration, the free of an element returns, and the element may be removed."""

        def __iter__(self) -> Iterator[Lifetime]:
            for lifetime in super().__iter__():
                yield lifetime
                go.set()
                for _ in range(20):
                    if len(self) == before:
                        time.sleep(0.005)

    releaser.lifetimes = Read(list(releaser.lifetimes))
    before = len(releaser.lifetimes)
    monkeypatch.setattr(driver, "release_semaphore", held)
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


# ---- lifetimes without a device
def test_hold_of_a_released_object_is_refused() -> None:
    releaser = Releaser("test", FakeDriver().quiet)
    freed: list[int] = []
    lifetime = Lifetime(releaser, "thing", lambda: freed.append(1), may_block=False, parent=None)
    with lifetime.held():
        lifetime.release()
        assert freed == []
        with pytest.raises(ReleasedError), lifetime.held():
            raise AssertionError("entered")
        assert freed == []
    assert freed == [1]


def test_freed_lifetime_is_neither_freed_again_nor_visited() -> None:
    releaser = Releaser("test", FakeDriver().quiet)
    freed: list[int] = []
    lifetime = Lifetime(releaser, "thing", lambda: freed.append(1), may_block=False, parent=None)
    with lifetime.visited() as there:
        assert there
        with lifetime.held():
            lifetime.release()
            assert not lifetime.free()   # held
        assert not lifetime.free()   # visited
    assert lifetime.free()
    assert not lifetime.free()
    with lifetime.visited() as there:
        assert not there
    assert freed == [1]
    until(lambda: releaser._thread._idle)


def test_thread_looks_again_for_work_that_came_at_its_end() -> None:
    worked: list[int] = []
    answers = iter([True, True, False])
    thread = Background("xsem-test", lambda: worked.append(1), lambda: next(answers))
    thread.wake()
    until(lambda: thread._idle and len(worked) == 3)


def test_interrupted_call_holds_nothing() -> None:
    """KeyboardInterrupt between any two calls inside held(), where Python delivers it."""
    for at in range(1, 40):
        releaser = Releaser("test", FakeDriver().quiet)
        lifetime = Lifetime(releaser, "thing", lambda: None, may_block=False, parent=None)
        seen = 0

        def interrupt(frame: Any, event: str, _arg: object, at: int = at) -> Any:
            nonlocal seen
            frame.f_trace_lines = False   # Python checks for signals at calls and returns
            code = frame.f_code
            # Not at the yield of held(): the generator would end without its `finally`, which no signal causes.
            names = ("hold", "check") if event == "return" else ("hold", "check", "held")
            if code.co_filename.endswith("lifetime.py") and code.co_name in names:
                seen += 1
                if seen == at:
                    raise KeyboardInterrupt
            return interrupt

        try:
            sys.settrace(interrupt)
            with lifetime.held():
                sys.settrace(None)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        gc.collect()
        assert not lifetime._holders, at


def test_closed_lists_are_removed_from_the_uses_of_an_object(opened: Opened) -> None:
    device, driver = opened
    driver.everything_is_done = True
    sem = timeline(device)
    for value in range(1, 400):
        with device.create_command_list() as commands:
            commands.append_signal(sem, value)
    assert len(sem._lifetime.uses) < 100
    assert len(device._queues._queues) == 0
    assert len(device._device_state.releaser.lifetimes) < 10


def test_open_lists_are_kept_in_the_uses_of_an_object(opened: Opened) -> None:
    device, driver = opened
    sem = timeline(device)
    lists = [device.create_command_list() for _ in range(100)]
    for value, commands in enumerate(lists, 1):
        commands.append_signal(sem, value)
    assert len(sem._lifetime.uses) == 200   # the lists and their prepared appends
    sem.release()
    for each in driver.lists[:-1]:
        each.reach_all()
    device.pending()
    assert driver.released("release_semaphore") == []
    driver.lists[-1].reach_all()
    until(lambda: driver.released("release_semaphore"))


def test_released_lifetimes_query_a_list_once(opened: Opened) -> None:
    device, driver = opened
    commands = device.create_command_list()
    sems = [timeline(device) for _ in range(200)]
    for sem in sems:
        commands.append_wait(sem, 1)
    for sem in sems:
        sem.release()
    asked: list[str] = []
    original = driver.done

    def done(point: FakePoint) -> bool:
        asked.append(threading.current_thread().name)
        return original(point)

    driver.done = done  # type: ignore[method-assign]
    before = len(asked)
    _look([sem._lifetime for sem in sems])
    assert asked[before:].count(threading.current_thread().name) == 1
    driver.finish()
    until(lambda: len(driver.log) == 200)


# ---- the end of the process
@pytest.mark.parametrize("left", ["device", "released", "dropped", "waiting"])
def test_exit_makes_no_driver_call(left: str) -> None:
    program = f"""
import atexit, os, sys, threading
class Watch:
    armed = False
def arm():
    Watch.armed = True
    for each in late:
        each.release()
late = []
atexit.register(arm)                 # before xsem registers anything: runs after all of its
from support import fake_backend
from support.fake_backend import open_fake, timeline, FakeDriver
def own(self, what):
    if Watch.armed:
        os.write(1, what.encode() + b" at exit\\n")
FakeDriver._own = own
device, driver = open_fake()
mem = device.create_memory(fake_backend.MemoryHandleType.OPAQUE_FD, 4096)
buffer = mem.map_buffer()
commands, sem, event = device.create_command_list(), timeline(device), device.create_event()
commands.append_wait(sem, 1, signal_event=event)
event.add_done_callback(lambda _: None)
late += [timeline(device), device.create_memory(fake_backend.MemoryHandleType.OPAQUE_FD, 1)]
if {left!r} == "released":
    device.release()
if {left!r} == "dropped":
    del mem, buffer, sem
if {left!r} == "waiting":
    device.watch(after_s=0.01)
    buffer.release()
print("end", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False,
                          env={"PYTHONPATH": ":".join(sys.path)})
    assert done.returncode == 0, done.stderr
    assert done.stdout == "end\n", done.stdout
    assert "Traceback" not in done.stderr


def test_releasing_thread_survives_an_unexpected_error(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    device, driver = opened
    monkeypatch.setattr("xsem.runtime.threads._AGAIN_S", 0.001)
    mem = memory(device)
    with monkeypatch.context() as patched:
        patched.setattr(Releaser, "_settle", _out_of_memory)
        mem.release()
        until(lambda: "MemoryError" in caplog.text)
    until(lambda: driver.released("release_memory"))   # it continues without another release
    assert "xsem-release-fake:0 failed, and goes on" in caplog.text


def test_logging_in_the_releasing_thread_leaves_no_dummy_thread(
    opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    device, driver = opened
    caplog.set_level(logging.WARNING)
    driver.release_memory = _failing  # type: ignore[assignment,method-assign]
    memory(device).release()
    until(lambda: "releasing the" in caplog.text)
    assert caplog.records[0].threadName == "xsem-release-fake:0"
    rest(device)
    assert not [thread for thread in threading.enumerate() if "Dummy" in thread.name]


def test_pending_release_is_polled_less_and_less_often(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    device, driver = opened
    pauses: list[float] = []

    class Nap(queue.SimpleQueue[None]):
        def get(self, block: bool = True, timeout: float | None = None) -> None:
            assert timeout is not None
            pauses.append(timeout)
            super().get(timeout=min(timeout, 0.001))

    commands, sem = device.create_command_list(), timeline(device)
    commands.append_wait(sem, 1)
    monkeypatch.setattr(device._device_state.releaser, "_nap", Nap())
    sem.release()
    until(lambda: len(pauses) > 12)
    assert pauses[:2] == [0.0005, 0.001]
    assert pauses[-1] == 0.05
    driver.finish()
    until(lambda: driver.log)


def _failing(_token: object) -> None:
    raise DriverError("no", reason="driver", call="cuDestroy", code=1)


def _out_of_memory(*_: object) -> bool:
    raise MemoryError
