"""Handles of every kind and number, and handles made for export."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import Any

import xsem
from xsem.data.handles import OwnedHandle
from xsem.errors import UnsupportedError
from xsem.types import MemoryDesc, MemoryHandleType, SemaphoreDesc, SemaphoreHandleType, SemaphoreKind
from xsem_conformance.case import driver_use, measures
from xsem_conformance.case.case_participant import Shared
from xsem_conformance.case.context import IN, CaseContext, bytes_arrive, value_of
from xsem_conformance.case.direct import Given
from xsem_conformance.case.polling import soon
from xsem_conformance.case.remote_participant import ParticipantFailedError
from xsem_conformance.checks import check
from xsem_conformance.outcomes import BlockedError, BrokenError, Case, Symptom, expect
from xsem_conformance.system import handles


# ---- import
# After NVIDIA's Vulkan driver refuses a semaphore's fd as memory, it refuses the next memory as well.
@check("XSEM-IMP-004", spoils=True)
def handle_of_another_sort_is_refused(context: CaseContext, case: Case) -> None:
    """The driver refuses each other kind of object in place of one of this type, and keeps nothing of it."""
    taken = measures.other_sorts_taken(context, case.kind, case.handle_type)
    expect(not taken, f"the driver imports as a {case.kind} of type {case.handle_type}: {', '.join(taken)}")
    for what, desc in measures.other_sorts(context, case.kind, case.handle_type):
        measures.refusals_leave_nothing(context, what, desc)


@check("XSEM-IMP-010")
def size_of_sixteen_times_the_memory_is_refused(context: CaseContext, case: Case) -> None:
    """The driver refuses the exporter's memory with sixteen times its allocation size."""
    expect(measures.size_is_checked(context, case.handle_type), "the driver accepts sixteen times the memory's size")


@check("XSEM-IMP-005")
def handle_number_0_is_one_as_any_other(context: CaseContext, case: Case) -> None:
    """A handle with the number 0 imports and works, and the reported state of the handle is true."""
    # After the import, the number 0 is standard input again. The release of the object does not close this number.
    shared = context.object_of(case)
    desc = context.exported(case, shared)
    assert isinstance(desc.handle, OwnedHandle)
    with desc, _number_0(desc.handle.fileno()) as put_back, Given(OwnedHandle(0)) as zero:
        token = zero.imported_by(context.driver, dataclasses.replace(desc, handle=zero.handle))
        kept = zero.is_open()
        # The caller closes the number, as the facade does: the import does not depend on the number.
        zero.close()
        expect(kept or zero.state != "left", "the driver reports that it left number 0, but closed it")
        put_back()
        before = handles.identity(0)
        driver_use.works(context, case, token, shared)
        driver_use.release(context, token, case.kind)
        expect((kept and zero.state == "taken") or before in (None, handles.identity(0)),
               f"the driver reports the state {zero.state!r} of the number 0, and closes the number a second time",
               Symptom.CLOSED_TWICE)


@contextlib.contextmanager
def _number_0(handle: int) -> Iterator[Callable[[], None]]:
    """Duplicate the handle to the number 0; yield a function that restores standard input once the number is free."""
    aside = os.dup(0) if handles.is_open(0) else None
    os.dup2(handle, 0)

    def put_back() -> None:
        # Another file, for example of the driver, may use the number in the meantime: it stays.
        if aside is not None and not handles.is_open(0):
            os.dup2(aside, 0)

    try:
        yield put_back
    finally:
        put_back()
        if aside is not None:
            os.close(aside)


@check("XSEM-IMP-009")
def dedicated_memory_and_shared_memory(context: CaseContext, case: Case) -> None:
    """Dedicated memory and shared memory import with their flag and show their bytes."""
    producer, device = context.ends(IN)
    type = MemoryHandleType(case.handle_type)
    flags = [True] if type.dedicated else [False] if type is MemoryHandleType.DMABUF_FD else [False, True]
    for dedicated in flags:
        there, desc = _allocated(context, type, dedicated)
        with desc:
            expect(desc.dedicated == dedicated, f"the exporter's descriptor says dedicated={desc.dedicated}")
            memory = Shared(context.here.import_memory(desc), there)
        bytes_arrive(producer, device, memory, bytes([0x31 + dedicated]) * 64, 1024)


