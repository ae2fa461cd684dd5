"""Batches: several semaphores in one wait or signal."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Final, TypeAlias

from xsem.types import SemaphoreKind
from xsem_conformance.case.case_participant import Shared
from xsem_conformance.case.context import CaseContext, value_of
from xsem_conformance.case.holding import held
from xsem_conformance.checks import check
from xsem_conformance.outcomes import Case, Symptom, expect


@check("XSEM-BATCH-001")
def batched_wait_needs_all(context: CaseContext, case: Case) -> None:
    """A wait for 2, 3 or 8 semaphores is pending while the first, the last or one between is not signalled."""
    # A new list makes its first wait of a batch in the turns marked with True, and repeats the wait in the others.
    _, consumer = context.ends(case.direction)
    if not context.repeats(consumer, case.handle_type):
        turns: tuple[_Turn, ...] = ((3, 0, True), (8, 7, True))
    elif not consumer.waits_early(case.handle_type):
        turns = ((3, 0, True), (3, 1, True), (3, 2, True), (3, 1, False), (2, 1, True), (8, 7, False))   # of long work
    else:
        turns = (*_OF_THREE, (2, 0, True), (2, 1, False), (8, 7, True), (8, 0, False), (8, 4, False))
    _batches_need_all(context, case, turns)


_Turn: TypeAlias = "tuple[int, int, bool]"
"""The size of a batch, the missing member, and whether the list is new."""
_OF_THREE: Final[tuple[_Turn, ...]] = (
    (3, 0, True), (3, 1, True), (3, 2, True), (3, 2, False), (3, 0, False), (3, 1, False))


def _batches_need_all(context: CaseContext, case: Case, turns: Iterable[_Turn]) -> None:
    """Wait for a batch in each turn. The wait is pending while the missing member is not signalled."""
    producer, consumer = context.ends(case.direction)
    semaphores: list[Shared] = []
    waits, signals = consumer.new_list(), producer.new_list()
    for turn, (size, missing, new) in enumerate(turns):
        if len(semaphores) != size or not context.repeats(consumer, case.handle_type):
            semaphores = [context.semaphore(case.handle_type) for _ in range(size)]
        if new:
            consumer.release(waits)
            waits = consumer.new_list()
        values = [value_of(case.handle_type, 100 * turn + each + 1) for each in range(size)]
        others = [each for each in range(size) if each != missing]
        for group in [others] if size == _MANY else [[each] for each in others]:
            producer.signal(signals, [semaphores[each] for each in group], [values[each] for each in group])
        producer.finish(signals, f"{size - 1} signals")
        with held(producer, consumer, signals, case.handle_type,
                  functools.partial(producer.signal, signals, semaphores[missing], values[missing])) as hold:
            consumer.wait(waits, semaphores, values)
            hold.pending(functools.partial(consumer.done, waits),
                         f"{consumer.name}: a wait for {size}, of which number {missing + 1} is missing,")
        consumer.finish(waits, f"a wait for {size}")


@check("XSEM-BATCH-002")
def batched_signal_signals_each_with_its_own_value(context: CaseContext, case: Case) -> None:
    """Every semaphore of a batch of 2, 3, 4 or 8 gets its own value, and not the value of another semaphore."""
    producer, consumer = context.ends(case.direction)
    signals, waits = producer.new_list(), consumer.new_list()
    # From the second turn of a size on, xsem uses the driver's prepared call.
    for values in _OWN_VALUES:
        semaphores = [context.semaphore(case.handle_type) for _ in values]
        for turn in range(3 if context.repeats(consumer, case.handle_type) else 1):
            wanted = [value_of(case.handle_type, each + 100 * turn) for each in values]
            producer.signal(signals, semaphores, wanted)
            producer.finish(signals, f"a batch of {len(values)} signals")
            for semaphore, value in zip(semaphores, wanted, strict=True):
                consumer.wait(waits, semaphore, value)
                consumer.finish(waits, f"a wait for the {value or 'signal'} of a batch of {len(values)}")
                if value is not None:
                    _value_is(context, case, signals, waits, semaphore, value)


_OWN_VALUES: Final = ((40, 10, 30, 20), (20, 10), (10, 30, 20), (80, 10, 70, 20, 60, 30, 50, 40))
"""The values of each batch of signals."""


def _value_is(context: CaseContext, case: Case, signals: int, waits: int, semaphore: Shared, value: int) -> None:
    """Check that a timeline is at the value of its batch."""
    producer, consumer = context.ends(case.direction)
    if context.exporter_reads(case.handle_type):
        found = context.exporter.value(semaphore.there)
        expect(found == value, f"a batch signalled {value}, and the timeline is at {found}", Symptom.OTHER_VALUE)
    else:
        consumer.wait(waits, semaphore, value + 1)
        consumer.stays_pending(waits, f"a wait for {value + 1}, where the batch signalled {value},")
        producer.signal(signals, semaphore, value + 1)
        consumer.finish(waits, "a wait")


@check("XSEM-BATCH-003")
def batch_of_both_kinds(context: CaseContext, case: Case) -> None:
    """A batch with a binary semaphore and a timeline waits for both and signals both, by the rules of their kinds."""
    for binary_type in context.shared_types(SemaphoreKind.BINARY):
        for timeline_type in context.shared_types(SemaphoreKind.TIMELINE):
            _batch_of_two_types(context, case, binary_type, timeline_type)


def _batch_of_two_types(context: CaseContext, case: Case, binary_type: str, timeline_type: str) -> None:
    producer, consumer = context.ends(case.direction)
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
    for end, commands in ((producer, signals), (consumer, waits)):
        end.release(commands)   # some devices have few queues


@check("XSEM-BATCH-004")
def sixty_five_in_one_batch(context: CaseContext, case: Case) -> None:
    """A batch of 65 semaphores is signalled completely and waited for completely."""
    # One wait for each semaphore sees all signals of a batch. A wait for the batch is pending while the first, the last
    # or one in the middle is missing.
    producer, consumer = context.ends(case.direction)
    semaphores = [context.semaphore(case.handle_type) for _ in range(_MANY)]
    signals, waits = producer.new_list(), consumer.new_list()
    producer.signal(signals, semaphores, [value_of(case.handle_type, each + 1) for each in range(_MANY)])
    producer.finish(signals, f"a batch of {_MANY} signals")
    for index, semaphore in enumerate(semaphores):
        consumer.wait(waits, semaphore, value_of(case.handle_type, index + 1))
    consumer.finish(waits, f"{_MANY} waits for the members of a batch")
    producer.release(signals)   # a device may have one list
    consumer.release(waits)
    if context.repeats(consumer, case.handle_type):
        _batches_need_all(context, case, [(_MANY, each, False) for each in (_MANY - 1, 0, 40)])


_MANY: Final = 65
