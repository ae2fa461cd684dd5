"""Waits of a list on the host: `append_wait(wait_on="host")`."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import pytest
from support.fake_backend import ALL, FakeDriver, FakeList, binary, fake, timeline
from support.fixtures import Opened, calls, refused

import xsem
from xsem import spi
from xsem.errors import (
    BadArgumentError,
    BusyError,
    EventNotAppendedError,
    ReleasedError,
    UnsupportedError,
    WaitTimeoutError,
)
from xsem.types import Feature, WaitParams

FAR_S = 30.0


def later(driver: FakeDriver, act: Any) -> None:
    """Act once, when the host waits."""
    def once() -> None:
        driver.on_wait = lambda: None
        act()

    driver.on_wait = once


def test_host_waits_before_later_work(opened: Opened) -> None:
    device, driver = opened
    commands, frames = device.create_command_list(), timeline(device)
    later(driver, lambda: frames.host_signal(3))
    commands.append_wait(frames, 3, wait_on="host")
    assert frames.value() == 3
    assert calls(driver) == []   # nothing is appended
    commands.append_wait(frames, 3, wait_on="device")
    assert [each[0] for each in calls(driver)] == ["wait"]


def test_host_device_waits_for_another_thread(device: xsem.Device) -> None:
    commands, frames, done = device.create_command_list(), device.create_timeline(), device.create_binary()

    def signal() -> None:
        frames.host_signal(5)
        done.host_signal()

    thread = threading.Thread(target=signal)
    thread.start()
    event = device.create_event()
    commands.append_wait([frames, done], [WaitParams(value=5), None], wait_on="host", signal_event=event)
    thread.join()
    event.wait(timeout_s=FAR_S)
    with pytest.raises(WaitTimeoutError):
        done.host_wait(timeout_s=0)   # the wait has reset it


def test_events_are_appended_behind_the_wait(opened: Opened) -> None:
    device, driver = opened
    commands, frames = device.create_command_list(), timeline(device)
    first, second = device.create_event(), device.create_event()
    device.create_command_list().append_barrier(signal_event=first)
    frames.host_signal(1)
    before = len(calls(driver))
    commands.append_wait(frames, 1, wait_on="host", wait_events=[first], signal_event=second)
    assert [each[0] for each in calls(driver)[before:]] == ["barrier"]
    assert not second.query()


def test_batch_has_one_timeout(opened: Opened) -> None:
    device, driver = opened
    commands = device.create_command_list()
    reached, missing = timeline(device), timeline(device, "missing")
    reached.host_signal(1)
    with pytest.raises(WaitTimeoutError) as caught:
        commands.append_wait([reached, missing], [1, 2], wait_on="host", timeout_s=0.01)
    assert caught.value.pending[0].semaphore is not None
    assert "missing" in caught.value.pending[0].semaphore
    assert caught.value.pending[0].value == 2
    assert sum(driver.slices) <= 60_000_000   # the second wait has only the rest of the time
    commands.append_wait(reached, 1, wait_on="host", timeout_s=None)
    assert calls(driver) == []


def test_bad_host_waits_are_refused_before_the_wait(opened: Opened) -> None:
    device, driver = opened
    commands, frames = device.create_command_list(), timeline(device)
    mutex = device.create_semaphore("D3D11_KEYED_MUTEX")
    memory = device.create_memory("OPAQUE_FD", 4096)
    unbound: Any = [device.create_event()]

    def wait(semaphores: Any = frames, params: Any = 1, **more: Any) -> Any:
        return lambda: commands.append_wait(semaphores, params, **{"wait_on": "host", **more})

    for act, reason, kind in (
        (wait(wait_on="cpu"), "bad_wait_on", BadArgumentError), (wait(wait_on=None), "bad_wait_on", BadArgumentError),
        (wait(params=None), "value_required", BadArgumentError), (wait(params="1"), "not_an_int", BadArgumentError),
        (wait([frames], 1), "params_mismatch", BadArgumentError), (wait([], []), "empty_batch", BadArgumentError),
        (wait([frames, frames], [1, 2]), "duplicate_semaphore", BadArgumentError),
        (wait([frames, binary(device)], [1, 2]), "value_not_allowed", BadArgumentError),
        (wait(acquire=[memory]), "host_wait_acquires", BadArgumentError),
        (wait(timeout_s=-1), "bad_timeout", BadArgumentError),
        (wait(mutex, WaitParams(key=1)), "unsupported", UnsupportedError),
        (wait(wait_events=unbound), "event_not_appended", EventNotAppendedError),
        (wait(signal_event=7), "not_an_event", BadArgumentError),
    ):
        refused(act, reason, kind)
    commands.release()
    refused(wait(), "released", ReleasedError)
    assert driver.slices == []
    assert calls(driver) == []


def test_device_without_host_waits_refuses_them() -> None:
    with fake(dataclasses.replace(ALL, features=frozenset({Feature.READ_VALUE}))) as (device, _):
        commands, frames = device.create_command_list(), timeline(device)
        error = refused(lambda: commands.append_wait(frames, 1, wait_on="host"), "unsupported", UnsupportedError)
        assert isinstance(error, UnsupportedError)
        assert error.capability == "host_wait"


class Recorder(FakeList, spi.RecordingQueue):
    def begin_recording(self) -> None: ...
    def end_recording(self) -> str:
        return "recording"

    def replay(self, recording: object, values: object) -> None: ...
    def release_recording(self, recording: object) -> None: ...


def test_recording_contains_no_host_wait() -> None:
    driver = FakeDriver(dataclasses.replace(ALL, features=ALL.features | {Feature.RECORDING}))

    def create_queue() -> Any:
        driver.lists.append(Recorder(driver, 0x1000))
        return driver.lists[-1]

    driver.create_queue = create_queue  # type: ignore[method-assign]
    with fake(driver=driver) as (device, _):
        commands, frames = device.create_command_list(), timeline(device)
        frames.host_signal(1)
        with commands.record():
            refused(lambda: commands.append_wait(frames, 1, wait_on="host"), "capturing", BusyError)
