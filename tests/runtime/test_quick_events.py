"""Quick appends with events and memory: as in Python, with the driver's events in the right order."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from support.at_once import in_thread
from support.fake_backend import ALL, FakeFence, fake, last_of
from support.forked import in_child
from support.native_lists import EVENTS, NativeDriver, Scene, blocking_signals, finalizer_inside, native, refusal
from support.waiting import until

import xsem
from xsem import spi
from xsem.errors import BadArgumentError, BusyError, DriverError, EventNotAppendedError, ReleasedError
from xsem.runtime.queues.operations import Fence
from xsem.types import DeviceInfo

pytestmark = pytest.mark.skipif(not spi.compiled(), reason="xsem is not compiled here")


class Appends(Scene):
    """A list whose next append is quick, with a value of its own for each append."""

    def __init__(self, device: xsem.Device, driver: NativeDriver, what: str, *, stream: bool = False) -> None:
        super().__init__(device, driver, "append_wait" if what == "wait" else "append_signal", stream=stream)
        self.what = what
        self.numbers = itertools.count(3)
        self.binding = device.create_command_list()   # binds events

    def append_next(self, **more: Any) -> int:
        """Append, and return the value. A barrier has none."""
        value = next(self.numbers)
        if self.what == "barrier":
            self.commands.append_barrier(**more)
        else:
            self.append(value, **more)
        return value

    def call(self, value: int) -> list[tuple[Any, ...]]:
        """The C function's call of an append."""
        return [] if self.what == "barrier" else [(self.what, (value,))]

    def event(self, *, bound: bool = False) -> xsem.Event:
        """An event; a bound one is quickly bound by another list."""
        event = self.device.create_event()
        if bound:
            self.binding.append_barrier(signal_event=event)
            assert type(event._fence) is self.queue.quick.fence_class
        return event

    def all_of_it(self) -> tuple[Any, ...]:
        """What a refused append leaves as it was."""
        return (*self.unchanged(), self.queue.progress.markers(), sorted(self.driver.events), self.queue.room.marked,
                self.queue.state.seq == self.queue.state.issued)


@pytest.fixture
def opened() -> Iterator[tuple[xsem.Device, NativeDriver]]:
    with native() as (device, driver):
        yield device, driver


@pytest.fixture(params=["signal", "wait", "barrier"])
def scene(request: pytest.FixtureRequest, opened: tuple[xsem.Device, NativeDriver]) -> Appends:
    return Appends(*opened, request.param)


@pytest.fixture
def signals(opened: tuple[xsem.Device, NativeDriver]) -> Appends:
    return Appends(*opened, "signal")


def in_python(scene: Appends) -> xsem.CommandList:
    """A list without quick appends."""
    commands = scene.device.create_command_list()
    commands._queue.quick = None
    return commands


# ---- the driver's calls
def test_driver_waits_calls_and_records_in_this_order(scene: Appends) -> None:
    first, second, event = scene.event(bound=True), scene.event(bound=True), scene.event()
    value = scene.append_next(wait_events=[first, second], signal_event=event)
    assert scene.list.order == [
        ("wait_event", EVENTS[0]), ("wait_event", EVENTS[1]), *scene.call(value), ("record", EVENTS[2])]
    assert event._fence.queue is scene.queue  # type: ignore[union-attr]
    assert event._fence.seq == scene.queue.last_seq == 3  # type: ignore[union-attr]


def test_wait_for_a_tuple_of_events_begins_at_their_present_operations(scene: Appends) -> None:
    waited = scene.event(bound=True)
    events = (waited, waited)
    scene.append_next(wait_events=events)
    waited.reset()
    assert [each[:2] for each in scene.list.order[:2]] == [("wait_event", EVENTS[0])] * 2
    assert EVENTS[0] not in scene.driver.events   # the appended operation keeps it
    assert [type(each) for each in scene.queue.pending()[-1].kept] == [scene.queue.quick.fence_class] * 2


def test_calls_for_events_are_repeated_until_they_succeed(scene: Appends) -> None:
    waited, event = scene.event(bound=True), scene.event()
    scene.list.event_codes = {"wait_event": [5, 6], "record": [7]}
    value = scene.append_next(wait_events=[waited], signal_event=event)
    assert scene.list.failures == [5, 6, 7]
    assert scene.list.order == [("wait_event", EVENTS[0]), *scene.call(value), ("record", EVENTS[1])]


