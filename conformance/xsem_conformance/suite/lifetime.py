"""Import and release: the same object on both sides, releases during pending work, and leaks of a device."""

from __future__ import annotations

import base64
import functools
import os
import subprocess
import tempfile
import time
import uuid
from typing import Final

import xsem
from xsem.cli.interpreter import python
from xsem.plugins import registry
from xsem.spi import DeviceDriver, HostMemory
from xsem_conformance.case import driver_use, measures
from xsem_conformance.case.case_participant import Shared
from xsem_conformance.case.context import IN, CaseContext, bytes_arrive, gets_through, value_of
from xsem_conformance.case.holding import held
from xsem_conformance.case.leaks import FILES, THREADS, settled, stays_level
from xsem_conformance.case.polling import SETTLE_S, soon
from xsem_conformance.checks import check
from xsem_conformance.outcomes import BrokenError, Case, Symptom, expect
from xsem_conformance.system import handles

AT_ONCE_S: Final = 5.0
"""Seconds: far above the cost of a call, far below an unmet wait."""


# ---- import
@check("XSEM-IMP-001")
def object_of_the_exporter_is_the_same_object(context: CaseContext, case: Case) -> None:
    """A signal, or the bytes, of each side arrive at the other side. Memory has at least the size of its descriptor."""
    if case.kind == "memory":
        _memory_imports(context, case)
        return
    exporter, device = context.ends(IN)
    for producer, consumer in ((exporter, device), (device, exporter)):
        # An object for each direction: on some devices a wait does not reset a binary semaphore.
        shared = context.semaphore(case.handle_type)
        for value in (1, 2) if value_of(case.handle_type) else (1,):
            gets_through(producer, consumer, shared, case.handle_type, value_of(case.handle_type, value))


def _memory_imports(context: CaseContext, case: Case) -> None:
    there, desc = context.exporter.create_memory(case.handle_type, 1 << 16, context.importer_uuid)
    with desc:
        expect(desc.allocation_size >= 1 << 16, f"the exporter's descriptor says {desc.allocation_size} bytes")
        shared = Shared(context.here.import_memory(desc), there)
    size = context.here.mapping(shared.here).size
    expect(size >= 1 << 16, f"the mapping of the whole memory has {size} bytes")
    exporter, device = context.ends(IN)
    for data, producer, consumer in ((b"\x31" * 64, exporter, device), (b"\x32" * 64, device, exporter)):
        bytes_arrive(producer, consumer, shared, data, 4096)


@check("XSEM-IMP-002")
def two_imports_are_one_object(context: CaseContext, case: Case) -> None:
    """A signal or a write through one import arrives through the other import, in both directions."""
    here = context.here
    if case.kind == "memory":
        shared = context.memory(type=case.handle_type)
        with context.exporter.export_memory(shared.there, context.importer_uuid) as memory_desc:
            other = here.import_memory(memory_desc)
        commands = here.new_list()
        for at, (writes, reads) in enumerate(((shared.here, other), (other, shared.here))):
            data = bytes([0x5a + at]) * 64
            here.write(commands, writes, 128 + 4096 * at, base64.b64encode(data).decode())
            reading = here.read(commands, reads, 128 + 4096 * at, 64)
            here.synchronize(commands, context.patience_s)
            found = base64.b64decode(here.fetch(reading))
            expect(found == data, "bytes written through one import are not read through the other",
                   Symptom.OTHER_BYTES)
        return
    order, value = here.new_list(), value_of(case.handle_type)   # one list: some devices have few queues
    for first_signals in (True, False):
        # An object for each direction: on some devices a wait does not reset a binary semaphore.
        semaphore = context.semaphore(case.handle_type)
        with context.exporter.export_semaphore(semaphore.there, context.importer_uuid) as desc:
            again = here.import_semaphore(desc)
        signals, waits = (semaphore.here, again) if first_signals else (again, semaphore.here)
        here.signal(order, [signals], [value])   # first, because some devices allow no wait before its signal
        here.wait(order, [waits], [value])
        here.synchronize(order, context.patience_s)


@check("XSEM-OWN-009")
def import_outlives_the_exporters_object(context: CaseContext, case: Case) -> None:
    """The exporter releases its object. The import still works, and memory keeps its bytes."""
    if case.kind == "memory":
        _memory_outlives(context, case)
        return
    semaphore, value = context.semaphore(case.handle_type), value_of(case.handle_type)
    context.exporter.release(semaphore.there)
    order = context.device.create_command_list()   # one: some devices have few queues
    order.append_signal(context.here.get(semaphore.here), value)
    order.append_wait(context.here.get(semaphore.here), value)
    order.synchronize(timeout_s=context.patience_s)


