"""The release gate: a driver that blocks in releases frees objects only while no wait of the backend is pending."""

from __future__ import annotations

import dataclasses
import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from support.fake_backend import ALL, FakeDriver, FakeFence, binary, fake, hold_next, timeline
from support.fixtures import Opened
from support.waiting import until

import xsem
import xsem.runtime.lifetime
from xsem.errors import DriverError
from xsem.facade.resource import Resource
from xsem.runtime.lifetime import Releaser
from xsem.runtime.release_gate import ReleaseGate, release_gate_of
from xsem.runtime.threads import Pause
from xsem.types import MemoryHandleType

pytestmark = pytest.mark.timeout(30)

WATCHED_S = 0.2


def stays(driver: FakeDriver, *names: str) -> None:
    """Check that the driver gets none of these calls for WATCHED_S seconds."""
    deadline = time.monotonic() + WATCHED_S
    while time.monotonic() < deadline:
        assert not [name for name in names if driver.released(name)]
        time.sleep(0.01)


@pytest.mark.parametrize("what", ["semaphore", "memory", "buffer"])
def test_idle_object_is_not_freed_while_a_wait_is_pending(opened: Opened, what: str) -> None:
    device, driver = opened
    commands, waited = device.create_command_list(), timeline(device)
    memory = device.create_memory(MemoryHandleType.OPAQUE_FD, 4096)
    made: Resource = {"semaphore": binary(device), "memory": memory, "buffer": memory.map_buffer()}[what]
    call = {"semaphore": "release_semaphore", "memory": "release_memory", "buffer": "unmap_buffer"}[what]
    if what == "memory":
        gc.collect()   # frees the mapping
    commands.append_wait(waited, 1)
    began = time.monotonic()
    made.release()
    assert time.monotonic() - began < 5
    stays(driver, call)
    driver.lists[0].reach_all()
    until(lambda: driver.released(call))