def test_call_after_the_append_of_a_signal_handler_has_its_own_values(
    opened: tuple[xsem.Device, NativeDriver]
) -> None:
    waits = Appends(*opened, "wait")
    waits.list.codes = [5]
    waits.list.on_failure = lambda: waits.append(1)
    waits.append(7)
    assert waits.values() == [(1,), (2,), (1,), (7,)]


# ---- the life of the event
def test_event_is_queried_waited_for_and_bound_again(scene: Appends) -> None:
    event = scene.event()
    for _ in range(len(EVENTS) + 1):
        scene.append_next(signal_event=event)
        assert scene.list.order[-1][0] == "record"
        assert not event.query()
        assert scene.queue.done_seq < scene.queue.last_seq
        scene.list.reach_all()
        assert event.query()
        event.wait(timeout_s=10)
        assert scene.queue.done_seq == scene.queue.last_seq
        assert scene.queue.pending() == []
        assert scene.queue.markers() == []
        event.reset()
        with pytest.raises(EventNotAppendedError):
            event.query()
    assert sorted(scene.driver.events) == sorted(EVENTS)


def test_event_of_the_driver_returns_when_no_one_needs_it(scene: Appends) -> None:
    """The bound event, the marker of the list and a pending wait each need it."""
    event, waiting = scene.event(), scene.device.create_command_list()
    scene.append_next(signal_event=event)
    waiting.append_barrier(wait_events=[event])
    needed = EVENTS[0]
    event.reset()
    assert needed not in scene.driver.events
    scene.list.reach_all()
    scene.queue.poll()   # the marker is gone
    assert needed not in scene.driver.events
    waiting._queue.ensure_marker(waiting._queue.last_seq)
    scene.driver.lists[-1].reach_all()
    waiting._queue.poll()
    assert needed in scene.driver.events


def test_fence_can_end_on_another_thread(scene: Appends) -> None:
    events = [scene.event()]
    scene.append_next(signal_event=events[0])
    scene.list.reach_all()
    scene.queue.poll()
    assert len(scene.driver.events) == len(EVENTS) - 1
    in_thread(events.clear)
    assert sorted(scene.driver.events) == sorted(EVENTS)


def test_fence_in_a_cycle_is_collected(scene: Appends) -> None:
    event: Any = scene.event()
    scene.append_next(signal_event=event)
    scene.list.reach_all()
    scene.queue.poll()
    event._own = event
    del event
    gc.collect()
    assert sorted(scene.driver.events) == sorted(EVENTS)


def test_device_is_released_while_fences_live(opened: tuple[xsem.Device, NativeDriver]) -> None:
    with native() as (device, driver):
        scene = Appends(device, driver, "signal")
        event, waited = scene.event(), scene.event(bound=True)
        scene.append_next(wait_events=[waited], signal_event=event)
    for act in (event.query, lambda: event.wait(timeout_s=1), lambda: scene.append_next(wait_events=[waited])):
        with pytest.raises(ReleasedError):
            act()
    before = len(scene.list.order)
    with pytest.raises(ReleasedError):
        scene.commands.append_barrier(signal_event=event)
    assert len(scene.list.order) == before


# ---- as in Python
def test_markers_and_pending_operations_are_as_in_python(scene: Appends) -> None:
    def pattern(append: Callable[..., object], queue: Any) -> list[Any]:
        seen: list[Any] = []
        first, second = scene.event(), scene.event()
        append(signal_event=first)
        append()
        append(wait_events=[first], signal_event=second)
        append(wait_events=[])
        for each in (first, second, None):
            seen.append([(op.seq - queue.start, op.operation, len(op.kept)) for op in queue.pending()])
            seen.append([fence.seq - queue.start for fence in queue.markers()])
            seen.append((queue.state.given - queue.given, queue.room.marked - queue.given, queue.room.pending))
            if each is not None:
                each._fence.token.reached = True  # type: ignore[union-attr]
                assert each.query()
        seen.append(max(queue.state.last_wait - queue.start, 0))
        return seen

    def begun(commands: xsem.CommandList) -> Any:
        commands.synchronize(timeout_s=10)
        queue: Any = commands._queue
        queue.start, queue.given = queue.last_seq, queue.state.given
        return queue

    scene.list.reach_all()
    scene.driver.everything_is_done = True
    python = in_python(scene)
    queues = [begun(scene.commands), begun(python)]
    scene.driver.everything_is_done = False
    quick = pattern(scene.append_next, queues[0])
    name = "barrier" if scene.what == "barrier" else f"append_{scene.what}"
    values = itertools.count(100)

    def append(**more: Any) -> None:
        if name == "barrier":
            python.append_barrier(**more)
        else:
            getattr(python, name)(scene.sems[0], next(values), **more)

    assert pattern(append, queues[1]) == quick
    assert {each[0] for each in scene.list.order} >= {"record", "wait_event"}
    assert scene.driver.lists[-1].order == []


