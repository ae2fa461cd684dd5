"""Order of work by waits and signals: the checks hold the producer back, and a control runs without the wait.

Each check writes and reads memory of every type that both sides have, behind one wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from xsem.types import SemaphoreHandleType, SemaphoreKind
from xsem_conformance.case.case_participant import CaseParticipant, Shared
from xsem_conformance.case.context import IN, CaseContext, value_of
from xsem_conformance.case.holding import held
from xsem_conformance.checks import check
from xsem_conformance.outcomes import Case, Symptom, expect

OLD: Final = b"\x11" * 64
NEW: Final = b"\xee" * 64
_WORK_S: Final = 0.5
"""Seconds of work before the write and the signal of a sync file: a wait that passes at once reads the old bytes."""


_Memories: TypeAlias = "Mapping[str, Shared]"
"""Memory of each type that the exporter creates and the device imports."""


def _memories(context: CaseContext) -> _Memories:
    return {type: context.memory(type=type) for type in context.shared_memories()}


def _put(end: CaseParticipant, memories: _Memories, data: bytes) -> None:
    commands = end.new_list()
    _write(end, commands, memories, data)
    end.finish(commands, "a copy with nothing before it")
    end.release(commands)


def _write(end: CaseParticipant, commands: int, memories: _Memories, data: bytes) -> None:
    for memory in memories.values():
        end.write(commands, memory, data)


def _read(end: CaseParticipant, commands: int, memories: _Memories) -> dict[str, int]:
    return {type: end.read(commands, memory, len(NEW)) for type, memory in memories.items()}


def _are(end: CaseParticipant, readings: Mapping[str, int], expected: bytes, where: str) -> None:
    for type, reading in readings.items():
        found = end.fetch(reading)
        expect(found == expected, f"{end.name} read {_told(found)} from {type} memory {where}", Symptom.OTHER_BYTES)


@check("XSEM-ORD-001")
def later_work_sees_what_was_written_before_the_signal(context: CaseContext, case: Case) -> None:
    """The consumer's wait and read are pending until the producer writes and signals."""
    # If the signal must be submitted first, work of the producer holds write and signal back.
    producer, consumer = context.ends(case.direction)
    semaphore, memories = context.semaphore(case.handle_type), _memories(context)
    value = value_of(case.handle_type)
    _put(producer, memories, OLD)
    waits, writes = consumer.new_list(), producer.new_list()

    def submit() -> None:
        _write(producer, writes, memories, NEW)
        producer.signal(writes, semaphore, value, memories.values())

    with held(producer, consumer, writes, case.handle_type, submit) as hold:
        consumer.wait(waits, semaphore, value, memories.values())
        readings = _read(consumer, waits, memories)
        hold.pending(lambda: consumer.done(waits), f"{consumer.name}: the read behind the wait")
    producer.finish(writes, "write and signal")
    consumer.finish(waits, "the read behind the wait")
    _are(consumer, readings, NEW, "behind its wait, not the bytes from before the signal")


@check("XSEM-ORD-002")
def without_the_wait_the_same_read_sees_the_old_data(context: CaseContext, case: Case) -> None:
    """Control: the same read without the wait is done before the producer starts."""
    producer, consumer = context.ends(case.direction)
    semaphore, memories = context.semaphore(case.handle_type), _memories(context)
    value = value_of(case.handle_type)
    _put(producer, memories, OLD)
    reads, writes = consumer.new_list(), producer.new_list()
    readings = _read(consumer, reads, memories)
    consumer.finish(reads, "a read without a wait")
    _write(producer, writes, memories, NEW)
    producer.signal(writes, semaphore, value, memories.values())
    producer.finish(writes, "write and signal")
    _are(consumer, readings, OLD, "before the new data were written")
    # The signal arrives: the same objects synchronise.
    consumer.wait(reads, semaphore, value, memories.values())
    readings = _read(consumer, reads, memories)
    consumer.finish(reads, "the read behind the wait")
    _are(consumer, readings, NEW, "behind a wait that was met")


