"""Objects of several processes: the exporter's, the device's, and a second process with the device open."""

from __future__ import annotations

import os

from xsem_conformance.case.case_participant import CaseParticipant, Shared, stay_pending
from xsem_conformance.case.context import IN, CaseContext, gets_through, value_of
from xsem_conformance.checks import check
from xsem_conformance.outcomes import BlockedError, Case, Symptom, expect


@check("XSEM-PROC-001")
def object_of_another_process_is_the_same_object(context: CaseContext, case: Case) -> None:
    """A signal of one process meets a wait of the other, or bytes written by one process are read by the other."""
    if context.exporter.about()["pid"] == os.getpid():
        raise BlockedError("the exporter is in the device's process")
    producer, consumer = context.ends(case.direction)
    if case.kind == "semaphore":
        shared = context.semaphore(case.handle_type)
        for value in (1, 2) if context.repeats(consumer, case.handle_type) else (1,):
            gets_through(producer, consumer, shared, case.handle_type, value_of(case.handle_type, value))
        return
    memory = context.memory(type=case.handle_type)
    writes, reads = producer.new_list(), consumer.new_list()
    for data in (b"\x11" * 64, bytes(range(64))):
        producer.write(writes, memory, data, 4096 - 32)
        producer.finish(writes, "a copy")
        reading = consumer.read(reads, memory, 64, 4096 - 32)
        consumer.finish(reads, "a copy")
        found = consumer.fetch(reading)
        expect(found == data, f"{consumer.name} reads {found[:4].hex()}…, {producer.name} wrote {data[:4].hex()}…",
               Symptom.OTHER_BYTES)


@check("XSEM-PROC-002", deadline_s=60)
def two_processes_of_the_device_see_one_timeline(context: CaseContext, case: Case) -> None:
    """Both wait for the exporter's signal, then each for the signal of the other."""
    # If a wait may come before its signal, each wait is observed pending first.
    shared = context.semaphore(case.handle_type)
    exporter, first = context.ends(IN)
    second = context.second_end(shared)
    early = first.waits_early(case.handle_type)
    lists = [(end, end.new_list()) for end in (first, second)]
    if not early:
        _signals(exporter, shared)
    for end, commands in lists:
        end.wait(commands, shared, 1)
    if early:
        stay_pending(*((end, commands, "a wait for the exporter's signal") for end, commands in lists))
        _signals(exporter, shared)
    for end, commands in lists:
        end.finish(commands, "a wait for the exporter's signal")
        end.release(commands)   # a device may have one list, beside that of its blocking copies
    gets_through(first, second, shared, case.handle_type, 2)
    gets_through(second, first, shared, case.handle_type, 3)


def _signals(end: CaseParticipant, shared: Shared) -> None:
    commands = end.new_list()
    end.signal(commands, shared, 1)
    end.finish(commands, "a signal")


@check("XSEM-PROC-003", deadline_s=60)
def semaphore_outlives_the_process_that_exported_it(context: CaseContext, case: Case) -> None:
    """After the exporter's process has exited by itself, the device still waits for the semaphore and signals it."""
    shared, value = context.semaphore(case.handle_type), value_of(case.handle_type)
    _, device = context.ends(IN)
    early = device.waits_early(case.handle_type) and context.device.capabilities.independent_lists >= 2
    waits = device.new_list()
    if early:
        device.wait(waits, shared, value)
    context.end_exporter()
    if early:
        device.stays_pending(waits, "a wait whose exporter has ended")
    signals = device.new_list() if early else waits   # on one list the signal comes before its wait
    device.signal(signals, shared, value)
    if not early:
        device.wait(waits, shared, value)
    device.finish(waits, "a wait of a semaphore whose exporter has ended")
    if not context.repeats(device, case.handle_type):
        return
    again = value_of(case.handle_type, 2)
    device.signal(signals, shared, again)
    device.wait(signals, shared, again)
    device.finish(signals, "signal and wait of a semaphore whose exporter has ended")


@check("XSEM-KILL-004", deadline_s=60)
def exporter_and_object_outlive_a_killed_process_of_the_device(context: CaseContext, case: Case) -> None:
    """After a second process is killed in a wait, the exporter works, and the object imports and works again."""
    type, value = case.handle_type, value_of(case.handle_type)
    exporter, device = context.ends(IN)
    there, desc = context.exporter.create_semaphore(type, context.importer_uuid)
    desc.close()
    unseen = Shared(0, there)   # only the second process imports it; this process imports it later
    second = context.second_end(unseen)
    held = second.new_list()
    second.wait(held, unseen, value)
    second.stays_pending(held, "a wait")
    context.kill_second()
    gets_through(exporter, device, context.semaphore(type), type, value)
    with context.exporter.export_semaphore(there, context.importer_uuid) as again:
        shared = Shared(context.here.import_semaphore(again), there)
    gets_through(exporter, device, shared, type, value)
    gets_through(device, exporter, shared, type, value_of(type, 2))


@check("XSEM-LIFE-008", deadline_s=60)
def process_ends_with_a_wait_unmet(context: CaseContext, case: Case) -> None:
    """A second process with a pending wait exits on request."""
    type = case.handle_type
    there, desc = context.exporter.create_semaphore(type, context.importer_uuid)
    desc.close()
    unseen = Shared(0, there)
    second = context.second_end(unseen)
    held = second.new_list()
    second.wait(held, unseen, value_of(type))
    second.stays_pending(held, "a wait")
    expect(context.second_ends(), "a process with an unmet wait does not exit")