@contextlib.contextmanager
def odd_event(scene: Appends, kind: str) -> Iterator[Any]:
    event: Any = scene.event()
    if kind == "bound":
        event = scene.event(bound=True)
    elif kind == "bound in Python":
        in_python(scene).append_barrier(signal_event=event)
        assert type(event._fence) is Fence
    elif kind == "claimed":
        event._claim(scene)
    elif kind == "released":
        event = scene.event(bound=True)
        event.release()
    elif kind == "released and unbound":
        event.release()
    elif kind == "borrowed":
        event = scene.device.event(FakeFence(77, "event"))
    elif kind == "of another device":
        with fake(info=DeviceInfo(id="other:0", backend="other", index=0, name="other")) as (device, _):
            event = device.create_event()
            device.create_command_list().append_barrier(signal_event=event)
            yield event
        return
    elif kind != "unbound":
        event = {"None": None, "text": "event", "list": scene.commands, "number": np.int64(1)}[kind]
    yield event


KINDS = ["bound", "bound in Python", "claimed", "released", "released and unbound", "of another device", "text",
         "list", "number"]


@pytest.mark.parametrize("kind", KINDS)
def test_event_that_cannot_be_bound_is_refused_as_in_python(scene: Appends, kind: str) -> None:
    python = in_python(scene)
    with odd_event(scene, kind) as event:
        before = scene.all_of_it()
        told = refusal(lambda: python.append_barrier(signal_event=event))
        assert refusal(lambda: scene.append_next(signal_event=event)) == told
        assert scene.all_of_it() == before
        assert scene.list.order == []


@pytest.mark.parametrize("kind", ["released", "released and unbound", "unbound", "claimed", "of another device", "None",
                                  "text", "list", "number"])
def test_event_that_cannot_be_waited_for_is_refused_as_in_python(scene: Appends, kind: str) -> None:
    python, good = in_python(scene), scene.event(bound=True)
    with odd_event(scene, kind) as event:
        before = scene.all_of_it()
        told = refusal(lambda: python.append_barrier(wait_events=[good, event]))
        assert refusal(lambda: scene.append_next(wait_events=[good, event])) == told
        assert scene.all_of_it() == before
        assert scene.list.order == []


@pytest.mark.parametrize("events", [None, 0, False, {}, "ab", np.zeros(0), np.zeros(2), {1}, b"ab"], ids=repr)
def test_wait_events_of_another_type_are_refused_as_in_python(scene: Appends, events: Any) -> None:
    python, before = in_python(scene), scene.all_of_it()
    told = refusal(lambda: python.append_barrier(wait_events=events))
    assert refusal(lambda: scene.append_next(wait_events=events)) == told
    assert scene.all_of_it() == before


@pytest.mark.parametrize("events", ["", range(0), type("Events", (list,), {})()], ids=repr)
def test_other_empty_sequence_of_events_is_taken(scene: Appends, events: Sequence[Any]) -> None:
    scene.append_next(wait_events=events)
    assert len(scene.queue.pending()) == 3


@pytest.mark.parametrize("kind", ["bound in Python", "borrowed"])
def test_wait_for_a_fence_of_the_driver_takes_the_other_way(scene: Appends, kind: str) -> None:
    quick = scene.event(bound=True)
    with odd_event(scene, kind) as event:
        scene.append_next(wait_events=[quick, event])
        assert scene.list.order == []
        waited = scene.list.calls[-1][1 if scene.what == "barrier" else 3]
        assert waited == (scene.driver.recorded[EVENTS[0]], event._fence.token)


