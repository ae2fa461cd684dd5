"""Portable timelines and memory: objects of the host that each device imports (docs/host-objects.md)."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Final

import xsem
from xsem.errors import BadArgumentError, WaitTimeoutError
from xsem.types import MemoryHandleType, SemaphoreHandleType
from xsem_conformance.case.case_participant import Shared, stay_pending
from xsem_conformance.case.context import IN, OUT, CaseContext
from xsem_conformance.case.leaks import MAPPINGS, stays_level
from xsem_conformance.case.noise import noise
from xsem_conformance.case.other_thread import OtherThread
from xsem_conformance.case.polling import SETTLE_S, soon
from xsem_conformance.checks import check
from xsem_conformance.outcomes import BlockedError, BrokenError, Case, Symptom, expect
from xsem_conformance.system import handles

_FAR: Final = 2**63 - 1
_WAKES_S: Final = 0.02
"""Longest time from a signal to the end of a wait. xsem divides a wait of the host into parts of 50 ms, so a waiter
without a wake-up looks at the end of a part. The signal comes 15 ms after the begin of the second part."""
_BEFORE_S: Final = 0.065
_SIZE: Final = 3 * 4096 + 1001
_PARTS: Final = ((0, 1), (1, 7), (4095, 2), (4097, 4099), (_SIZE - 13, 13))
"""Offset and size of each write."""


# ---- capabilities
@check("XSEM-CAP-010")
def portable_types_are_declared_as_a_whole(context: CaseContext, case: Case) -> None:
    """Import, export, waits before signals and the bridge are declared together."""
    declared = context.device.capabilities
    if case.kind == "memory":
        memory = MemoryHandleType(case.handle_type)
        expect(memory in declared.memory_import & declared.memory_export,
               f"{memory.value} is not in both of memory_import and memory_export")
        return
    type = SemaphoreHandleType(case.handle_type)
    for field in ("semaphore_import", "semaphore_export", "wait_before_signal"):
        expect(type in getattr(declared, field), f"{type.value} is not in {field}")
    odd = sorted(each.value for each in declared.bridged if not each.portable or each not in declared.semaphore_import)
    expect(not odd, f"bridged contains {', '.join(odd)}, no portable timeline that the device imports")


# ---- timelines
@check("XSEM-TL-011")
def one_signal_meets_all_waits(context: CaseContext, case: Case) -> None:
    """Waits for 7 on lists of both sides and in threads are pending at 6, and all of them are met at 7."""
    device, exporter = context.ends(OUT)
    shared = context.semaphore(case.handle_type)
    imported: xsem.Semaphore = context.here.get(shared.here)
    signals = device.new_list() if case.direction == OUT else 0
    free = context.device.capabilities.independent_lists - (case.direction == OUT)
    pending = []
    for end, count in ((device, min(3, free)), (exporter, 1)):
        for _ in range(count):
            commands = end.new_list()
            end.wait(commands, shared, 7)
            pending.append((end, commands, "a wait for 7 at 6"))
    threads = [OtherThread(functools.partial(imported.host_wait, 7, timeout_s=context.patience_s)) for _ in range(3)]
    for value in (6, 7):
        if case.direction == OUT:
            device.signal(signals, shared, value)
            device.finish(signals, "a signal")
        else:
            context.exporter.host_signal(shared.there, value)
        if value == 6:
            stay_pending(*pending)
            expect(not any(each.ends_within(0) for each in threads), "a host wait for 7 was met at 6")
    for end, commands, _ in pending:
        end.finish(commands, "a wait for 7 at 7", Symptom.NOT_MET)
    for each in threads:
        each.finish(context.patience_s, "a host wait for 7 was not met at 7")


@check("XSEM-TL-012")
def far_values_are_taken_and_farther_ones_refused(context: CaseContext, case: Case) -> None:
    """The device signals 2**63 - 1 and twice that, each side waits for it, and a jump by 2**63 is refused."""
    device, exporter = context.ends(OUT)
    shared, other = context.semaphore(case.handle_type), context.semaphore(case.handle_type)
    signals = device.new_list()
    for value in (_FAR, _FAR + 1, 2 * _FAR):
        waits = [(end, end.new_list()) for end in (device, exporter)
                 if end is exporter or context.device.capabilities.independent_lists > 1]
        for end, commands in waits:
            end.wait(commands, shared, value)
        stay_pending(*((end, commands, f"a wait for {value}") for end, commands in waits))
        device.signal(signals, shared, value)
        device.finish(signals, "a signal")
        for end, commands in waits:
            end.finish(commands, f"a wait for {value}", Symptom.NOT_MET)
            end.release(commands)
        _values_are(context, shared, value, "a signal")
    try:
        device.signal(signals, other, _FAR + 1)
    except BadArgumentError as error:
        expect(error.reason == "value_difference",
               f"a jump by 2**63 is refused with the reason {error.reason}, not value_difference")
    else:
        raise BrokenError("a signal that jumps by 2**63 is taken")
    _values_are(context, other, 0, "a refused signal")


def _values_are(context: CaseContext, shared: Shared, value: int, behind: str) -> None:
    """Check that both sides read the value now."""
    for name, found in (("device", context.here.get(shared.here).value()),
                        ("exporter", context.exporter.value(shared.there))):
        expect(found == value, f"behind {behind}, the {name} reads {found}, not {value}", Symptom.OTHER_VALUE)


@check("XSEM-TL-013")
def value_is_there_when_its_signal_is_done(context: CaseContext, case: Case) -> None:
    """Both sides read the value as soon as xsem says that the signal, or later work of its list, is done."""
    shared = context.semaphore(case.handle_type)
    imported = context.here.get(shared.here)
    commands: xsem.CommandList = context.here.get(context.here.new_list())
    own, later = context.device.create_event(), context.device.create_event()
    ends: tuple[tuple[str, Callable[[], object]], ...] = (
        ("the reached event of a signal", lambda: _reached(context, own.query)),
        ("the wait for the event of a signal", lambda: own.wait(timeout_s=context.patience_s)),
        ("the reached event of a later barrier", lambda: _reached(context, later.query)),
        ("the wait for the event of a later barrier", lambda: later.wait(timeout_s=context.patience_s)),
        ("synchronize", lambda: commands.synchronize(timeout_s=context.patience_s)),
        ("an idle list", lambda: _reached(context, commands.query)),
    )
    value = 0
    for _ in range(5):
        for what, end in ends:
            value += 1
            commands.append_signal(imported, value, signal_event=own)
            commands.append_barrier(signal_event=later)
            end()
            _values_are(context, shared, value, what)
            commands.synchronize(timeout_s=context.patience_s)
            for event in (own, later):
                event.reset()


def _reached(context: CaseContext, query: Callable[[], bool]) -> None:
    # Without a pause: the first true answer counts.
    deadline = time.monotonic() + context.patience_s
    while not query():
        expect(time.monotonic() < deadline, "a signal is not done", Symptom.NOT_DONE)


@check("XSEM-TL-014")
def device_wakes_the_waits_of_hosts(context: CaseContext, case: Case) -> None:
    """A thread of each side waits when the device signals."""
    shared = context.semaphore(case.handle_type)
    imported = context.here.get(shared.here)
    commands: xsem.CommandList = context.here.get(context.here.new_list())
    value = 0
    waits: tuple[tuple[str, Callable[[], object]], ...] = (
        ("device", lambda: imported.host_wait(value, timeout_s=context.patience_s)),
        ("exporter", lambda: context.exporter.host_wait(shared.there, value, context.patience_s)))
    for side, wait in waits:
        least = float("inf")
        for _ in range(10):
            value += 1
            thread = OtherThread(wait)
            expect(not thread.ends_within(_BEFORE_S), f"a host wait of the {side} was met before its signal")
            began = time.monotonic()
            commands.append_signal(imported, value)
            thread.finish(context.patience_s + 1, f"a host wait of the {side} was not met by its signal")
            least = min(least, time.monotonic() - began)
            commands.synchronize(timeout_s=context.patience_s)
            if least < _WAKES_S / 4:
                break   # only a busy machine needs ten tries
        expect(least < _WAKES_S,
               f"a host wait of the {side} ended {least:.3f} s after the device's signal, in the best of 10 tries")


@check("XSEM-TL-015")
def read_only_descriptor_only_waits(context: CaseContext, case: Case) -> None:
    """Signals of the exporter meet waits of the device and of its host; signals of the device are refused."""
    there, desc = context.exporter.create_semaphore(case.handle_type, context.importer_uuid)
    desc.close()
    with context.exporter.export_read_only(there, context.importer_uuid) as given:
        shared = Shared(context.here.import_semaphore(given), there)
    imported: xsem.Semaphore = context.here.get(shared.here)
    device, _ = context.ends(OUT)
    waits = device.new_list()
    for value in (7, _FAR):
        device.wait(waits, shared, value)
        device.stays_pending(waits, f"a wait for {value}")
        for call in (imported.host_signal, functools.partial(device.signal, waits, shared)):
            try:
                call(value)
            except BadArgumentError as error:
                expect(error.reason == "only_waits", f"a signal is refused with the reason {error.reason}")
            else:
                raise BrokenError("a timeline of a read-only descriptor is signalled")
        context.exporter.host_signal(there, value)
        device.finish(waits, f"a wait for {value}", Symptom.NOT_MET)
        imported.host_wait(value, timeout_s=context.patience_s)
        _values_are(context, shared, value, "a signal of the exporter")


# ---- killed processes
@check("XSEM-KILL-006", deadline_s=60)
def killed_holders_block_no_process(context: CaseContext, case: Case) -> None:
    """The exporter and a second process, which waits, are killed; the device's process goes on with the timeline."""
    shared = context.semaphore(case.handle_type)
    imported = context.here.get(shared.here)
    second = context.second_end(shared)
    held = second.new_list()
    second.wait(held, shared, 1)
    second.stays_pending(held, "a wait")
    context.kill_second()
    context.kill_exporter()
    began = time.monotonic()
    try:
        imported.host_wait(1, timeout_s=SETTLE_S)
    except WaitTimeoutError:
        taken = time.monotonic() - began
    else:
        raise BrokenError("a host wait was met without a signal")
    expect(taken < SETTLE_S + context.patience_s / 2, f"a host wait of {SETTLE_S} s took {taken:.1f} s after the kill")
    commands: xsem.CommandList = context.here.get(context.here.new_list())
    commands.append_wait(imported, 1)
    expect(not commands.query(), "a wait was met without a signal")
    imported.host_signal(1)
    commands.append_signal(imported, 2)
    commands.synchronize(timeout_s=context.patience_s)
    imported.host_wait(2, timeout_s=context.patience_s)
    expect(imported.value() == 2, f"the timeline is at {imported.value()}, not at 2", Symptom.OTHER_VALUE)
    before = handles.host_mappings()
    context.here.release(shared.here)
    del imported
    context.let_go()
    # A system without such a list of mappings has none before, either.
    soon(lambda: handles.host_mappings() < before or not before, "the page of a released timeline stays mapped",
         context.patience_s, None)


