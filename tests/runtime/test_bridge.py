"""Timelines in host memory on a device that cannot wait for them: the bridge (xsem/runtime/bridge.py)."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from support.fake_backend import BRIDGED, BridgedDriver, FakeList, fake, timeline, until
from support.forked import in_child

import xsem
from xsem import spi
from xsem.facade.device import Device
from xsem.types import Feature, SemaphoreHandleType

TYPE = SemaphoreHandleType.HOST_TIMELINE_FD
needs_linux = pytest.mark.skipif(sys.platform == "win32", reason="the fake device bridges the type of Linux")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="os.fork() is missing")


@contextmanager
def bridged(driver: BridgedDriver | None = None) -> Iterator[tuple[Device, BridgedDriver]]:
    driver = driver or BridgedDriver()
    with fake(driver=driver) as (device, _):
        yield device, driver


def portable(device: Device, value: int = 0) -> xsem.Semaphore:
    return device.create_semaphore(TYPE, initial_value=value)


def by_peer(semaphore: xsem.Semaphore, value: int) -> None:
    """Signal as another process does."""
    assert semaphore._state.page is not None
    semaphore._state.page.signal(value)


def lines(device: Device) -> int:
    bridge = device._device_state.bridge
    assert bridge is not None
    return len(bridge._lines)


def test_a_wait_is_met_when_the_page_has_the_value_and_not_before() -> None:
    with bridged() as (device, driver):
        frames, commands = portable(device), device.create_command_list()
        commands.append_wait(frames, 2)
        (host,) = driver.host_fences
        assert driver.lists[0].calls == [("wait", (), (), (host,), ())]
        by_peer(frames, 1)
        bridge = device._device_state.bridge
        assert bridge is not None
        until(lambda: bridge._asleep is not None or host.reached)   # the thread has looked
        assert not host.reached
        by_peer(frames, 2)
        until(lambda: host.reached)
        until(lambda: lines(device) == 0)


def test_a_met_wait_needs_no_fence() -> None:
    with bridged() as (device, driver):
        commands = device.create_command_list()
        commands.append_wait(portable(device, 5), 5)
        assert driver.lists[0].calls == [("wait", (), (), (), ())]
        assert driver.host_fences == []


def test_a_wait_for_several_timelines_needs_each_of_them_once() -> None:
    with bridged() as (device, driver):
        first, second, commands = portable(device), portable(device), device.create_command_list()
        commands.append_wait([first, second], [1, 1])
        by_peer(first, 1)
        until(lambda: len(device._device_state.bridge._lines[commands._queue].waits[0].left) == 1)  # type: ignore[union-attr]
        assert not driver.host_fences[0].reached
        by_peer(second, 1)
        until(lambda: driver.host_fences[0].reached)


def test_a_signal_is_stored_when_its_work_is_done() -> None:
    with bridged() as (device, driver):
        done, commands = portable(device), device.create_command_list()
        commands.append_signal(done, 3)
        assert driver.lists[0].calls == [("signal", (), (), (), ())]
        assert done.value() == 0
        driver.lists[0].reach_all()
        until(lambda: done.value() == 3)


@needs_linux
def test_a_peer_sees_the_signal(capfd: object) -> None:
    with bridged() as (device, driver), xsem.open_device("host") as host:
        done, commands = portable(device), device.create_command_list()
        there = host.import_semaphore(done.export())
        commands.append_signal(done, 1)
        driver.lists[0].reach_all()
        there.host_wait(1)


def test_mixed_batches_are_one_append() -> None:
    with bridged() as (device, driver):
        frames, other, commands = portable(device), timeline(device), device.create_command_list()
        commands.append_wait([other, frames], [7, 1])
        commands.append_signal([frames, other], [2, 8])
        wait, signal = driver.lists[0].calls
        token = other._state.token
        assert [wait[1], [each.value for each in wait[2]], wait[3]] == [(token,), [7], (driver.host_fences[0],)]
        assert [signal[1], [each.value for each in signal[2]], signal[3]] == [(token,), [8], ()]
        by_peer(frames, 1)
        until(lambda: driver.host_fences[0].reached)
        driver.lists[0].reach_all()
        until(lambda: frames.value() == 2)


@pytest.mark.parametrize("how", ["synchronize", "query", "event", "event of a later operation"])
def test_who_sees_the_end_of_the_work_finds_the_value(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with bridged() as (device, driver):
        bridge = device._device_state.bridge
        assert bridge is not None
        monkeypatch.setattr(bridge.thread, "ensure", lambda: True)   # only `turn` stores
        done, commands, event = portable(device), device.create_command_list(), device.create_event()
        driver.everything_is_done = True
        if how == "event":
            commands.append_signal(done, 4, signal_event=event)
        else:
            commands.append_signal(done, 4)
            commands.append_barrier(signal_event=event)
        if how == "synchronize":
            commands.synchronize()
        elif how == "query":
            assert commands.query()
        else:
            assert event.query()
        assert done.value() == 4


@pytest.mark.parametrize("operation", ["wait", "signal"])
def test_a_refused_append_leaves_nothing_behind(operation: str) -> None:
    with bridged() as (device, driver):
        frames, commands = portable(device), device.create_command_list()
        commands.append_barrier()
        driver.lists[0].fail_next = xsem.DriverError("no", reason="refused")
        with pytest.raises(xsem.DriverError, match="no"):
            getattr(commands, f"append_{operation}")(frames, 1)
        assert lines(device) == 0
        assert all(fence.reached for fence in driver.host_fences)   # so that the driver can use it again
        assert [op.operation for op in device.pending()] == ["barrier"]
        assert frames._state.last == 0
        driver.finish()
        frames.release()
        until(lambda: "semaphore" not in str(device.releasing()))


def test_values_of_signals_behind_a_failure_are_never_stored() -> None:
    with bridged() as (device, driver):
        done, commands = portable(device), device.create_command_list()
        commands.append_signal(done, 1)
        commands.append_signal(done, 2)
        driver.lists[0].fences[0].reached = True
        driver.lists[0].fences[1].error = xsem.DriverError("lost", reason="work_failed", from_earlier_work=True)
        until(lambda: lines(device) == 0)
        assert done.value() == 1
        with pytest.raises(xsem.DriverError, match="lost"):
            commands.append_barrier()


def test_a_wait_that_the_driver_does_not_end_fails_the_list() -> None:
    with bridged() as (device, driver):
        frames, commands = portable(device), device.create_command_list()
        driver.fail_reach = xsem.DriverError("gone", reason="device_lost")
        commands.append_wait(frames, 1)
        by_peer(frames, 1)
        until(lambda: lines(device) == 0)
        with pytest.raises(xsem.DriverError, match="gone"):
            commands.append_barrier()


def test_a_failed_list_is_closed_without_unmet_waits() -> None:
    with bridged() as (device, driver):
        frames, commands = portable(device), device.create_command_list()
        commands.append_wait(frames, 1)
        commands._queue.fail(xsem.DriverError("lost", reason="work_failed"))
        commands.release()
        until(lambda: driver.host_fences[0].reached)


@needs_linux
def test_released_objects_stay_until_the_bridge_is_done_with_them() -> None:
    with bridged() as (device, driver), xsem.open_device("host") as host:
        frames, commands = portable(device), device.create_command_list()
        there = host.import_semaphore(frames.export())
        commands.append_wait(frames, 1)
        commands.append_signal(frames, 2)
        for each in (frames, commands, device):
            each.release()
        del frames, commands
        gc.collect()
        there.host_signal(1)
        until(lambda: driver.host_fences[0].reached)
        driver.finish()
        there.host_wait(2)


def test_a_timeout_names_the_wait_and_the_value_of_the_page() -> None:
    with bridged() as (device, _):
        frames, commands = portable(device, 3), device.create_command_list()
        commands.append_wait(frames, 5)
        (op,) = device.pending()
        assert (op.operation, op.value, op.current_value, op.command_list) == ("wait", 5, 3, commands._queue.name)
        with pytest.raises(xsem.WaitTimeoutError, match="host_timeline_fd") as caught:
            commands.synchronize(timeout_s=0.02)
        assert [(each.operation, each.value, each.current_value) for each in caught.value.pending] == [("wait", 5, 3)]


def test_the_thread_exists_only_while_there_is_work() -> None:
    with bridged() as (device, driver):
        frames, commands = portable(device), device.create_command_list()
        thread = device._device_state.bridge.thread   # type: ignore[union-attr]
        commands.append_wait(frames, 1)
        assert thread.running
        by_peer(frames, 1)
        until(lambda: not thread.running)
        commands.append_signal(frames, 2)
        driver.lists[0].reach_all()
        until(lambda: frames.value() == 2)
        until(lambda: not thread.running)


def test_a_new_entry_of_another_list_is_seen_while_the_thread_waits_in_a_page(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    with bridged() as (device, driver):
        bridge = device._device_state.bridge
        assert bridge is not None
        frames, other = portable(device), portable(device)
        first, second = device.create_command_list(), device.create_command_list()
        first.append_wait(frames, 1)
        until(lambda: bridge._asleep is not None)
        page, woken = frames._state.page, threading.Event()
        assert page is not None
        monkeypatch.setattr(page, "wake", woken.set)
        second.append_wait(other, 1)
        assert woken.is_set()
        by_peer(other, 1)
        until(lambda: driver.host_fences[1].reached)
        assert not driver.host_fences[0].reached
        first.append_signal(frames, 2)   # behind the unmet wait
        until(lambda: bridge._asleep is not None)
        by_peer(frames, 1)
        until(lambda: driver.host_fences[0].reached)


def test_a_refused_thread_is_started_by_a_later_call(monkeypatch: pytest.MonkeyPatch) -> None:
    with bridged() as (device, driver):
        frames, commands = portable(device), device.create_command_list()
        with monkeypatch.context() as patch:
            def refuse(*_: object) -> None:
                raise RuntimeError("can't start new thread")
            patch.setattr("_thread.start_new_thread", refuse)
            commands.append_wait(frames, 1)
        by_peer(frames, 1)
        device.create_event().release()
        until(lambda: driver.host_fences[0].reached)


class _Recorded(FakeList, spi.RecordingQueue):
    def begin_recording(self) -> None: ...
    def end_recording(self) -> str:
        return "recording"
    def replay(self, recording: object, values: object) -> None: ...
    def release_recording(self, recording: object) -> None: ...


class _Recording(BridgedDriver):
    def __init__(self) -> None:
        super().__init__(replace(BRIDGED, features=BRIDGED.features | {Feature.RECORDING}))

    def create_queue(self) -> FakeList:
        self.lists.append(_Recorded(self, 0x1000 + len(self.lists)))
        return self.lists[-1]


@pytest.mark.parametrize("operation", ["wait", "signal"])
def test_a_recording_refuses_bridged_timelines(operation: str) -> None:
    with bridged(_Recording()) as (device, driver):
        frames, commands = portable(device), device.create_command_list()
        with pytest.raises(xsem.UnsupportedError, match="host_timeline_fd") as caught, commands.record():
            getattr(commands, f"append_{operation}")(frames, 1)
        assert caught.value.reason == "not_recordable"
        assert lines(device) == 0
        assert driver.lists[0].calls == []


def test_a_capture_refuses_bridged_timelines() -> None:
    with bridged() as (device, driver):
        frames, commands = portable(device), device.command_list(0x77)
        driver.lists[0].capture = True
        with pytest.raises(xsem.UnsupportedError) as caught:
            commands.append_signal(frames, 1)
        assert caught.value.reason == "not_recordable"
        driver.lists[0].capture = False
        commands.append_signal(frames, 1)


@needs_fork
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_has_no_bridge() -> None:
    with bridged() as (device, driver):
        frames, commands = portable(device), device.create_command_list()
        commands.append_wait(frames, 1)

        def child() -> None:
            calls = driver.calls
            with pytest.raises(xsem.ForkedError):
                commands.append_signal(frames, 2)
            device._device_state.bridge.at_exit()   # type: ignore[union-attr]
            assert driver.calls == calls
            assert not driver.host_fences[0].reached

        assert in_child(child) is None


def test_ctrl_c_in_the_drivers_call_keeps_the_wait_and_the_signal() -> None:
    class Interrupted(FakeList):
        """The driver has the operation, and Ctrl-C comes before its call returns."""

        interrupt = False

        def _issue(self, want: bool, *call: Any) -> Any:
            made = super()._issue(want, *call)
            if self.interrupt and call[0] in ("wait", "signal"):
                raise KeyboardInterrupt
            return made

    class Driver(BridgedDriver):
        def create_queue(self) -> FakeList:
            self.lists.append(Interrupted(self, 0x1000))
            return self.lists[-1]

    driver = Driver()
    with bridged(driver) as (device, _):
        frames, commands = portable(device), device.create_command_list()
        (queue,) = driver.lists
        assert isinstance(queue, Interrupted)
        queue.interrupt = True
        with pytest.raises(KeyboardInterrupt):
            commands.append_wait(frames, 1)
        with pytest.raises(KeyboardInterrupt):
            commands.append_signal(frames, 2)
        queue.interrupt = False
        lost = [fence for fence in queue.fences if fence.what == "signal"]
        by_peer(frames, 1)
        until(lambda: driver.host_fences[0].reached)
        driver.everything_is_done = True
        queue.reach_all()
        until(lambda: frames.value() == 2)
        for fence in lost:   # the interrupted call has not returned it
            fence.released = 1


EXIT = """
import atexit, os
def tell():   # registered before xsem's functions, so called after them
    os.write(1, b"%d %d" % (driver.host_fences[0].reached, frames._state.page.value))
