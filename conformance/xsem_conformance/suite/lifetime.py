"""Import and release: the state of handles, the waits of a release, and leaks."""

from __future__ import annotations

import base64
import functools
import time
from typing import Final, get_args

import xsem
from xsem.data.handles import OwnedHandle
from xsem.spi import HandleState, ImportFailure
from xsem.types import MemoryDesc, MemoryHandleType, SemaphoreDesc, SemaphoreHandleType
from xsem_conformance.case.context import IN, CaseContext, value_of
from xsem_conformance.case.descriptors import count, is_open, null, others
from xsem_conformance.case.direct import Given, duplicate
from xsem_conformance.case.holding import held
from xsem_conformance.case.polling import soon
from xsem_conformance.checks import check
from xsem_conformance.outcomes import BrokenError, Case, expect

AT_ONCE_S: Final = 5.0
"""Seconds: far above the cost of a call, far below an unmet wait."""


# ---- import
@check("XSEM-IMP-001")
def declared_type_imports(context: CaseContext, case: Case) -> None:
    """An object of a declared type imports and works."""
    (_memory_imports if case.kind == "memory" else _semaphore_imports)(context, case)


def _semaphore_imports(context: CaseContext, case: Case) -> None:
    """A semaphore of a declared type imports, and the device can signal it."""
    semaphore, value = context.semaphore(case.handle_type), value_of(case.handle_type)
    _, device = context.ends(IN)
    commands = device.new_list()
    device.signal(commands, semaphore, value)
    device.finish(commands, "a signal of a semaphore just imported")


def _memory_imports(context: CaseContext, case: Case) -> None:
    """Memory of a declared type imports and maps, and has the size in its descriptor."""
    there, desc = context.peer.create_memory(case.handle_type, 1 << 16, context.importer)
    with desc:
        expect(desc.allocation_size >= 1 << 16, f"the exporter's descriptor says {desc.allocation_size} bytes")
        number = context.here.import_memory(desc)
    with context.here.get(number).map_buffer() as buffer:
        expect(buffer.size >= 1 << 16, f"the mapping of the whole memory has {buffer.size} bytes")
    context.peer.release(there)


@check("XSEM-IMP-002")
def two_imports_are_one_object(context: CaseContext, case: Case) -> None:
    """A signal or a write through one import arrives through the other."""
    if case.kind == "memory":
        shared = context.memory()
        with context.peer.export_memory(shared.there, context.importer) as memory_desc:
            other = context.here.import_memory(memory_desc)
        commands = context.here.new_list()
        context.here.write(commands, shared.here, 128, base64.b64encode(b"\x5a" * 64).decode())
        reading = context.here.read(commands, other, 128, 64)
        context.here.synchronize(commands, context.patience_s)
        found = base64.b64decode(context.here.fetch(reading))
        expect(found == b"\x5a" * 64, "bytes written through one import are not read through the other")
        return
    semaphore, value = context.semaphore(case.handle_type), value_of(case.handle_type)
    with context.peer.export_semaphore(semaphore.there, context.importer) as desc:
        again = context.here.get(context.here.import_semaphore(desc))
    order = context.device.create_command_list()   # one: some devices have few queues
    order.append_signal(context.here.get(semaphore.here), value)   # first: some waits are not allowed before it
    order.append_wait(again, value)
    order.synchronize(timeout_s=context.patience_s)


@check("XSEM-OWN-009")
def import_outlives_the_exporters_object(context: CaseContext, case: Case) -> None:
    """The exporter releases its object; the import still works."""
    if case.kind == "memory":
        shared = context.memory()
        context.peer.release(shared.there)
        commands = context.here.new_list()
        context.here.write(commands, shared.here, 0, base64.b64encode(b"\x21" * 64).decode())
        reading = context.here.read(commands, shared.here, 0, 64)
        context.here.synchronize(commands, context.patience_s)
        expect(base64.b64decode(context.here.fetch(reading)) == b"\x21" * 64, "the memory lost the written bytes")
        return
    semaphore, value = context.semaphore(case.handle_type), value_of(case.handle_type)
    context.peer.release(semaphore.there)
    order = context.device.create_command_list()   # one: some devices have few queues
    order.append_signal(context.here.get(semaphore.here), value)
    order.append_wait(context.here.get(semaphore.here), value)
    order.synchronize(timeout_s=context.patience_s)