@check("XSEM-ORD-003")
def signal_waits_for_the_work_before_it(context: CaseContext, case: Case) -> None:
    """A gate holds the producer's list: the appended signal must not overtake the work before it."""
    producer, consumer = context.ends(case.direction)
    if not consumer.waits_early(case.handle_type):
        # A gate cannot help: every signal that this signal depends on must be submitted, also the opening of a gate.
        later_work_sees_what_was_written_before_the_signal(context, case)
        return
    gate, opening = context.gate(producer)
    semaphore, memories = context.semaphore(case.handle_type), _memories(context)
    value = value_of(case.handle_type)
    _put(producer, memories, OLD)
    writes, waits = producer.new_list(), consumer.new_list()
    producer.wait(writes, gate, opening)
    _write(producer, writes, memories, NEW)
    producer.signal(writes, semaphore, value, memories.values())
    consumer.wait(waits, semaphore, value, memories.values())
    readings = _read(consumer, waits, memories)
    consumer.stays_pending(waits, "the read behind the wait")
    producer.stays_pending(writes, "the write behind the gate")
    context.exporter.host_signal(gate.there, opening)
    producer.finish(writes, "write and signal")
    consumer.finish(waits, "the read behind the wait")
    _are(consumer, readings, NEW, "behind its wait: the signal overtook the write before it")


@check("XSEM-ORD-012")
def work_behind_a_sync_file_sees_what_was_done_before_its_signal(context: CaseContext, case: Case) -> None:
    """Export a signal behind long work and a write, wait for it on the device and read; twice."""
    producer, device = context.ends(IN)
    memories = _memories(context)
    drawn, first = context.exporter.create_semaphore(SemaphoreHandleType.SYNC_FD.value, None)
    first.close()
    writes, reads = producer.new_list(), device.new_list()
    for turn in range(2):
        _write(producer, writes, memories, OLD)
        producer.finish(writes, "a copy with nothing before it")
        producer.occupy(writes, _WORK_S)
        _write(producer, writes, memories, NEW)
        context.exporter.signal(writes, [drawn], [None], [each.there for each in memories.values()])
        with context.exporter.export_semaphore(drawn, None) as desc:
            fence = Shared(context.here.import_semaphore(desc), drawn)
        device.wait(reads, fence, None, memories.values())
        readings = _read(device, reads, memories)
        device.finish(reads, "the read behind the sync file")
        _are(device, readings, NEW, f"behind the sync file of signal {turn + 1}")
        producer.finish(writes, "write and signal")


@check("XSEM-STR-001", deadline_s=60)
def a_hundred_rounds_lose_nothing(context: CaseContext, case: Case) -> None:
    """The sides take turns on one buffer 100 times: each side reads the bytes that the other side wrote."""
    producer, consumer = context.ends(case.direction)
    timeline = SemaphoreHandleType(case.handle_type).kind is SemaphoreKind.TIMELINE
    there = context.semaphore(case.handle_type)
    back = there if timeline else context.semaphore(case.handle_type)
    memory = context.memory()
    writes, reads, answers = producer.new_list(), consumer.new_list(), []
    for turn in range(100):
        data, answer = turn.to_bytes(2, "little") * 32, (turn + 1000).to_bytes(2, "little") * 32
        if turn and not context.repeats(consumer, case.handle_type):
            there = context.semaphore(case.handle_type)
        if turn and not context.repeats(producer, case.handle_type):
            back = context.semaphore(case.handle_type)
        producer.write(writes, memory, data)
        producer.signal(writes, there, 2 * turn + 1 if timeline else None, memory)
        consumer.wait(reads, there, 2 * turn + 1 if timeline else None, memory)
        reading = consumer.read(reads, memory, len(data))
        consumer.write(reads, memory, answer)
        consumer.signal(reads, back, 2 * turn + 2 if timeline else None, memory)
        producer.wait(writes, back, 2 * turn + 2 if timeline else None, memory)
        answers.append((producer.read(writes, memory, len(answer)), answer))
        consumer.finish(reads, f"round {turn}")
        found = consumer.fetch(reading)
        expect(found == data, f"round {turn}: {consumer.name} read {_told(found)} in place of {_told(data)}",
               Symptom.OTHER_BYTES)
    producer.finish(writes, "the last round")
    for turn, (reading, answer) in enumerate(answers):
        found = producer.fetch(reading)
        expect(found == answer, f"round {turn}: {producer.name} read {_told(found)} in place of {_told(answer)}",
               Symptom.OTHER_BYTES)


def _told(data: bytes) -> str:
    if data == OLD:
        return "the old data"
    if data == NEW:
        return "the new data"
    return data[:8].hex() + "…"

