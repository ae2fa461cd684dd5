"""Test the facade on a device that runs: code of applications, work on worker threads, releases behind waits."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import os
import random
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.at_once import ctrl_c_in
from support.fake_backend import until
from support.paths import TESTS

import xsem
from xsem.errors import DriverError, ReleasedError, WaitTimeoutError
from xsem.types import MemoryHandleType, OwnedHandle, SemaphoreDesc, SemaphoreHandleType

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the host device needs Linux")

TIMELINE = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
BINARY = SemaphoreHandleType.OPAQUE_FD


@pytest.fixture
def scenario(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Return a function that imports a file of tests/typing as a module."""
    import importlib

    monkeypatch.syspath_prepend(str(TESTS / "typing"))
    return importlib.import_module


def timeline(device: xsem.Device, label: str = "") -> xsem.Semaphore:
    return device.create_semaphore(TIMELINE, label=label)


def other_side(device: xsem.Device, sem: xsem.Semaphore) -> xsem.Semaphore:
    """Return the same timeline in a second object, as in another process."""
    with sem.export() as desc:
        return device.import_semaphore(desc)


# ---- code of applications: errors and timeouts
def test_connect_says_what_is_wrong_with_a_handle(
    device: xsem.Device, scenario: Callable[[str], Any], caplog: pytest.LogCaptureFixture
) -> None:
    connect = scenario("error_handling").connect
    read, write = os.pipe()
    try:
        assert connect(device, read) is None
    finally:
        os.close(read)
        os.close(write)
    assert "is a pipe" in caplog.text
    assert connect(device, read) is None
    assert "is not open" in caplog.text
    with timeline(device).export() as desc:
        assert isinstance(desc.handle, OwnedHandle)
        number = desc.handle.fileno()
        sem = connect(device, number)
        assert isinstance(sem, xsem.Semaphore)
        os.fstat(number)   # the caller still owns it


def test_drain_tells_what_is_pending(
    device: xsem.Device, scenario: Callable[[str], Any], caplog: pytest.LogCaptureFixture
) -> None:
    commands, sem = device.create_command_list(), other_side(device, timeline(device))
    commands.append_wait(sem, 3)
    with pytest.raises(WaitTimeoutError):
        scenario("error_handling").drain(device, commands)
    assert ("wait timeline_semaphore_fd >= 3 (now 0, last signalled here None, by the exporter, or another importer of "
            "its handle)") in caplog.text
    sem.host_signal(3)
    commands.synchronize(timeout_s=20)


