"""The backend's description of its devices, and the refusal of undeclared capabilities."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from typing import Final, TypeVar

import xsem
from xsem.cli.interpreter import python
from xsem.errors import BadArgumentError
from xsem.plugins import registry
from xsem.spi import BorrowedEvents, BorrowedQueues
from xsem.types import Capabilities, Feature, MemoryHandleType, OsHandleKind, SemaphoreHandleType
from xsem_conformance.case.context import IN, CaseContext, bytes_arrive, gets_through, value_of
from xsem_conformance.case.refusals import refuses, undeclared
from xsem_conformance.checks import check
from xsem_conformance.outcomes import BlockedError, BrokenError, Case, Outcome, expect

_Result = TypeVar("_Result")

_ANSWER = """
import json, os, sys
answer = open(os.dup(1), "w")
os.dup2(2, 1)   # the text that a plugin or a vendor's library prints is not part of the answer
"""
_LIST = _ANSWER + """
from xsem.plugins import registry
answer.write(json.dumps([repr(each) for each in registry().get(sys.argv[1]).devices()]))
answer.close()
"""

HEAVY: Final = (
    "numpy", "cuda", "pyopencl", "vulkan", "cffi", "torch", "cupy", "pytest", "argcomplete", "PIL")
"""Packages that `import xsem` and the registration of a plugin load only when they are needed."""
_OTHER_SYSTEM: Final = {OsHandleKind.FD} if sys.platform == "win32" else {OsHandleKind.NT, OsHandleKind.KMT}
"""Kinds of handles that this operating system does not have. NvSci exists on several systems."""
_LUID_SIZE: Final = 8


class _Wrapped:
    """A queue of another library whose native handle is not an int."""

    int_ptr = "queue"


_FOREIGN: Final = (
    ("an object", object()), ("a text", "native"), ("a float", 1.5), ("a lock", threading.Lock()),
    ("an object with a text as int_ptr", _Wrapped()),
)
"""Objects that do not belong to the API of a device."""

_REGISTER = _ANSWER + """
from importlib import metadata
from xsem.plugins import ENTRY_POINT_GROUP, Registry
_, group_name, backend, *heavy = sys.argv
registry = Registry(each for each in metadata.entry_points(group=ENTRY_POINT_GROUP) if each.name == group_name)
registry.load()
answer.write(json.dumps([backend in registry.backends, [each for each in heavy if each in sys.modules]]))
answer.close()
"""


@check("XSEM-DISC-001")
def list_of_devices_is_orderly_and_the_same_again(context: CaseContext, case: Case) -> None:
    """Name, index and id of each device are correct. A second list and the list of another process are equal."""
    # Lists are equal if all fields of all devices are equal.
    name = context.device.info.backend
    backend = registry().get(name)
    found = list(backend.devices())
    for position, each in enumerate(found):
        expect(each.index == position, f"{each.id} has index {each.index} at position {position}")
        expect(each.id == f"{name}:{each.index}", f"the device with index {each.index} is called {each.id}")
        expect(each.backend == name, f"{each.id} says that its backend is {each.backend}")
        expect(each.name.strip(), f"{each.id} has no name")
    expect(list(backend.devices()) == found, "a second listing of the devices differs from the first")
    done = _in_process(_LIST, name)
    expect(done.returncode == 0, f"another process cannot list the devices: {done.stderr[-300:]}")
    expect(json.loads(done.stdout) == [repr(each) for each in found],
           "the list of devices in another process differs")


@check("XSEM-DISC-002")
def uuids_are_unique(context: CaseContext, case: Case) -> None:
    """UUIDs, driver UUIDs and LUIDs are well formed, and no other device has the same UUID."""
    listed = xsem.devices(context.device.info.backend)
    for each in listed:
        for what, found in (("UUID", each.uuid), ("driver UUID", each.driver_uuid)):
            expect(found is None or isinstance(found, uuid.UUID), f"the {what} of {each.id} is {found!r}, not a UUID")
        expect(each.driver_uuid is None or each.driver_uuid.int, f"the driver UUID of {each.id} is zero")
        luid = each.luid
        expect(luid is None or (isinstance(luid, bytes) and len(luid) == _LUID_SIZE and any(luid)),
               f"the LUID of {each.id} is {luid!r}, not eight bytes with one that is not zero")
    given = [each.uuid for each in listed if each.uuid is not None]
    expect(all(each.int for each in given), "a device's UUID is zero")
    expect(len(set(given)) == len(given), "two devices have the same UUID")


@check("XSEM-DISC-003")
def exporter_tells_the_same_uuid(context: CaseContext, case: Case) -> None:
    """The exporter's device has the UUID of the device. Objects of the exporter with this UUID import and work."""
    about = context.exporter.about()
    expect(about["uuid"] == context.importer_uuid,
           f"the exporter's device is {about['uuid']}, the device {context.importer_uuid}")
    exporter, device = context.ends(IN)
    worked = 0
    for type in sorted(context.device.capabilities.semaphore_import):
        if type.device_bound and type.value in about["semaphore_export"]:
            shared = context.semaphore(type.value)
            gets_through(exporter, device, shared, type.value, value_of(type.value))
            worked += 1
    for memory in sorted(context.device.capabilities.memory_import):
        if memory.device_bound and memory.value in about["memory_export"]:
            bytes_arrive(exporter, device, context.memory(type=memory.value), b"\x42" * 64, 1024)
            worked += 1
    if not worked:
        raise BlockedError(f"{about['id']} exports no object bound to a device that the device imports")


