"""Waits and signals of binary and timeline semaphores, one at a time and in batches."""

from __future__ import annotations

import functools
from typing import Final

from xsem.errors import UnsupportedError, WaitTimeoutError
from xsem.types import Feature
from xsem_conformance.case import measures
from xsem_conformance.case.context import IN, CaseContext, value_of
from xsem_conformance.case.holding import held
from xsem_conformance.case.polling import SETTLE_S
from xsem_conformance.checks import check
from xsem_conformance.outcomes import BlockedError, Case, expect

EDGES: Final = (1, 2**31, 2**32, 2**32 + 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


# ---- both kinds
@check("XSEM-WBS-001")
def wait_is_pending_until_its_signal(context: CaseContext, case: Case) -> None:
    """A wait appended before its signal stays pending, and the signal meets it."""
    producer, consumer = context.ends(case.direction)
    semaphore, value = context.semaphore(case.handle_type), value_of(case.handle_type)
    if not consumer.waits_early(case.handle_type):
        raise BlockedError(f"{consumer.name} allows no wait before the signal is submitted")
    waits, signals = consumer.new_list(), producer.new_list()
    consumer.wait(waits, semaphore, value)
    consumer.stays_pending(waits, "a wait")
    producer.signal(signals, semaphore, value)
    consumer.finish(waits, "a wait")


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
    for _ in range(10):   # signal and wait on one list
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
    consumer.stays_pending(waits, "a wait for a held signal")
    producer.stays_pending(signals, "a signal behind a gate")
    context.peer.host_signal(gate.there, opening)
    producer.finish(signals, "a signal after its gate was opened")
    consumer.finish(waits, "a wait after its signal was released")


@check("XSEM-BIN-003")
def met_wait_resets(context: CaseContext, case: Case) -> None:
    """One signal meets one wait: the next wait is pending until the next signal."""
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
    """At the edges of 31, 32, 63 and 64 bits a wait is pending at one below its value, and met at its value."""
    producer, consumer = context.ends(case.direction)
    limit = min(context.device.capabilities.max_value_difference, 2**64 - 1)
    semaphore = context.semaphore(case.handle_type)
    waits, signals = consumer.new_list(), producer.new_list()
    below = 0
    for value in EDGES:
        if value - 1 - below > limit:
            break
        if value - 1 > below:
            producer.signal(signals, semaphore, value - 1)
            producer.finish(signals, "a signal")
        consumer.wait(waits, semaphore, value)
        consumer.stays_pending(waits, f"a wait for {value} at {value - 1}")
        producer.signal(signals, semaphore, value)
        consumer.finish(waits, f"a wait for {value}")
        below = value


@check("XSEM-TL-003")
def signal_sets_the_value(context: CaseContext, case: Case) -> None:
    """The exporter reads exactly the value that the device signalled."""
    if Feature.READ_VALUE.value not in context.peer.about()["features"]:
        raise BlockedError("the exporter cannot read a timeline's value")
    semaphore = context.semaphore(case.handle_type)
    _, device = context.ends(IN)
    commands = device.new_list()
    for value in EDGES:
        if value > context.device.capabilities.max_value_difference:
            break
        device.signal(commands, semaphore, value)
        device.finish(commands, "a signal")
        found = context.peer.value(semaphore.there)
        expect(found == value, f"the device signalled {value}, and the timeline is at {found}")


@check("XSEM-TL-004")
def timeline_starts_at_its_initial_value(context: CaseContext, case: Case) -> None:
    """A new timeline has the value 0: a wait for 0 passes, a wait for 1 is pending."""
    semaphore = context.semaphore(case.handle_type)
    _, device = context.ends(IN)
    passes, waits = device.new_list(), device.new_list()
    device.wait(passes, semaphore, 0)
    device.finish(passes, "a wait for the initial value")
    device.wait(waits, semaphore, 1)
    device.stays_pending(waits, "a wait for 1 at 0")
    device.signal(passes, semaphore, 1)
    device.finish(waits, "a wait for 1")


@check("XSEM-TL-006")
def value_after_a_signal_below_it(context: CaseContext, case: Case) -> str:
    """Signal 5 and then 3; report the value that the exporter reads."""
    found = measures.value_after_going_back(context, case.handle_type)
    expect(found in (3, 5), f"the device signalled 5 and then 3, and the timeline is at {found}")
    return "after a signal of 5 and one of 3 the timeline is at " + ("3" if found == 3 else "5: it never goes back")


@check("XSEM-TL-007")
def device_reads_the_value(context: CaseContext, case: Case) -> None:
    """The device reads the last value signalled by the exporter, and the last value signalled by itself."""
    producer, device = context.ends(IN)
    semaphore = context.semaphore(case.handle_type)
    for end, value in ((producer, 5), (device, 9), (producer, 2**33)):
        commands = end.new_list()
        end.signal(commands, semaphore, value)
        end.finish(commands, "a signal")
        found = context.here.get(semaphore.here).value()
        expect(found == value, f"the {end.name} signalled {value}, and the device reads {found}")


@check("XSEM-TL-008")
def signal_from_the_devices_host_meets_the_exporters_wait(context: CaseContext, case: Case) -> None:
    """A wait of the exporter's is pending until the device's host signals."""
    exporter, _ = context.ends(IN)
    semaphore, value = context.semaphore(case.handle_type), value_of(case.handle_type)
    waits = exporter.new_list()
    if exporter.waits_early(case.handle_type):
        exporter.wait(waits, semaphore, value)
        exporter.stays_pending(waits, "a wait")
    try:
        context.here.get(semaphore.here).host_signal(value)
    except UnsupportedError:
        if value is not None:
            raise
        return   # the host of Vulkan signals and waits only for timelines; no capability states this
    if not exporter.waits_early(case.handle_type):
        exporter.wait(waits, semaphore, value)
    exporter.finish(waits, "a wait")


@check("XSEM-TL-009")
def wait_of_the_devices_host(context: CaseContext, case: Case) -> None:
    """A host wait times out while it is unmet, and returns after the exporter has signalled."""
    exporter, _ = context.ends(IN)
    semaphore, value = context.semaphore(case.handle_type), value_of(case.handle_type)
    imported = context.here.get(semaphore.here)
    try:
        imported.host_wait(value, timeout_s=SETTLE_S)
    except WaitTimeoutError:
        pass
    except UnsupportedError:
        if value is not None:
            raise
        return
    else:
        raise AssertionError("a host wait was met without a signal")
    commands = exporter.new_list()
    exporter.signal(commands, semaphore, value)
    imported.host_wait(value, timeout_s=context.patience_s)


@check("XSEM-WBS-002")
def rising_waits_are_met_as_the_values_come(context: CaseContext, case: Case) -> None:
    """Each signal meets exactly the waits that it reaches."""
    producer, consumer = context.ends(case.direction)
    semaphore = context.semaphore(case.handle_type)
    lists = [consumer.new_list() for _ in range(3)]
    for index, waits in enumerate(lists):
        consumer.wait(waits, semaphore, 10 * (index + 1))
    signals = producer.new_list()
    for value, met in ((9, 0), (10, 1), (25, 2), (30, 3)):
        producer.signal(signals, semaphore, value)
        producer.finish(signals, "a signal")
        for index, waits in enumerate(lists):
            if index < met:
                consumer.finish(waits, f"the wait for {10 * (index + 1)} at {value}")
            else:
                consumer.stays_pending(waits, f"the wait for {10 * (index + 1)} at {value}")


@check("XSEM-STR-002", deadline_s=90)
def a_thousand_values_in_turn(context: CaseContext, case: Case) -> None:
    """One side signals odd values, the other side even values, and each waits for the value of the other."""
    exporter, device = context.ends(IN)
    semaphore = context.semaphore(case.handle_type)
    one, other = exporter.new_list(), device.new_list()
    for value in range(1, 1001, 2):
        exporter.wait(one, semaphore, value - 1)
        exporter.signal(one, semaphore, value)
        device.wait(other, semaphore, value)
        device.signal(other, semaphore, value + 1)
        if value % 100 == 99:
            device.finish(other, f"turn {value}")
    exporter.finish(one, "the exporter's last turn")
    device.finish(other, "the device's last turn")


# ---- batches
@check("XSEM-BATCH-001")
def batched_wait_needs_all(context: CaseContext, case: Case) -> None:
    """A wait for several semaphores is pending while any one of them is unmet."""
    producer, consumer = context.ends(case.direction)
    semaphores = [context.semaphore(case.handle_type) for _ in range(3)]
    values = [value_of(case.handle_type, 10 * each) for each in (1, 2, 3)]
    waits, signals = consumer.new_list(), producer.new_list()
    for last in range(3):
        wanted = [None if value is None else value + 100 * last for value in values]
        for index in range(3):
            if index != last:
                producer.signal(signals, semaphores[index], wanted[index])
        producer.finish(signals, "two signals")
        with held(producer, consumer, signals, case.handle_type,
                  functools.partial(producer.signal, signals, semaphores[last], wanted[last])) as hold:
            consumer.wait(waits, semaphores, wanted)
            hold.pending(lambda: consumer.done(waits),
                         f"{consumer.name}: a wait for three, of which number {last + 1} is missing,")
        consumer.finish(waits, "a wait for three")


@check("XSEM-BATCH-002")
def batched_signal_signals_each_with_its_own_value(context: CaseContext, case: Case) -> None:
    """Every semaphore of a batch gets its own value, and not the value of another."""
    producer, consumer = context.ends(case.direction)
    semaphores = [context.semaphore(case.handle_type) for _ in range(4)]
    values = [value_of(case.handle_type, each) for each in (40, 10, 30, 20)]
    signals = producer.new_list()
    producer.signal(signals, semaphores, values)
    producer.finish(signals, "a batch of four signals")
    waits = consumer.new_list()
    for semaphore, value in zip(semaphores, values, strict=True):
        consumer.wait(waits, semaphore, value)
        consumer.finish(waits, f"a wait for the batch's {value or 'signal'}")
        if value is not None:
            consumer.wait(waits, semaphore, value + 1)
            consumer.stays_pending(waits, f"a wait for {value + 1}, where the batch signalled {value},")
            producer.signal(signals, semaphore, value + 1)
            consumer.finish(waits, "a wait")


@check("XSEM-BATCH-003")
def batch_of_both_kinds(context: CaseContext, case: Case) -> None:
    """A batch of a binary semaphore and a timeline waits for both and signals both, each by the rule of its kind."""
    producer, consumer = context.ends(case.direction)
    binary, timeline = context.semaphore("opaque_fd"), context.semaphore("timeline_semaphore_fd")
    signals, waits = producer.new_list(), consumer.new_list()
    producer.signal(signals, [binary, timeline], [None, 7])
    producer.finish(signals, "a batch of both kinds")
    consumer.wait(waits, [timeline, binary], [7, None])
    consumer.finish(waits, "a wait for a batch of both kinds")
    if consumer.waits_early("timeline_semaphore_fd"):
        producer.signal(signals, binary)
        producer.finish(signals, "a signal")
        consumer.wait(waits, [binary, timeline], [None, 8])
        consumer.stays_pending(waits, "a wait for both kinds, of which the timeline is missing,")
        producer.signal(signals, timeline, 8)
        consumer.finish(waits, "a wait for both kinds")


@check("XSEM-BATCH-004")
def sixty_four_in_one_batch(context: CaseContext, case: Case) -> None:
    """A batch of 64 semaphores is signalled completely and waited for completely."""
    producer, consumer = context.ends(case.direction)
    semaphores = [context.semaphore(case.handle_type) for _ in range(64)]
    values = [value_of(case.handle_type, each + 1) for each in range(64)]
    signals, waits = producer.new_list(), consumer.new_list()
    producer.signal(signals, semaphores, values)
    producer.finish(signals, "a batch of 64 signals")
    consumer.wait(waits, semaphores, values)
    consumer.finish(waits, "a wait for a batch of 64")
