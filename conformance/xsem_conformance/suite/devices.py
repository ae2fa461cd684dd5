"""Several devices in one process: two drivers of one device, two devices of one backend."""

from __future__ import annotations

import xsem
from xsem_conformance.case.case_participant import CaseParticipant, Shared
from xsem_conformance.case.context import IN, CaseContext, gets_through, value_of
from xsem_conformance.case.participant import LocalParticipant
from xsem_conformance.checks import check
from xsem_conformance.outcomes import Case, expect


@check("XSEM-DEV-005")
def two_drivers_of_one_device_share_an_object(context: CaseContext, case: Case) -> None:
    """Each driver imports it: a signal or bytes of one driver arrive at the other driver, in both directions."""
    memory = case.kind == "memory"
    shared = context.memory(type=case.handle_type) if memory else context.semaphore(case.handle_type)
    _, one = context.ends(IN)
    with xsem.open_device(context.device.info) as opened:
        participant = LocalParticipant(opened)
        try:
            if memory:
                with context.peer.export_memory(shared.there, context.importer) as memory_desc:
                    number = participant.import_memory(memory_desc)
            else:
                with context.peer.export_semaphore(shared.there, context.importer) as desc:
                    number = participant.import_semaphore(desc)
            other = CaseParticipant(participant, lambda _shared: number, "the second driver", context.patience_s)
            for turn, (producer, consumer) in enumerate(((one, other), (other, one)), 1):
                if memory:
                    _bytes_arrive(producer, consumer, shared, bytes([turn]) * 64)
                else:
                    gets_through(producer, consumer, shared, case.handle_type, value_of(case.handle_type, turn))
        finally:
            participant.forget()


def _bytes_arrive(producer: CaseParticipant, consumer: CaseParticipant, memory: Shared, data: bytes) -> None:
    writes, reads = producer.new_list(), consumer.new_list()
    producer.write(writes, memory, data)
    producer.finish(writes, "a copy")
    reading = consumer.read(reads, memory, len(data))
    consumer.finish(reads, "a copy")
    expect(consumer.fetch(reading) == data, f"{consumer.name} does not read the bytes that {producer.name} wrote")
    for end, commands in ((producer, writes), (consumer, reads)):
        end.side.release(commands)   # some devices have few queues


@check("XSEM-DEV-006")
def another_device_runs_while_one_waits(context: CaseContext, case: Case) -> None:
    """While a list of the device waits, a list of another device of the backend runs to its end."""
    info = context.device.info
    other = next(each for each in xsem.devices(info.backend) if each.index != info.index)
    type = context.some_type()
    shared, value = context.semaphore(type), value_of(type)
    _, device = context.ends(IN)
    waits = device.new_list()
    with xsem.open_device(other) as second:
        device.wait(waits, shared, value)
        device.stays_pending(waits, "a wait")
        commands = second.create_command_list()
        if second.capabilities.memory_import:
            _copies(second, commands, context.patience_s)
        commands.append_barrier()
        commands.synchronize(timeout_s=context.patience_s)
        expect(not device.done(waits), "the wait was met by another device's work")
        context.peer.host_signal(shared.there, value)
        device.finish(waits, "a wait")


def _copies(device: xsem.Device, commands: xsem.CommandList, patience_s: float) -> None:
    source, target = device.host_buffer(256), device.host_buffer(256)
    memoryview(source.numpy())[:] = b"\x5a" * 256
    commands.append_copy(target, source)
    commands.synchronize(timeout_s=patience_s)
    expect(target.numpy().tobytes() == b"\x5a" * 256, "a copy on the other device copied other bytes")
