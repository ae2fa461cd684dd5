"""Waits and signals of binary and timeline semaphores, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from xsem.types import Feature, SemaphoreHandleType
from xsem_conformance.case import measures
from xsem_conformance.case.case_participant import Shared, stay_pending
from xsem_conformance.case.context import IN, CaseContext, value_of
from xsem_conformance.case.polling import never
from xsem_conformance.checks import check
from xsem_conformance.outcomes import BlockedError, Case, Symptom, expect

EDGES: Final = (1, 2**31, 2**31 + 1, 2**32, 2**32 + 1, 2**62, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1)
WAITS_FIRST: Final = 200
"""Number of rounds that append the wait before its signal."""


# ---- both kinds
@check("XSEM-WBS-001")
def wait_is_pending_until_its_signal(context: CaseContext, case: Case) -> None:
    """A wait appended before its signal stays pending, and the signal meets it."""
    # The same lists wait and signal three times. From the second time, xsem uses the driver's prepared call.
    producer, consumer = context.ends(case.direction)
    semaphore = context.semaphore(case.handle_type)
    if not consumer.waits_early(case.handle_type):
        raise BlockedError(f"{consumer.name} allows no wait before the signal is submitted")
    waits, signals = consumer.new_list(), producer.new_list()
    for turn in range(3 if context.repeats(consumer, case.handle_type) else 1):
        value = value_of(case.handle_type, 5 * turn + 1)
        consumer.wait(waits, semaphore, value)
        consumer.stays_pending(waits, f"wait {turn + 1} of a list")
        producer.signal(signals, semaphore, value)
        consumer.finish(waits, f"wait {turn + 1} of a list")


@check("XSEM-BIN-002")
def wait_is_met_by_an_earlier_signal(context: CaseContext, case: Case) -> None:
    """A signal that is done before the append of the wait meets the wait."""
    producer, consumer = context.ends(case.direction)
    semaphore, value = context.semaphore(case.handle_type), value_of(case.handle_type)
    signals, waits = producer.new_list(), consumer.new_list()
    producer.signal(signals, semaphore, value)
    producer.finish(signals, "a signal")
    consumer.wait(waits, semaphore, value)
    consumer.finish(waits, "a wait")
    for _ in range(10 if context.repeats(producer, case.handle_type) else 1):   # signal and wait on one list
        producer.signal(signals, semaphore, value)
        producer.wait(signals, semaphore, value)
    producer.finish(signals, "ten signals, each with its wait")


# ---- binary
@check("XSEM-BIN-001")
def wait_is_pending_while_its_signal_is_held_back(context: CaseContext, case: Case) -> None:
    """The signal is submitted behind a gate, then the wait: both are pending until the gate opens."""
    producer, consumer = context.ends(case.direction)
    (gate, opening), semaphore = context.gate(producer), context.semaphore(case.handle_type)
    signals, waits = producer.new_list(), consumer.new_list()
    producer.wait(signals, gate, opening)
    producer.signal(signals, semaphore)
    consumer.wait(waits, semaphore)
    stay_pending((consumer, waits, "a wait for a held signal"), (producer, signals, "a signal behind a gate"))
    context.exporter.host_signal(gate.there, opening)
    producer.finish(signals, "a signal after its gate was opened")
    consumer.finish(waits, "a wait after its signal was released")


@check("XSEM-BIN-003")
def met_wait_resets(context: CaseContext, case: Case) -> None:
    """One signal meets one wait: the next wait is pending until the next signal."""
    # A driver that signals twice leaves a second signal only if a wait ends between the two signals. The rounds with
    # the wait first provoke this case. Each of these rounds consumes one signal, so a second signal stays until the
    # end.
    producer, consumer = context.ends(case.direction)
    semaphore = context.semaphore(case.handle_type)
    signals, waits = producer.new_list(), consumer.new_list()
    for _ in range(3):
        producer.signal(signals, semaphore)
        producer.finish(signals, "a signal")
        consumer.wait(waits, semaphore)
        consumer.finish(waits, "a wait")
    if not consumer.waits_early(case.handle_type):
        return   # this side allows no wait without a submitted signal
    for turn in range(WAITS_FIRST):
        if turn % 10 == 0:   # the driver prepares the signal anew for each list
            producer.finish(signals, "a signal")
            producer.release(signals)
            signals = producer.new_list()
        consumer.wait(waits, semaphore)
        producer.signal(signals, semaphore)
        consumer.finish(waits, "a wait that was appended before its signal")
    producer.finish(signals, "a signal")
    consumer.wait(waits, semaphore)
    consumer.stays_pending(waits, "a second wait for one signal")
    producer.signal(signals, semaphore)
    consumer.finish(waits, "a wait")


# ---- timelines
@check("XSEM-TL-001")
def value_below_does_not_meet_a_wait(context: CaseContext, case: Case) -> None:
    """A wait for 7 is pending at 6, and met at 7."""
    producer, consumer = context.ends(case.direction)
    semaphore = context.semaphore(case.handle_type)
    waits, signals = consumer.new_list(), producer.new_list()
    consumer.wait(waits, semaphore, 7)
    producer.signal(signals, semaphore, 6)
    producer.finish(signals, "a signal")
    consumer.stays_pending(waits, "a wait for 7 at 6")
    producer.signal(signals, semaphore, 7)
    consumer.finish(waits, "a wait for 7 at 7")


@check("XSEM-TL-002")
def value_above_meets_a_wait(context: CaseContext, case: Case) -> None:
    """A signal of 100 meets a wait for 7, and later waits for 100 or less pass."""
    producer, consumer = context.ends(case.direction)
    semaphore = context.semaphore(case.handle_type)
    waits, signals = consumer.new_list(), producer.new_list()
    consumer.wait(waits, semaphore, 7)
    producer.signal(signals, semaphore, 100)
    consumer.finish(waits, "a wait for 7 at 100")
    for value in (100, 50, 1, 100):
        consumer.wait(waits, semaphore, value)
    consumer.finish(waits, "waits for no more than 100 at 100")


@check("XSEM-TL-005")
def values_are_compared_as_64_unsigned_bits(context: CaseContext, case: Case) -> None:
    """At the limits of 31, 32, 63 and 64 bits, a wait is pending at one below its value, and met at its value."""
    # One timeline uses the same two lists for all values. From their second append, xsem uses the driver's prepared
    # call. The other timeline uses new lists for each value, if both sides have a second list.
    producer, consumer = context.ends(case.direction)
    limit = context.largest_difference(case.handle_type)
    kept, renewed = context.semaphore(case.handle_type), context.semaphore(case.handle_type)
    waits, signals = consumer.new_list(), producer.new_list()
    fresh = min(producer.independent_lists, consumer.independent_lists) > 1
    below = 0
    for value in EDGES:
        if value - 1 - below > limit:
            break
        new_waits, new_signals = (consumer.new_list(), producer.new_list()) if fresh else (waits, signals)
        pairs = ((kept, waits, signals, "a repeated"), (renewed, new_waits, new_signals, "a first"))[:1 + fresh]
        for semaphore, _, out, _ in pairs:
            if value - 1 > below:
                producer.signal(out, semaphore, value - 1)
                producer.finish(out, "a signal")
        for semaphore, waiting, _, _ in pairs:
            consumer.wait(waiting, semaphore, value)
        stay_pending(*((consumer, waiting, f"{what} wait for {value} at {value - 1}") for _, waiting, _, what in pairs))
        if fresh and value - 1 > below:   # a list's second signal of a semaphore is a repeated one
            producer.release(new_signals)
            new_signals = producer.new_list()
        producer.signal(signals, kept, value)
        if fresh:
            producer.signal(new_signals, renewed, value)
        for _, waiting, _, what in pairs:
            consumer.finish(waiting, f"{what} wait for {value}")
        producer.finish(new_signals, f"a signal of {value}")
        for end, commands in ((consumer, new_waits), (producer, new_signals)) if fresh else ():
            end.release(commands)
        below = value
    semaphore = context.semaphore(case.handle_type)
    consumer.wait(waits, semaphore, limit)
    consumer.stays_pending(waits, f"a wait for {limit} at 0")
    producer.signal(signals, semaphore, limit)
    consumer.finish(waits, f"a wait for {limit} at {limit}")


@check("XSEM-TL-003")
def signal_sets_the_value(context: CaseContext, case: Case) -> None:
    """The exporter reads exactly the value that the device signalled."""
    if not context.exporter_reads(case.handle_type):
        raise BlockedError("the exporter cannot read a timeline's value")
    kept, renewed = context.semaphore(case.handle_type), context.semaphore(case.handle_type)
    _, device = context.ends(IN)
    commands, last = device.new_list(), 0
    for value in EDGES:
        if value - last > context.largest_difference(case.handle_type):
            break
        another = device.new_list() if device.independent_lists > 1 else commands
        # From its second signal of a semaphore on, a list uses the driver's prepared call.
        for semaphore, signals in ((kept, commands), (renewed, another)):
            device.signal(signals, semaphore, value)
            device.finish(signals, "a signal")
            found = context.exporter.value(semaphore.there)
            expect(found == value, f"the device signalled {value}, and the timeline is at {found}", Symptom.OTHER_VALUE)
        if another != commands:
            device.release(another)
        last = value


@check("XSEM-TL-004")
def timeline_starts_at_its_initial_value(context: CaseContext, case: Case) -> None:
    """With several initial values, a wait for this value passes, and a wait for the next value is pending."""
    # The exporter creates the timelines. If the device exports this type, the device also creates timelines.
    producer, device = context.ends(IN)
    signals, waits = producer.new_list(), device.new_list()
    for initial in (0, 7, 2**33):
        if initial >= context.largest_difference(case.handle_type):
            break
        semaphore = context.semaphore(case.handle_type, initial)
        device.wait(waits, semaphore, initial)
        device.finish(waits, f"a wait for the initial value {initial}")
        device.wait(waits, semaphore, initial + 1)
        device.stays_pending(waits, f"a wait for {initial + 1}, one above the initial value,")
        producer.signal(signals, semaphore, initial + 1)
        device.finish(waits, f"a wait for {initial + 1}")
        declared = context.device.capabilities
        if SemaphoreHandleType(case.handle_type) in declared.semaphore_export and declared.independent_lists > 1:
            _own_timeline_starts_at(context, case.handle_type, initial)
    for each, number in ((device, waits), (producer, signals)):
        each.release(number)   # some devices have few queues
    _waits_for_reached_values_are_met(context, case.handle_type, lambda: context.semaphore(case.handle_type))
    if SemaphoreHandleType(case.handle_type) in context.device.capabilities.semaphore_export:
        _waits_for_reached_values_are_met(context, case.handle_type, lambda: _created(context, case.handle_type))


def _created(context: CaseContext, type: str) -> Shared:
    made = context.here.keep(context.device.create_semaphore(SemaphoreHandleType(type)))
    return Shared(made, made)


def _waits_for_reached_values_are_met(context: CaseContext, type: str, new: Callable[[], Shared]) -> None:
    """A wait for 0 is met at once by a timeline without a signal, and later a wait for any value up to the current."""
    # The device waits alone, first and behind other work, and in batches; its host waits, too.
    _, device = context.ends(IN)
    untouched, second, work = new(), new(), new()
    commands = device.new_list()
    device.wait(commands, [untouched, second], [0, 0])
    device.finish(commands, "the first wait of a list, for 0 of two timelines without a signal,")
    for turn in range(1, 3):   # from the second turn on, xsem uses the driver's prepared calls
        device.signal(commands, work, turn)
        device.wait(commands, untouched, 0)
        device.wait(commands, [untouched, work], [0, turn])
        device.wait(commands, [work, untouched], [turn, 0])
        device.wait(commands, [second, work, untouched], [0, turn, 0])
        device.finish(commands, "waits for 0 of timelines without a signal, behind other work and in batches,")
    _host_waits_return(context, untouched, (0,))
    device.signal(commands, untouched, 5)
    for value in (0, 5, 3, 0):
        device.wait(commands, untouched, value)
        device.wait(commands, [untouched, second], [value, 0])
        device.wait(commands, [second, untouched], [0, value])
    device.finish(commands, "waits for 0, 3 and 5 at 5, alone and in batches,")
    _host_waits_return(context, untouched, (0, 5, 3, 0))
    device.release(commands)
    if context.device.capabilities.independent_lists > 1:
        _reached_value_leaves_the_rest_of_its_batch(context, new(), new())


def _reached_value_leaves_the_rest_of_its_batch(context: CaseContext, untouched: Shared, other: Shared) -> None:
    """A batch waits for 0 and for a value to come: it is pending until this value."""
    _, device = context.ends(IN)
    waits, signals = device.new_list(), device.new_list()
    for value, pair, values in ((1, (untouched, other), (0, 1)), (2, (other, untouched), (2, 0))):
        device.wait(waits, pair, values)
        device.stays_pending(waits, f"a wait for {values[0]} and {values[1]} in a batch")
        device.signal(signals, other, value)
        device.finish(waits, f"a wait for {values[0]} and {values[1]} in a batch")
    for each in (waits, signals):
        device.release(each)


def _host_waits_return(context: CaseContext, timeline: Shared, values: Sequence[int]) -> None:
    if context.here.can(timeline.here, Feature.HOST_WAIT):
        for value in values:
            context.here.host_wait(timeline.here, value, 0.0)   # at once


def _own_timeline_starts_at(context: CaseContext, type: str, initial: int) -> None:
    """Create a timeline on the device, import the timeline on the exporter if possible, and check the initial value."""
    _, device = context.ends(IN)
    exporter = context.exporter.about()
    importer = exporter["uuid"] if context.importer_uuid is None else None
    made, desc = context.here.create_semaphore(type, importer, initial)
    with desc:
        own = Shared(made, made)
        waits = device.new_list()
        device.wait(waits, own, initial)
        device.finish(waits, f"a wait for the initial value {initial} of the device's own timeline")
        # xsem refuses objects of a device with a UUID on each other device, also on one without a UUID, as `host`.
        importable = SemaphoreHandleType(type).portable or context.importer_uuid in (None, exporter["uuid"])
        if importable and type in exporter["semaphore_import"] and context.exporter_reads(type):
            found = context.exporter.value(context.exporter.import_semaphore(desc))
            expect(found == initial, f"the device created a timeline at {initial}, and the importer reads {found}")
        device.wait(waits, own, initial + 1)
        device.stays_pending(waits, f"a wait for {initial + 1} of the device's own timeline, made at {initial},")
        signals = device.new_list()
        device.signal(signals, own, initial + 1)
        device.finish(waits, f"a wait for {initial + 1}")
        for each in (waits, signals):
            device.release(each)


@check("XSEM-TL-006")
def value_after_a_signal_below_it(context: CaseContext, case: Case) -> str:
    """Signal 5 and then 3; report the value that the exporter reads."""
    found = measures.value_after_going_back(context, case.handle_type)
    expect(found in (3, 5), f"the device signalled 5 and then 3, and the timeline is at {found}", Symptom.OTHER_VALUE)
    return "after a signal of 5 and one of 3 the timeline is at " + ("3" if found == 3 else "5: it never goes back")


@check("XSEM-WBS-002")
def rising_waits_are_met_as_the_values_come(context: CaseContext, case: Case) -> None:
    """Each signal meets exactly the waits that it reaches."""
    producer, consumer = context.ends(case.direction)
    semaphore = context.semaphore(case.handle_type)
    # All of these lists wait, and with n independent lists only n of them.
    count = max(1, min(3, consumer.independent_lists))
    lists = [consumer.new_list() for _ in range(count)]
    for index, waits in enumerate(lists):
        consumer.wait(waits, semaphore, 10 * (index + 1))
    signals = producer.new_list()
    for value, met in ((9, 0), (10, 1), (25, 2), (30, 3)):
        producer.signal(signals, semaphore, value)
        producer.finish(signals, "a signal")
        named = [(consumer, waits, f"the wait for {10 * (index + 1)} at {value}") for index, waits in enumerate(lists)]
        for _, waits, what in named[:met]:
            consumer.finish(waits, what)
        stay_pending(*named[met:])
    if case.direction == IN:
        for waits in lists:
            consumer.release(waits)   # some devices have few queues
        _rising_waits_of_one_list(context, case.handle_type)


def _rising_waits_of_one_list(context: CaseContext, type: str) -> None:
    """Append waits for 10, 20 and 30 to one list of the device. Each wait has an event."""
    exporter, device = context.ends(IN)
    semaphore = context.semaphore(type)
    commands, signals = context.here.get(device.new_list()), exporter.new_list()
    events = [context.device.create_event() for _ in range(3)]
    for index, event in enumerate(events):
        commands.append_wait(context.here.get(semaphore.here), 10 * (index + 1), signal_event=event)
    for value, met in ((9, 0), (10, 1), (25, 2), (30, 3)):
        exporter.signal(signals, semaphore, value)
        exporter.finish(signals, "a signal")
        for event in events[:met]:
            event.wait(timeout_s=context.patience_s)
        never(lambda met=met: any(each.query() for each in events[met:]),  # type: ignore[misc]
              f"a list has waits for 10, 20 and 30, and more than {met} were met at {value}")
