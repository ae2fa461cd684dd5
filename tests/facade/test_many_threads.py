"""A few seconds of many threads: afterwards no object is left, and no driver call was misused."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.at_once import restless
from support.fake_backend import FakeDriver, FakeStream, fake, timeline
from support.fixtures import new_handle
from support.waiting import until

from xsem.errors import BadArgumentError, BusyError, EventNotAppendedError, ReleasedError
from xsem.runtime.semaphore_state import SemaphoreState
from xsem.types import MemoryHandleType, SemaphoreDesc

SECONDS = 1.0
EXPECTED = (ReleasedError, BusyError, BadArgumentError, EventNotAppendedError)


@pytest.fixture(name="restless")
def _restless() -> Iterator[None]:
    with restless(1e-5):
        yield


def run(*bodies: Callable[[random.Random], None]) -> None:
    """Repeat each body in its own thread. Any exception other than xsem's refusals fails the test."""
    stop = time.monotonic() + SECONDS
    errors: list[BaseException] = []

    def loop(number: int, body: Callable[[random.Random], None]) -> None:
        luck = random.Random(number)
        try:
            while time.monotonic() < stop and not errors:
                with contextlib.suppress(*EXPECTED):
                    body(luck)
        except BaseException as error:
            errors.append(error)

    each = [threading.Thread(target=loop, args=(number, body)) for number, body in enumerate(bodies)]
    for thread in each:
        thread.start()
    for thread in each:
        thread.join(30)
    if errors:
        raise errors[0]


def progress(driver: FakeDriver) -> Callable[[random.Random], None]:
    """Simulate the device: reach the fences of each list in order."""
    def reach(luck: random.Random) -> None:
        for each in list(driver.lists):
            for fence in list(each.fences)[-50:]:
                fence.reached = True
        time.sleep(luck.random() * 0.002)

    return reach


@pytest.mark.slow
@pytest.mark.timeout(50)
@pytest.mark.usefixtures("restless")
def test_import_append_release_in_eight_threads() -> None:
    with fake() as (device, driver), new_handle() as handle:
        desc = SemaphoreDesc.timeline_fd(handle, device_uuid=None)

        def body(luck: random.Random) -> None:
            sem = device.import_semaphore(desc)
            commands = device.create_command_list() if luck.random() < 0.3 else device.command_list(
                FakeStream(luck.randrange(1, 5)))
            mem = device.create_memory(MemoryHandleType.OPAQUE_FD, 4096)
            buffer, event = mem.map_buffer(), device.create_event()
            for value in range(1, luck.randrange(2, 20)):
                commands.append_wait(sem, value, acquire=[mem])
                commands.append_fill(buffer, b"0")
                commands.append_signal(sem, value)
            commands.append_barrier(signal_event=event)
            if luck.random() < 0.5:
                event.query()
                commands.query()
            for thing in luck.sample([sem, mem, buffer, event, commands], luck.randrange(6)):
                thing.release()   # the other objects are dropped

        run(progress(driver), *[body] * 8)
        assert driver.misuse == []
        driver.finish()
        until(lambda: device.pending() == ())
        imported = len([call for call in driver.log if call[0] == "import_semaphore"])
        until(lambda: len(driver.released("release_semaphore")) == imported)
        assert imported > 20
        assert len(set(driver.released("release_semaphore"))) == imported


@pytest.mark.parametrize("call", ["append_wait", "append_signal"])
def test_known_append_survives_a_concurrent_first_append(call: str) -> None:
    with fake() as (device, _):
        sem, other, commands = timeline(device), timeline(device), device.create_command_list()

        class FakePrepared:
            """Appends another semaphore while the cache checks it, as another thread could."""

            looked_at = False

            @property
            def states(self) -> list[SemaphoreState]:
                if not self.looked_at:
                    self.looked_at = True
                    getattr(commands, call)(other, 4)
                return [released]

        gone = timeline(device)
        gone.release()
        released, prepared = gone._state, commands._queue.prepared
        prepared._many = 1
        known = prepared.waits if call == "append_wait" else prepared.signals
        first: Any = FakePrepared()
        known[first] = first
        getattr(commands, call)(sem, 3)
        assert first not in known
        assert len(known) == 2


