"""Background threads of xsem: a failed start or a failed round is repeated, and no request is lost."""

from __future__ import annotations

import _thread
import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from support.fake_backend import timeline
from support.fixtures import Opened
from support.waiting import until

import xsem
from xsem.runtime.threads import Background, Pause
from xsem.types import MemoryHandleType

pytestmark = pytest.mark.timeout(30)


class Threads:
    """Replaces `_thread`: starts threads, or refuses them as the system does at its limit."""

    def __init__(self) -> None:
        self._start: Callable[..., int] = _thread.start_new_thread
        self.given = True
        self.refused = 0
        self.after_start: list[BaseException] = []   # raised after the start of a thread, as Ctrl-C can be

    def start_new_thread(self, *arguments: Any) -> int:
        if not self.given:
            self.refused += 1
            raise RuntimeError("can't start new thread")
        started = self._start(*arguments)
        if self.after_start:
            raise self.after_start.pop()
        return started


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Threads]:
    made = Threads()
    monkeypatch.setattr("xsem.runtime.threads._thread", made)
    yield made
    made.given = True


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xsem.runtime.threads._AGAIN_S", 0.001)


# ---- the thread
@pytest.mark.parametrize("error", [SystemExit(1), ZeroDivisionError(), MemoryError(), KeyboardInterrupt()], ids=repr)
def test_work_that_raises_is_logged_and_called_again(
    soon: None, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    left = [1, 2, 3]
    failures = [error, error]

    def work() -> None:
        if failures:
            raise failures.pop()
        left.clear()

    thread = Background("xsem-test", work, lambda: bool(left))
    thread.wake()
    until(lambda: not left and thread._idle)
    assert [record.getMessage() for record in caplog.records] == ["xsem-test failed, and goes on"] * 2
    assert type(error).__name__ in caplog.text


def test_later_call_starts_a_thread_that_could_not_start(
    threads: Threads, caplog: pytest.LogCaptureFixture
) -> None:
    worked: list[str] = []
    thread = Background("xsem-test", lambda: worked.append(threading.current_thread().name), lambda: False)
    threads.given = False
    assert not thread.wake()
    assert thread.stalled
    assert caplog.records == []   # `wake` runs in finalizers and logs nothing
    for _ in range(3):
        assert not thread.ensure()
    record, = caplog.records   # one record for several attempts
    assert (record.name, record.levelno) == ("xsem", logging.WARNING)
    assert "xsem-test cannot be started" in record.getMessage()
    threads.given = True
    assert thread.ensure()
    assert not thread.stalled
    until(lambda: worked == ["xsem-test"])
    until(lambda: thread._idle)
    threads.given = False
    assert not thread.ensure()
    assert len(caplog.records) == 2   # a new failure logs again


def test_request_during_a_second_attempt_of_another_thread_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    thread = Background("xsem-test", lambda: None, lambda: False)
    thread.stalled = True   # an earlier start was refused
    thread._idle.pop()      # and another thread starts it now
    assert thread.ensure()
    assert caplog.records == []


def test_work_is_done_when_the_second_thread_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    worked: list[int] = []

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    thread = Background("xsem-test", lambda: worked.append(1), lambda: False)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        thread.wake()
        until(lambda: worked and thread._idle)
    assert worked == [1]


def test_interrupted_start_leaves_one_thread_and_loses_nothing(threads: Threads) -> None:
    """Ctrl-C can come when the thread already runs, so the next call starts a second one."""
    inside, go = threading.Event(), threading.Event()
    at_work, most, left = [0], [0], [1]

    def work() -> None:
        at_work[0] += 1
        most[0] = max(most[0], at_work[0])
        inside.set()
        assert go.wait(10)
        left.clear()
        at_work[0] -= 1

    thread = Background("xsem-test", work, lambda: bool(left))
    threads.after_start.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        thread.wake()
    assert inside.wait(10)
    assert thread.stalled
    thread.ensure()
    go.set()
    until(lambda: thread._idle and not left and not at_work[0])
    assert most == [1]


def test_later_call_completes_an_interrupted_start(threads: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes before the start of the thread."""
    worked: list[int] = []
    thread = Background("xsem-test", lambda: worked.append(1), lambda: False)

    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threads, "start_new_thread", interrupt)
        with pytest.raises(KeyboardInterrupt):
            thread.wake()
    assert thread.stalled
    assert thread.ensure()
    until(lambda: worked)


# ---- callbacks, awaits and releases on the thread
@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_raising_callback_does_not_stop_other_callbacks(
    opened: Opened, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    device, driver = opened
    commands, events = device.create_command_list(), [device.create_event() for _ in range(3)]
    called: list[xsem.Event] = []

    def fail(_event: xsem.Event) -> None:
        raise error

    async def main() -> None:
        for event in events:
            commands.append_barrier(signal_event=event)
        events[0].add_done_callback(fail)
        events[1].add_done_callback(called.append)

        async def awaiting() -> None:
            await events[2]

        task = asyncio.create_task(awaiting())
        await asyncio.sleep(0)
        driver.lists[0].reach_all()
        async with asyncio.timeout(10):
            await task

    asyncio.run(main())
    until(lambda: called == [events[1]])
    assert "a done callback raised" in caplog.text
    assert type(error).__name__ in caplog.text


def test_driver_error_ends_only_the_wait_of_its_callback(opened: Opened) -> None:
    device, driver = opened
    lists, events = [device.create_command_list() for _ in range(2)], [device.create_event() for _ in range(2)]
    called: list[xsem.Event] = []
    for commands, event in zip(lists, events, strict=True):
        commands.append_barrier(signal_event=event)
        event.add_done_callback(called.append)
    driver.lists[0].fences[0].error = SystemExit(1)   # type: ignore[assignment]
    until(lambda: called == [events[0]])
    driver.lists[0].fences[0].error = None
    driver.finish()
    until(lambda: len(called) == 2)


def test_await_ends_when_a_thread_can_start_again(
    opened: Opened, threads: Threads, caplog: pytest.LogCaptureFixture
) -> None:
    device, driver = opened
    commands, event = device.create_command_list(), device.create_event()
    driver.everything_is_done = True
    commands.append_barrier(signal_event=event)

    async def main() -> None:
        async def awaiting() -> None:
            await event

        threads.given = False
        task = asyncio.create_task(awaiting())
        # The event loop tries again without another call of xsem.
        await asyncio.to_thread(until, lambda: threads.refused >= 3)
        assert not task.done()
        threads.given = True
        async with asyncio.timeout(10):
            await task

    asyncio.run(main())
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "xsem-notify-fake:0 cannot be started" in caplog.text


@pytest.mark.parametrize("later", ["query", "append", "pending"])
def test_callback_is_called_after_a_later_call_starts_a_thread(
    opened: Opened, threads: Threads, caplog: pytest.LogCaptureFixture, later: str
) -> None:
    device, driver = opened
    commands, event = device.create_command_list(), device.create_event()
    called: list[xsem.Event] = []
    driver.everything_is_done = True
    commands.append_barrier(signal_event=event)
    threads.given = False
    event.add_done_callback(called.append)
    assert "callbacks" in caplog.text
    device.pending()
    threads.given = True
    assert called == []
    calls: dict[str, Callable[[], object]] = {
        "query": event.query, "append": commands.append_barrier, "pending": device.pending}
    calls[later]()
    until(lambda: called == [event])


@pytest.mark.parametrize("way", ["release", "finalizer"])
@pytest.mark.parametrize("later", ["releasing", "append", "append again"])
def test_release_takes_effect_after_a_later_call_starts_a_thread(
    opened: Opened, threads: Threads, caplog: pytest.LogCaptureFixture, way: str, later: str
) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    for value in (1, 2, 3):   # later signals are prepared appends
        commands.append_signal(sem, value)
    memory = device.create_memory(MemoryHandleType.OPAQUE_FD, 4096)
    threads.given = False
    if way == "release":
        memory.release()
    del memory
    device.pending()
    assert "xsem-release-fake:0 cannot be started" in caplog.text
    assert not driver.released("release_memory")
    threads.given = True
    calls: dict[str, Callable[[], object]] = {
        "releasing": device.releasing, "append": commands.append_barrier,
        "append again": partial(commands.append_signal, sem, 4)}
    calls[later]()
    until(lambda: driver.released("release_memory"))


# ---- signal handlers
def test_handler_that_waits_for_its_interrupted_list_is_refused(opened: Opened) -> None:
    """Its wait could not end, because the append continues only after the handler returns."""
    device, driver = opened
    commands = device.create_command_list()
    reasons: list[str] = []

    def handler() -> None:
        with pytest.raises(xsem.BusyError) as caught:
            commands.synchronize(timeout_s=None)
        reasons.append(caught.value.reason)
        reasons.append(str(commands.query()))

    commands.append_barrier()
    driver.lists[0].during = handler
    commands.append_barrier()
    assert reasons == ["in_append", "False"]
    driver.everything_is_done = True
    commands.synchronize()
    driver.lists[0].during = lambda: commands.synchronize(timeout_s=None)   # all is done, so it does not wait
    commands.append_barrier()
    assert driver.lists[0].during is None


def test_marker_before_an_interrupted_append_does_not_cover_it(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler can run after the append has its number and before the driver has the operation."""
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_barrier()
    queue, answers = commands._queue, list[bool]()
    _ = commands.native_handle   # from here on, each append asks whether the list is captured

    def interrupted() -> bool:
        if not answers:
            answers.append(False)   # `query` asks, too
            answers[:] = [commands.query()]
            driver.lists[0].reach_all()
            answers.append(commands.query())
        return False

    monkeypatch.setattr(queue, "_query_capture", interrupted)
    commands.append_signal(sem, 1)
    assert answers == [False, True]
    assert queue.done_seq == queue.last_seq - 1
    sem.release()
    assert not driver.released("release_semaphore")


# ---- pauses
@pytest.mark.parametrize("count", [1, 2])
def test_end_before_a_pause_ends_the_next_one_only(count: int) -> None:
    nap = Pause()
    for _ in range(count):
        nap.end()
    assert nap.wait(1000)   # the time limit of the tests is shorter
    assert not nap.wait(0.02)


def test_another_thread_ends_a_pause() -> None:
    nap, over = Pause(), threading.Event()

    def pause() -> None:
        nap.wait(1000)
        over.set()

    threading.Thread(target=pause, daemon=True).start()
    nap.end()
    assert over.wait(10)
