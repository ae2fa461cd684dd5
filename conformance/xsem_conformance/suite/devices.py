"""Several devices in one process: two drivers of one device, two devices of one backend."""

from __future__ import annotations

from collections.abc import Sequence

import xsem
from xsem.errors import UnsupportedError
from xsem.spi import Token
from xsem.types import MemoryDesc
from xsem_conformance.case.case_participant import CaseParticipant
from xsem_conformance.case.context import IN, CaseContext, bytes_arrive, gets_through, value_of
from xsem_conformance.case.direct import AbleDriver
from xsem_conformance.case.participant import LocalParticipant
from xsem_conformance.checks import check
from xsem_conformance.outcomes import Case, Symptom, expect


@check("XSEM-DEV-005")
def two_drivers_of_one_device_share_an_object(context: CaseContext, case: Case) -> None:
    """Each driver imports it: a signal or bytes of one driver arrive at the other driver, in both directions."""
    memory = case.kind == "memory"
    shared = context.object_of(case)
    _, one = context.ends(IN)
    with xsem.open_device(context.device.info) as opened:
        participant = LocalParticipant(opened)
        try:
            with context.exported(case, shared) as desc:
                number = participant.keep(opened.import_memory(desc) if isinstance(desc, MemoryDesc)
                                          else opened.import_semaphore(desc))
            other = CaseParticipant(participant, lambda _shared: number, "the second driver", context.patience_s)
            for turn, (producer, consumer) in enumerate(((one, other), (other, one)), 1):
                if memory:
                    bytes_arrive(producer, consumer, shared, bytes([turn]) * 64)
                else:
                    gets_through(producer, consumer, shared, case.handle_type, value_of(case.handle_type, turn),
                                 one_queue=context.device.capabilities.independent_lists < 2)
        finally:
            participant.forget()


@check("XSEM-DEV-008")
def objects_have_native_handles_of_their_own(context: CaseContext, case: Case) -> None:
    """Different objects have different native handles, and each query of one object returns the same handle."""
    type, driver = case.handle_type, context.driver
    tokens = [context.driver_semaphore(context.semaphore(type)) for _ in range(3)]
    queues = [driver.create_queue() for _ in range(min(2, context.device.capabilities.independent_lists))]
    handles = [_handles(driver, tokens) for _ in range(2)]
    expect(handles[0] == handles[1], "a second query of a native handle gives another handle")
    known = [each for each in handles[0] if each is not None]
    expect(len(set(known)) == len(known), f"several semaphores have one native handle: {known}")
    expect(all(known), "the native handle of a semaphore is 0")
    streams = [each.native_handle for each in queues if each.native_handle is not None]
    expect(len(set(streams)) == len(streams), f"independent queues have one native handle: {streams}")
    expect(len({each.identity for each in queues}) == len(queues), "independent queues have one identity")
    for queue in queues:
        identity, again = queue.identity, queue.identity
        expect(identity == again, "a second query of a queue's identity gives another identity")
        queue.close()
    for token in tokens:
        driver.release_semaphore(token)


def _handles(driver: AbleDriver, tokens: Sequence[Token]) -> list[int | None]:
    found: list[int | None] = []
    for token in tokens:
        try:
            found.append(driver.native_handle(token))
        except UnsupportedError:
            found.append(None)
    return found


@check("XSEM-DEV-006")
def another_device_runs_while_one_waits(context: CaseContext, case: Case) -> None:
    """While a list of the device waits, a list of another device of the backend runs to its end."""
    info = context.device.info
    other = next(each for each in xsem.devices(info.backend) if each.index != info.index)
    type = case.handle_type
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
        context.exporter.host_signal(shared.there, value)
        device.finish(waits, "a wait")


def _copies(device: xsem.Device, commands: xsem.CommandList, patience_s: float) -> None:
    source, target = device.host_buffer(256), device.host_buffer(256)
    source.numpy().data[:] = b"\x5a" * 256
    commands.append_copy(target, source)
    commands.synchronize(timeout_s=patience_s)
    expect(target.numpy().tobytes() == b"\x5a" * 256, "a copy on the other device copied other bytes",
           Symptom.OTHER_BYTES)
