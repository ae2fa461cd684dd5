"""Awaiting events: results, cancellation, timeouts, closed loops, released devices."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import pytest
from support.at_once import threads
from support.fixtures import Opened
from support.loops import eventually, settle
from support.waiting import until

import xsem
from xsem.errors import DriverError, EventNotAppendedError, ReleasedError


def bound(device: xsem.Device, commands: xsem.CommandList | None = None) -> xsem.Event:
    event = device.create_event()
    (commands or device.create_command_list()).append_barrier(signal_event=event)
    return event


async def awaiting(event: xsem.Event) -> None:
    await event


def test_await_returns_when_the_work_is_done(opened: Opened) -> None:
    device, driver = opened

    async def main() -> None:
        event = bound(device)
        task = asyncio.create_task(awaiting(event))
        await settle()
        assert not task.done()
        driver.lists[0].reach_all()
        await eventually(task)
        assert task.result() is None
        await event   # a second await of a done event

    asyncio.run(main())
    until(lambda: not threads("notify"))


def test_await_of_an_unbound_event_raises(opened: Opened) -> None:
    device, _ = opened

    async def main() -> None:
        with pytest.raises(EventNotAppendedError):
            await device.create_event()

    asyncio.run(main())


def test_await_raises_the_drivers_error(opened: Opened) -> None:
    device, driver = opened

    async def main() -> None:
        event = bound(device)
        tasks = [asyncio.create_task(awaiting(event)) for _ in range(3)]
        await settle()
        driver.lists[0].fences[0].error = DriverError("lost", reason="lost", code=700)
        for task in tasks:
            await eventually(task)
            with pytest.raises(DriverError, match="lost"):
                task.result()

    asyncio.run(main())


def test_await_raises_when_the_device_is_released(opened: Opened) -> None:
    device, _ = opened

    async def main() -> None:
        event, other = bound(device), bound(device)
        tasks = [asyncio.create_task(awaiting(each)) for each in (event, other)]
        await settle()
        device.release()
        for task in tasks:
            await eventually(task)
            with pytest.raises(ReleasedError):
                task.result()
        assert len({id(task.exception()) for task in tasks}) == 2   # each task has its own exception

    asyncio.run(main())


def test_await_goes_on_when_the_event_is_reset_or_released(opened: Opened) -> None:
    device, driver = opened

    async def main() -> None:
        for end in ("reset", "release"):
            event = bound(device)
            task = asyncio.create_task(awaiting(event))
            await settle()
            getattr(event, end)()
            await settle()
            assert not task.done()
            driver.lists[-1].reach_all()
            await eventually(task)
            assert task.result() is None

    asyncio.run(main())


def test_cancelling_ends_the_await_and_not_the_work(opened: Opened) -> None:
    device, driver = opened

    async def main() -> None:
        event = bound(device)
        task = asyncio.create_task(awaiting(event))
        await settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(until, lambda: not threads("notify"))   # no await is left
        assert not event.query()
        driver.lists[0].reach_all()
        await event

    asyncio.run(main())


def test_timeout_bounds_an_await(opened: Opened) -> None:
    device, driver = opened

    async def main() -> None:
        event = bound(device)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await event
        assert device.pending()
        driver.lists[0].reach_all()
        async with asyncio.timeout(10):
            await event

    asyncio.run(main())


def test_cancelling_at_the_moment_of_the_end_is_harmless(opened: Opened) -> None:
    device, driver = opened
    complaints: list[object] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        commands = device.create_command_list()
        for _ in range(50):
            event = bound(device, commands)
            task = asyncio.create_task(awaiting(event))
            await settle()
            driver.lists[0].reach_all()
            task.cancel()
            await asyncio.wait([task])
            event.release()
        await asyncio.to_thread(until, lambda: not threads("notify"))
        await settle()

    asyncio.run(main())
    gc.collect()
    assert complaints == []


def test_closed_loop_with_a_pending_await_is_not_called(
    opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    device, driver = opened
    event = bound(device)
    loop = asyncio.new_event_loop()
    steps = event.__await__()

    async def begin() -> None:
        next(steps)

    loop.run_until_complete(begin())
    loop.close()
    driver.lists[0].reach_all()
    until(lambda: not threads("notify"))
    assert caplog.text == ""
    steps.close()


def test_collected_task_withdraws_its_request(opened: Opened) -> None:
    device, _ = opened
    event = bound(device)
    loop = asyncio.new_event_loop()

    async def begin() -> None:
        steps = event.__await__()
        next(steps)
        until(lambda: threads("notify"))
        del steps

    loop.run_until_complete(begin())
    loop.close()
    gc.collect()
    until(lambda: not threads("notify"))


def test_many_awaits_are_all_answered(opened: Opened) -> None:
    device, driver = opened
    lists = [device.create_command_list() for _ in range(10)]

    async def main() -> None:
        events = [bound(device, lists[at % 10]) for at in range(1000)]
        tasks = [asyncio.create_task(awaiting(event)) for event in events]
        await settle()
        for each in driver.lists:
            each.reach_all()
        async with asyncio.timeout(20):
            await asyncio.gather(*tasks)

    asyncio.run(main())
    until(lambda: not threads("notify"))


def test_each_loop_is_answered_in_its_own_thread(opened: Opened) -> None:
    device, driver = opened
    event, ready, where = bound(device), threading.Barrier(4), []

    def run() -> None:
        async def main() -> None:
            task = asyncio.create_task(awaiting(event))
            await settle()
            await asyncio.to_thread(ready.wait)
            await eventually(task)
            where.append(threading.get_ident())

        asyncio.run(main())

    each = [threading.Thread(target=run) for _ in range(3)]
    for thread in each:
        thread.start()
    ready.wait(10)
    driver.lists[0].reach_all()
    for thread in each:
        thread.join(10)
    assert len(set(where)) == 3


def test_only_the_awaiting_task_keeps_its_event(opened: Opened) -> None:
    device, driver = opened

    async def main() -> None:
        event = bound(device)
        kept = weakref.ref(event)
        task = asyncio.create_task(awaiting(event))
        del event
        await settle()
        driver.lists[0].reach_all()
        await eventually(task)
        del task
        await asyncio.to_thread(until, lambda: not threads("notify"))
        gc.collect()
        assert kept() is None

    asyncio.run(main())


def test_await_outside_a_loop_is_asyncios_error(opened: Opened) -> None:
    device, _ = opened
    with pytest.raises(RuntimeError, match="no running event loop"):
        next(bound(device).__await__())
    assert not threads("notify")
