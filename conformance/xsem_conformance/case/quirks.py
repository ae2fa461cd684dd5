"""Measure the behaviour that the rules leave open; the report states it as facts, not as verdicts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from xsem.data.handles import OwnedHandle
from xsem.errors import XsemError
from xsem.spi import ImportFailure
from xsem.types import OsHandleKind, SemaphoreDesc, SemaphoreHandleType, SemaphoreKind
from xsem_conformance.case import measures
from xsem_conformance.case.context import CaseContext, value_of
from xsem_conformance.case.direct import Given, duplicate
from xsem_conformance.case.polling import SETTLE_S
from xsem_conformance.case.remote_participant import ParticipantFailedError
from xsem_conformance.outcomes import BlockedError, NotDeclaredError
from xsem_conformance.system import handles

__all__ = ["QUIRKS", "measure"]

_NOT_FIRST: Final[dict[str, Any]] = {"not_known": "the device declares no wait before its signal"}

def measure(context: CaseContext) -> dict[str, Any]:
    """Return every quirk by name, as data; ``{"not_known": reason}`` if the measurement is not possible."""
    found: dict[str, Any] = {}
    for name, quirk in QUIRKS.items():
        with context.fresh():
            try:
                found[name] = quirk(context)
            except (BlockedError, NotDeclaredError, ParticipantFailedError, XsemError, AssertionError) as error:
                found[name] = {"not_known": str(error)}
    return found


def _types(context: CaseContext, kind: SemaphoreKind) -> list[SemaphoreHandleType]:
    return sorted((each for each in context.device.capabilities.semaphore_import if each.kind is kind),
                  key=lambda each: (each.portable, each.value))


def resets_on_wait(context: CaseContext) -> dict[str, Any]:
    """Return for each binary type whether a met wait resets, so that the next wait is pending."""
    early = context.device.capabilities.wait_before_signal
    return {type.value: _resets(context, type.value) if type in early else _NOT_FIRST
            for type in _types(context, SemaphoreKind.BINARY)}


def _resets(context: CaseContext, type: str) -> bool:
    shared, here = context.semaphore(type), context.here
    first, second, signals = here.new_list(), here.new_list(), here.new_list()
    here.signal(signals, [shared.here], [None])
    here.synchronize(signals, context.patience_s)
    here.wait(first, [shared.here], [None])
    here.synchronize(first, context.patience_s)
    if not context.device.capabilities.resets_on_wait:
        here.get(shared.here).mark_reset()   # otherwise the facade refuses the second wait
    here.wait(second, [shared.here], [None])
    time.sleep(SETTLE_S)
    pending = not here.done(second)
    if pending:
        here.signal(signals, [shared.here], [None])
        here.synchronize(second, context.patience_s)
    return pending


def wait_before_signal(context: CaseContext) -> dict[str, bool]:
    """Return for each type whether a wait appended before its signal is submitted stays pending until the signal."""
    found = {}
    for type in sorted(context.device.capabilities.semaphore_import):
        if type not in context.device.capabilities.wait_before_signal:
            found[type.value] = False
            continue
        shared, value = context.semaphore(type.value), value_of(type.value)
        waits = context.here.new_list()
        context.here.wait(waits, [shared.here], [value])
        time.sleep(SETTLE_S)
        pending = not context.here.done(waits)
        context.exporter.host_signal(shared.there, value)
        context.here.synchronize(waits, context.patience_s)
        found[type.value] = pending
    return found


def pending_appends(context: CaseContext) -> int | dict[str, Any]:
    """Return the number of appends to the driver behind an unmet wait that return at once."""
    type = _preferred(context)
    if type is None:
        return _NOT_FIRST
    at_once = measures.pending_appends(context, type, measures.MOST_APPENDS)
    return at_once if at_once < measures.MOST_APPENDS else {"at_least": measures.MOST_APPENDS}


def fd_after_failed_import(context: CaseContext) -> dict[str, dict[str, Any]]:
    """Return for each fd type the reported state of a refused file descriptor, and whether it is open."""
    found: dict[str, dict[str, Any]] = {}
    for type in sorted(context.device.capabilities.semaphore_import):
        if type.os_handle_kind.value != "fd" or type.portable:   # xsem opens a portable object
            continue
        with Given(OwnedHandle(handles.null())) as given:
            desc = SemaphoreDesc(type=type, handle=given.handle, device_uuid=context.device.info.uuid)
            try:
                context.driver.release_semaphore(given.imported_by(context.driver, desc))
                found[type.value] = {"imported": True}   # /dev/null
            except ImportFailure:
                found[type.value] = {"said": given.state, "open": given.is_open()}
    return found


def fd_after_import(context: CaseContext) -> dict[str, dict[str, Any]]:
    """Return for each fd type the reported state of an imported file descriptor, and whether it is open."""
    found = {}
    for type in sorted(each for each in context.device.capabilities.semaphore_import if not each.portable):
        shared = context.semaphore(type.value)
        with context.exporter.export_semaphore(shared.there, context.importer_uuid) as desc:
            with duplicate(desc) as given:
                token = given.imported_by(context.driver, desc)
                found[type.value] = {"said": given.state, "open": given.is_open()}
            context.driver.release_semaphore(token)
    return found


def kind_checked(context: CaseContext) -> dict[str, list[str]]:
    """Return for each type the handles of other kinds that the driver imports as a handle of that type."""
    found = {}
    for kind, types in (("semaphore", context.device.capabilities.semaphore_import),
                        ("memory", context.device.capabilities.memory_import)):
        for type in sorted(each.value for each in types if each.os_handle_kind is OsHandleKind.FD):
            found[f"{kind}.{type}"] = measures.other_sorts_taken(context, kind, type)
    return found


def size_checked(context: CaseContext) -> dict[str, bool]:
    """Return for each memory type whether the driver refuses sixteen times the exporter's size."""
    return {type: measures.size_is_checked(context, type) for type in _memories(context)}