@pytest.mark.parametrize("why", ["no unused event", "carried"])
def test_append_without_a_plain_event_takes_the_other_way(scene: Appends, why: str) -> None:
    if why == "carried":
        scene.list.carried.append(1)
    else:
        scene.driver.events.clear()
    event, before = scene.event(), sorted(scene.driver.events)
    scene.append_next(signal_event=event)
    assert scene.list.order == []
    assert type(event._fence) is Fence
    assert sorted(scene.driver.events) == before
    assert len(scene.queue.pending()) == 3
    scene.append_next()   # without an event
    assert scene.list.quick == (scene.what != "barrier")


def test_captured_append_takes_the_other_way(opened: tuple[xsem.Device, NativeDriver]) -> None:
    scene = Appends(*opened, "signal", stream=True)
    scene.list.capture = True
    event = scene.event()
    for act in (scene.append_next, scene.commands.append_barrier):
        act(signal_event=event)
        assert refusal(event.query)[1] == "capturing"
        event.reset()
    scene.list.capture = False
    assert scene.list.order == []
    assert sorted(scene.driver.events) == sorted(EVENTS)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="os.fork() is missing")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_child_of_a_fork_binds_nothing(scene: Appends) -> None:
    event = scene.event()

    def child() -> tuple[str, bool, int]:
        reason = refusal(lambda: scene.append_next(signal_event=event))[1]
        return reason, event._fence is None and event._claimed is None, len(scene.list.order)

    assert in_child(child) == ("forked", True, 0)
    scene.append_next(signal_event=event)
    assert event._fence is not None


def test_released_list_binds_nothing(scene: Appends) -> None:
    event = scene.event()
    scene.commands.release()
    assert refusal(lambda: scene.append_next(signal_event=event))[1] == "released"
    assert event._fence is event._claimed is None
    assert scene.list.order == []


def test_barrier_on_a_stream_of_a_released_device_is_refused(opened: tuple[xsem.Device, NativeDriver]) -> None:
    scene = Appends(*opened, "barrier", stream=True)
    waited = scene.event(bound=True)
    scene.append_next(wait_events=[waited])
    assert len(scene.list.order) == 1
    scene.device.release()
    assert refusal(scene.append_next)[:2] == (ReleasedError, "released")
    assert len(scene.queue.pending()) == 3


def test_stopped_list_binds_nothing(opened: tuple[xsem.Device, NativeDriver]) -> None:
    scene = Appends(*opened, "barrier")
    event = scene.event()
    with pytest.raises(ZeroDivisionError):
        scene.commands.append_work(lambda: 1 / 0)
    assert refusal(lambda: scene.append_next(signal_event=event))[1] == "work_failed"
    assert event._fence is event._claimed is None


# ---- failures
@pytest.mark.parametrize("where", ["wait_event", "call", "record"])
def test_failure_undoes_everything(scene: Appends, where: str) -> None:
    if scene.what == "barrier" and where == "call":
        where = "record"
    waited, event = [scene.event(bound=True), scene.event(bound=True)], scene.event()
    before = scene.all_of_it()
    if where == "call":
        scene.list.codes = [-3]
    else:
        scene.list.event_codes[where] = [-3] if where == "record" else [0, -3]
    with pytest.raises(DriverError):
        scene.append_next(wait_events=waited, signal_event=event)
    assert scene.list.failures == [-3]
    assert scene.all_of_it() == before
    assert event._fence is event._claimed is None
    scene.append_next(wait_events=waited, signal_event=event)
    assert scene.list.order[-1][0] == "record"
    scene.list.reach_all()
    event.wait(timeout_s=10)
    assert scene.queue.pending() == []


def test_interrupted_append_binds_nothing_and_counts_as_appended(scene: Appends) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    event = scene.event()
    scene.list.event_codes["record"], scene.list.on_failure = [5], interrupt
    with pytest.raises(KeyboardInterrupt):
        scene.append_next(signal_event=event)
    assert event._fence is event._claimed is None
    assert sorted(scene.driver.events) == sorted(EVENTS)
    assert len(scene.queue.pending()) == 3
    assert last_of(scene.sems) == {"signal": [3], "wait": [0], "barrier": [2]}[scene.what]
    assert not scene.queue.lock._is_owned()
    assert not scene.queue.state.issuing


