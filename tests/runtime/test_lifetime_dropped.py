"""An object that is dropped without release is freed like a released one."""

from __future__ import annotations

import gc
import sys
import warnings
import weakref
from typing import Any

import pytest
from support.fake_backend import FakeStream, open_fake, timeline
from support.fixtures import Opened
from support.releasing import memory, rest
from support.waiting import until


def test_dropped_objects_are_freed_soon(opened: Opened) -> None:
    device, driver = opened
    things = [timeline(device), memory(device).map_buffer()]
    kept = weakref.ref(things[0])
    things.clear()
    gc.collect()
    assert kept() is None
    until(lambda: {"release_semaphore", "unmap_buffer", "release_memory"} == {call[0] for call in driver.log})
    assert driver.threads == {"xsem-release-fake:0"}


@pytest.mark.parametrize("making", [False, True])
def test_dropped_call_ends_its_hold(opened: Opened, making: bool) -> None:
    """Ctrl-C behind `__enter__` drops the call without `__exit__`."""
    device, driver = opened
    state = device._device_state
    held = set(state.lifetime.holders)
    call: Any = state.making("semaphore", driver.release_semaphore) if making else state.calling()
    call.__enter__()
    assert len(state.lifetime.holders - held) == 1
    del call
    until(lambda: state.lifetime.holders == held)


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
        assert not device._device_state.releaser._thread.running
    device.pending()   # any call runs the jobs of their finalizers
    assert len(device._device_state.releaser.lifetimes) == before + 1   # the lifetime of the stream


def test_dropped_fence_is_released_by_a_later_call(opened: Opened) -> None:
    device, driver = opened
    commands, event = device.create_command_list(), device.create_event()
    commands.append_barrier(signal_event=event)
    fence = driver.fences[0]
    driver.lists[0].reach_all()
    event.wait()
    event.reset()
    device.pending()
    assert fence.released == 1


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
