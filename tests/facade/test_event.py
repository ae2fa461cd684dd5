"""Events: binding, waits and callbacks."""

from __future__ import annotations

import dataclasses
import gc
import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from support.at_once import threads
from support.fake_backend import ALL, FakeDriver, FakeFence, FakeStream, fake, open_fake, timeline
from support.fixtures import Opened
from support.waiting import until

import xsem
from xsem.errors import BadArgumentError, BusyError, DriverError, EventNotAppendedError, UnsupportedError
from xsem.types import Feature


def given_back(driver: FakeDriver) -> list[FakeFence]:
    return [fence for fence in driver.fences if fence.released]


# ---- binding
def test_event_is_bound_to_the_operation_that_signals_it(opened: Opened) -> None:
    device, driver = opened
    commands, event, sem = device.create_command_list(), device.create_event(), timeline(device)
    commands.append_wait(sem, 1)
    commands.append_barrier(signal_event=event)
    commands.append_barrier()
    assert [fence.what for fence in driver.lists[0].fences] == ["barrier"]   # no fence for the third operation
    assert not event.query()
    driver.lists[0].fences[0].reached = True
    assert event.query()
    event.wait(timeout_s=0)


@pytest.mark.parametrize("ask", ["query", "wait", "add_done_callback", "__await__"])
def test_event_bound_to_nothing_cannot_be_asked(opened: Opened, ask: str) -> None:
    device, _ = opened
    commands, event = device.create_command_list(), device.create_event()
    for _ in range(2):
        with pytest.raises(EventNotAppendedError) as caught:
            if ask == "__await__":
                next(event.__await__())
            else:
                getattr(event, ask)(*([print] if ask == "add_done_callback" else []))
        assert caught.value.reason == "event_not_appended"
        commands.append_barrier(signal_event=event)   # the second round asks an event that was reset
        event.reset()


def test_bound_event_is_not_bound_again(opened: Opened) -> None:
    device, driver = opened
    commands, event = device.create_command_list(), device.create_event()
    commands.append_barrier(signal_event=event)
    driver.lists[0].reach_all()
    event.wait()
    before = len(driver.lists[0].calls)
    sem = timeline(device)
    calls: list[Callable[[], None]] = [
        lambda: commands.append_barrier(signal_event=event),
        lambda: commands.append_signal(sem, 1, signal_event=event),
        lambda: commands.append_barrier(wait_events=[event], signal_event=event),
    ]
    for call in calls:
        with pytest.raises(BusyError) as caught:
            call()
        assert caught.value.reason == "event_bound"
    assert len(driver.lists[0].calls) == before
    event.reset()
    commands.append_barrier(signal_event=event)
    assert not event.query()


def test_event_is_bound_by_one_of_many_threads(opened: Opened) -> None:
    device, driver = opened
    lists = [device.create_command_list() for _ in range(4)]
    for _ in range(50):
        event = device.create_event()
        outcomes: list[str] = []
        start = threading.Barrier(4)

        def bind(commands: xsem.CommandList, event: xsem.Event = event, outcomes: list[str] = outcomes,
                 start: threading.Barrier = start) -> None:
            start.wait()
            try:
                commands.append_barrier(signal_event=event)
                outcomes.append("bound")
            except BusyError as error:
                outcomes.append(error.reason)

        each = [threading.Thread(target=bind, args=(commands,)) for commands in lists]
        for thread in each:
            thread.start()
        for thread in each:
            thread.join()
        assert sorted(outcomes) == ["bound", "event_bound", "event_bound", "event_bound"]
    assert sum(len(each.calls) for each in driver.lists) == 50


def test_wait_keeps_the_binding_it_was_appended_with(opened: Opened) -> None:
    device, driver = opened
    producer, consumer, event = device.create_command_list(), device.create_command_list(), device.create_event()
    producer.append_barrier(signal_event=event)
    first = driver.lists[0].fences[0]
    consumer.append_barrier(wait_events=[event])
    event.reset()
    producer.append_barrier(signal_event=event)
    consumer.append_barrier(wait_events=[event])
    second = driver.lists[0].fences[1]
    assert [call[1] for call in driver.lists[1].calls] == [(first,), (second,)]


