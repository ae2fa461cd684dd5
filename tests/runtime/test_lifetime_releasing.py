"""Device.releasing names each released object until it is freed."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator

import pytest
from support.fake_backend import timeline
from support.fixtures import Opened
from support.releasing import memory
from support.waiting import until

from xsem.runtime.lifetime import Lifetime


class Unread(set[weakref.ref[Lifetime]]):
    """Accepts and removes elements; iteration or a copy fails the test."""

    def copy(self) -> Unread:
        pytest.fail("it was copied")

    def __iter__(self) -> Iterator[weakref.ref[Lifetime]]:
        pytest.fail("it was read")


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


def test_releasing_runs_the_jobs_of_finalizers(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    device, _ = opened
    releaser, done = device._device_state.releaser, list[int]()
    monkeypatch.setattr(releaser._thread, "wake", lambda: True)   # so that only this thread does jobs
    releaser.post(lambda: done.append(1))
    assert device.releasing() == ()
    assert done == [1]


def test_releasing_names_an_object_until_the_driver_returns(opened: Opened) -> None:
    device, driver = opened
    sem = timeline(device)
    inside, go = threading.Event(), threading.Event()

    def slow() -> None:
        inside.set()
        assert go.wait(10)

    driver.on_release = slow
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


def test_second_release_completes_an_interrupted_one(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    device, driver = opened
    sem = timeline(device)
    releaser = device._device_state.releaser

    def interrupted(_lifetime: Lifetime) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(releaser, "submit", interrupted)
        sem.release()
    assert driver.released("release_semaphore") == []
    sem.release()
    until(lambda: driver.released("release_semaphore"))