@pytest.mark.slow
@pytest.mark.timeout(50)
@pytest.mark.usefixtures("restless")
def test_appends_queries_and_releases_of_one_list_at_once() -> None:
    with fake() as (device, driver):
        commands = device.create_command_list()
        shared = [timeline(device) for _ in range(4)]

        def append(luck: random.Random) -> None:
            at = luck.randrange(4)
            with contextlib.suppress(ReleasedError):
                commands.append_wait(shared[at], 1)

        def replace(luck: random.Random) -> None:
            at = luck.randrange(4)
            shared[at].release()
            shared[at] = timeline(device)
            time.sleep(0.0005)

        def query(_luck: random.Random) -> None:
            commands.query()
            device.pending()

        run(append, append, append, replace, replace, query, progress(driver))
        assert driver.misuse == []


@pytest.mark.timeout(50)
@pytest.mark.usefixtures("restless")
def test_events_shared_by_all_threads() -> None:
    with fake() as (device, driver):
        events = [device.create_event() for _ in range(3)]
        lists = [device.create_command_list() for _ in range(3)]
        called: list[int] = []
        added: list[int] = []

        def body(luck: random.Random) -> None:
            event, commands = luck.choice(events), luck.choice(lists)
            what = luck.randrange(5)
            if what == 0:
                commands.append_barrier(signal_event=event)
            elif what == 1:
                commands.append_barrier(wait_events=[event])
            elif what == 2:
                event.reset()
            elif what == 3:
                event.query()
            else:
                event.add_done_callback(lambda _: called.append(1))
                added.append(1)

        run(body, body, body, body, progress(driver))
        driver.finish()
        until(lambda: len(called) == len(added))
        for event in events:
            assert not event._claimed


@pytest.mark.timeout(50)
@pytest.mark.usefixtures("restless")
def test_devices_are_released_while_all_threads_use_them() -> None:
    def body(luck: random.Random) -> None:
        with fake() as (device, driver):
            commands, sem, event = device.create_command_list(), timeline(device), device.create_event()
            ready = threading.Barrier(4)

            def use() -> None:
                ready.wait()
                with contextlib.suppress(*EXPECTED):
                    for value in range(1, 1000):
                        commands.append_signal(sem, value)
                        commands.query()
                        device.pending()

            def wait() -> None:
                commands.append_barrier(signal_event=event)
                event.add_done_callback(lambda _: None)
                ready.wait()
                with contextlib.suppress(*EXPECTED):
                    commands.synchronize(timeout_s=5)

            def end() -> None:
                ready.wait()
                time.sleep(luck.random() * 0.003)
                device.release()
                driver.finish()

            each = [threading.Thread(target=each) for each in (use, wait, end)]
            for thread in each:
                thread.start()
            ready.wait(10)
            for thread in each:
                thread.join(20)

    run(body, body)


@pytest.mark.timeout(50)
def test_thread_count_returns_to_the_start() -> None:
    def tasks() -> int:
        return len(os.listdir("/proc/self/task")) if sys.platform == "linux" else threading.active_count()

    before = tasks()
    for _ in range(5):
        with fake() as (device, driver):
            event, sem = device.create_event(), timeline(device)
            commands = device.create_command_list()
            commands.append_wait(sem, 1, signal_event=event)
            event.add_done_callback(lambda _: None)
            device.watch(after_s=10)
            sem.release()
            device.create_memory(MemoryHandleType.OPAQUE_FD, 1).release()
            until(lambda: tasks() > before)
            driver.finish()
    # Fewer if a thread of an earlier test was ending during the first count.
    until(lambda: tasks() <= before)