def test_fence_lives_while_a_wait_for_it_is_pending(opened: Opened) -> None:
    device, driver = opened
    producer, consumer, event = device.create_command_list(), device.create_command_list(), device.create_event()
    producer.append_barrier(signal_event=event)
    consumer.append_barrier(wait_events=[event])
    fence = driver.lists[0].fences[0]
    driver.lists[0].reach_all()
    event.wait()
    event.release()
    device.pending()
    assert fence not in given_back(driver)
    driver.lists[1].reach_all()
    assert consumer.query()
    device.pending()
    assert fence in given_back(driver)


def test_reset_unbinds_only(opened: Opened) -> None:
    device, driver = opened
    commands, event = device.create_command_list(), device.create_event()
    event.reset()
    event.reset()
    commands.append_barrier(signal_event=event)
    before = driver.calls
    event.reset()
    event.reset()
    assert driver.calls == before
    commands.append_barrier(signal_event=event)
    with pytest.raises(BusyError):
        commands.append_barrier(signal_event=event)


def test_reset_during_the_binding_append_keeps_the_binding(opened: Opened) -> None:
    device, driver = opened
    commands, event = device.create_command_list(), device.create_event()
    driver.lists[0].during = event.reset
    commands.append_barrier(signal_event=event)
    assert not event.query()
    with pytest.raises(BusyError):
        commands.append_barrier(signal_event=event)


def test_append_that_fails_leaves_the_event_free(opened: Opened) -> None:
    device, driver = opened
    commands, event = device.create_command_list(), device.create_event()
    for error in (DriverError("no", reason="driver"), KeyboardInterrupt()):
        driver.lists[0].fail_next = error  # type: ignore[assignment]
        with pytest.raises(type(error)):
            commands.append_barrier(signal_event=event)
        with pytest.raises(EventNotAppendedError):
            event.query()
    commands.append_barrier(signal_event=event)


def test_event_of_one_list_is_waited_for_on_another(opened: Opened) -> None:
    device, driver = opened
    own, borrowed, event = device.create_command_list(), device.command_list(FakeStream(7)), device.create_event()
    own.append_barrier(signal_event=event)
    borrowed.append_wait(timeline(device), 1, wait_events=(event,))
    assert driver.lists[1].calls[0][3] == (driver.lists[0].fences[0],)


# ---- borrowed events
def test_borrowed_event_is_bound_from_the_start(opened: Opened) -> None:
    device, driver = opened
    native = FakeFence(1, "foreign")
    event = device.event(native)
    assert not event.query()
    with pytest.raises(xsem.WaitTimeoutError) as caught:
        event.wait(timeout_s=0)
    assert caught.value.pending == ()
    commands = device.create_command_list()
    commands.append_barrier(wait_events=[event])
    assert driver.lists[0].calls == [("barrier", (native,))]
    native.reached = True
    assert event.query()
    event.wait()


def test_borrowed_event_is_refused_as_signal_event(opened: Opened) -> None:
    device, _ = opened
    commands, event = device.create_command_list(), device.event(FakeFence(1, "foreign"))
    for _ in range(2):
        with pytest.raises(BadArgumentError) as caught:
            commands.append_barrier(signal_event=event)
        assert caught.value.reason == "foreign_event"
        event.reset()   # unbinds it permanently
    with pytest.raises(EventNotAppendedError):
        event.query()


def test_borrowed_event_of_another_library_is_refused(opened: Opened) -> None:
    device, _ = opened
    with pytest.raises(BadArgumentError, match="object is not a FakeFence") as caught:
        _ = device.event(object())
    assert caught.value.reason == "not_an_event"


def test_borrowed_event_needs_the_feature() -> None:
    with fake(dataclasses.replace(ALL, features=ALL.features - {Feature.NATIVE_EVENTS})) as (device, _):
        with pytest.raises(UnsupportedError) as caught:
            _ = device.event(FakeFence(1, "foreign"))
        assert caught.value.capability == "native_events"


def test_fence_of_a_borrowed_event_is_released_once(opened: Opened) -> None:
    device, driver = opened
    native = FakeFence(1, "foreign")
    event = device.event(native)
    driver.finish()
    event.release()
    device.pending()
    assert native.released == 1


