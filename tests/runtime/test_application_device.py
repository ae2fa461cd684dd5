"""A device with `Callers.APPLICATION`: only the application's calls on the device call its driver."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.fake_backend import ALL, FakeDriver, batch, fake, finish, open_fake, timeline, until
from support.interrupts import interruptions

import xsem
from xsem.errors import DriverError, ReleasedError
from xsem.runtime.semaphore_state import Origin
from xsem.runtime.threads import Deferred, enter_own_thread
from xsem.spi import Callers, compiled
from xsem.types import DeviceInfo, MemoryHandleType, PendingOp

OTHER = DeviceInfo(id="fake:1", backend="fake", index=1, name="fake")


class Told(FakeDriver):
    """Notes each call that does not come from the thread of the test."""

    def __init__(self) -> None:
        super().__init__(callers=Callers.APPLICATION)
        self.application = threading.get_ident()
        self.elsewhere: list[tuple[str, str]] = []

    def check_open(self, what: str) -> None:
        if threading.get_ident() != self.application:
            self.elsewhere.append((what, threading.current_thread().name))
        super().check_open(what)


@pytest.fixture
def at() -> Iterator[tuple[xsem.Device, Told]]:
    driver = Told()
    with fake(driver=driver) as (device, _):
        yield device, driver
        del device
    assert driver.elsewhere == []
    until(lambda: not threads())   # the thread of watch() ends soon


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.endswith("fake:0")]


@contextmanager
def own_thread() -> Iterator[Callable[[Callable[[], object]], None]]:
    """Give a function that calls another function on a thread of xsem, as a callback of another device runs there."""

    def call(function: Callable[[], object]) -> None:
        def run() -> None:
            enter_own_thread()
            function()

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    yield call


def pause() -> None:
    """Give a thread of xsem time for a mistake."""
    threading.Event().wait(0.1)


# ---- releases
def behind_work(device: xsem.Device, count: int = 100) -> xsem.CommandList:
    commands = device.create_command_list()
    for semaphore in batch(device, count):
        commands.append_wait(semaphore, 1)
        semaphore.release()
    return commands


def test_objects_behind_work_are_freed_by_the_next_call(at: tuple[xsem.Device, Told]) -> None:
    device, driver = at
    behind_work(device)
    pause()
    assert len(device.releasing()) == 101   # with the list
    assert threads() == []
    driver.lists[0].reach_all()
    pause()
    assert driver.released("release_semaphore") == []   # no thread frees
    assert device.releasing() == ()
    assert len(driver.released("release_semaphore")) == 100


def test_append_frees_objects(at: tuple[xsem.Device, Told]) -> None:
    device, driver = at
    commands = behind_work(device)
    finished = driver.lists[0]

    def freed() -> bool:
        finished.reach_all()
        commands.append_barrier()
        return len(driver.released("release_semaphore")) == 100

    until(freed)
    assert not device._device_state.releaser.jobs   # the next append has nothing to do


def test_appends_look_for_a_part_of_the_time(at: tuple[xsem.Device, Told], monkeypatch: pytest.MonkeyPatch) -> None:
    device, driver = at
    commands = behind_work(device, 1)
    thread: Any = device._device_state.releaser._thread
    monkeypatch.setattr(thread, "_rest_until", 1e18)
    calls = driver.calls
    commands.append_barrier()
    assert driver.calls == calls + 1   # the barrier
    monkeypatch.setattr(thread, "_rest_until", 0.0)
    commands.append_barrier()
    assert driver.calls > calls + 2
    assert thread._rest_until > 0


@pytest.mark.parametrize("call", [
    lambda commands, event: commands.synchronize(timeout_s=10),
    lambda commands, event: event.wait(timeout_s=10),
], ids=["synchronize", "wait"])
def test_host_wait_frees_objects(at: tuple[xsem.Device, Told], call: Callable[[Any, Any], object]) -> None:
    device, driver = at
    commands, event = behind_work(device), device.create_event()
    commands.append_barrier(signal_event=event)
    driver.on_wait = driver.finish
    call(commands, event)
    assert len(driver.released("release_semaphore")) == 100


def test_memory_is_freed_with_its_mapping(at: tuple[xsem.Device, Told]) -> None:
    device, driver = at
    commands, memory = device.create_command_list(), device.create_memory(MemoryHandleType.OPAQUE_FD, 4096)
    buffer = memory.map_buffer(0, 64)
    commands.append_fill(buffer, b"\0")
    buffer.release()
    memory.release()
    finish(commands, driver)
    assert device.releasing() == ()   # one call for both
    assert [name for name, _ in driver.log] == ["unmap_buffer", "release_memory"]


def test_blocking_release_waits_for_a_moment_without_waits(at: tuple[xsem.Device, Told]) -> None:
    device, driver = at
    commands, waited, unused = device.create_command_list(), timeline(device), timeline(device)
    commands.append_wait(waited, 1)
    unused.release()
    assert device.releasing() == ("timeline_semaphore_fd semaphore",)
    driver.lists[0].reach_all()
    device._device_state.releaser.wake()   # as in synchronize()
    assert len(driver.released("release_semaphore")) == 1


def test_release_on_a_thread_of_xsem_waits_for_the_application(at: tuple[xsem.Device, Told]) -> None:
    device, driver = at
    commands, event = device.create_command_list(), device.create_event()
    semaphores = batch(device, 3)
    commands.append_barrier(signal_event=event)
    finish(commands, driver)
    commands.append_wait(semaphores[0], 1)
    event.reset()   # its fence is unused now
    assert device._device_state._detached
    with own_thread() as call:
        for semaphore in semaphores:
            call(semaphore.release)
        call(commands.release)
        call(device._device_state.catch_up)
        call(device._device_state.return_fences)
    assert driver.elsewhere == []
    driver.lists[0].reach_all()
    driver.finish()
    assert device.releasing() == ()
    assert driver.lists[0].closed == 1


@pytest.mark.parametrize("thread", [True, False])
def test_dropped_objects_are_freed_by_the_next_call(at: tuple[xsem.Device, Told], thread: bool) -> None:
    device, driver = at
    commands, event = device.create_command_list(), device.create_event()
    commands.append_barrier(signal_event=event)
    driver.lists[0].reach_all()
    left: list[Any] = [*batch(device, 10), commands, event]   # the only references
    del commands, event

    def drop() -> None:
        left.clear()
        gc.collect()

    if thread:
        other = threading.Thread(target=drop)
        other.start()
        other.join()
    else:
        drop()
    pause()
    assert driver.released("release_semaphore") == []
    driver.finish()
    assert device.releasing() == ()
    assert len(driver.released("release_semaphore")) == 10
    assert driver.lists[0].closed == 1


def test_unused_fence_is_released_by_the_next_call(at: tuple[xsem.Device, Told]) -> None:
    device, driver = at
    commands, event = device.create_command_list(), device.create_event()
    commands.append_barrier(signal_event=event)
    finish(commands, driver)
    thread = threading.Thread(target=event.reset)
    thread.start()
    thread.join()
    until(lambda: commands.query() and driver.fences[0].released == 1)


def test_other_device_of_the_backend_queries_nothing(at: tuple[xsem.Device, Told]) -> None:
    device, driver = at
    commands, semaphore = device.create_command_list(), timeline(device)
    commands.append_wait(semaphore, 1)
    calls = driver.calls
    with fake(info=OTHER) as (other, others):
        timeline(other).release()
        until(lambda: other.releasing() == ())   # a wait on `device` holds no release of `other`
        assert len(others.released("release_semaphore")) == 1
    assert driver.calls == calls


def test_value_is_not_read_for_another_device(at: tuple[xsem.Device, Told]) -> None:
    device, driver = at
    semaphore = timeline(device)
    calls = driver.calls
    assert Origin(device._device_state, semaphore._state).value() is None
    assert driver.calls == calls
    assert semaphore.value() == 0


# ---- the device
def test_release_of_the_device_closes_it_after_synchronize(at: tuple[xsem.Device, Told]) -> None:
    device, driver = at
    commands, _ = behind_work(device), device.create_memory(MemoryHandleType.OPAQUE_FD, 4096).map_buffer()
    driver.finish()
    commands.synchronize(timeout_s=10)
    device.release()
    assert driver.log[-1] == ("close",)
    assert device.releasing() == ()


@pytest.mark.parametrize("call", [lambda device: device.release(), lambda device: device.releasing()],
                         ids=["release", "releasing"])
def test_later_call_completes_the_release_of_the_device(
    at: tuple[xsem.Device, Told], call: Callable[[xsem.Device], object]
) -> None:
    device, driver = at
    behind_work(device)
    device.release()
    assert ("close",) not in driver.log
    driver.finish()
    pause()
    assert ("close",) not in driver.log   # no thread closes it
    call(device)
    assert driver.log[-1] == ("close",)


def test_release_of_the_device_calls_the_callbacks(at: tuple[xsem.Device, Told]) -> None:
    device, _ = at
    commands = device.create_command_list()
    called: list[int] = []
    for number in range(2):
        event = device.create_event()
        commands.append_barrier(signal_event=event)
        event.add_done_callback(lambda _, number=number: called.append(number))   # type: ignore[misc]
    device.release()
    assert called == [0, 1]   # as on other devices: nothing will ever tell their end


def test_callback_may_release_the_device(at: tuple[xsem.Device, Told]) -> None:
    device, driver = at
    commands = device.create_command_list()
    called: list[str] = []
    events = [device.create_event(), device.create_event()]
    for event in events:
        commands.append_barrier(signal_event=event)
    events[0].add_done_callback(lambda _: (called.append("first"), device.release()))   # type: ignore[func-returns-value]
    events[1].add_done_callback(lambda _: called.append("second"))
    driver.fences[0].reached = True
    device._device_state.catch_up(now=True)
    assert called == ["first", "second"]   # the end of the second operation will never be known


# ---- callbacks
def test_callback_runs_in_the_next_call(at: tuple[xsem.Device, Told]) -> None:
    device, driver = at
    commands, event = device.create_command_list(), device.create_event()
    commands.append_barrier(signal_event=event)
    called: list[tuple[xsem.Event, int]] = []
    driver.lists[0].reach_all()
    event.add_done_callback(lambda each: called.append((each, threading.get_ident())))
    pause()
    assert called == []
    commands.append_barrier()
    assert called == [(event, threading.get_ident())]
    assert not device._device_state.notifier.stalled   # the next append has nothing to do


@pytest.mark.parametrize("wait", ["wait", "synchronize"])
def test_callback_runs_in_a_host_wait(at: tuple[xsem.Device, Told], wait: str) -> None:
    device, driver = at
    commands, event, last = device.create_command_list(), device.create_event(), device.create_event()
    commands.append_barrier(signal_event=event)
    commands.append_barrier(signal_event=last)
    event.add_done_callback(lambda _: driver.lists[0].reach_all())   # the wait depends on the callback
    driver.fences[0].reached = True
    last.wait(timeout_s=10) if wait == "wait" else commands.synchronize(timeout_s=10)
    assert max(driver.slices) <= 5_000_000


def test_host_wait_of_a_semaphore_runs_callbacks(at: tuple[xsem.Device, Told]) -> None:
    device, driver = at
    commands, event, semaphore = device.create_command_list(), device.create_event(), timeline(device)
    commands.append_barrier(signal_event=event)
    event.add_done_callback(lambda _: semaphore.host_signal(1))
    driver.on_wait = driver.lists[0].reach_all
    semaphore.host_wait(1, timeout_s=10)


def test_callback_may_call_the_device(at: tuple[xsem.Device, Told]) -> None:
    device, driver = at
    commands, event = device.create_command_list(), device.create_event()
    commands.append_barrier(signal_event=event)
    called: list[object] = []

    def callback(_: xsem.Event) -> None:
        timeline(device).release()
        called.append(device.pending())
        commands.append_barrier()

    event.add_done_callback(callback)
    driver.lists[0].reach_all()
    commands.query()
    assert called == [()]


def test_exception_of_a_callback_is_logged(at: tuple[xsem.Device, Told], caplog: pytest.LogCaptureFixture) -> None:
    device, driver = at
    commands, event = device.create_command_list(), device.create_event()
    commands.append_barrier(signal_event=event)
    called: list[xsem.Event] = []

    def exits(_: xsem.Event) -> None:
        raise SystemExit

    event.add_done_callback(exits)
    event.add_done_callback(called.append)
    driver.lists[0].reach_all()
    until(lambda: commands.query() and called)
    assert called == [event]
    assert "a done callback raised" in caplog.text


@pytest.mark.parametrize("where", ["callback", "query"])
def test_ctrl_c_passes_to_the_application(
    at: tuple[xsem.Device, Told], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, driver = at
    commands, event = device.create_command_list(), device.create_event()
    commands.append_barrier(signal_event=event)
    called: list[xsem.Event] = []

    def interrupt(_: object) -> Any:
        monkeypatch.undo()
        raise KeyboardInterrupt

    if where == "callback":
        event.add_done_callback(interrupt)
    else:
        monkeypatch.setattr(driver, "query_fence", interrupt)
    event.add_done_callback(called.append)
    driver.lists[0].reach_all()
    with pytest.raises(KeyboardInterrupt):
        device._device_state.catch_up(now=True)
    assert called == []
    device._device_state.catch_up(now=True)
    assert called == [event]


@pytest.mark.parametrize("never_blocks", [False, True])
def test_ctrl_c_anywhere_in_a_pass_loses_no_work(never_blocks: bool) -> None:
    capabilities = replace(ALL, release_never_blocks=never_blocks)
    device, driver = open_fake(driver=FakeDriver(capabilities, Callers.APPLICATION))
    commands, state = device.create_command_list(), device._device_state
    called: list[xsem.Event] = []
    ended: list[int] = []
    driver.on_release = lambda: ended.append(1)
    threads: list[Any] = [state.releaser._thread, state.callbacks_thread]

    def prepare() -> None:
        called.clear()
        ended.clear()
        used, unused, event = timeline(device), timeline(device), device.create_event()
        commands.append_wait(used, 1, signal_event=event)
        event.add_done_callback(called.append)
        used.release()
        unused.release()
        driver.lists[0].reach_all()

    prepare()
    places: Counter[str] = Counter()
    for place, otherwise in interruptions(partial(state.catch_up, now=True)):
        assert otherwise == "", place
        assert state.releaser.jobs or not state.releaser._has_work(), place   # as the next append sees it
        driver.finish()   # also a new marker: Ctrl-C can come when xsem has just taken the old one
        for thread in threads:
            thread._rest_until = 0.0
        commands.query()   # does the work that is left
        driver.everything_is_done = False
        assert state.releaser.releasing() == (), place
        # An interrupted driver call counts as made, and an interrupted callback as called.
        in_driver = place.driver or Path(place.file).name in ("fake_backend.py", "threading.py")
        if not in_driver and place.function.rpartition(".")[2] not in ("_free_made", "_return_fence", "<lambda>"):
            places[place.function.rpartition(".")[2]] += 1
            assert (len(ended), len(called)) == (2, 1), place
        assert len(ended) <= 2
        assert len(called) <= 1
        prepare()
    assert {"resume", "_work_here", "_settle", "_call_settled"} <= {*places} or compiled()
    driver.finish()
    device.release()
    assert driver.log[-1] == ("close",)
    assert driver.misuse == []


# ---- asyncio
async def awaiting(event: xsem.Event) -> None:
    await event


def test_await_queries_on_the_thread_of_the_loop(at: tuple[xsem.Device, Told]) -> None:
    device, driver = at
    commands, first, second = device.create_command_list(), device.create_event(), device.create_event()
    commands.append_barrier(signal_event=first)
    commands.append_barrier(signal_event=second)

    async def main() -> None:
        tasks = [asyncio.create_task(awaiting(event)) for event in (first, second)]
        await asyncio.sleep(0.02)
        assert not tasks[0].done()
        driver.fences[0].reached = True
        async with asyncio.timeout(10):
            await tasks[0]
        assert not tasks[1].done()
        driver.fences[1].reached = True
        async with asyncio.timeout(10):
            await tasks[1]

    asyncio.run(main())


@pytest.mark.parametrize("end", ["cancel", "release", "fail"])
def test_await_ends(at: tuple[xsem.Device, Told], end: str) -> None:
    device, driver = at
    commands, event = device.create_command_list(), device.create_event()
    commands.append_barrier(signal_event=event)

    async def main() -> None:
        task = asyncio.create_task(awaiting(event))
        await asyncio.sleep(0.02)
        if end == "cancel":
            task.cancel()
        elif end == "release":
            device.release()
        else:
            driver.fences[0].error = DriverError("lost", reason="work_failed", from_earlier_work=True)
        async with asyncio.timeout(10):
            await asyncio.wait([task])
        if end == "cancel":
            assert task.cancelled()
        else:
            assert isinstance(task.exception(), ReleasedError if end == "release" else DriverError)

    asyncio.run(main())


# ---- watch
def test_watch_reports_from_the_records(at: tuple[xsem.Device, Told], caplog: pytest.LogCaptureFixture) -> None:
    device, driver = at
    commands, semaphore = device.create_command_list(), timeline(device, "frames")
    reports: list[tuple[PendingOp, ...]] = []
    commands.append_wait(semaphore, 1)
    calls = driver.calls
    device.watch(after_s=0.02, report=reports.append)
    until(lambda: reports)
    pause()
    assert driver.calls == calls
    assert [(op.operation, op.value, op.current_value) for op in reports[0]] == [("wait", 1, None)]
    assert len(reports) == 1
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


# ---- the deferred work
def test_refused_passes_keep_the_work() -> None:
    work: list[str] = ["first"]
    outer: list[bool] = []

    def take() -> None:
        outer.append(deferred.resume(now=True))   # a callback calls the device
        work.clear()

    deferred = Deferred("xsem-test", take, lambda: bool(work))
    assert not deferred.wake()
    with own_thread() as call:
        call(lambda: deferred.resume(now=True))
    assert deferred.stalled
    assert work == ["first"]
    assert deferred.resume()
    assert not deferred.stalled
    assert outer == [False]


def test_pass_in_one_thread_only() -> None:
    inside, go = threading.Event(), threading.Event()
    passes: list[int] = []

    def take() -> None:
        passes.append(threading.get_ident())
        inside.set()
        go.wait(10)

    deferred = Deferred("xsem-test", take, lambda: False)
    thread = threading.Thread(target=deferred.resume)
    thread.start()
    inside.wait(10)
    assert not deferred.resume(now=True)
    go.set()
    thread.join()
    assert len(passes) == 1
    assert deferred.resume(now=True)


def test_failed_pass_is_logged_and_repeated(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ValueError("now")

    deferred = Deferred("xsem-test", fail, lambda: True)
    assert not deferred.resume(now=True)
    assert deferred.stalled
    assert "xsem-test failed, and goes on" in caplog.text


# ---- the end of the process
@pytest.mark.parametrize("left", ["device", "released", "dropped", "forgotten"])
def test_exit_makes_no_call_of_the_driver(left: str) -> None:
    program = f"""
