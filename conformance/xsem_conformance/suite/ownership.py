"""Ownership of handles: the reported state of a handle is true, and a driver closes only its own descriptors."""

from __future__ import annotations

import contextlib
import re
import time
from typing import Final, get_args

import xsem
from xsem.data.handles import OwnedHandle
from xsem.spi import HandleState, ImportFailure, Token
from xsem.types import MemoryDesc, MemoryHandleType, OsHandleKind, SemaphoreDesc, SemaphoreHandleType
from xsem_conformance.case import driver_use, measures
from xsem_conformance.case.canaries import Canaries
from xsem_conformance.case.case_participant import Shared
from xsem_conformance.case.context import IN, CaseContext, gets_through, value_of
from xsem_conformance.case.direct import Given, close_host_objects, duplicate
from xsem_conformance.case.holding import held
from xsem_conformance.case.leaks import FILES, stays_level
from xsem_conformance.case.polling import soon
from xsem_conformance.checks import check
from xsem_conformance.outcomes import BrokenError, Case, Symptom, expect
from xsem_conformance.system import handles

_AT_ONCE: Final = 3
"""Number of imports at the same time: a faulty driver may treat only the first import correctly."""

_IMPORTS: Final = 2000
_IMPORTS_S: Final = 15.0
"""A driver with slow imports makes fewer than `_IMPORTS`: slowness is not a fault."""

_FREED_S: Final = 10.0
"""Minimum limit for the free of unused objects: with a short patience, a busy machine frees them too late."""


# ---- a successful import
@check("XSEM-OWN-004")
def driver_says_what_became_of_an_imported_handle(context: CaseContext, case: Case) -> None:
    """The reported state of the handle is true after the import, and remains true until the release of the object."""
    # After "left" and "unknown", the suite closes the handle, as the facade does. The suite then opens another file at
    # each free number, and the driver must not close this file. After "taken", the driver closes the number, at the
    # latest at the release of the object.
    with Canaries() as canaries, contextlib.ExitStack() as kept:
        made = [_imported(context, case, canaries, kept) for _ in range(_AT_ONCE)]
        for shared, token, _ in made:
            driver_use.works(context, case, token, shared)
        for _, token, _ in made:
            driver_use.release(context, token, case.kind)
        for _, _, given in made:
            if given.state == "taken":
                soon(lambda given=given: not given.is_open(),   # type: ignore[misc]
                     "the driver reports that it took the handle, but never closes it", context.patience_s, None)
        expect(not canaries.lost(), f"the driver reports the state {made[0][2].state!r} of the handle, and closes the "
               f"number of the handle a second time: it closed another file at the numbers {canaries.lost()}",
               Symptom.CLOSED_TWICE)


def _imported(
    context: CaseContext, case: Case, canaries: Canaries, kept: contextlib.ExitStack
) -> tuple[Shared, Token, Given]:
    shared = context.object_of(case)
    desc = context.exported(case, shared)
    with desc:
        given = kept.enter_context(duplicate(desc))
        number = given.handle.fileno()
        token = given.imported_by(context.driver, desc)
        alive = given.is_open()
        expect(given.state in get_args(HandleState), f"the driver reports the state {given.state!r} of the handle")
        expect(alive or given.state != "left", "the driver reports that it left the handle, but closed it")
        assert isinstance(desc.handle, OwnedHandle)
        expect(handles.is_open(desc.handle.fileno()), "the caller's own handle was closed")
    if not (alive and given.state == "taken"):   # that number belongs to the driver
        if given.state != "taken":
            given.close()
        canaries.plant(number)
    return shared, token, given


@check("XSEM-OWN-007")
def nt_handle_stays_the_callers(context: CaseContext, case: Case) -> None:
    """After an import, the NT handle is open. After the close of the handle, the import works."""
    shared = context.object_of(case)
    desc = context.exported(case, shared)
    with desc, duplicate(desc) as given:
        token = given.imported_by(context.driver, desc)
        expect(given.is_open(), "the driver closed an NT handle at its import")
        given.handle.close()
    driver_use.works(context, case, token, shared)
    driver_use.release(context, token, case.kind)


@check("XSEM-OWN-006", deadline_s=60)
def imports_and_releases_leave_nothing(context: CaseContext, case: Case) -> None:
    """Fifty imports with use and release leave the same number of descriptors, and the same files, as before."""
    # Two thousand imports of one object follow, each with a release and without use.
    # A driver may fill a cache once. Only a count that grows in two successive series is a leak. After each import, the
    # suite opens another file at the number that xsem has closed. The release of the object must not close this file.
    def once() -> None:
        with Canaries() as canaries:
            if case.kind == "memory":
                _memory_once(context, case.handle_type, canaries)
            else:
                _semaphore_once(context, case.handle_type, canaries)
            context.let_go()
            expect(not canaries.lost(), "the release of an imported object closed the file of another owner",
                   Symptom.CLOSED_TWICE)

    for _ in range(5):
        once()
    context.let_go(max(_FREED_S, context.patience_s))   # the comparison must not include descriptors of these objects
    before = handles.opened()
    stays_level(once, 50, context.patience_s, "50 imports and releases", FILES)
    with context.exported(case, context.object_of(case)) as desc:
        ends = time.monotonic() + _IMPORTS_S
        stays_level(lambda: time.monotonic() < ends and _import_again(context, case, desc), _IMPORTS,
                    context.patience_s, f"up to {_IMPORTS} imports and releases of one object", FILES)
    now = handles.opened()
    changed = sorted(number for number, file in before.items() if now.get(number) != file)
    expect(not changed, f"the file descriptors {changed}, open before the imports, are closed or other files")


