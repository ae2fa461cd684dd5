"""Many concurrent operations, compared with a model of their semantics."""

from __future__ import annotations

import functools
import itertools
import math
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, cast

from xsem import CommandList, Event
from xsem.types import SignalParams, WaitParams
from xsem_conformance.case.case_participant import Shared
from xsem_conformance.case.context import IN, CaseContext, value_of
from xsem_conformance.case.leaks import FILES, THREADS, stays_level
from xsem_conformance.case.polling import SETTLE_S, soon
from xsem_conformance.checks import check
from xsem_conformance.outcomes import Case, NotDeclaredError, Symptom, expect

TIMELINES: Final = 16
LISTS: Final = 4
ROUNDS: Final = 6
_PER_ROUND: Final = 24
_APPENDS: Final = 10_000
_PAIRS: Final = 250


@dataclass
class _Model:
    """The state of timelines and lists: a wait at the head of a list blocks it until the timeline reaches the value."""

    values: list[int] = field(default_factory=lambda: [0] * TIMELINES)
    queues: list[deque[tuple[int, int, int, bool]]] = field(default_factory=lambda: [deque() for _ in range(LISTS)])
    done: set[int] = field(default_factory=set)

    def settle(self) -> None:
        """Run every list until it blocks or is empty."""
        moved = True
        while moved:
            moved = False
            for queue in self.queues:
                while queue:
                    number, timeline, value, waits = queue[0]
                    if waits and self.values[timeline] < value:
                        break
                    if not waits:
                        self.values[timeline] = value
                    queue.popleft()
                    self.done.add(number)
                    moved = True


@check("XSEM-STR-003", deadline_s=60)
def random_waits_and_signals_end_as_a_model_says(context: CaseContext, case: Case) -> None:
    """Sixteen timelines, four lists, six rounds: done and pending operations are those of the model."""
    seed = 20
    chance, model = random.Random(seed), _Model()  # noqa: S311 - reproducible
    handle_type = case.handle_type
    timelines = [context.semaphore(handle_type) for _ in range(TIMELINES)]
    lists = [context.device.create_command_list() for _ in range(LISTS)]
    submitted = [0] * TIMELINES
    events: list[Event] = []
    for turn in range(ROUNDS):
        for _ in range(_PER_ROUND):
            events.append(context.device.create_event())
            _append(context, chance, model, timelines, lists, submitted, events)
        for timeline in _exporters():
            if chance.random() < 0.5:
                _exporter_signals(context, model, timelines, submitted, timeline, submitted[timeline] + 1)
        _compare(context, model, events, f"seed {seed}, round {turn}")
    for timeline in _exporters():   # the values of all waits that may still be pending
        _exporter_signals(context, model, timelines, submitted, timeline, submitted[timeline] + 3)
    _compare(context, model, events, f"seed {seed}, at the end")
    expect(len(model.done) == len(events), "the model itself has pending operations")
    if context.exporter_reads(handle_type):
        found = [context.exporter.value(each.there) for each in timelines]
        expect(found == model.values, f"seed {seed}: the timelines are at {found}, the model's at {model.values}",
               Symptom.OTHER_VALUE)


def _owner(timeline: int) -> int:
    """Return the only signaller of a timeline, a list or the exporter: so its values rise in a known order."""
    return timeline % (LISTS + 1)


def _exporters() -> list[int]:
    return [each for each in range(TIMELINES) if _owner(each) == LISTS]


def _append(
    context: CaseContext, chance: random.Random, model: _Model, timelines: list[Shared], lists: list[CommandList],
    submitted: list[int], events: list[Event],
) -> None:
    index, number = chance.randrange(LISTS), len(events) - 1
    waits = chance.random() < 0.5
    if waits:
        timeline = chance.randrange(TIMELINES)
        # A wait for a list's timeline uses only submitted values, so that two lists never deadlock.
        # A wait for an exporter's timeline may also use a later value.
        value = chance.randint(0, submitted[timeline] + (3 if _owner(timeline) == LISTS else 0))
    else:
        timeline = chance.choice([each for each in range(TIMELINES) if _owner(each) == index])
        submitted[timeline] += chance.randint(1, 5)
        value = submitted[timeline]
    commands, semaphore = lists[index], context.here.get(timelines[timeline].here)
    (commands.append_wait if waits else commands.append_signal)(semaphore, value, signal_event=events[-1])
    model.queues[index].append((number, timeline, value, waits))