@check("XSEM-DISC-004")
def registering_loads_nothing_heavy(context: CaseContext, case: Case) -> None:
    """In a fresh process only the backend's plugin is registered; sys.modules then has none of the heavy packages."""
    name = context.device.info.backend
    done = _in_process(_REGISTER, registry().backends[name].plugin, name, *HEAVY)
    expect(done.returncode == 0, f"the plugin cannot be registered in another process: {done.stderr[-300:]}")
    registered, loaded = json.loads(done.stdout)
    expect(registered, "the plugin registers no such backend in another process")
    expect(not loaded, f"registering the plugin imports {', '.join(loaded)}")


def _in_process(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*python(), "-c", program, *arguments], capture_output=True, text=True, errors="replace",  # noqa: S603
                          check=False, timeout=60)


@check("XSEM-DISC-005")
def checks_and_details_raise_nothing(context: CaseContext, case: Case) -> None:
    """`checks` and `details` raise no exception, and every check that is not ok states a remedy."""
    backend = registry().get(context.device.info.backend)
    for info in backend.devices():
        details = _calm(lambda info=info: backend.details(info.index), f"details of {info.id}")   # type: ignore[misc]
        expect(all(isinstance(each, str) for each in (*details, *details.values())),
               f"details of {info.id} contain a non-text")
    for each in _calm(backend.checks, "checks"):
        expect(each.name and each.detail, f"a check has no name or no detail: {each}")
        expect(each.ok or each.remedy, f"the check {each.name} is not ok and states no remedy")


def _calm(call: Callable[[], _Result], what: str) -> _Result:
    try:
        return call()
    except Exception as error:
        raise BrokenError(f"{what}: raised {error!r}") from error