def _memory_outlives(context: CaseContext, case: Case) -> None:
    shared, here = context.memory(type=case.handle_type), context.here
    exporter, _ = context.ends(IN)
    writes = exporter.new_list()
    exporter.write(writes, shared, b"\x20" * 64, 4096)
    exporter.finish(writes, "a copy")
    context.exporter.release(shared.there)
    commands = here.new_list()
    here.write(commands, shared.here, 0, base64.b64encode(b"\x21" * 64).decode())
    readings = [here.read(commands, shared.here, at, 64) for at in (0, 4096)]
    here.synchronize(commands, context.patience_s)
    written, kept = (base64.b64decode(here.fetch(each)) for each in readings)
    expect(written == b"\x21" * 64, "the memory lost the written bytes", Symptom.OTHER_BYTES)
    expect(kept == b"\x20" * 64, "the memory lost the bytes of the exporter", Symptom.OTHER_BYTES)


# ---- release
@check("XSEM-LIFE-002")
def release_with_a_pending_wait_returns_at_once(context: CaseContext, case: Case) -> None:
    """Release returns at once, also a second time, and the pending wait is met."""
    producer, device = context.ends(IN)
    semaphore, value = context.semaphore(case.handle_type), value_of(case.handle_type)
    imported = context.here.get(semaphore.here)
    commands, signals = context.device.create_command_list(), producer.new_list()
    with held(producer, device, signals, case.handle_type, lambda: producer.signal(signals, semaphore, value)) as hold:
        commands.append_wait(imported, value)
        began = time.monotonic()
        imported.release()
        imported.release()
        expect(time.monotonic() - began < AT_ONCE_S, "release waited for the pending wait")
        hold.pending(commands.query, "a wait whose semaphore was released")
    commands.synchronize(timeout_s=context.patience_s)
    commands.release()
    producer.release(signals)
    _release_behind_a_held_signal_keeps_it(context, case)


def _release_behind_a_held_signal_keeps_it(context: CaseContext, case: Case) -> None:
    """The exporter receives a signal that was held behind a wait when its semaphore was released."""
    producer, device = context.ends(IN)
    gate, semaphore = context.semaphore(case.handle_type), context.semaphore(case.handle_type)
    value = value_of(case.handle_type)
    commands, signals = context.device.create_command_list(), producer.new_list()
    with held(producer, device, signals, case.handle_type, lambda: producer.signal(signals, gate, value)) as hold:
        commands.append_wait(context.here.get(gate.here), value)
        commands.append_signal(context.here.get(semaphore.here), value)
        began = time.monotonic()
        context.here.get(semaphore.here).release()
        expect(time.monotonic() - began < AT_ONCE_S, "release waited for the signal that is held back")
        hold.pending(commands.query, "a signal behind a wait")
    commands.synchronize(timeout_s=context.patience_s)
    waits = producer.new_list()
    producer.wait(waits, semaphore, value)
    producer.finish(waits, "the exporter's wait for a signal whose semaphore was released")


@check("XSEM-LIFE-003")
def memory_released_behind_a_wait_is_still_used(context: CaseContext, case: Case) -> None:
    """Copies behind a pending wait run after the release of their memory. Then only the exporter changes the bytes."""
    for type in context.shared_types():
        _memory_is_released_behind_a_wait(context, case, type)


def _memory_is_released_behind_a_wait(context: CaseContext, case: Case, type: str) -> None:
    producer, device = context.ends(IN)
    semaphore, memory, value = context.semaphore(type), context.memory(type=case.handle_type), value_of(type)
    waits, writes = device.new_list(), producer.new_list()

    def submit() -> None:
        producer.write(writes, memory, b"\x77" * 64)
        producer.signal(writes, semaphore, value, memory)

    with held(producer, device, writes, type, submit) as hold:
        device.wait(waits, semaphore, value, memory)
        reading = device.read(waits, memory, 64)
        device.write(waits, memory, b"\x78" * 64, 1024)
        began = time.monotonic()
        context.here.release(memory.here)
        expect(time.monotonic() - began < AT_ONCE_S, "release waited for the pending wait")
        hold.pending(lambda: device.done(waits), "a copy of released memory behind a wait")
    device.finish(waits, "the copies behind the wait")
    expect(device.fetch(reading) == b"\x77" * 64, "the copy from the released memory read other bytes",
           Symptom.OTHER_BYTES)
    expect(measures.read_there(context, memory, 64, 1024) == b"\x78" * 64,
           "the copy to the released memory does not reach the exporter", Symptom.OTHER_BYTES)
    context.let_go()
    left = context.device.releasing()
    expect(not left, f"after the copies, the device does not free {', '.join(left)}")
    producer.write(writes, memory, b"\x79" * 2048)
    producer.finish(writes, "a copy")
    time.sleep(SETTLE_S)
    expect(measures.read_there(context, memory, 2048) == b"\x79" * 2048,
           "bytes of the exporter changed after the device released the memory", Symptom.OTHER_BYTES)
    for end, commands in ((device, waits), (producer, writes)):
        end.release(commands)   # some devices have few queues


