"""Host waits: duration, slices, interrupts, and the timeout error."""

from __future__ import annotations

import dataclasses
import inspect
import math
import os
import pickle
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support.fake_backend import ALL, FakeDriver, FakeFence, binary, fake, finish, timeline
from support.fixtures import Opened
from support.waiting import until

import xsem
import xsem.runtime.queues.queue
import xsem.runtime.timeouts
from xsem.errors import BadArgumentError, UnsupportedError, WaitTimeoutError
from xsem.runtime.timeouts import DEFAULT_TIMEOUT_S, SLICE_NS, wait_in_slices
from xsem.types import Feature

Wait = Callable[..., None]
WAITS = ["synchronize", "event", "host_wait"]


@pytest.fixture(params=WAITS)
def wait(request: pytest.FixtureRequest, opened: Opened) -> Iterator[Wait]:
    """A wait that is not met; its work is in the driver's first list."""
    device, _ = opened
    commands, event, sem = device.create_command_list(), device.create_event(), timeline(device, "frames")
    commands.append_wait(sem, 1)
    commands.append_barrier(signal_event=event)
    waits: dict[str, Wait] = {
        "synchronize": commands.synchronize,
        "event": event.wait,
        "host_wait": lambda **timeout: sem.host_wait(1, **timeout),
    }
    kept = [commands, sem]   # dropped objects would be released
    yield waits[request.param]
    kept.clear()


def meet(driver: FakeDriver) -> None:
    driver.values.update(dict.fromkeys(driver.values, 1))
    driver.finish()