# ---- callbacks
def test_callback_is_called_once_on_the_notifier_thread(opened: Opened) -> None:
    device, driver = opened
    commands, event = device.create_command_list(), device.create_event()
    commands.append_barrier(signal_event=event)
    called: list[Any] = []
    event.add_done_callback(lambda given: called.append((given, threading.current_thread().name)))
    until(lambda: threads("notify") == ["xsem-notify-fake:0"])
    assert called == []
    driver.lists[0].reach_all()
    until(lambda: called)
    assert called == [(event, "xsem-notify-fake:0")]
    until(lambda: not threads("notify"))
    assert len(called) == 1


def test_callback_of_a_done_event_is_called_on_the_notifier(opened: Opened) -> None:
    device, driver = opened
    driver.everything_is_done = True
    event = device.create_event()
    called: list[Any] = []
    device.create_command_list().append_barrier(signal_event=event)
    event.add_done_callback(lambda _: called.append(threading.current_thread().name))
    until(lambda: called)
    assert called == ["xsem-notify-fake:0"]


def test_callbacks_of_one_event_are_all_called(opened: Opened) -> None:
    device, driver = opened
    event = device.create_event()
    called: list[Any] = []
    device.create_command_list().append_barrier(signal_event=event)
    for number in range(10):
        event.add_done_callback(lambda _, number=number: called.append(number))  # type: ignore[misc]
    driver.lists[0].reach_all()
    until(lambda: len(called) == 10)
    assert called == list(range(10))


def test_callback_keeps_the_binding_it_was_added_with(opened: Opened) -> None:
    device, driver = opened
    commands, event = device.create_command_list(), device.create_event()
    called: list[Any] = []
    commands.append_barrier(signal_event=event)
    event.add_done_callback(lambda _: called.append(1))
    event.reset()
    commands.append_barrier(signal_event=event)
    driver.lists[0].fences[0].reached = True
    until(lambda: called)
    assert not event.query()


def test_callback_is_called_when_the_work_has_failed(opened: Opened) -> None:
    device, driver = opened
    event = device.create_event()
    called: list[Any] = []
    device.create_command_list().append_barrier(signal_event=event)
    event.add_done_callback(called.append)
    driver.lists[0].fences[0].error = DriverError("lost", reason="lost")
    until(lambda: called)
    with pytest.raises(DriverError, match="lost"):
        called[0].query()


def test_callback_is_called_when_the_device_is_released() -> None:
    with fake() as (device, driver):
        event = device.create_event()
        called: list[Any] = []
        device.create_command_list().append_barrier(signal_event=event)
        event.add_done_callback(lambda _: called.append(threading.current_thread().name))
        device.release()
        until(lambda: called)
        assert called == ["xsem-notify-fake:0"]   # the caller's thread may hold a lock that the callback takes
        assert not driver.fences[0].reached


