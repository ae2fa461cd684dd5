"""Awaiting values of timelines: results, cancellation, failures, released objects, no thread for each wait."""

from __future__ import annotations

import asyncio
import gc
import weakref
from functools import partial
from typing import Any

import pytest
from support.at_once import threads
from support.fake_backend import SEMAPHORES, FakeDriver, fake, timeline
from support.fixtures import Opened, refused
from support.loops import eventually, settle
from support.system_types import TIMELINE
from support.waiting import until

import xsem
from xsem.errors import BadArgumentError, DriverError, ReleasedError, UnsupportedError
from xsem.types import Capabilities, SemaphoreHandleType


def gone() -> None:
    until(lambda: not threads("notify"))


def test_await_returns_when_the_value_is_reached(device: xsem.Device) -> None:
    frames = device.create_semaphore(TIMELINE)
    with frames.export() as desc:
        imported = device.import_semaphore(desc)

    async def main() -> None:
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            group.create_task(imported.reached(2))
            group.create_task(imported.reached(1))
            frames.host_signal(1)
            await frames.reached(1)
            await frames.reached(0)
            frames.host_signal(5)

    asyncio.run(main())
    gone()


def test_each_await_ends_at_its_value(opened: Opened) -> None:
    device, _ = opened
    frames, other = timeline(device), timeline(device)

    async def main() -> None:
        tasks = [asyncio.create_task(each.reached(value)) for value in (3, 1, 2) for each in (frames, other)]
        await settle()
        frames.host_signal(2)
        await eventually(tasks[2])
        await eventually(tasks[4])
        assert [task.done() for task in tasks] == [False, False, True, False, True, False]
        frames.host_signal(3)
        other.host_signal(9)
        for task in tasks:
            await eventually(task)
            assert task.result() is None

    asyncio.run(main())
    gone()


def test_bad_awaits_are_refused(opened: Opened) -> None:
    device, _ = opened
    frames = timeline(device)
    binary = device.create_semaphore(SemaphoreHandleType.OPAQUE_FD)

    async def wait(semaphore: xsem.Semaphore, value: Any) -> None:
        await semaphore.reached(value)

    for semaphore, value, reason in ((frames, None, "value_required"), (frames, "1", "not_an_int"),
                                     (frames, True, "not_an_int"), (frames, -1, "value_out_of_range"),
                                     (frames, 2**64, "value_out_of_range"), (binary, 1, "not_a_timeline")):
        refused(partial(asyncio.run, wait(semaphore, value)), reason, BadArgumentError)
    frames.release()
    refused(lambda: asyncio.run(wait(frames, 1)), "released", ReleasedError)
    assert not threads("notify")


def test_device_without_values_is_refused() -> None:
    with fake(driver=FakeDriver(Capabilities(semaphore_import=SEMAPHORES, semaphore_export=SEMAPHORES))) as (device, _):
        frames = timeline(device)
        error = refused(lambda: asyncio.run(frames.reached(1)), "unsupported", UnsupportedError)
        assert isinstance(error, UnsupportedError)
        assert error.capability == "read_value"


def test_await_raises_when_an_object_is_released(opened: Opened) -> None:
    device, _ = opened
    frames, other = timeline(device), timeline(device)

    async def main() -> None:
        tasks = [asyncio.create_task(each.reached(1)) for each in (frames, frames, other)]
        await settle()
        frames.release()
        for task in tasks[:2]:
            await eventually(task)
            with pytest.raises(ReleasedError):
                task.result()
        assert tasks[0].exception() is not tasks[1].exception()
        assert not tasks[2].done()
        device.release()
        await eventually(tasks[2])
        with pytest.raises(ReleasedError):
            tasks[2].result()

    asyncio.run(main())


def test_await_raises_the_drivers_error(opened: Opened) -> None:
    device, driver = opened
    frames = timeline(device)

    def lost(_: object) -> int:
        raise DriverError("lost", reason="lost", code=700)

    async def main() -> None:
        task = asyncio.create_task(frames.reached(1))
        await settle()
        driver.semaphore_value = lost  # type: ignore[assignment,method-assign]
        await eventually(task)
        with pytest.raises(DriverError, match="lost") as caught:
            task.result()
        assert caught.value.backend == "fake"

    asyncio.run(main())
    gone()


def test_cancelling_withdraws_the_wait(opened: Opened) -> None:
    device, driver = opened
    frames = timeline(device)

    async def main() -> None:
        task = asyncio.create_task(frames.reached(1))
        await settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(gone)
        before = driver.calls
        frames.host_signal(1)
        assert driver.calls == before + 1   # no poll is left
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await frames.reached(2)

    asyncio.run(main())
    gone()


def test_cancelling_at_the_moment_of_the_signal_is_harmless(opened: Opened) -> None:
    device, _ = opened
    frames = timeline(device)
    complaints: list[object] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        for value in range(1, 51):
            task = asyncio.create_task(frames.reached(value))
            await settle()
            frames.host_signal(value)
            task.cancel()
            await asyncio.wait([task])
        await asyncio.to_thread(gone)
        await settle()

    asyncio.run(main())
    gc.collect()
    assert complaints == []


def test_many_waits_have_one_thread_and_few_reads(opened: Opened) -> None:
    device, driver = opened
    frames = timeline(device)

    async def main() -> None:
        tasks = [asyncio.create_task(frames.reached(value)) for value in range(1, 1001)]
        await settle()
        until(lambda: bool(threads("notify")))
        assert len(threads("notify")) == 1
        before, passes = driver.calls, 0
        counted = driver.semaphore_value

        def count(token: Any) -> int:
            nonlocal passes
            passes += 1
            return counted(token)

        driver.semaphore_value = count  # type: ignore[assignment,method-assign]
        await asyncio.to_thread(until, lambda: passes >= 10)
        # A pass reads for the lowest value, and not for the other 999.
        assert driver.calls - before < 100
        frames.host_signal(1000)
        async with asyncio.timeout(20):
            await asyncio.gather(*tasks)

    asyncio.run(main())
    gone()


def test_only_the_awaiting_task_keeps_the_semaphore(opened: Opened) -> None:
    device, _ = opened

    async def main() -> None:
        frames = timeline(device)
        kept = weakref.ref(frames)
        task = asyncio.create_task(frames.reached(1))
        await settle()
        frames.host_signal(1)
        del frames
        await eventually(task)
        del task
        await asyncio.to_thread(gone)
        gc.collect()
        assert kept() is None

    asyncio.run(main())