# ---- what stays behind
@check("XSEM-OWN-010", deadline_s=60)
def released_objects_leave_no_mapping(context: CaseContext, case: Case) -> None:
    """Twenty imports with use and release leave as many mappings of such objects as before."""

    def once() -> None:
        shared = context.object_of(case)
        commands = context.here.new_list()
        if case.kind == "memory":
            context.here.read(commands, shared.here, 0, 64)
        else:
            context.here.signal(commands, [shared.here], [1])
        context.here.synchronize(commands, context.patience_s)
        context.here.forget()
        context.exporter.forget()
        context.let_go()

    once()
    stays_level(once, 20, context.patience_s, "20 imports and releases", MAPPINGS)


# ---- memory
@check("XSEM-BUF-017")
def bytes_of_any_size_at_any_offset_arrive(context: CaseContext, case: Case) -> None:
    """The consumer's reads are pending behind a wait until the producer has written all parts and signals."""
    producer, consumer = context.ends(case.direction)
    memory, timeline = _odd_memory(context, case.handle_type), context.semaphore(_portable_timeline(context))
    expected = bytearray(noise(_SIZE, 1))
    exporter, _ = context.ends(IN)
    puts = exporter.new_list()
    exporter.write(puts, memory, bytes(expected))
    exporter.finish(puts, "a copy")
    waits, writes = consumer.new_list(), producer.new_list()
    consumer.wait(waits, timeline, 1, memory)
    readings = [(at, size, consumer.read(waits, memory, size, at)) for at, size in (*_PARTS, (0, _SIZE))]
    consumer.stays_pending(waits, "a read behind a wait")
    for turn, (at, size) in enumerate(_PARTS, 2):
        expected[at:at + size] = noise(size, turn)
        producer.write(writes, memory, bytes(expected[at:at + size]), at)
    producer.signal(writes, timeline, 1, memory)
    producer.finish(writes, "writes and a signal")
    consumer.finish(waits, "the reads behind the wait")
    for at, size, reading in readings:
        expect(consumer.fetch(reading) == bytes(expected[at:at + size]),
               f"{consumer.name}: {size} bytes at {at} are not the bytes that {producer.name} wrote",
               Symptom.OTHER_BYTES)


def _odd_memory(context: CaseContext, type: str) -> Shared:
    """Create memory of `_SIZE` bytes in the exporter, and import it on the device with exactly this size."""
    there, desc = context.exporter.create_memory(type, _SIZE, context.importer_uuid)
    with desc:
        return Shared(context.here.import_memory(dataclasses.replace(desc, allocation_size=_SIZE)), there)


def _portable_timeline(context: CaseContext) -> str:
    imported = {each.value for each in context.device.capabilities.semaphore_import}
    both = [each for each in context.exported_semaphores() if SemaphoreHandleType(each).portable and each in imported]
    if not both:
        raise BlockedError("the device and the exporter have no portable timeline in common")
    return both[0]