def test_raising_callback_is_logged_and_others_are_called(
    opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    device, driver = opened
    event = device.create_event()
    called: list[Any] = []
    device.create_command_list().append_barrier(signal_event=event)
    event.add_done_callback(lambda _: 1 / 0)
    event.add_done_callback(called.append)
    driver.lists[0].reach_all()
    until(lambda: called)
    assert [(record.name, record.levelno) for record in caplog.records] == [("xsem", logging.ERROR)]
    assert "ZeroDivisionError" in caplog.text


def test_callback_may_use_xsem(opened: Opened) -> None:
    device, driver = opened
    commands, event, sem = device.create_command_list(), device.create_event(), timeline(device)
    called: list[int] = []

    def again(event: xsem.Event) -> None:
        called.append(len(called))
        event.reset()
        if len(called) < 5:
            commands.append_signal(sem, len(called), signal_event=event)
            event.add_done_callback(again)
        else:
            commands.release()
            event.release()

    driver.everything_is_done = True
    commands.append_barrier(signal_event=event)
    event.add_done_callback(again)
    until(lambda: called == [0, 1, 2, 3, 4] and event.released)


def test_callback_that_is_not_callable_is_refused(opened: Opened) -> None:
    device, _ = opened
    event = device.create_event()
    device.create_command_list().append_barrier(signal_event=event)
    with pytest.raises(BadArgumentError) as caught:
        event.add_done_callback(None)  # type: ignore[arg-type]
    assert caught.value.reason == "not_callable"
    assert not threads("notify")


def test_event_with_a_callback_lives_until_it_is_called(opened: Opened) -> None:
    device, driver = opened
    commands, event = device.create_command_list(), device.create_event()
    called: list[Any] = []
    commands.append_barrier(signal_event=event)
    event.add_done_callback(lambda _: called.append(1))
    kept = weakref.ref(event)
    del event
    gc.collect()
    assert kept() is not None
    driver.lists[0].reach_all()
    until(lambda: called)
    until(lambda: kept() is None)


def test_called_event_is_dropped_while_others_wait(opened: Opened) -> None:
    device, driver = opened
    commands, other_list = device.create_command_list(), device.create_command_list()
    event, other = device.create_event(), device.create_event()
    called: list[Any] = []
    commands.append_barrier(signal_event=event)
    other_list.append_barrier(signal_event=other)
    other.add_done_callback(called.append)
    event.add_done_callback(lambda _: called.append(1))
    kept = weakref.ref(event)
    del event
    driver.lists[0].reach_all()
    until(lambda: called == [1])
    until(lambda: kept() is None)
    assert threads("notify")


def test_events_of_one_list_are_asked_for_in_order(opened: Opened) -> None:
    device, driver = opened
    commands = device.create_command_list()
    events = [device.create_event() for _ in range(500)]
    called: list[int] = []
    asked: list[FakeFence] = []
    original = driver.query_fence

    def done(fence: FakeFence) -> bool:
        if threading.current_thread().name.startswith("xsem-notify"):
            asked.append(fence)
        return original(fence)

    driver.query_fence = done  # type: ignore[method-assign]
    for number, event in enumerate(events):
        commands.append_barrier(signal_event=event)
        event.add_done_callback(lambda _, number=number: called.append(number))  # type: ignore[misc]
    until(lambda: len(asked) > 10)
    assert set(asked) == {driver.lists[0].fences[0]}   # no later fence can be reached before it
    driver.lists[0].reach_all()
    until(lambda: len(called) == 500)
    assert called == list(range(500))


def test_many_events_of_many_lists_are_all_called(opened: Opened) -> None:
    device, driver = opened
    lists = [device.create_command_list() for _ in range(20)]
    called: list[int] = []
    for number in range(2000):
        event = device.create_event()
        lists[number % 20].append_barrier(signal_event=event)
        event.add_done_callback(lambda _, number=number: called.append(number))  # type: ignore[misc]
        if number % 100 == 99:
            driver.lists[number % 20].reach_all()
    for each in driver.lists:
        each.reach_all()
    until(lambda: len(called) == 2000)
    assert sorted(called) == list(range(2000))
    until(lambda: not threads("notify"))


def test_callbacks_added_while_the_thread_ends_are_called(opened: Opened) -> None:
    device, driver = opened
    driver.everything_is_done = True
    commands = device.create_command_list()
    called: list[Any] = []
    for number in range(300):
        event = device.create_event()
        commands.append_barrier(signal_event=event)
        event.add_done_callback(called.append)
        if number % 3 == 0:
            until(lambda number=number: len(called) == number + 1)  # type: ignore[misc]
    until(lambda: len(called) == 300)


def test_notifier_does_not_keep_a_dropped_device() -> None:
    device, driver = open_fake()
    driver.everything_is_done = True
    event = device.create_event()
    called: list[Any] = []
    device.create_command_list().append_barrier(signal_event=event)
    event.add_done_callback(lambda _: called.append(1))
    until(lambda: called and not threads("notify"))
    held: list[object] = [device, event]
    del device, event
    with pytest.warns(ResourceWarning):
        held.clear()
    until(lambda: ("close",) in driver.log)


def test_failing_query_calls_every_callback(opened: Opened) -> None:
    device, driver = opened
    event = device.create_event()
    called: list[Any] = []
    device.create_command_list().append_barrier(signal_event=event)
    original = driver.query_fence

    def query_fence(fence: Any) -> bool:
        if threading.current_thread().name.startswith("xsem-notify"):
            raise DriverError("the context is gone", reason="driver")
        return original(fence)

    driver.query_fence = query_fence  # type: ignore[method-assign]
    event.add_done_callback(called.append)
    until(lambda: called)
    driver.query_fence = original  # type: ignore[method-assign]


def test_native_handle_of_an_event_is_the_drivers(opened: Opened) -> None:
    device, _ = opened
    event = device.create_event()
    device.create_command_list().append_barrier(signal_event=event)
    with pytest.raises(UnsupportedError):   # a FakeFence is not an int
        event.native_handle  # noqa: B018 - the access itself is tested