def test_drain_is_interrupted_by_ctrl_c(
    device: xsem.Device, scenario: Callable[[str], Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_wait(sem, 1)
    drain = scenario("error_handling").drain
    with pytest.raises(KeyboardInterrupt), ctrl_c_in("wait_in_slices"):
        drain(device, commands)
    assert "pending: (PendingOp(operation='wait'" in caplog.text
    sem.host_signal(1)
    commands.synchronize(timeout_s=20)


@pytest.mark.parametrize("wait", ["synchronize", "event", "host_wait"])
def test_ctrl_c_ends_every_wait(device: xsem.Device, wait: str) -> None:
    commands, sem, event = device.create_command_list(), timeline(device), device.create_event()
    commands.append_wait(sem, 1, signal_event=event)
    with pytest.raises(KeyboardInterrupt), ctrl_c_in("wait_in_slices"):
        if wait == "synchronize":
            commands.synchronize(timeout_s=None)
        elif wait == "event":
            event.wait(timeout_s=None)
        else:
            sem.host_wait(1, timeout_s=None)
    sem.host_signal(1)
    event.wait(timeout_s=20)


# ---- code of applications: asyncio
class Streamless:
    """A device without streams, like the host: `command_list(stream)` returns a new list."""

    def __init__(self, device: xsem.Device) -> None:
        self._device = device

    def command_list(self, _stream: int) -> xsem.CommandList:
        return self._device.create_command_list()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)


def test_server_serves_all_its_frames(device: xsem.Device, scenario: Callable[[str], Any]) -> None:
    sem = timeline(device)
    client = other_side(device, sem)

    def render() -> None:
        for value in range(1, 1000, 2):
            client.host_signal(value)
            client.host_wait(value + 1, timeout_s=20)

    async def main() -> None:
        async with asyncio.timeout(30):
            await asyncio.gather(scenario("asyncio_events").serve(Streamless(device), sem, 0),
                                 asyncio.to_thread(render))

    asyncio.run(main())
    assert sem.value() == 1000


def test_server_whose_client_died_says_what_is_pending(
    device: xsem.Device, scenario: Callable[[str], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    sem = timeline(device, "frames")
    client = other_side(device, sem)
    client.host_signal(1)
    with pytest.raises(TimeoutError):
        asyncio.run(scenario("asyncio_events").serve(Streamless(device), sem, 0))
    printed = capsys.readouterr().out
    assert "PendingOp(operation='wait', semaphore=\"timeline_semaphore_fd 'frames'\", value=3" in printed
    client.host_signal(3)


def test_other_loops_are_woken_by_the_callback(device: xsem.Device, scenario: Callable[[str], Any]) -> None:
    commands, sem, event = device.create_command_list(), timeline(device), device.create_event()
    commands.append_wait(sem, 1, signal_event=event)

    class Wake:
        woken = threading.Event()

        def set(self) -> None:
            self.woken.set()

    asyncio.run(scenario("asyncio_events").other_loop(event, Wake()))
    assert not Wake.woken.is_set()
    sem.host_signal(1)
    assert Wake.woken.wait(10)


# ---- code of applications: their tests
def test_compute_that_is_held_back_reads_the_new_pixels(device: xsem.Device, scenario: Callable[[str], Any]) -> None:
    brighten = scenario("app_tests").brighten
    sem, memory = timeline(device), device.create_memory(MemoryHandleType.OPAQUE_FD, 4096)
    pixels = memory.map_buffer().numpy()
    with xsem.open_device("host") as compute:
        with memory.export() as mem_desc:
            image = compute.import_memory(mem_desc).map_buffer().numpy()
        theirs, commands = other_side(compute, sem), compute.create_command_list()
        for frame in range(10):
            brighten(compute, commands, theirs, image, frame)
        assert not commands.query()
        for frame in range(10):
            pixels[:] = 10 * frame
            sem.host_signal(2 * frame + 1)
            sem.host_wait(2 * frame + 2, timeout_s=20)
            assert (pixels == 10 * frame + 1).all()
        commands.synchronize(timeout_s=20)
        assert compute.pending() == ()


# ---- work on the list's worker
def test_work_runs_on_the_worker_in_its_turn(device: xsem.Device) -> None:
    commands, sem = device.create_command_list(), timeline(device)
    seen: list[Any] = []
    commands.append_wait(sem, 1)
    commands.append_work(lambda: seen.append((sem.value(), threading.current_thread())))
    commands.append_signal(sem, 2)
    assert seen == []
    other_side(device, sem).host_signal(1)
    commands.synchronize(timeout_s=20)
    (value, thread), = seen
    assert value == 1
    assert thread is not threading.current_thread()


def test_work_that_raises_stops_the_list_and_later_signals(device: xsem.Device) -> None:
    commands, other, sem = device.create_command_list(), device.create_command_list(), timeline(device)
    event, called = device.create_event(), threading.Event()
    commands.append_wait(sem, 1)
    commands.append_work(lambda: 1 / 0)
    commands.append_signal(sem, 5, signal_event=event)
    event.add_done_callback(lambda _: called.set())
    other_side(device, sem).host_signal(1)
    assert called.wait(10)
    for ask in (commands.synchronize, commands.query, commands.append_barrier, event.query, event.wait):
        with pytest.raises(DriverError) as caught:
            ask()
        assert caught.value.reason == "work_failed"
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert caught.value.backend == "host"
    assert sem.value() == 1
    assert device.pending() == ()
    other.append_signal(sem, 9)
    other.synchronize(timeout_s=20)


def test_await_raises_what_the_work_raised(device: xsem.Device) -> None:
    commands, event = device.create_command_list(), device.create_event()
    commands.append_work(lambda: 1 / 0)
    with contextlib.suppress(DriverError):
        commands.append_barrier(signal_event=event)

        async def main() -> None:
            await event

        with pytest.raises(DriverError, match="ZeroDivisionError"):
            asyncio.run(main())


def test_work_may_append_to_lists(device: xsem.Device) -> None:
    commands, other, sem = device.create_command_list(), device.create_command_list(), timeline(device)

    def work() -> None:
        other.append_signal(sem, 1)
        commands.append_wait(sem, 1)
        commands.append_signal(sem, 2)

    commands.append_work(work)
    sem.host_wait(2, timeout_s=20)
    commands.synchronize(timeout_s=20)


# ---- lifetimes on a device that runs
def test_release_behind_an_unmet_wait_keeps_needed_objects(device: xsem.Device) -> None:
    commands, sem = device.create_command_list(), timeline(device)
    theirs = other_side(device, sem)
    with timeline(device) as kept:
        commands.append_wait(theirs, 1)
        commands.append_signal(kept, 7)
        peer = other_side(device, kept)
    theirs.release()
    assert peer.value() == 0
    sem.host_signal(1)
    peer.host_wait(7, timeout_s=20)
    commands.synchronize(timeout_s=20)


def test_array_outlives_buffer_memory_and_device() -> None:
    with xsem.open_device("host") as device, device.create_memory(MemoryHandleType.OPAQUE_FD, 4096) as memory:
        image = memory.map_buffer(shape=(64, 64)).numpy()
        image[:] = 7
    gc.collect()
    assert device.released
    assert (image == 7).all()
    del image, memory


def test_fds_of_released_objects_are_closed(device: xsem.Device) -> None:
    before = len(os.listdir("/proc/self/fd"))
    commands = device.create_command_list()
    for value in range(1, 200):
        with other_side(device, timeline(device)) as sem:
            commands.append_signal(sem, value)
        if value % 3:
            device.create_memory(MemoryHandleType.OPAQUE_FD, 1)   # dropped at once
    commands.synchronize(timeout_s=20)
    del sem  # type: ignore[possibly-undefined]
    gc.collect()
    until(lambda: len(os.listdir("/proc/self/fd")) == before)


def test_dropped_device_closes_when_its_work_is_done() -> None:
    device = xsem.open_device("host")
    sem = timeline(device)
    with xsem.open_device("host") as other:
        theirs = other_side(other, sem)
        commands = device.create_command_list()
        commands.append_wait(sem, 1)
        commands.append_signal(sem, 2)
        held = [device, commands, sem]
        del device, commands, sem
        with pytest.warns(ResourceWarning):
            held.clear()
        theirs.host_signal(1)
        theirs.host_wait(2, timeout_s=20)
    until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("xsem-")])


def test_released_device_ends_its_threads_when_its_wait_is_met(device: xsem.Device) -> None:
    sem = timeline(device)
    other = xsem.open_device("host")
    theirs = other_side(other, sem)
    commands = other.create_command_list()
    commands.append_wait(theirs, 1)
    other.release()
    with pytest.raises(ReleasedError):
        commands.query()
    sem.host_signal(1)
    until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("xsem-host")])