def test_error_behind_the_drivers_calls_leaves_the_operation_appended(scene: Appends) -> None:
    """A signal handler can raise there, in Python code."""
    def handler(*_: object) -> Any:
        raise ZeroDivisionError

    event = scene.event()
    scene.list.event_codes["record"], scene.list.on_failure = [5], scene.commands.append_barrier
    scene.queue.number_again = handler  # type: ignore[assignment,method-assign]
    with pytest.raises(ZeroDivisionError):
        scene.append_next(signal_event=event)
    assert len(scene.queue.pending()) == 4
    assert event._fence is not None
    assert event._claimed is None
    assert not scene.queue.lock._is_owned()
    assert not scene.queue.state.issuing


def test_append_inside_the_append_comes_first(scene: Appends) -> None:
    inner, outer = scene.event(), scene.event()
    scene.list.event_codes["record"] = [5]
    scene.list.on_failure = lambda: scene.commands.append_barrier(signal_event=inner)
    scene.append_next(signal_event=outer)
    assert [op.seq for op in scene.queue.pending()] == [1, 2, 4, 5]
    assert [fence.seq for fence in scene.queue.markers()] == [4, 5]
    assert outer._fence.seq == 5  # type: ignore[union-attr]
    inner._fence.token.reached = True  # type: ignore[union-attr]
    assert inner.query()
    assert not outer.query()
    assert [op.seq for op in scene.queue.pending()] == [5]


def test_event_claimed_by_a_signal_handler_is_refused(scene: Appends) -> None:
    event = scene.event()
    told: list[str] = []
    scene.list.event_codes["record"] = [5]
    scene.list.on_failure = lambda: told.append(
        refusal(lambda: scene.commands.append_barrier(signal_event=event))[1])
    scene.append_next(signal_event=event)
    assert told == ["event_bound"]
    assert event._fence.seq == 3  # type: ignore[union-attr]


# ---- threads and finalizers
@contextlib.contextmanager
def append_in_the_driver(scene: Appends, **more: Any) -> Iterator[None]:
    """While the block runs, another thread is inside the driver's call of an append."""
    unblock = blocking_signals(scene.list)
    scene.sems = [scene.device.create_semaphore(xsem.SemaphoreHandleType.TIMELINE_SEMAPHORE_FD)]
    for value in (1, 2):
        scene.append(value)
    thread = threading.Thread(target=lambda: scene.append(3, **more))
    thread.start()
    try:
        until(lambda: scene.queue.state.issuing)
        yield
    finally:
        unblock()
        thread.join()


def test_event_is_claimed_during_the_drivers_call(signals: Appends) -> None:
    event, other = signals.event(), signals.device.create_command_list()
    with append_in_the_driver(signals, signal_event=event):
        assert refusal(lambda: other.append_barrier(signal_event=event))[1] == "event_bound"
        assert refusal(event.query)[1] == "event_not_appended"
        event.reset()
    assert event._fence.queue is signals.queue  # type: ignore[union-attr]
    assert not event.query()
    assert [each[0] for each in signals.driver.lists[-1].order] == []


def test_waited_event_can_be_released_during_the_drivers_call(signals: Appends) -> None:
    event, other = signals.event(bound=True), signals.event()
    with append_in_the_driver(signals, wait_events=[event], signal_event=other):
        event.release()
        other.release()
        gc.collect()
        assert EVENTS[0] not in signals.driver.events
    assert refusal(other.query)[1] == "released"
    assert [each[0] for each in signals.list.order] == ["wait_event", "record"]


def test_threads_bind_one_event_once(signals: Appends) -> None:
    event, done = signals.event(), []
    lists = [signals.device.create_command_list() for _ in range(4)]

    def bind(commands: xsem.CommandList) -> None:
        for _ in range(200):
            with contextlib.suppress(BusyError):
                commands.append_barrier(signal_event=event)
                done.append(event._fence)
                event.reset()

    threads = [threading.Thread(target=bind, args=(each,)) for each in lists]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert event._claimed is None
    assert len(done) == sum(len([op for op in each._queue.pending() if op.operation == "barrier"]) for each in lists)


@pytest.mark.parametrize("number", range(16))
def test_event_bound_by_a_finalizer_is_bound_once(scene: Appends, number: int) -> None:
    event, other, told = scene.event(), scene.device.create_command_list(), []

    def bind() -> None:
        with contextlib.suppress(BusyError):
            other.append_barrier(signal_event=event)
            told.append("finalizer")

    with finalizer_inside(bind, number), contextlib.suppress(BusyError):
        scene.append_next(signal_event=event)
        told.append("append")
    assert len(told) == 1
    assert event._claimed is None
    assert event._fence.queue is (scene.queue if told == ["append"] else other._queue)  # type: ignore[union-attr]


