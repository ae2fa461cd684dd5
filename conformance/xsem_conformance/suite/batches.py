"""Batches: several semaphores in one wait or signal."""

from __future__ import annotations

import functools

from xsem.types import SemaphoreKind
from xsem_conformance.case.context import CaseContext, value_of
from xsem_conformance.case.holding import held
from xsem_conformance.checks import check
from xsem_conformance.outcomes import Case, Symptom, expect


@check("XSEM-BATCH-001")
def batched_wait_needs_all(context: CaseContext, case: Case) -> None:
    """A wait for three semaphores is pending while any one of the semaphores is not signalled."""
    # Each semaphore is missing in turn, first on a new list, then on a list that repeats the wait.
    producer, consumer = context.ends(case.direction)
    semaphores = [context.semaphore(case.handle_type) for _ in range(3)]
    values = [value_of(case.handle_type, 10 * each) for each in (1, 2, 3)]
    waits, signals = consumer.new_list(), producer.new_list()
    turns = 6 if context.repeats(consumer, case.handle_type) else 1
    for turn, last in enumerate((0, 1, 2, 2, 0, 1)[:turns]):
        wanted = [None if value is None else value + 100 * turn for value in values]
        if turn in (1, 2):
            consumer.release(waits)
            waits = consumer.new_list()
        for index in range(3):
            if index != last:
                producer.signal(signals, semaphores[index], wanted[index])
        producer.finish(signals, "two signals")
        with held(producer, consumer, signals, case.handle_type,
                  functools.partial(producer.signal, signals, semaphores[last], wanted[last])) as hold:
            consumer.wait(waits, semaphores, wanted)
            hold.pending(functools.partial(consumer.done, waits),
                         f"{consumer.name}: a wait for three, of which number {last + 1} is missing,")
        consumer.finish(waits, "a wait for three")


@check("XSEM-BATCH-002")
def batched_signal_signals_each_with_its_own_value(context: CaseContext, case: Case) -> None:
    """Every semaphore of a batch gets its own value, and not the value of another semaphore."""
    producer, consumer = context.ends(case.direction)
    semaphores = [context.semaphore(case.handle_type) for _ in range(4)]
    values = [value_of(case.handle_type, each) for each in (40, 10, 30, 20)]
    signals, waits = producer.new_list(), consumer.new_list()
    # From the second turn on, xsem uses the driver's prepared call.
    for turn in range(3 if context.repeats(consumer, case.handle_type) else 1):
        wanted = [None if value is None else value + 100 * turn for value in values]
        producer.signal(signals, semaphores, wanted)
        producer.finish(signals, "a batch of four signals")
        for semaphore, value in zip(semaphores, wanted, strict=True):
            consumer.wait(waits, semaphore, value)
            consumer.finish(waits, f"a wait for the batch's {value or 'signal'}")
            if value is not None and context.exporter_reads(case.handle_type):
                found = context.exporter.value(semaphore.there)
                expect(found == value, f"a batch signalled {value}, and the timeline is at {found}",
                       Symptom.OTHER_VALUE)
            elif value is not None:
                consumer.wait(waits, semaphore, value + 1)
                consumer.stays_pending(waits, f"a wait for {value + 1}, where the batch signalled {value},")
                producer.signal(signals, semaphore, value + 1)
                consumer.finish(waits, "a wait")


@check("XSEM-BATCH-003")
def batch_of_both_kinds(context: CaseContext, case: Case) -> None:
    """A batch with a binary semaphore and a timeline waits for both and signals both, by the rules of their kinds."""
    producer, consumer = context.ends(case.direction)
    binary_type, timeline_type = context.some_type(SemaphoreKind.BINARY), context.some_type(SemaphoreKind.TIMELINE)
    binary, timeline = context.semaphore(binary_type), context.semaphore(timeline_type)
    signals, waits = producer.new_list(), consumer.new_list()
    producer.signal(signals, [binary, timeline], [None, 7])
    producer.finish(signals, "a batch of both kinds")
    consumer.wait(waits, [timeline, binary], [7, None])
    consumer.finish(waits, "a wait for a batch of both kinds")
    if consumer.waits_early(timeline_type):
        if not context.repeats(consumer, binary_type):
            binary = context.semaphore(binary_type)
        producer.signal(signals, binary)
        producer.finish(signals, "a signal")
        consumer.wait(waits, [binary, timeline], [None, 8])
        consumer.stays_pending(waits, "a wait for both kinds, of which the timeline is missing,")
        producer.signal(signals, timeline, 8)
        consumer.finish(waits, "a wait for both kinds")
    if consumer.waits_early(binary_type) and context.repeats(consumer, binary_type):
        producer.signal(signals, timeline, 9)
        producer.finish(signals, "a signal")
        consumer.wait(waits, [binary, timeline], [None, 9])
        consumer.stays_pending(waits, "a wait for both kinds, of which the binary semaphore is missing,")
        producer.signal(signals, [timeline, binary], [12, None])
        consumer.finish(waits, "a wait for both kinds")
        consumer.wait(waits, [timeline, binary], [12, None])
        consumer.stays_pending(waits, "a second wait of a batch for one signal of a binary semaphore")
        producer.signal(signals, binary)
        consumer.finish(waits, "a wait for both kinds")


@check("XSEM-BATCH-004")
def sixty_four_in_one_batch(context: CaseContext, case: Case) -> None:
    """A batch of 64 semaphores is signalled completely and waited for completely."""
    # One wait for each semaphore sees all signals of a batch. A wait for the batch is pending while the 64th is
    # missing, and while one in the middle is missing.
    producer, consumer = context.ends(case.direction)
    semaphores = [context.semaphore(case.handle_type) for _ in range(64)]
    signals, waits = producer.new_list(), consumer.new_list()
    producer.signal(signals, semaphores, [value_of(case.handle_type, each + 1) for each in range(64)])
    producer.finish(signals, "a batch of 64 signals")
    for index, semaphore in enumerate(semaphores):
        consumer.wait(waits, semaphore, value_of(case.handle_type, index + 1))
    consumer.finish(waits, "64 waits for the members of a batch")
    if not context.repeats(consumer, case.handle_type):
        return
    for turn, missing in enumerate((63, 40, 17), 1):
        values = [value_of(case.handle_type, each + 1 + 100 * turn) for each in range(64)]
        others = [each for each in range(64) if each != missing]
        producer.signal(signals, [semaphores[each] for each in others], [values[each] for each in others])
        producer.finish(signals, "a batch of 63 signals")
        with held(producer, consumer, signals, case.handle_type,
                  functools.partial(producer.signal, signals, semaphores[missing], values[missing])) as hold:
            consumer.wait(waits, semaphores, values)
            hold.pending(lambda: consumer.done(waits),
                         f"{consumer.name}: a wait for 64, of which number {missing + 1} is missing,")
        consumer.finish(waits, "a wait for 64")