import os, sys, threading, atexit
class Watch:
    armed = False
def arm():
    Watch.armed = True
    if {left!r} == "device":
        device.releasing()
atexit.register(arm)                 # before xsem registers anything: runs after all of its
from support.fake_backend import FakeDriver, MemoryHandleType, open_fake, timeline
from xsem.spi import Callers, compiled
main = threading.get_ident()
def check_open(self, what):
    if Watch.armed or threading.get_ident() != main:
        os.write(1, what.encode() + b" by xsem\\n")
FakeDriver.check_open = check_open
device, driver = open_fake(driver=FakeDriver(callers=Callers.APPLICATION))
mem = device.create_memory(MemoryHandleType.OPAQUE_FD, 4096)
buffer = mem.map_buffer()
commands, sem, event = device.create_command_list(), timeline(device), device.create_event()
commands.append_wait(sem, 1, signal_event=event)
event.add_done_callback(lambda _: None)
device.watch(after_s=0.01, report=lambda _: None)
sem.release()
if {left!r} == "released":
    device.release()
if {left!r} == "dropped":
    del mem, buffer, sem
if {left!r} == "forgotten":
    driver.finish()
    del mem, buffer, sem, commands, event, device
threading.Event().wait(0.1)
print("end", flush=True)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=50,
                          check=False, env={"PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == 0, done.stderr
    assert done.stdout == "end\n", done.stdout
    assert done.stderr == ""


def test_other_devices_have_their_threads() -> None:
    device, driver = open_fake()
    behind_work(device, 1)
    driver.finish()
    until(lambda: driver.released("release_semaphore"))
    device.release()
    until(lambda: ("close",) in driver.log)
