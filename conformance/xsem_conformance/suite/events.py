"""Events and fences: waits for events, and the time at which events and fences are reached."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Final

from xsem import CommandList, Event
from xsem.spi import Token
from xsem.types import WaitParams
from xsem_conformance.case.case_participant import Shared
from xsem_conformance.case.context import IN, CaseContext, value_of
from xsem_conformance.case.direct import AbleQueue
from xsem_conformance.case.gates import Gates, up_to_eight_events_count
from xsem_conformance.case.holding import held
from xsem_conformance.case.other_thread import on_another_thread
from xsem_conformance.case.polling import never, none_of, soon
from xsem_conformance.case.time_limits import TRIES, TimedWait, at_once
from xsem_conformance.checks import check
from xsem_conformance.outcomes import BrokenError, Case, Symptom, expect

_SIGNALS = 20
_FENCES = 256
_LONG_NS: Final = 200_000_000


@check("XSEM-EVT-003")
def event_is_reached_after_its_operation(context: CaseContext, case: Case) -> None:
    """The event of a wait is pending until the wait is met, and the event of a signal until the signal is visible."""
    producer, device = context.ends(IN)
    semaphore, type = context.semaphore(case.handle_type), case.handle_type
    number, signals = device.new_list(), producer.new_list()
    commands = context.here.get(number)
    for turn in range(3 if context.repeats(device, type) else 1):
        value, event, behind = value_of(type, turn + 1), context.device.create_event(), context.device.create_event()
        made = context.semaphore(type)
        with held(producer, device, signals, type,
                  functools.partial(producer.signal, signals, semaphore, value)) as hold:
            commands.append_wait(context.here.get(semaphore.here), value, signal_event=event)
            commands.append_signal(context.here.get(made.here), value_of(type), signal_event=behind)
            hold.pending(event.query, f"the event of wait {turn + 1}")
            hold.pending(behind.query, "the event of a signal behind a wait")
        for each in (event, behind):
            each.wait(timeout_s=context.patience_s)
    _signal_is_made_when_its_event_is_reached(context, type, commands)


def _signal_is_made_when_its_event_is_reached(context: CaseContext, type: str, commands: CommandList) -> None:
    shared = context.semaphore(type)
    is_made = _is_made(context, shared, type)
    imported = context.here.get(shared.here)
    for turn in range(1, _SIGNALS + 1):
        event, value = context.device.create_event(), value_of(type, turn)
        commands.append_signal(imported, value, signal_event=event)
        deadline = time.monotonic() + context.patience_s
        while not event.query():   # without a pause: the signal may lag behind its event by little
            expect(time.monotonic() < deadline, "the event of a signal is never reached", Symptom.NOT_DONE)
        if not is_made(value):
            context.arrives(shared, value)   # a signal that never arrives is another message
            raise BrokenError(f"the event of signal {turn} was reached before the signal was made")


def _is_made(context: CaseContext, shared: Shared, type: str) -> Callable[[int | None], bool]:
    """Return a function that tests whether the signal of a value, or of a binary semaphore, is visible now."""
    imported = context.here.get(shared.here)
    if value_of(type) is not None:
        if context.reads(type):
            return lambda value: bool(imported.value() == value)
        if context.exporter_reads(type):
            return lambda value: context.exporter.value(shared.there) == value
    return lambda value: context.exporter.meets_now(shared.there, value)


@check("XSEM-EVT-002")
def operation_waits_for_each_of_its_events(context: CaseContext, case: Case) -> None:
    """A wait for a met semaphore, and a barrier, are pending while any one of their wait events is not reached."""
    producer, device = context.ends(IN)
    semaphore, signals = context.semaphore(case.handle_type), producer.new_list()
    gates = Gates(context, case.handle_type)
    last = len(gates) - 1
    repeats = context.repeats(device, case.handle_type)
    waits = [*(("a first wait", index) for index in range(len(gates))), ("a repeated wait", 0),
             ("a repeated wait", last)]
    number = device.new_list()
    for turn, (what, missing) in enumerate([*waits[:None if repeats else 1], ("a barrier", 0), ("a barrier", last)]):
        if what == "a first wait" and turn:
            device.release(number)
            number = device.new_list()
        commands, value = context.here.get(number), value_of(case.handle_type, turn + 1)
        after, behind = context.device.create_event(), context.device.create_event()
        events = gates.close()
        if what == "a barrier":
            commands.append_barrier(wait_events=events, signal_event=after)
        else:
            producer.signal(signals, semaphore, value)
            producer.finish(signals, "a signal")
            commands.append_wait(context.here.get(semaphore.here), value, wait_events=events, signal_event=after)
        commands.append_barrier(signal_event=behind)
        gates.open_all_but(missing)
        which = f"event {missing + 1} of {len(gates)}"
        none_of((after.query, f"{what} was done before {which}"),
                (behind.query, f"the work behind {what} was done before {which}"))
        gates.open(missing)
        behind.wait(timeout_s=context.patience_s)
    _barrier_without_an_event_blocks_its_list(context, case.handle_type, gates, context.here.get(number), signals)
    device.release(number)

    def wait(commands: CommandList, events: Sequence[Event], done: Event) -> None:
        met, value = context.semaphore(case.handle_type), value_of(case.handle_type)
        producer.signal(signals, met, value)
        producer.finish(signals, "a signal")
        commands.append_wait(context.here.get(met.here), value, wait_events=events, signal_event=done)

    def barrier(commands: CommandList, events: Sequence[Event], done: Event) -> None:
        commands.append_barrier(wait_events=events, signal_event=done)

    up_to_eight_events_count(context, gates, {"a wait": wait, "a barrier": barrier})


def _barrier_without_an_event_blocks_its_list(
    context: CaseContext, type: str, gates: Gates, commands: CommandList, signals: int
) -> None:
    """Append a barrier without a signal event on this thread, then one on another thread."""
    # The work behind each barrier is a wait for a met semaphore.
    producer, _ = context.ends(IN)
    for what, elsewhere in (("a barrier without an event", False), ("a barrier from another thread", True)):
        met, behind = context.semaphore(type), context.device.create_event()
        producer.signal(signals, met, value_of(type))
        producer.finish(signals, "a signal")
        barrier = functools.partial(commands.append_barrier, wait_events=gates.close())
        if elsewhere:
            on_another_thread(barrier, context.patience_s, "a barrier on another thread does not return")
        else:
            barrier()
        commands.append_wait(context.here.get(met.here), value_of(type), signal_event=behind)
        gates.open_all_but(0)
        never(behind.query, f"the work behind {what} was done before event 1 of {len(gates)}")
        gates.open(0)
        behind.wait(timeout_s=context.patience_s)


@check("XSEM-EVT-001")
def signal_waits_for_each_of_its_events(context: CaseContext, case: Case) -> None:
    """A signal is invisible while any one of its wait events is not reached, for first and repeated signals."""
    # The last part looks at the events of signals with up to eight wait events.
    exporter, device = context.ends(IN)
    # On an exporter with one list, a wait would hold the signals of the gates back.
    end = exporter if exporter.waits_early(case.handle_type) and exporter.independent_lists > 1 else device
    semaphore, gates = context.semaphore(case.handle_type), Gates(context, case.handle_type)
    number, waits = device.new_list(), end.new_list()
    count = len(gates)
    for turn in range(2 * count + 1 if context.repeats(end, case.handle_type) else 1):
        value, missing = value_of(case.handle_type, turn + 1), turn % count
        if 0 < turn < count:
            device.release(number)
            number = device.new_list()
        events = gates.close()
        context.here.get(number).append_signal(context.here.get(semaphore.here), value, wait_events=events)
        end.wait(waits, semaphore, value)
        gates.open_all_but(missing)
        never(lambda: end.done(waits), f"signal {turn + 1} was seen before event {missing + 1} of {count}")
        gates.open(missing)
        end.finish(waits, "a wait for a signal whose events are reached")
    for each, commands in ((device, number), (end, waits)):
        each.release(commands)

    def signal(commands: CommandList, events: Sequence[Event], done: Event) -> None:
        fresh = context.here.get(context.semaphore(case.handle_type).here)
        commands.append_signal(fresh, value_of(case.handle_type), wait_events=events, signal_event=done)

    up_to_eight_events_count(context, gates, {"a signal": signal})


@check("XSEM-EVT-004")
def operation_without_events_waits_for_none(context: CaseContext, case: Case) -> None:
    """A signal, a wait and a barrier without events complete while an event of another list is not reached."""
    producer, device = context.ends(IN)
    gate, other = context.semaphore(case.handle_type), context.semaphore(case.handle_type)
    first, second = context.device.create_command_list(), context.device.create_command_list()
    reached = context.device.create_event()
    held = context.device.create_event()
    first.append_wait(context.here.get(gate.here), value_of(case.handle_type), signal_event=held)
    second.append_barrier(signal_event=reached)
    for turn in range(3 if context.repeats(device, case.handle_type) else 1):
        value = value_of(case.handle_type, turn + 1)
        second.append_signal(context.here.get(other.here), value, wait_events=[] if turn else [reached])
        second.append_wait(context.here.get(other.here), value)
        second.append_barrier()
        second.synchronize(timeout_s=context.patience_s)
    never(held.query, "an event was reached before its wait was met")
    signals = producer.new_list()
    producer.signal(signals, gate, value_of(case.handle_type))
    held.wait(timeout_s=context.patience_s)


@check("XSEM-EVT-005")
def fence_is_not_reached_while_its_operation_is_held(context: CaseContext, case: Case) -> None:
    """A held fence is not reached, a wait for the fence times out in time, and a reached fence stays reached."""
    # The check also uses the fence of a barrier behind the wait, and queries the fences after the close of the queue.
    type = case.handle_type
    value, shared = value_of(type), context.semaphore(type)
    token = context.driver_semaphore(shared)
    commands = context.driver.create_queue()
    producer, device = context.ends(IN)
    signals = producer.new_list()
    with held(producer, device, signals, type, lambda: producer.signal(signals, shared, value)) as hold:
        fences = [commands.append_wait([token], [WaitParams(value=value)], (), (), True)]
        fences.append(commands.append_barrier((), True))
        for fence in fences:
            hold.pending(functools.partial(context.driver.query_fence, fence), "the fence of a held operation")
            at_once(functools.partial(context.driver.query_fence, fence), "a query of a fence")
            at_once(functools.partial(context.driver.wait_fence, fence, 0), "a wait for a fence without a timeout")
        timed = TimedWait(functools.partial(context.driver.wait_fence, fences[0]), "a wait for a fence")
        for _ in range(TRIES):
            hold.pending(timed, "waiting for the fence of a held wait")
            if timed.in_time():
                break
        timed.check()
    soon(lambda: all(context.driver.query_fence(fence) for fence in fences), "a fence is never reached",
         context.patience_s)
    for when in ("later", "after the close of its queue"):
        for fence in fences:
            expect(context.driver.query_fence(fence) and context.driver.wait_fence(fence, 0),
                   f"a reached fence does not stay reached {when}")
            at_once(functools.partial(context.driver.wait_fence, fence, _LONG_NS), "a wait for a reached fence")
        if when == "later":
            commands.close()
    for fence in fences:
        context.driver.release_fence(fence)
    context.driver.release_semaphore(token)


@check("XSEM-EVT-010")
def released_fence_leaves_its_operation(context: CaseContext, case: Case) -> None:
    """Release the fence of a held wait: the release returns, the wait stays pending, and no other fence changes."""
    type = case.handle_type
    driver, value, shared = context.driver, value_of(type), context.semaphore(type)
    token, commands = context.driver_semaphore(shared), context.driver.create_queue()
    producer, device = context.ends(IN)
    signals, fences = producer.new_list(), []
    early = [_barrier(commands) for _ in range(_FENCES)]
    soon(lambda: all(driver.query_fence(each) for each in early), "a barrier is never done", context.patience_s,
         Symptom.BARRIER_NOT_DONE)
    for fence in early[::2]:   # a later fence may use the same native object again
        driver.release_fence(fence)
    with held(producer, device, signals, type, lambda: producer.signal(signals, shared, value)) as hold:
        released = commands.append_wait([token], [WaitParams(value=value)], (), (), True)
        began = time.monotonic()
        driver.release_fence(released)
        expect(time.monotonic() - began < context.patience_s / 2, "the release of a fence waits for its operation")
        fences += [_barrier(commands) for _ in range(_FENCES)]
        hold.pending(lambda: any(driver.query_fence(each) for each in fences),
                     "a barrier behind a held wait whose fence was released")
        expect(all(driver.query_fence(each) for each in early[1::2]),
               "a reached fence does not stay reached after the release of other fences")
    soon(lambda: all(driver.query_fence(each) for each in fences), "a barrier behind a met wait is never done",
         context.patience_s)
    commands.close()
    for fence in (*early[1::2], *reversed(fences)):
        driver.release_fence(fence)
    driver.release_semaphore(token)


def _barrier(queue: AbleQueue) -> Token:
    fence = queue.append_barrier((), True)
    expect(fence is not None, "an append with want_fence returned no fence")
    return fence