def _exporter_signals(
    context: CaseContext, model: _Model, timelines: list[Shared], submitted: list[int], timeline: int, value: int
) -> None:
    submitted[timeline] = value
    context.exporter.host_signal(timelines[timeline].there, value)
    model.values[timeline] = value


def _compare(context: CaseContext, model: _Model, events: list[Event], when: str) -> None:
    model.settle()
    soon(lambda: all(events[each].query() for each in model.done),
         f"{when}: an operation that is done in the model is not done", context.patience_s)
    time.sleep(SETTLE_S)
    early = [each for each in range(len(events)) if each not in model.done and events[each].query()]
    expect(not early, f"{when}: operations {early[:5]} are done, but pending in the model")


@check("XSEM-STR-002", deadline_s=90)
def a_thousand_values_in_turn(context: CaseContext, case: Case) -> None:
    """One side signals odd values, the other side signals even values, and each side waits for the other's value."""
    # If the device may wait before the signal, the device appends ten turns in advance: a wait that is met too early
    # causes an early signal of an even value. If one side can read the timeline, the check reads the value before each
    # odd value and after each even value.
    exporter, device = context.ends(IN)
    semaphore = context.semaphore(case.handle_type)
    one, other = exporter.new_list(), device.new_list()
    ahead = 10 if device.waits_early(case.handle_type) else 0
    read = _reader(context, semaphore, case.handle_type)
    appended = 1
    for value in range(1, 1001, 2):
        while ahead and appended < min(value + 2 * ahead, 1000):
            device.wait(other, semaphore, appended)
            device.signal(other, semaphore, appended + 1)
            appended += 2
        found = read()
        expect(found in (None, value - 1),
               f"before the signal of {value} the timeline is at {found}: a wait was met too early")
        exporter.signal(one, semaphore, value)
        if not ahead:
            device.wait(other, semaphore, value)
            device.signal(other, semaphore, value + 1)
        exporter.wait(one, semaphore, value + 1)
        exporter.finish(one, f"the wait for {value + 1}")
        found = read()
        expect(found in (None, value + 1), f"behind a wait for {value + 1} the timeline is at {found}",
               Symptom.OTHER_VALUE)
    device.finish(other, "the device's last turn")


def _reader(context: CaseContext, semaphore: Shared, type: str) -> Callable[[], int | None]:
    if context.reads(type):
        return cast("Callable[[], int]", context.here.get(semaphore.here).value)
    if context.exporter_reads(type):
        return lambda: context.exporter.value(semaphore.there)
    return lambda: None


@check("XSEM-STR-004", deadline_s=60)
def ten_thousand_appends_leave_nothing(context: CaseContext, case: Case) -> None:
    """Signals and waits of one semaphore alternate on one queue of the driver. A fence follows each part."""
    type, driver = case.handle_type, context.driver
    if not context.repeats(context.ends(IN)[1], type):
        raise NotDeclaredError("a wait of the device does not reset a binary semaphore")
    token, queue = context.driver_semaphore(context.semaphore(type)), driver.create_queue()
    pairs = min(_PAIRS, max(1, (driver.capabilities.max_pending or _PAIRS) // 4))
    values = itertools.count(1)

    def part() -> None:
        for _ in range(pairs):
            value = next(values) if value_of(type) is not None else None
            queue.append_signal([token], [SignalParams(value=value)], (), (), False)
            queue.append_wait([token], [WaitParams(value=value)], (), (), False)
        fence = queue.append_barrier((), True)
        soon(functools.partial(driver.query_fence, fence), "signals, each with its wait, are not done",
             context.patience_s)
        driver.release_fence(fence)

    part()   # this can fill a cache of the driver
    stays_level(part, math.ceil(_APPENDS / 2 / pairs), context.patience_s, f"{_APPENDS} appends", FILES, THREADS)
    queue.close()
    driver.release_semaphore(token)