@check("XSEM-CAP-001")
def capabilities_are_well_formed_and_constant(context: CaseContext, case: Case) -> None:
    """They have the right class and positive numbers, and are equal on each read."""
    found = context.driver.capabilities
    expect(isinstance(found, Capabilities), f"capabilities is a {type(found).__name__}")
    expect(found == context.driver.capabilities, "a second read of capabilities differs from the first")
    expect(found == context.device.capabilities, "two drivers of one device declare different capabilities")
    for field, members in (("semaphore_import", SemaphoreHandleType), ("semaphore_export", SemaphoreHandleType),
                           ("memory_import", MemoryHandleType), ("memory_export", MemoryHandleType),
                           ("features", Feature), ("wait_before_signal", SemaphoreHandleType)):
        declared = getattr(found, field)
        expect(isinstance(declared, frozenset), f"{field} is a {type(declared).__name__}, not a frozenset")
        # The classes count: opaque_fd of semaphores and opaque_fd of memory are equal as texts.
        wrong = sorted(repr(each) for each in declared if not isinstance(each, members))
        expect(not wrong, f"{field} contains {', '.join(wrong)}, which is not a {members.__name__}")
        foreign = sorted(each.value for each in declared
                         if not isinstance(each, Feature) and each.os_handle_kind in _OTHER_SYSTEM)
        expect(not foreign, f"{field} contains {', '.join(foreign)}, whose handles {sys.platform} does not have")
    for field in ("resets_on_wait", "append_never_blocks", "release_never_blocks", "needs_handover"):
        expect(type(getattr(found, field)) is bool, f"{field} is {getattr(found, field)!r}, not a bool")
    for field in ("independent_lists", "max_pending", "max_value_difference"):
        expect(type(getattr(found, field)) in (int, type(None)), f"{field} is {getattr(found, field)!r}, not an int")
    expect(found.independent_lists >= 1, "independent_lists is below 1")
    expect(found.max_pending is None or found.max_pending >= 1, "max_pending is below 1")
    expect(1 <= found.max_value_difference < 2**64, "max_value_difference is not within 1 to 2**64 - 1")
    expect(found.wait_before_signal <= found.semaphore_import | found.semaphore_export,
           "wait_before_signal names a type that is neither imported nor exported")
    context.driver.create_queue().close()
    expect(found == context.driver.capabilities, "the capabilities differ after the first queue")


@check("XSEM-CAP-002")
def undeclared_import_is_refused(context: CaseContext, case: Case) -> None:
    """The device refuses the import with UnsupportedError."""
    _refused(context, f"{case.kind}_import:{case.handle_type}")


@check("XSEM-CAP-003")
def undeclared_export_is_refused(context: CaseContext, case: Case) -> None:
    """The device refuses the creation with UnsupportedError."""
    _refused(context, f"{case.kind}_export:{case.handle_type}")


@check("XSEM-CAP-004")
def undeclared_feature_is_refused(context: CaseContext, case: Case) -> None:
    """The device refuses every undeclared feature with UnsupportedError."""
    for name in undeclared(context.device.capabilities):
        if name.startswith("feature:"):
            _refused(context, name)


@check("XSEM-CAP-006")
def foreign_objects_are_refused_by_name(context: CaseContext, case: Case) -> None:
    """The driver refuses foreign objects as context, stream or event, and 0 as stream. The reason is as specified."""
    backend, driver = registry().get(context.device.info.backend), context.driver
    for what, native in _FOREIGN:
        if Feature.NATIVE_CONTEXT in driver.capabilities.features:
            _raises(lambda native=native: backend.borrow(native),   # type: ignore[misc]
                    f"{what} as context", reason="bad_native")
        if isinstance(driver, BorrowedQueues):
            _raises(lambda native=native: driver.borrow_queue(native, True),   # type: ignore[misc]
                    f"{what} as stream", reason="not_a_stream")
        if isinstance(driver, BorrowedEvents):
            _raises(lambda native=native: driver.borrow_event(native),   # type: ignore[misc]
                    f"{what} as event", reason="not_an_event")
    if isinstance(driver, BorrowedQueues):
        _raises(lambda: driver.borrow_queue(0, True), "the int 0 as stream", reason="null_stream")


def _raises(call: Callable[[], object], what: str, *, reason: str) -> None:
    try:
        call()
    except BadArgumentError as error:
        expect(error.reason == reason, f"{what} is refused with the reason {error.reason}, not {reason}")
    except Exception as error:
        raise BrokenError(f"{what} is refused with {error!r}, not BadArgumentError") from error
    else:
        raise BrokenError(f"{what} is accepted")


def _refused(context: CaseContext, name: str) -> None:
    outcome, detail = refuses(context, name)
    expect(outcome is Outcome.UNSUPPORTED, detail)