# ---- long runs and many threads
@pytest.mark.slow
def test_long_run_needs_no_more_memory_at_its_end(device: xsem.Device) -> None:
    commands, sem = device.create_command_list(), timeline(device)

    def run(begin: int) -> None:
        for value in range(begin, begin + 10_000, 2):
            commands.append_wait(sem, value - 2)
            commands.append_work(lambda: None)
            commands.append_signal(sem, value)
            if value % 512 == 0:
                sem.host_wait(value, timeout_s=10)   # the host runs ahead, within a limit

    run(2)
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        run(10_002)
        commands.synchronize(timeout_s=10)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 500_000
    assert len(commands._queue.pending()) == 0
    assert len(device._device_state._fences) < 600


@pytest.mark.timeout(50)
def test_many_threads_import_append_and_release(device: xsem.Device) -> None:
    stop = time.monotonic() + 1.5
    errors: list[BaseException] = []

    def run(number: int) -> None:
        luck, frames = random.Random(number), 0
        try:
            while time.monotonic() < stop and not errors:
                with timeline(device) as go, other_side(device, go) as wait, timeline(device) as done_so_far:
                    memory = device.create_memory(MemoryHandleType.OPAQUE_FD, 4096)
                    pixels = memory.map_buffer().numpy()
                    commands, done = device.create_command_list(), device.create_event()
                    for value in range(1, luck.randrange(2, 12)):
                        commands.append_wait(wait, value)
                        commands.append_work(functools.partial(np.add, pixels, 1, out=pixels))
                        commands.append_signal(done_so_far, value)
                        go.host_signal(value)
                        frames += 1
                    commands.append_barrier(signal_event=done)
                    if luck.random() < 0.5:
                        done.wait(timeout_s=10)
                        assert (pixels == value).all()
                    if luck.random() < 0.5:
                        commands.release()
                        memory.release()
            assert frames
        except BaseException as error:
            errors.append(error)

    each = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in each:
        thread.start()
    for thread in each:
        thread.join(30)
    if errors:
        raise errors[0]


def test_watch_speaks_while_the_host_sits_in_another_call(device: xsem.Device) -> None:
    commands, sem = device.create_command_list(), timeline(device, "frames")
    commands.append_wait(sem, 1)
    reports: list[Any] = []
    device.watch(after_s=0.02, report=reports.append)
    until(lambda: reports)
    assert reports[0][0].semaphore == "timeline_semaphore_fd 'frames'"
    sem.host_signal(1)
    commands.synchronize(timeout_s=20)


def test_binary_semaphores_hand_frames_over(device: xsem.Device) -> None:
    ready, done = device.create_semaphore(BINARY), device.create_semaphore(BINARY)
    commands, seen = device.create_command_list(), []
    for _ in range(100):
        commands.append_wait(ready)
        commands.append_work(lambda: seen.append(1))
        commands.append_signal(done)
    with pytest.raises(WaitTimeoutError):
        done.host_wait(timeout_s=0)
    for _ in range(100):
        ready.host_signal()
        done.host_wait(timeout_s=20)
    commands.synchronize(timeout_s=20)
    assert len(seen) == 100


def test_borrowed_event_of_the_host_is_waited_for(device: xsem.Device) -> None:
    native = threading.Event()
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_barrier(wait_events=[device.event(native)])
    commands.append_signal(sem, 1)
    assert not commands.query()
    assert [op.operation for op in device.pending()] == ["barrier", "signal"]
    native.set()
    sem.host_wait(1, timeout_s=20)


def test_closed_fds_are_refused_and_nothing_is_lost(device: xsem.Device) -> None:
    with OwnedHandle(os.eventfd(0)) as handle:
        number = handle.fileno()
    with pytest.raises(xsem.BadHandleError) as caught:
        device.import_semaphore(SemaphoreDesc.opaque_fd(number, device_uuid=None))
    assert caught.value.reason == "closed_fd"
