"""What waits and signals of binary and timeline semaphores mean, one at a time and in batches."""

from __future__ import annotations

from typing import Final

from xsem.types import Feature
from xsem_conformance.bench import IN, Bench, Shared
from xsem_conformance.checks import check
from xsem_conformance.outcomes import Blocked, Case, expect

EDGES: Final = (1, 2**31, 2**32, 2**32 + 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


# ---- both kinds
@check("WBS-PENDING")
def wait_is_pending_until_its_signal(bench: Bench, case: Case) -> None:
    """A wait that is appended first stays pending, and is met by the signal."""
    producer, consumer = bench.ends(case.direction)
    semaphore, value = bench.semaphore(case.handle_type), _one(case)
    if not consumer.waits_early(case.handle_type):
        raise Blocked(f"{consumer.name} may not wait before the signal is submitted")
    waits, signals = consumer.new_list(), producer.new_list()
    consumer.wait(waits, semaphore, value)
    consumer.stays_pending(waits, "a wait")
    producer.signal(signals, semaphore, value)
    consumer.finish(waits, "a wait")


@check("SEM-SIGNAL-FIRST")
def wait_is_met_by_an_earlier_signal(bench: Bench, case: Case) -> None:
    """A signal that is done before the wait is appended meets it."""
    producer, consumer = bench.ends(case.direction)
    semaphore, value = bench.semaphore(case.handle_type), _one(case)
    signals, waits = producer.new_list(), consumer.new_list()
    producer.signal(signals, semaphore, value)
    producer.finish(signals, "a signal")
    consumer.wait(waits, semaphore, value)
    consumer.finish(waits, "a wait")


# ---- binary
@check("BIN-RESET")
def met_wait_resets(bench: Bench, case: Case) -> None:
    """One signal meets one wait: the next one is pending until the next signal."""
    producer, consumer = bench.ends(case.direction)
    semaphore = bench.semaphore(case.handle_type)
    signals, waits = producer.new_list(), consumer.new_list()
    for _ in range(3):
        producer.signal(signals, semaphore)
        producer.finish(signals, "a signal")
        consumer.wait(waits, semaphore)
        consumer.finish(waits, "a wait")
    if not consumer.waits_early(case.handle_type):
        return   # there, a wait without a signal may not even be appended
    consumer.wait(waits, semaphore)
    consumer.stays_pending(waits, "a second wait for one signal")
    producer.signal(signals, semaphore)
    consumer.finish(waits, "a wait")


@check("BIN-SAME")
def signal_and_wait_on_one_list(bench: Bench, case: Case) -> None:
    """The device can be its own producer."""
    semaphore = bench.semaphore(case.handle_type)
    _, device = bench.ends(IN)
    commands = device.new_list()
    for _ in range(10):
        device.signal(commands, semaphore)
        device.wait(commands, semaphore)
    device.finish(commands, "ten signals, each with its wait")


# ---- timelines
@check("TL-BELOW")
def value_below_does_not_meet_a_wait(bench: Bench, case: Case) -> None:
    """A wait for 7 is pending at 6, and met at 7."""
    producer, consumer = bench.ends(case.direction)
    semaphore = bench.semaphore(case.handle_type)
    waits, signals = consumer.new_list(), producer.new_list()
    consumer.wait(waits, semaphore, 7)
    producer.signal(signals, semaphore, 6)
    producer.finish(signals, "a signal")
    consumer.stays_pending(waits, "a wait for 7 at 6")
    producer.signal(signals, semaphore, 7)
    consumer.finish(waits, "a wait for 7 at 7")


@check("TL-ABOVE")
def value_above_meets_a_wait(bench: Bench, case: Case) -> None:
    """A wait for 7 is met by 100; and so are all later ones for less."""
    producer, consumer = bench.ends(case.direction)
    semaphore = bench.semaphore(case.handle_type)
    waits, signals = consumer.new_list(), producer.new_list()
    consumer.wait(waits, semaphore, 7)
    producer.signal(signals, semaphore, 100)
    consumer.finish(waits, "a wait for 7 at 100")
    for value in (100, 50, 1, 100):
        consumer.wait(waits, semaphore, value)
    consumer.finish(waits, "waits for no more than 100 at 100")


@check("TL-EDGES")
def values_are_compared_as_64_unsigned_bits(bench: Bench, case: Case) -> None:
    """A wait for the edges of 31, 32, 63 and 64 bits is pending one below, and met at the value."""
    producer, consumer = bench.ends(case.direction)
    limit = min(bench.device.capabilities.max_value_difference, 2**64 - 1)
    semaphore = bench.semaphore(case.handle_type)
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


@check("TL-VALUE")
def signal_sets_the_value(bench: Bench, case: Case) -> None:
    """What the device signals, the exporter reads: exactly."""
    if Feature.READ_VALUE.value not in bench.peer.about()["features"]:
        raise Blocked("the exporter cannot read a timeline's value")
    semaphore = bench.semaphore(case.handle_type)
    _, device = bench.ends(IN)
    commands = device.new_list()
    for value in EDGES:
        if value > bench.device.capabilities.max_value_difference:
            break
        device.signal(commands, semaphore, value)
        device.finish(commands, "a signal")
        found = bench.peer.value(semaphore.there)
        expect(found == value, f"the device signalled {value}, and the timeline is at {found}")


# ---- batches
@check("BATCH-WAIT")
def batched_wait_needs_all(bench: Bench, case: Case) -> None:
    """A wait for several is pending as long as one of them is not met, whichever."""
    producer, consumer = bench.ends(case.direction)
    semaphores = [bench.semaphore(case.handle_type) for _ in range(3)]
    values = [_one(case, 10 * each) for each in (1, 2, 3)]
    for last in range(3):
        waits, signals = consumer.new_list(), producer.new_list()
        wanted = [None if value is None else value + 100 * last for value in values]
        consumer.wait(waits, semaphores, wanted)
        for index in range(3):
            if index != last:
                producer.signal(signals, semaphores[index], wanted[index])
        producer.finish(signals, "two signals")
        consumer.stays_pending(waits, f"a wait for three, of which number {last + 1} is missing,")
        producer.signal(signals, semaphores[last], wanted[last])
        consumer.finish(waits, "a wait for three")


@check("BATCH-SIGNAL")
def batched_signal_signals_each_with_its_own_value(bench: Bench, case: Case) -> None:
    """Every semaphore of a batch gets its own value, and no other's."""
    producer, consumer = bench.ends(case.direction)
    semaphores = [bench.semaphore(case.handle_type) for _ in range(4)]
    values = [_one(case, each) for each in (40, 10, 30, 20)]
    signals = producer.new_list()
    producer.signal(signals, semaphores, values)
    producer.finish(signals, "a batch of four signals")
    for semaphore, value in zip(semaphores, values, strict=True):
        waits = consumer.new_list()
        consumer.wait(waits, semaphore, value)
        consumer.finish(waits, f"a wait for the batch's {value or 'signal'}")
        if value is not None:
            beyond = consumer.new_list()
            consumer.wait(beyond, semaphore, value + 1)
            consumer.stays_pending(beyond, f"a wait for {value + 1}, where the batch signalled {value},")
            producer.signal(signals, semaphore, value + 1)
            consumer.finish(beyond, "a wait")


@check("BATCH-64")
def sixty_four_in_one_batch(bench: Bench, case: Case) -> None:
    """A batch of 64 is signalled and waited for whole."""
    producer, consumer = bench.ends(case.direction)
    semaphores = [bench.semaphore(case.handle_type) for _ in range(64)]
    values = [_one(case, each + 1) for each in range(64)]
    signals, waits = producer.new_list(), consumer.new_list()
    producer.signal(signals, semaphores, values)
    producer.finish(signals, "a batch of 64 signals")
    consumer.wait(waits, semaphores, values)
    consumer.finish(waits, "a wait for a batch of 64")


def _one(case: Case, value: int = 1) -> int | None:
    return value if "timeline" in case.handle_type or "fence" in case.handle_type else None


def _both(one: Shared, other: Shared) -> tuple[Shared, Shared]:
    return one, other