@pytest.mark.parametrize("number", range(16))
def test_append_of_a_finalizer_inside_the_append_has_its_own_number(scene: Appends, number: int) -> None:
    event = scene.event()
    with finalizer_inside(scene.commands.append_barrier, number):
        scene.append_next(signal_event=event)
    numbers = [op.seq for op in scene.queue.pending()]
    assert numbers == sorted(set(numbers))
    assert scene.queue.state.given == len(numbers)
    assert event._fence.seq in numbers[2:]  # type: ignore[union-attr]


@pytest.mark.parametrize("number", range(16))
def test_refused_append_of_a_finalizer_leaves_the_operation_undone(signals: Appends, number: int) -> None:
    signals.driver.everything_is_done = True
    signals.commands.synchronize(timeout_s=10)
    signals.driver.everything_is_done = False
    event = signals.event()

    def refused() -> None:
        with contextlib.suppress(BadArgumentError):
            signals.append(1)

    with finalizer_inside(refused, number):
        signals.append(100, signal_event=event)
    assert signals.queue.done_seq < event._fence.seq  # type: ignore[union-attr]
    assert len(signals.queue.pending()) == 1


# ---- memory
@pytest.fixture
def sharing() -> Iterator[tuple[Appends, xsem.Memory]]:
    """A list, and memory that its device uses without a handover. Both have been used together."""
    with native(dataclasses.replace(ALL, needs_handover=False)) as (device, driver):
        scene = Appends(device, driver, "signal")
        memory = device.create_memory(xsem.MemoryHandleType.OPAQUE_FD, 4096)
        scene.append_next(release=[memory])
        assert scene.list.quick == 0   # the first use on a queue takes the other way
        yield scene, memory


def test_memory_is_in_use_until_the_operation_is_done(sharing: tuple[Appends, xsem.Memory]) -> None:
    scene, memory = sharing
    event = scene.event()
    scene.append_next(release=[memory], signal_event=event)
    assert scene.list.quick == 1
    assert memory._lifetime.uses[scene.queue] == scene.queue.last_seq == 4
    memory.release()
    assert scene.driver.released("release_memory") == []
    scene.list.reach_all()
    assert event.query()
    until(lambda: len(scene.driver.released("release_memory")) == 1)


def test_released_memory_is_refused(sharing: tuple[Appends, xsem.Memory]) -> None:
    scene, memory = sharing
    event = scene.event()
    memory.release()
    before = scene.all_of_it()
    with pytest.raises(ReleasedError):
        scene.append_next(release=[memory], signal_event=event)
    assert scene.all_of_it() == before
    assert scene.list.quick == 0
    assert event._claimed is None


def test_uses_of_memory_on_closed_lists_are_forgotten() -> None:
    with native(dataclasses.replace(ALL, needs_handover=False)) as (device, driver):
        driver.everything_is_done = True
        memory = device.create_memory(xsem.MemoryHandleType.OPAQUE_FD, 4096)
        for _ in range(100):
            scene = Appends(device, driver, "signal")
            scene.append_next(release=[memory])
            scene.commands.release()
            until(lambda made=scene.list: made.closed)  # type: ignore[misc]
        assert len(memory._lifetime.uses) < 40


def test_arguments_of_odd_classes_are_refused_as_in_python(scene: Appends) -> None:
    class Odd:
        _device_state = scene.device._device_state
        _foreign = False
        _fence = _claimed = None

        def __eq__(self, other: object) -> bool:
            raise ZeroDivisionError

        def __hash__(self) -> int:
            raise ZeroDivisionError

        @property
        def _lifetime(self) -> Any:
            raise AttributeError

        _state = property(lambda self: Odd())

    for more in ({"signal_event": Odd()}, {"wait_events": [Odd()]}):
        assert refusal(lambda more=more: scene.append_next(**more))[1] == "not_an_event"  # type: ignore[misc]
    if scene.what != "barrier":
        with pytest.raises(ZeroDivisionError):
            scene.commands.append_signal(Odd(), 3)  # type: ignore[call-overload]
    assert scene.list.order == []