@check("XSEM-LIFE-004")
def imported_again_it_has_the_state_of_now(context: CaseContext, case: Case) -> None:
    """After release and a new import, waits find the current state of the object, not an older or an initial state."""
    semaphore, value = context.semaphore(case.handle_type), value_of(case.handle_type)
    commands = context.device.create_command_list()
    commands.append_signal(context.here.get(semaphore.here), value)
    commands.append_wait(context.here.get(semaphore.here), value)
    commands.synchronize(timeout_s=context.patience_s)
    context.here.release(semaphore.here)
    with context.exporter.export_semaphore(semaphore.there, context.importer_uuid) as desc:
        again = context.here.get(context.here.import_semaphore(desc))
    unused = context.semaphore(case.handle_type)
    with context.exporter.export_semaphore(unused.there, context.importer_uuid) as desc:
        fresh = context.here.get(context.here.import_semaphore(desc))
    producer, device = context.ends(IN)
    signals = producer.new_list()
    for there, here, wanted, what in ((semaphore, again, None if value is None else 2, "a wait after a new import"),
                                      (unused, fresh, value, "a wait for a new object, where another was signalled,")):
        with held(producer, device, signals, case.handle_type,
                  functools.partial(producer.signal, signals, there, wanted)) as hold:
            commands.append_wait(here, wanted)
            hold.pending(commands.query, what)
        commands.synchronize(timeout_s=context.patience_s)
    commands.release()   # some devices have few queues
    _signalled_before_it_was_imported_again(context, case)


def _signalled_before_it_was_imported_again(context: CaseContext, case: Case) -> None:
    """An import does not change the state: a signal from before it meets a wait."""
    semaphore, value = context.semaphore(case.handle_type), value_of(case.handle_type)
    commands = context.device.create_command_list()
    commands.append_signal(context.here.get(semaphore.here), value)
    commands.synchronize(timeout_s=context.patience_s)
    context.here.release(semaphore.here)
    with context.exporter.export_semaphore(semaphore.there, context.importer_uuid) as desc:
        again = context.here.get(context.here.import_semaphore(desc))
    commands.append_wait(again, value)
    try:
        commands.synchronize(timeout_s=context.patience_s)
    except xsem.WaitTimeoutError as error:
        raise BrokenError("a wait after a new import misses the signal before the import") from error


_MARK: Final = "XSEM_CONFORMANCE_MARK"
_TWO_DRIVERS = """
import sys
from xsem.plugins import registry
one, two = (registry().get(sys.argv[1]).open(int(sys.argv[2])) for _ in range(2))
one.close()
queue = two.create_queue()
fence = queue.append_barrier((), True)
if not two.wait_fence(fence, int(float(sys.argv[3]) * 1e9)):
    sys.exit("a barrier is not done")
two.release_fence(fence)
queue.close()
two.close()
"""


@check("XSEM-LIFE-007", deadline_s=60)
def device_is_opened_again_and_again(context: CaseContext, case: Case) -> None:
    """A driver works after the close of another driver, each close returns, and no file and no thread remains."""
    # A driver may fill a cache once. Only a count that grows in two successive series of openings is a leak.
    info = context.device.info
    with xsem.open_device(info) as one, xsem.open_device(info) as two:
        for each in (one, two):
            each.create_command_list().synchronize(timeout_s=context.patience_s)
        one.release()
        soon(lambda: not one.releasing(), "the close of a device does not return", context.patience_s, None)
        two.create_command_list().synchronize(timeout_s=context.patience_s)
    soon(lambda: not two.releasing(), "the close of a device does not return", context.patience_s, None)
    _open_and_close(context)
    # The driver of the case was open before all others.
    _complete_one(context, context.driver)
    settled(handles.threads, context.patience_s)   # a thread that ends later would hide one that stays
    stays_level(lambda: _open_and_close(context), 20, context.patience_s, "twenty openings", FILES, THREADS)
    # In a new process, the two openings are the first calls of `open`.
    # A file, because a child of this process would keep a pipe open. The child inherits the mark.
    mark = uuid.uuid4().hex
    with tempfile.TemporaryFile() as said:
        done = subprocess.run([*python(), "-c", _TWO_DRIVERS, info.backend, str(info.index), str(context.patience_s)],  # noqa: S603
                              stdin=subprocess.DEVNULL, stdout=said, stderr=said, check=False,
                              env={**os.environ, _MARK: mark}, timeout=30 + context.patience_s)
        said.seek(0)
        printed = said.read().decode(errors="replace")[-300:]
    expect(done.returncode == 0,
           f"in a new process, a driver does not work after the close of the driver before it: {printed}")
    deadline = time.monotonic() + context.patience_s
    while left := handles.processes_with(f"{_MARK}={mark}"):
        expect(time.monotonic() < deadline, "the opening of the device left a process behind its own process: "
                                            + "; ".join(f"{pid} ({command})" for pid, command in left.items()))
        time.sleep(0.01)


def _open_and_close(context: CaseContext) -> None:
    """Open a driver, complete one operation on a queue, use a host buffer, and close the driver."""
    info = context.device.info
    driver = registry().get(info.backend).open(info.index)
    _complete_one(context, driver)
    if isinstance(driver, HostMemory):
        driver.release_host_buffer(driver.host_buffer(4096)[0])
    driver.close()


def _complete_one(context: CaseContext, driver: DeviceDriver) -> None:
    """Complete one operation on a new queue of a driver."""
    commands = driver.create_queue()
    driver_use.finish(driver, commands, commands.append_barrier((), True), "a barrier", context.patience_s,
                      Symptom.BARRIER_NOT_DONE)