atexit.register(tell)
import xsem
from support import fake_backend
driver = fake_backend.BridgedDriver()
device, _ = fake_backend.open_fake(driver=driver)
frames = device.create_semaphore("host_timeline_fd")
commands = device.create_command_list()
commands.append_wait(frames, 1)
commands.append_signal(frames, 2)
"""


def test_the_exit_ends_the_waits_that_are_left() -> None:
    made = subprocess.run([sys.executable, "-c", EXIT], check=False, capture_output=True, text=True, timeout=50,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert (made.returncode, made.stdout, made.stderr) == (0, "1 0", "")


def test_a_store_in_another_thread_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with bridged() as (device, driver):
        done, commands = portable(device), device.create_command_list()
        page = done._state.page
        assert page is not None
        inside, go, store = threading.Event(), threading.Event(), page.signal

        def late(value: int | None) -> None:
            inside.set()
            assert go.wait(10)
            store(value)

        monkeypatch.setattr(page, "signal", late)
        commands.append_signal(done, 1)
        driver.lists[0].reach_all()
        assert inside.wait(10)   # the bridge's thread
        seen: list[int] = []
        other = threading.Thread(target=lambda: seen.append(done.value() if commands.query() else -1))
        other.start()
        other.join(0.05)
        go.set()
        other.join(10)
        assert seen == [1]


def test_the_bridge_has_a_signal_before_another_thread_finds_its_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    with bridged() as (device, _):
        done, commands = portable(device), device.create_command_list()
        progress, seen = commands._queue.progress, []
        add_marker = progress.add_marker

        def added(*marker: Any) -> None:
            seen.append(lines(device))
            add_marker(*marker)

        monkeypatch.setattr(progress, "add_marker", added)
        commands.append_signal(done, 1)
        assert seen == [1]


@pytest.mark.parametrize("operation", ["wait", "signal"])
def test_the_page_stays_mapped_as_long_as_an_entry_needs_it(operation: str) -> None:
    with bridged() as (device, _):
        frames, commands = portable(device), device.create_command_list()
        page = frames._state.page
        assert page is not None
        getattr(commands, f"append_{operation}")(frames, 1)
        commands._queue.fail(xsem.DriverError("lost", reason="work_failed"))   # retires the operations
        frames.release()
        other = portable(device)
        last = other._state.page
        assert last is not None
        other.release()
        until(lambda: last._closed)   # the releasing thread has come to both
        assert not page._closed
        commands.release()
        until(lambda: page._closed)


def test_no_signal_behind_an_abandoned_wait_is_stored() -> None:
    with bridged() as (device, driver):
        frames, done, commands = portable(device), portable(device), device.create_command_list()
        driver.everything_is_done = True
        commands.append_wait(frames, 1)
        commands.append_signal(done, 1)
        assert done.value() == 0   # behind the unmet wait, although this driver says that all is done
        frames.abandon()
        until(lambda: driver.host_fences[0].reached)
        until(lambda: lines(device) == 0)
        assert done.value() == 0
        with pytest.raises(xsem.DriverError) as caught:
            commands.append_barrier()
        assert caught.value.reason == "abandoned"
