"""Code of applications, from tests/typing, runs on the host device."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from support.at_once import ctrl_c_in
from support.paths import TESTS

import xsem
from xsem.errors import WaitTimeoutError
from xsem.types import MemoryHandleType, OwnedHandle, SemaphoreHandleType

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the host device needs Linux")

TIMELINE = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD


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


# ---- errors and timeouts
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


# ---- asyncio
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


# ---- their tests
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


# ---- work that appends
def test_work_may_append_to_lists(device: xsem.Device) -> None:
    commands, other, sem = device.create_command_list(), device.create_command_list(), timeline(device)

    def work() -> None:
        other.append_signal(sem, 1)
        commands.append_wait(sem, 1)
        commands.append_signal(sem, 2)

    commands.append_work(work)
    sem.host_wait(2, timeout_s=20)
    commands.synchronize(timeout_s=20)


# ---- long runs
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