def _allocated(context: CaseContext, type: MemoryHandleType, dedicated: bool) -> tuple[int, MemoryDesc]:
    try:
        return context.exporter.create_memory(type.value, 1 << 16, context.importer_uuid, dedicated)
    except ParticipantFailedError as error:
        if error.reason not in ("not_declared", "not_supported"):
            raise
        raise BlockedError(f"the exporter makes no memory with dedicated={dedicated}: {error}") from error


@check("XSEM-IMP-011")
def sync_file_minus_one_is_signalled(context: CaseContext, case: Case) -> None:
    """A wait for a sync file given as -1 is met at once."""
    desc = SemaphoreDesc(type=SemaphoreHandleType.SYNC_FD, handle=-1, device_uuid=context.device.info.uuid)
    commands = context.device.create_command_list()
    with context.device.import_semaphore(desc) as semaphore:
        commands.append_wait(semaphore)
        soon(commands.query, "a wait for the sync file -1 is not met", context.patience_s)


# ---- export
@check("XSEM-OWN-008")
def each_export_is_a_handle_of_its_own(context: CaseContext, case: Case) -> None:
    """Close three exports in turn: the other exports stay open, and an import of an open export is the same object."""
    # The third export is made after the close of the first export.
    round_trip = _memory_round_trip if case.kind == "memory" else _semaphore_round_trip
    with _made(context, case) as made:
        first, second = made.export(), made.export()
        with first, second:
            _close_one(first, second)
            round_trip(context, made, second, 1)
            with _export(made) as third:
                _close_one(second, third)
                round_trip(context, made, third, 2)
        with _export(made) as last:   # after the close of all other exports
            round_trip(context, made, last, 3)


def _made(context: CaseContext, case: Case) -> xsem.Semaphore | xsem.Memory:
    if case.kind == "memory":
        return context.device.create_memory(MemoryHandleType(case.handle_type), 1 << 16)
    return context.device.create_semaphore(SemaphoreHandleType(case.handle_type))


def _export(made: Any) -> Any:
    """Export the object again, after the close of earlier exports."""
    try:
        return made.export()
    except OSError as error:
        raise BrokenError(f"closing earlier exports makes a later one fail: {error}") from error


def _semaphore_round_trip(context: CaseContext, made: Any, desc: Any, turn: int) -> None:
    """Signal the object itself, then its import. The waits of the object itself are met."""
    type, order = desc.type.value, context.device.create_command_list()
    own, imported = value_of(type, 2 * turn - 1), value_of(type, 2 * turn)
    # Without a reset, each object takes one wait, so each new import waits for a signal of the object itself.
    repeats = desc.type.kind is not SemaphoreKind.BINARY or context.device.capabilities.resets_on_wait
    if repeats:
        order.append_signal(made, own)
        order.append_wait(made, own)
        order.synchronize(timeout_s=context.patience_s)
    try:
        other = context.device.import_semaphore(desc)
    except UnsupportedError:
        return   # the device exports this type, but does not import it
    with other:
        signals, waits = (other, made) if repeats else (made, other)
        order.append_signal(signals, imported)
        order.append_wait(waits, imported)
        order.synchronize(timeout_s=context.patience_s)
    order.release()   # some devices have few queues


def _memory_round_trip(context: CaseContext, made: Any, desc: Any, turn: int) -> None:
    """Fill the object itself. Its import shows the bytes."""
    order = context.device.create_command_list()
    with made.map_buffer(0, 256) as buffer:
        order.append_fill(buffer, bytes([0x59 + turn]))
        order.synchronize(timeout_s=context.patience_s)
    order.release()   # some devices have few queues
    try:
        other = context.device.import_memory(desc)
    except UnsupportedError:
        return
    with other, other.map_buffer(0, 256) as buffer:
        found = bytes(buffer.copy_to_host(timeout_s=context.patience_s).tobytes())
        expect(found == bytes([0x59 + turn]) * 256, "an import of an export is not the exported memory",
               Symptom.OTHER_BYTES)


def _close_one(closed: Any, kept: Any) -> None:
    one, other = closed.handle, kept.handle
    if not isinstance(one, OwnedHandle) or not isinstance(other, OwnedHandle):
        return   # no handle to close
    expect(one.fileno() != other.fileno(), "two exports have one handle: closing one closes the other")
    expect(not handles.inheritable(one.fileno()), "programs that the caller starts inherit an export")
    one.close()
    expect(handles.is_open(other.fileno()), "closing one export closed another")