def test_wait_for_a_borrowed_event_counts(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_barrier(wait_events=[device.event(FakeFence(1, "foreign"))])
    sem.release()
    stays(driver, "release_semaphore")
    driver.lists[0].reach_all()
    until(lambda: driver.released("release_semaphore"))


def test_pending_signals_do_not_hold_a_release(opened: Opened) -> None:
    device, driver = opened
    commands, sem, other = device.create_command_list(), timeline(device), timeline(device)
    commands.append_signal(other, 1)   # pending without a wait before it, so it ends without help
    sem.release()
    until(lambda: driver.released("release_semaphore"))


def test_wait_on_another_device_of_the_backend_counts() -> None:
    with fake() as (one, driver), fake() as (two, other):
        commands, waited = two.create_command_list(), timeline(two)
        commands.append_wait(waited, 1)
        timeline(one).release()
        stays(driver, "release_semaphore")
        other.lists[0].reach_all()
        until(lambda: driver.released("release_semaphore"))


def test_failed_list_holds_no_release(opened: Opened) -> None:
    device, driver = opened
    commands, waited, sem = device.create_command_list(), timeline(device), timeline(device)
    commands.append_wait(waited, 1, signal_event=device.create_event())
    sem.release()
    stays(driver, "release_semaphore")
    for fence in driver.lists[0].fences:
        fence.error = DriverError("lost", reason="driver", from_earlier_work=True)
    until(lambda: driver.released("release_semaphore"))


def test_nothing_is_held_when_releases_never_block() -> None:
    with fake(dataclasses.replace(ALL, release_never_blocks=True)) as (device, driver):
        assert device._device_state.gate is None
        commands, waited = device.create_command_list(), timeline(device)
        commands.append_wait(waited, 1)
        timeline(device).release()
        assert driver.released("release_semaphore")
        driver.lists[0].reach_all()


def test_held_releases_are_freed_by_synchronize_at_the_latest(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop with a pending wait at all times except after synchronize() leaks no memory."""
    device, driver = opened
    releaser = device._device_state.releaser
    monkeypatch.setattr(releaser, "wake", partial(releaser.wake, 10))   # enough for a busy machine
    commands, waited = device.create_command_list(), timeline(device)
    for frame in range(1, 20):
        commands.append_wait(waited, frame)
        timeline(device).release()
        until(lambda: releaser._ready)
        until(lambda: reached_and_synchronized(driver, commands))
        assert len(driver.released("release_semaphore")) == frame


def reached_and_synchronized(driver: FakeDriver, commands: xsem.CommandList) -> bool:
    """Reach all that is appended. The releasing thread may append a marker after that; then try again."""
    driver.lists[0].reach_all()
    try:
        commands.synchronize(timeout_s=0.5)
    except xsem.WaitTimeoutError:
        return False
    return True


class Nap(Pause):
    """Pauses that only `end` ends. `resting`: the thread is in a pause, and no call of `end` is left for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ended = self.resting = False

    def wait(self, timeout_s: float) -> bool:
        with self._changed:
            self.resting = not self._ended
            ended = self._changed.wait_for(lambda: self._ended, 20)
            self._ended = self.resting = False
            return ended

    def end(self) -> None:
        with self._changed:
            self._ended, self.resting = True, False
            self._changed.notify_all()


@pytest.fixture
def asleep(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> Iterator[Releaser]:
    """Let the releasing thread run only when it is woken, so that it does not find a free moment by chance."""
    releaser = opened[0]._device_state.releaser
    nap = Nap()
    monkeypatch.setattr(xsem.runtime.lifetime, "_LOOK_S", 0)
    monkeypatch.setattr(xsem.runtime.lifetime, "_NUDGE_IN_APPEND_S", 10)   # enough for a busy machine
    with monkeypatch.context() as patched:
        patched.setattr(releaser, "_nap", nap)
        yield releaser
    nap.end()


def woken(releaser: Releaser, condition: Callable[[], object]) -> None:
    """Wake the thread until the condition is true."""
    def look() -> object:
        releaser._nap.end()
        return condition()

    until(look)


def crowd(device: xsem.Device, count: int = 64) -> None:
    """Release so many objects behind a pending wait that appends must look for a moment to free them."""
    releaser = device._device_state.releaser
    for _ in range(count):
        timeline(device).release()
    woken(releaser, lambda: releaser.crowded and len(releaser._ready) == count)
    nap = releaser._nap
    assert isinstance(nap, Nap)
    until(lambda: nap.resting)   # no more rounds


@pytest.mark.parametrize("again", [False, True])
def test_first_pending_wait_frees_released_objects_first(
    opened: Opened, asleep: Releaser, again: bool
) -> None:
    """A loop without synchronize() stays bounded if each wait is met before the next one is appended."""
    device, driver = opened
    commands, waited = device.create_command_list(), timeline(device)
    frame = 0
    for _ in range(3 if again else 1):   # later waits are prepared appends
        frame += 1
        commands.append_wait(waited, frame)
    for cycle in range(1, 4):
        crowd(device)
        driver.lists[0].reach_all()
        frame += 1
        commands.append_wait(waited, frame)
        assert len(driver.released("release_semaphore")) == 64 * cycle
        assert not asleep.crowded


def test_wait_behind_a_pending_one_does_not_free_first(opened: Opened, asleep: Releaser) -> None:
    device, driver = opened
    commands, waited = device.create_command_list(), timeline(device)
    commands.append_wait(waited, 1)
    crowd(device)
    rounds = asleep._rounds
    for frame in range(2, 20):
        commands.append_wait(waited, frame)
        # Each wait has a marker, which tells the next append whether the wait is met.
        assert driver.lists[0].calls[-1][0] == "barrier"
    assert asleep._rounds == rounds
    assert not driver.released("release_semaphore")


def test_appends_look_for_a_free_moment_only_now_and_then(
    opened: Opened, asleep: Releaser, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, driver = opened
    commands, waited = device.create_command_list(), timeline(device)
    commands.append_wait(waited, 1)
    crowd(device)
    commands.append_wait(waited, 2)
    monkeypatch.setattr(xsem.runtime.lifetime, "_LOOK_S", 3600)
    driver.lists[0].reach_all()
    commands.append_wait(waited, 3)
    assert not driver.released("release_semaphore")


def test_held_releases_are_not_tried_one_by_one(
    opened: Opened, asleep: Releaser, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, driver = opened
    commands, waited = device.create_command_list(), timeline(device)
    commands.append_wait(waited, 1)
    crowd(device, 500)
    attempts: list[object] = []
    original = ReleaseGate.release

    def release(gate: ReleaseGate, act: Callable[[], object]) -> bool:
        attempts.append(act)
        return original(gate, act)

    monkeypatch.setattr(ReleaseGate, "release", release)
    rounds = asleep._rounds
    woken(asleep, lambda: asleep._rounds >= rounds + 5)
    assert len(attempts) <= asleep._rounds - rounds + 1
    driver.lists[0].reach_all()
    woken(asleep, lambda: len(driver.released("release_semaphore")) == 500)


def test_object_that_is_submitted_twice_waits_once_for_the_gate(opened: Opened, asleep: Releaser) -> None:
    """While `release()` submits an object, a job of the releasing thread may submit it, too."""
    device, _ = opened
    commands, waited, sem = device.create_command_list(), timeline(device), timeline(device)
    commands.append_wait(waited, 1)
    sem.release()
    woken(asleep, lambda: len(asleep._ready) == 1)
    asleep.submit(sem._lifetime)
    rounds = asleep._rounds
    woken(asleep, lambda: asleep._rounds >= rounds + 2)
    assert len(asleep._ready) == 1


def test_loop_that_always_has_a_wait_pending_is_warned_once(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    device, driver = opened
    monkeypatch.setattr(xsem.runtime.lifetime, "_TOO_MANY", 50)
    commands, waited = device.create_command_list(), timeline(device)
    for _ in range(60):   # no wait is pending, so the thread frees it at its next look
        timeline(device).release()
    until(lambda: not device.releasing())
    commands.append_wait(waited, 1)
    for count in range(1, 120):
        timeline(device).release()
        if count in (49, 60, 110):
            until(lambda count=count: len(device._device_state.releaser._ready) == count)  # type: ignore[misc]
        assert count >= 50 or not caplog.records
    record, = caplog.records
    assert (record.name, record.levelno) == ("xsem", logging.WARNING)
    for part in ("fake:0", "not freed yet", "no wait is pending", "synchronize()"):
        assert part in record.getMessage()
    driver.lists[0].reach_all()


def test_append_of_a_wait_lets_a_running_release_end(opened: Opened) -> None:
    device, driver = opened
    commands, waited, sem = device.create_command_list(), timeline(device), timeline(device)
    wait = partial(commands.append_wait, waited)
    inside, go, order = threading.Event(), threading.Event(), []

    def release() -> None:
        inside.set()
        assert go.wait(10)
        order.append("released")

    driver.on_release = release
    sem.release()
    assert inside.wait(10)
    commands.append_signal(waited, 1)   # a signal neither holds the gate nor waits for it

    def append() -> None:
        wait(1)
        order.append("appended")

    thread = threading.Thread(target=append)
    thread.start()
    time.sleep(0.05)
    assert order == []
    go.set()
    thread.join()
    assert order == ["released", "appended"]
    driver.on_release = lambda: None
    driver.lists[0].reach_all()


def test_release_does_not_begin_while_the_driver_is_given_a_wait(opened: Opened) -> None:
    device, driver = opened
    commands, waited, sem = device.create_command_list(), timeline(device), timeline(device)
    inside, go = hold_next(driver.lists[0])
    wait = partial(commands.append_wait, waited)
    thread = threading.Thread(target=wait, args=(1,))
    thread.start()
    assert inside.wait(10)
    sem.release()
    stays(driver, "release_semaphore")
    go.set()
    thread.join()
    stays(driver, "release_semaphore")   # the wait is pending now
    driver.lists[0].reach_all()
    until(lambda: driver.released("release_semaphore"))


def test_gate_stays_closed_until_the_outer_release_ends() -> None:
    gate = ReleaseGate()
    closed: list[bool] = []

    def outer() -> None:
        assert gate.release(lambda: closed.append(gate.closed))
        closed.append(gate.closed)

    assert gate.release(outer)
    assert closed == [True, True]
    assert not gate.closed


def test_gate_is_shut_inside_an_append_of_the_same_thread(opened: Opened) -> None:
    """A finalizer can begin a release on the thread of an append, inside the driver's call."""
    device, driver = opened
    gate, commands = device._device_state.gate, device.create_command_list()
    assert gate is not None
    original, released = driver.lists[0].append_wait, []

    def append_wait(*args: Any) -> Any:
        released.append(gate.release(lambda: pytest.fail("called")))
        return original(*args)

    driver.lists[0].append_wait = append_wait  # type: ignore[assignment,method-assign]
    commands.append_wait(timeline(device), 1)
    assert released == [False]
    driver.finish()
    assert gate.release(lambda: released.append(True))


def test_gate_does_not_wait_for_a_release_in_another_thread() -> None:
    gate = ReleaseGate()
    inside, go = threading.Event(), threading.Event()

    def act() -> None:
        inside.set()
        go.wait(10)

    thread = threading.Thread(target=gate.release, args=(act,))
    thread.start()
    assert inside.wait(10)
    assert not gate.release(lambda: pytest.fail("called"))
    go.set()
    thread.join()


def test_gate_is_one_for_each_backend() -> None:
    assert release_gate_of("one") is release_gate_of("one")
    assert release_gate_of("one") is not release_gate_of("other")
