"""Release frees an object at the markers of its lists, once. Later uses of the object are refused."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from support.at_once import threads
from support.fake_backend import FakeFence, FakeStream, fake, timeline
from support.fixtures import Opened
from support.releasing import NEVER_BLOCKS, memory, rest
from support.waiting import until

import xsem
from xsem.errors import ReleasedError
from xsem.runtime.lifetime import Lifetime, Releaser, _look
from xsem.runtime.queues.room import MARK_EVERY
from xsem.runtime.threads import Background


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
    marker = driver.lists[0].fences[-1]
    commands.append_barrier()   # later work has no effect
    assert driver.released("release_semaphore") == []
    until(lambda: threads() == ["xsem-release-fake:0"])
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
    lambda device: device.event(FakeFence(1, "foreign")), lambda device: device.host_buffer(1),
    lambda device: device.pending(), lambda device: device.watch(after_s=1.0), lambda device: device.__enter__(),
    lambda device: device.native_handle,
])
def test_use_of_a_released_device_is_refused(call: Callable[[xsem.Device], object]) -> None:
    with fake() as (device, _):
        device.release()
        with pytest.raises(ReleasedError):
            call(device)


# ---- lifetimes without a device
def test_hold_of_a_released_object_is_refused() -> None:
    releaser = Releaser("test")
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
    releaser = Releaser("test")
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
    until(lambda: not releaser._thread.running)


def test_thread_looks_again_for_work_that_came_at_its_end() -> None:
    worked: list[int] = []
    answers = iter([True, True, False])
    thread = Background("xsem-test", lambda: worked.append(1), lambda: next(answers))
    thread.wake()
    until(lambda: thread._idle and len(worked) == 3)


def test_collected_lease_ends_its_hold() -> None:
    """Such a lease is what an interrupted ``with`` statement leaves behind."""
    releaser = Releaser("test")
    lifetime = Lifetime(releaser, "thing", lambda: None, may_block=False, parent=None)
    lease = lifetime.held()
    assert lifetime.holders
    del lease
    releaser.drain()
    until(lambda: not lifetime.holders)


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
    assert len(sem._lifetime.uses) == 100   # one prepared append for each list
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
    original = driver.query_fence

    def done(fence: FakeFence) -> bool:
        asked.append(threading.current_thread().name)
        return original(fence)

    driver.query_fence = done  # type: ignore[method-assign]
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
                          env={"PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == 0, done.stderr
    assert done.stdout == "end\n", done.stdout
    assert "Traceback" not in done.stderr