@check("XSEM-OWN-006", deadline_s=60)
def imports_and_releases_leave_nothing(context: CaseContext, case: Case) -> None:
    """Fifty imports, used and released, leave at most five more descriptors than before: a driver may cache some."""
    def once() -> None:
        if case.kind == "memory":
            memory = context.memory()
            context.here.mapping(memory.here)
            context.here.release(memory.here)
            context.peer.release(memory.there)
            return
        semaphore, value = context.semaphore(case.handle_type), value_of(case.handle_type)
        imported = context.here.get(semaphore.here)
        commands = context.device.create_command_list()
        commands.append_signal(imported, value)
        commands.synchronize(timeout_s=context.patience_s)
        commands.release()
        context.here.release(semaphore.here)
        context.peer.release(semaphore.there)

    for _ in range(5):
        once()
    before = count()
    for _ in range(50):
        once()
    soon(lambda: count() <= before + 5, f"50 imports and releases left {count() - before} file descriptors open",
         context.patience_s)


# ---- ownership: calls of the driver itself
@check("XSEM-OWN-004")
def driver_says_what_became_of_an_imported_handle(context: CaseContext, case: Case) -> None:
    """The reported state of the handle is true after an import.

    If the state is "taken" and the handle stays open after the release of the object, XSEM-OWN-006 counts a leak.
    """
    memory = case.kind == "memory"
    shared = context.memory() if memory else context.semaphore(case.handle_type)
    desc = (context.peer.export_memory if memory else context.peer.export_semaphore)(shared.there, context.importer)
    with desc:
        with duplicate(desc) as given:
            token = given.imported_by(context.driver, desc)
            alive = given.is_open()
        (context.driver.release_memory if memory else context.driver.release_semaphore)(token)
        expect(given.state in get_args(HandleState), f"the driver reports the state {given.state!r} of the handle")
        expect(alive or given.state != "left", "the driver reports that it left the handle, but closed it")
        assert isinstance(desc.handle, OwnedHandle)
        expect(is_open(desc.handle.fileno()), "the caller's own handle was closed")


@check("XSEM-OWN-005")
def driver_says_what_became_of_a_refused_handle(context: CaseContext, case: Case) -> None:
    """The driver refuses a handle of the wrong kind with `ImportFailure`. The reported state of the handle is true."""
    _refused(context, case, null(), "/dev/null")


@check("XSEM-IMP-003")
def handles_of_other_things_are_refused(context: CaseContext, case: Case) -> None:
    """A pipe, a directory, a socket and /dev/null are each refused."""
    for what, number in others():
        _refused(context, case, number, what)


@check("XSEM-ERR-001")
def refusal_carries_an_error_of_xsems(context: CaseContext, case: Case) -> None:
    """The refusal of a bad handle has a reason, and call and code if a driver was called."""
    error = _refused(context, case, null(), "/dev/null")
    expect(error.reason and str(error), "the refusal has no reason or no message")
    expect((error.call is None) == (error.code is None), "the refusal names only one of call and code")


@check("XSEM-ERR-002")
def device_is_as_before_after_a_refused_import(context: CaseContext, case: Case) -> None:
    """After a refused import pending work continues, and a good handle imports and synchronises."""
    semaphore, value = context.semaphore(case.handle_type), value_of(case.handle_type)
    producer, device = context.ends(IN)
    waits, signals = context.device.create_command_list(), producer.new_list()
    another = context.semaphore(case.handle_type)
    with held(producer, device, signals, case.handle_type, lambda: producer.signal(signals, semaphore, value)) as hold:
        waits.append_wait(context.here.get(semaphore.here), value)
        _refused(context, case, null(), "/dev/null")
        hold.pending(waits.query, "a wait beside a refused import")
    waits.append_signal(context.here.get(another.here), value)
    waits.append_wait(context.here.get(another.here), value)
    waits.synchronize(timeout_s=context.patience_s)


def _refused(context: CaseContext, case: Case, number: int, what: str) -> xsem.XsemError:
    """Give the driver a handle of another file; check the reported state, and return the error of the refusal."""
    uuid = context.device.info.uuid
    with Given(OwnedHandle(number)) as given:
        desc: SemaphoreDesc | MemoryDesc
        if case.kind == "memory":
            memory = MemoryHandleType(case.handle_type)
            desc = MemoryDesc(type=memory, handle=given.handle, allocation_size=4096,
                              device_uuid=uuid if memory.device_bound else None)
        else:
            semaphore = SemaphoreHandleType(case.handle_type)
            desc = SemaphoreDesc(type=semaphore, handle=given.handle,
                                 device_uuid=uuid if semaphore.device_bound else None)
        try:
            given.imported_by(context.driver, desc)
        except ImportFailure as failure:
            alive = given.is_open()
            if given.state == "left":
                expect(alive, f"{what}: the driver reports that it left the handle, but closed it")
            elif given.state == "taken":
                expect(not alive, f"{what}: the driver reports that it took the handle, but left it open")
            if not isinstance(failure.error, xsem.XsemError):
                raise BrokenError(f"{what}: the error is {failure.error!r}, not an error of xsem") from failure
            return failure.error
        except Exception as error:
            raise AssertionError(f"{what}: raised {error!r}, not ImportFailure") from error
    raise AssertionError(f"the driver imported {what}")