def _import_again(context: CaseContext, case: Case, desc: SemaphoreDesc | MemoryDesc) -> bool:
    if desc.type in context.device.capabilities.bridged:
        return False   # the driver itself has no such semaphore
    with duplicate(desc) as given:
        token = given.imported_by(context.driver, desc)
    driver_use.release(context, token, case.kind)
    close_host_objects(token)
    return True


def _memory_once(context: CaseContext, type: str, canaries: Canaries) -> None:
    least = canaries.before_import()
    memory = context.memory(type=type)
    canaries.plant(least)
    commands = context.here.new_list()
    reading = context.here.read(commands, memory.here, 0, 64)
    context.here.synchronize(commands, context.patience_s)
    for each in (reading, commands, memory.here):
        context.here.release(each)
    context.exporter.release(memory.there)


def _semaphore_once(context: CaseContext, type: str, canaries: Canaries) -> None:
    least = canaries.before_import()
    semaphore, value = context.semaphore(type), value_of(type)
    canaries.plant(least)
    commands = context.here.new_list()
    context.here.signal(commands, [semaphore.here], [value])
    context.here.synchronize(commands, context.patience_s)
    for each in (commands, semaphore.here):
        context.here.release(each)
    context.exporter.release(semaphore.there)


# ---- a refused import
@check("XSEM-OWN-005")
def driver_says_what_became_of_a_refused_handle(context: CaseContext, case: Case) -> None:
    """The driver refuses handles of the wrong kind with `ImportFailure`. The reported state of each handle is true."""
    with Canaries() as canaries:
        for what, number in handles.others():
            _refused(context, case, number, what)
            canaries.plant(number)
        _refused(context, case, handles.null(), "the null device")
        expect(not canaries.lost(), "after a refused import the driver closed the file of another owner",
               Symptom.CLOSED_TWICE)


@check("XSEM-OWN-011", deadline_s=60)
def refused_imports_leave_nothing(context: CaseContext, case: Case) -> None:
    """Twenty refusals of each misfit leave as many descriptors, threads and mappings of portable objects as before."""
    for what, desc in measures.misfits(context, case.kind, case.handle_type):
        measures.refusals_leave_nothing(context, what, desc)


@check("XSEM-IMP-003")
def handles_of_other_things_are_refused(context: CaseContext, case: Case) -> None:
    """A pipe, a directory, a socket and /dev/null are each refused."""
    for what, number in handles.others():
        _refused(context, case, number, what)


_REFUSALS: Final = (xsem.BadHandleError, xsem.BadArgumentError, xsem.UnsupportedError, xsem.OutOfMemoryError,
                    xsem.DriverError)
"""The classes for a bad handle: some drivers answer it with a code for no support, no memory or no reason."""


@check("XSEM-ERR-001")
def refusal_carries_an_error_of_xsems(context: CaseContext, case: Case) -> None:
    """Each refusal of a bad handle has a fitting class, a message, an identifier as reason, and call with code."""
    # The case also tries each declared type of memory.
    memories = [Case(case.requirement, each.value, kind="memory") for each in context.device.capabilities.memory_import
                if each.os_handle_kind in (OsHandleKind.FD, OsHandleKind.NT)]
    for each, (what, number) in ((each, other) for each in (case, *memories) for other in handles.others()):
        error = _refused(context, each, number, what)
        earlier = isinstance(error, xsem.DeviceLostError) or getattr(error, "from_earlier_work", False)
        expect(isinstance(error, _REFUSALS), f"{what}: the refusal is {error!r}, of no class for a bad handle")
        expect(not earlier, f"{what}: the refusal is {error!r}, a failure of earlier work")
        expect(str(error).strip(), f"{what}: the refusal has no message")
        expect(isinstance(error.reason, str) and re.fullmatch(r"[a-z][a-z0-9_]*", error.reason),
               f"{what}: the reason of the refusal is {error.reason!r}, not an identifier")
        expect((error.call is None) == (error.code is None), f"{what}: the refusal names only one of call and code")


@check("XSEM-ERR-002")
def device_is_as_before_after_a_refused_import(context: CaseContext, case: Case) -> None:
    """After refused imports, pending work continues, and a valid handle imports and synchronises in both directions."""
    semaphore, value = context.semaphore(case.handle_type), value_of(case.handle_type)
    producer, device = context.ends(IN)
    waits, signals = device.new_list(), producer.new_list()
    with held(producer, device, signals, case.handle_type, lambda: producer.signal(signals, semaphore, value)) as hold:
        device.wait(waits, semaphore, value)
        for what, number in handles.others():
            _refused(context, case, number, what)
        hold.pending(lambda: device.done(waits), "a wait during a refused import")
    device.finish(waits, "a wait during a refused import")
    for each, commands in ((device, waits), (producer, signals)):
        each.release(commands)
    for one, other in ((producer, device), (device, producer)):
        gets_through(one, other, context.semaphore(case.handle_type), case.handle_type, value)


def _refused(context: CaseContext, case: Case, number: int, what: str) -> xsem.XsemError:
    """Pass a handle of another file to the driver. Check the reported state, and return the error of the refusal."""
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
            expect(given.state in get_args(HandleState), f"{what}: the driver reports the state {given.state!r}")
            if not isinstance(failure.error, xsem.XsemError):
                raise BrokenError(f"{what}: the error is {failure.error!r}, not an error of xsem") from failure
            return failure.error
        except Exception as error:
            raise BrokenError(f"{what}: raised {error!r}, not ImportFailure") from error
    raise BrokenError(f"the driver imported {what}")