class Clock:
    """A clock that advances only in the driver's waits and in sleep()."""

    def __init__(self, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 10**15
        self.slices = driver.slices
        driver.wait_fence = self.wait_fence  # type: ignore[method-assign]
        driver.host_wait = self.host_wait  # type: ignore[assignment,method-assign]
        for module in (xsem.runtime.timeouts, xsem.runtime.queues.queue):
            monkeypatch.setattr(module, "time", self)

    def wait_fence(self, fence: FakeFence, timeout_ns: int) -> bool:
        self.slices.append(timeout_ns)
        self.now_ns += timeout_ns
        return fence.reached

    def host_wait(self, _semaphore: int, _value: int | None, timeout_ns: int) -> bool:
        self.slices.append(timeout_ns)
        self.now_ns += timeout_ns
        return False

    def monotonic_ns(self) -> int:
        return self.now_ns

    def monotonic(self) -> float:
        return self.now_ns / 1e9

    def sleep(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)


# ---- duration
def test_default_is_30_seconds_everywhere() -> None:
    assert DEFAULT_TIMEOUT_S == 30.0
    assert xsem.DEFAULT_TIMEOUT_S == 30.0
    for call in (xsem.CommandList.synchronize, xsem.Event.wait, xsem.Semaphore.host_wait, xsem.Buffer.copy_to_host,
                 xsem.Buffer.copy_from_host):
        assert inspect.signature(call).parameters["timeout_s"].default == 30.0


def test_wait_lasts_30_seconds_in_slices(opened: Opened, wait: Wait, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(opened[1], monkeypatch)
    with pytest.raises(WaitTimeoutError, match="30 s") as caught:
        wait()
    assert caught.value.reason == "timeout"
    assert caught.value.backend == "fake"
    assert sum(clock.slices) == 30 * 10**9
    assert max(clock.slices) == SLICE_NS == 50_000_000


def test_wait_lasts_as_long_as_its_timeout(opened: Opened, wait: Wait, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(opened[1], monkeypatch)
    for timeout_s in (1.25, 3, 0.001, np.float64(0.5)):
        del clock.slices[:]
        with pytest.raises(WaitTimeoutError):
            wait(timeout_s=timeout_s)
        assert sum(clock.slices) == int(timeout_s * 1e9)
        assert max(clock.slices) <= SLICE_NS


def test_wait_of_0_asks_once_and_does_not_sleep(opened: Opened, wait: Wait) -> None:
    _, driver = opened
    with pytest.raises(WaitTimeoutError):
        wait(timeout_s=0)
    assert driver.slices == [0]
    meet(driver)
    wait(timeout_s=0)


@pytest.mark.parametrize("timeout_s", [None, math.inf])
def test_wait_without_a_limit_goes_on_in_slices(opened: Opened, wait: Wait, timeout_s: float | None) -> None:
    _, driver = opened

    def on_wait() -> None:
        if len(driver.slices) == 4:
            meet(driver)

    original = time.sleep
    driver.on_wait = on_wait
    try:
        time.sleep = lambda _: original(0)
        wait(timeout_s=timeout_s)
    finally:
        time.sleep = original
    assert len(driver.slices) >= 4
    assert max(driver.slices) <= SLICE_NS
    assert driver.slices[0] > 0


@pytest.mark.parametrize("timeout_s", [-1, -1e-9, math.nan, -math.inf, True, False, "1", b"", [1], 1j, object()])
def test_bad_timeout_is_refused(opened: Opened, wait: Wait, timeout_s: Any) -> None:
    _, driver = opened
    with pytest.raises(BadArgumentError) as caught:
        wait(timeout_s=timeout_s)
    assert caught.value.reason == "bad_timeout"
    assert driver.slices == []


def test_huge_timeout_is_a_duration(opened: Opened, wait: Wait) -> None:
    _, driver = opened
    meet(driver)
    for timeout_s in (1e300, 10**400):
        wait(timeout_s=timeout_s)


def test_wait_returns_at_once_when_all_is_known_to_be_done(opened: Opened) -> None:
    device, driver = opened
    commands = device.create_command_list()
    commands.synchronize(timeout_s=0)   # nothing was appended
    commands.append_barrier()
    driver.finish()
    commands.synchronize(timeout_s=0)
    device.pending()
    before = driver.calls
    commands.synchronize()
    assert driver.calls == before


def test_synchronize_waits_only_for_earlier_operations(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_barrier()

    def on_wait() -> None:
        driver.lists[0].fences[0].reached = True
        commands.append_wait(sem, 1)   # appended by another thread, and never met
        driver.on_wait = lambda: None

    driver.on_wait = on_wait
    commands.synchronize(timeout_s=5)
    assert not commands.query()


def test_slices_end_when_the_wait_is_met() -> None:
    answers = iter([False, False, True, False])
    assert wait_in_slices(lambda _: next(answers), 10.0)
    assert next(answers) is False


# ---- Ctrl-C
class InterruptedHereError(Exception):
    """Stands in for KeyboardInterrupt, which would end the test run if a test missed it."""


@pytest.fixture
def interrupt() -> Iterator[Callable[[], None]]:
    """A signal whose handler raises, delivered to the main thread."""
    def handler(_number: int, _frame: object) -> None:
        raise InterruptedHereError

    before = signal.signal(signal.SIGUSR1, handler)
    main = threading.main_thread().ident
    assert main is not None
    yield lambda: signal.pthread_kill(main, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals to threads are POSIX")
@pytest.mark.parametrize("timeout_s", [None, 30.0])
def test_os_signal_ends_a_wait_and_leaves_objects_usable(
    opened: Opened, wait: Wait, interrupt: Callable[[], None], timeout_s: float | None
) -> None:
    device, driver = opened
    inside = threading.Event()
    driver.on_wait = inside.set

    def send() -> None:
        inside.wait(10)
        interrupt()

    sender = threading.Thread(target=send)
    sender.start()
    with pytest.raises(InterruptedHereError):
        wait(timeout_s=timeout_s)
    sender.join(10)
    assert device.pending()
    assert device._device_state.lifetime.holders == {
        each._hold for each in map(weakref.ref.__call__, device._device_state.releaser.lifetimes)
        if each is not None and each.parent is device._device_state.lifetime
    }   # no hold of the wait is left
    meet(driver)
    wait(timeout_s=0)


def test_ctrl_c_raised_inside_the_driver_comes_through(opened: Opened, wait: Wait) -> None:
    device, driver = opened

    def on_wait() -> None:
        raise KeyboardInterrupt

    driver.on_wait = on_wait
    with pytest.raises(KeyboardInterrupt):
        wait()
    driver.on_wait = lambda: None
    meet(driver)
    wait(timeout_s=5)
    device.release()
    until(lambda: ("close",) in driver.log)


# ---- releases during a wait
@pytest.mark.parametrize("what", ["device", "list", "semaphore"])
def test_release_during_a_wait_keeps_the_driver_open(opened: Opened, what: str) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_wait(sem, 1)
    released = threading.Event()

    def on_wait() -> None:
        if not released.is_set():
            {"device": device, "list": commands, "semaphore": sem}[what].release()
            released.set()
            driver.finish()

    driver.on_wait = on_wait
    try:
        commands.synchronize(timeout_s=5)
    except xsem.errors.ReleasedError:
        assert what != "semaphore"
    assert driver.misuse == []
    device.release()
    until(lambda: ("close",) in driver.log)


# ---- the timeout error
def test_error_has_the_pending_operations_as_data(opened: Opened) -> None:
    device, _ = opened
    commands, sem, event = device.create_command_list(), timeline(device, "frames"), device.create_event()
    commands.append_signal(sem, 3)
    commands.append_wait(sem, 7)
    commands.append_work(lambda: None)
    commands.append_signal(sem, 8, signal_event=event)
    commands.append_barrier()
    with pytest.raises(WaitTimeoutError) as caught:
        commands.synchronize(timeout_s=0)
    assert [(op.operation, op.value) for op in caught.value.pending] == [
        ("signal", 3), ("wait", 7), ("work", None), ("signal", 8), ("barrier", None)]
    op = caught.value.pending[1]
    assert op.semaphore == "timeline_semaphore_fd 'frames'"
    assert (op.current_value, op.last_signalled_here) == (0, 8)
    assert op.command_list == "fake:0/list-1"
    assert 0 <= op.age_s < 60
    assert op.possible_signallers == ("fake:0/list-1 (signal of 8 behind this very wait)",)
    with pytest.raises(WaitTimeoutError) as caught:
        event.wait(timeout_s=0)
    assert [op.value for op in caught.value.pending] == [3, 7, None, 8]   # up to the event's operation
    assert caught.value.pending[1:3] != ()
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.pending == caught.value.pending
    assert str(again) == str(caught.value)
    assert isinstance(caught.value, TimeoutError)


def test_message_names_the_stuck_operation(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device, "frames")
    commands.append_wait(sem, 7)
    commands.append_work(lambda: None)
    driver.values[sem._state.token] = 5
    with pytest.raises(WaitTimeoutError) as caught:
        commands.synchronize(timeout_s=0.001)
    text = str(caught.value)
    for part in ("fake:0/list-1 was not done within 0.001 s", "wait timeline_semaphore_fd 'frames' >= 7", "now 5",
                 "last signalled here 0", "and 1 more behind it", "no known signaller for"):
        assert part in text, part
    assert any(f"xsem pending {os.getpid()}" in note for note in getattr(caught.value, "__notes__", ())) is (
        sys.platform == "linux")


@pytest.mark.parametrize("kind", [timeline, binary])
def test_message_does_not_deny_a_signal_that_is_done(
    opened: Opened, kind: Callable[[xsem.Device], xsem.Semaphore]
) -> None:
    device, driver = opened
    first, commands, sem = device.create_command_list(), device.create_command_list(), kind(device)
    counts = kind is timeline
    first.append_signal(sem, 5 if counts else None)
    finish(first, driver)
    commands.append_wait(sem, 7 if counts else None)
    with pytest.raises(WaitTimeoutError) as caught:
        commands.synchronize(timeout_s=0)
    assert not caught.value.pending[0].possible_signallers
    cause, *_ = caught.value.likely_causes
    assert "no signal that meets this wait is pending here" in cause
    assert "no signal was appended" not in str(caught.value)


def test_message_of_a_host_wait_names_who_could_signal(opened: Opened) -> None:
    device, _ = opened
    sem, mark = timeline(device, "frames"), binary(device)
    with pytest.raises(WaitTimeoutError) as caught:
        sem.host_wait(7, timeout_s=0)
    op, = caught.value.pending
    assert (op.operation, op.command_list, op.value, op.possible_signallers) == ("wait", "host", 7, ())
    commands, first = device.create_command_list(), device.create_command_list()
    commands.append_signal(sem, 6)
    commands.append_signal(sem, 9)
    first.append_signal(mark)
    with pytest.raises(WaitTimeoutError) as caught:
        sem.host_wait(7, timeout_s=0)
    assert caught.value.pending[0].possible_signallers == ("fake:0/list-1 (signal of 9 pending)",)
    assert "its signal has not been submitted by: " in str(caught.value)
    with pytest.raises(WaitTimeoutError) as caught:
        mark.host_wait(timeout_s=0)
    assert caught.value.pending[0].possible_signallers == ("fake:0/list-2 (signal pending)",)
    assert caught.value.pending[0].current_value is None


def test_device_that_can_read_no_value_says_unknown() -> None:
    with fake(dataclasses.replace(ALL, features=frozenset({Feature.HOST_WAIT}))) as (device, _):
        sem = timeline(device)
        with pytest.raises(WaitTimeoutError, match="now unknown"):
            sem.host_wait(1, timeout_s=0)


def test_host_waits_and_signals_need_their_features() -> None:
    with fake(dataclasses.replace(ALL, features=frozenset())) as (device, driver):
        sem = timeline(device)
        before = driver.calls
        for call, capability in ((lambda: sem.host_wait(1), "host_wait"), (lambda: sem.host_signal(1), "host_signal"),
                                 (sem.value, "read_value")):
            with pytest.raises(UnsupportedError) as caught:
                call()
            assert caught.value.capability == capability
        assert driver.calls == before