# ---- release
@check("XSEM-LIFE-002")
def release_with_a_pending_wait_returns_at_once(context: CaseContext, case: Case) -> None:
    """Release returns at once, also a second time, and the pending wait is met."""
    producer, _ = context.ends(IN)
    semaphore, value = context.semaphore(case.handle_type), value_of(case.handle_type)
    imported = context.here.get(semaphore.here)
    _, device = context.ends(IN)
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
    producer.side.release(signals)   # some devices have few queues
    _release_behind_a_held_signal_keeps_it(context, case)


def _release_behind_a_held_signal_keeps_it(context: CaseContext, case: Case) -> None:
    """The exporter receives a signal that was held behind a wait when its semaphore was released."""
    producer, _ = context.ends(IN)
    gate, semaphore = context.semaphore(case.handle_type), context.semaphore(case.handle_type)
    value = value_of(case.handle_type)
    _, device = context.ends(IN)
    commands, signals = context.device.create_command_list(), producer.new_list()
    with held(producer, device, signals, case.handle_type, lambda: producer.signal(signals, gate, value)) as hold:
        commands.append_wait(context.here.get(gate.here), value)
        commands.append_signal(context.here.get(semaphore.here), value)
        context.here.get(semaphore.here).release()
        hold.pending(commands.query, "a signal behind a wait")
    commands.synchronize(timeout_s=context.patience_s)
    waits = producer.new_list()
    producer.wait(waits, semaphore, value)
    producer.finish(waits, "the exporter's wait for a signal whose semaphore was released")


@check("XSEM-LIFE-003")
def memory_released_behind_a_wait_is_still_read(context: CaseContext, case: Case) -> None:
    """A copy held behind a wait still runs after the release of its memory."""
    producer, device = context.ends(IN)
    type = context.some_type()
    semaphore, memory, value = context.semaphore(type), context.memory(), value_of(type)
    waits, writes = device.new_list(), producer.new_list()

    def submit() -> None:
        producer.write(writes, memory, b"\x77" * 64)
        producer.signal(writes, semaphore, value, memory)

    with held(producer, device, writes, type, submit) as hold:
        device.wait(waits, semaphore, value, memory)
        reading = device.read(waits, memory, 64)
        began = time.monotonic()
        context.here.release(memory.here)
        expect(time.monotonic() - began < AT_ONCE_S, "release waited for the pending wait")
        hold.pending(lambda: device.done(waits), "a copy of released memory behind a wait")
    device.finish(waits, "the copy behind the wait")
    expect(device.fetch(reading) == b"\x77" * 64, "the copy read other bytes")


@check("XSEM-LIFE-004")
def imported_again_it_has_the_state_of_now(context: CaseContext, case: Case) -> None:
    """After release and a new import, waits find the current state of the object, not an older or an initial state."""
    semaphore, value = context.semaphore(case.handle_type), value_of(case.handle_type)
    commands = context.device.create_command_list()
    commands.append_signal(context.here.get(semaphore.here), value)
    commands.append_wait(context.here.get(semaphore.here), value)
    commands.synchronize(timeout_s=context.patience_s)
    context.here.release(semaphore.here)
    with context.peer.export_semaphore(semaphore.there, context.importer) as desc:
        again = context.here.get(context.here.import_semaphore(desc))
    unused = context.semaphore(case.handle_type)
    with context.peer.export_semaphore(unused.there, context.importer) as desc:
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
    with context.peer.export_semaphore(semaphore.there, context.importer) as desc:
        again = context.here.get(context.here.import_semaphore(desc))
    commands.append_wait(again, value)
    try:
        commands.synchronize(timeout_s=context.patience_s)
    except xsem.WaitTimeoutError as error:
        raise AssertionError("a wait after a new import misses the signal before the import") from error


@check("XSEM-LIFE-007")
def device_is_opened_again_and_again(context: CaseContext, case: Case) -> None:
    """One of two drivers works after the other is closed; twenty openings leave at most five more descriptors."""
    info = context.device.info
    with xsem.open_device(info) as one, xsem.open_device(info) as two:
        one.create_command_list().synchronize(timeout_s=context.patience_s)
        one.release()
        two.create_command_list().synchronize(timeout_s=context.patience_s)
    before = count()
    for _ in range(20):
        with xsem.open_device(info) as device:
            device.create_command_list().synchronize(timeout_s=context.patience_s)
    soon(lambda: count() <= before + 5, f"twenty openings left {count() - before} file descriptors open",
         context.patience_s)