def overlap_is_coherent(context: CaseContext) -> dict[str, bool]:
    """Return for each memory type whether a write through one of two overlapping mappings is read through the other."""
    found = {}
    for type in _memories(context):
        _, new, seen = measures.overlap(context, type)
        found[type] = seen == new
    return found


def _memories(context: CaseContext) -> list[str]:
    made = context.exported_memories()
    return sorted(each.value for each in context.device.capabilities.memory_import if each.value in made)


def timeline_goes_back(context: CaseContext) -> dict[str, Any]:
    """Return for each timeline type the value after a signal of 5 and a signal of 3."""
    return {type.value: measures.value_after_going_back(context, type.value) if context.exporter_reads(type.value) else
            {"not_known": "the exporter cannot read it"} for type in _types(context, SemaphoreKind.TIMELINE)}


def release_behind_a_wait(context: CaseContext) -> bool | dict[str, Any]:
    """Return whether the driver's release of an idle semaphore blocks beside a pending wait for another semaphore."""
    type = _preferred(context)
    return _NOT_FIRST if type is None else measures.release_is_held(context, type)


def free_behind_a_wait(context: CaseContext) -> bool | dict[str, Any]:
    """Return whether the driver's release of mapped memory blocks while a wait is pending."""
    if not context.device.capabilities.memory_import:
        return {"not_known": "the device imports no memory"}
    return _NOT_FIRST if _preferred(context) is None else measures.free_is_held(context)


def wake_up(context: CaseContext) -> float | dict[str, Any]:
    """Return the shortest of several times from a signal of the exporter's host to the end of a pending wait, in ms."""
    type = _preferred(context)
    return _NOT_FIRST if type is None else round(measures.wake_up_s(context, type) * 1e3, 1)


def _preferred(context: CaseContext) -> str | None:
    """Return a type that allows a wait before its signal, or None."""
    early = context.device.capabilities.wait_before_signal
    types = [each for kind in (SemaphoreKind.TIMELINE, SemaphoreKind.BINARY) for each in _types(context, kind)
             if each in early]
    return types[0].value if types else None


QUIRKS: Final[dict[str, Callable[[CaseContext], Any]]] = {
    function.__name__: function for function in (
        resets_on_wait, wait_before_signal, pending_appends, fd_after_failed_import, fd_after_import, kind_checked,
        size_checked, overlap_is_coherent, timeline_goes_back, release_behind_a_wait, free_behind_a_wait, wake_up)
}
