"""Test that xsem refuses the undeclared capabilities of a device."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import xsem
from xsem.errors import UnsupportedError, XsemError
from xsem.types import (
    Capabilities,
    Feature,
    MemoryDesc,
    MemoryHandleType,
    MipmapDesc,
    OsHandleKind,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
)
from xsem_conformance.case.descriptors import null
from xsem_conformance.case.remote_participant import ParticipantFailedError
from xsem_conformance.outcomes import BlockedError, Outcome

if TYPE_CHECKING:
    from xsem_conformance.case.context import CaseContext

__all__ = ["declared", "refuses", "undeclared"]

_ANY: Final = uuid.UUID(int=0)
_IMAGE: Final = MipmapDesc(extent=(4, 4, 0), format="uint8", channels=4)
_KINDS: Final = ("semaphore_import", "semaphore_export", "memory_import", "memory_export")


def declared(capabilities: Capabilities, name: str) -> bool:
    """Return whether a capability such as ``semaphore_import:opaque_fd`` or ``feature:recording`` is declared."""
    kind, _, what = name.partition(":")
    members = capabilities.features if kind == "feature" else getattr(capabilities, kind)
    return what in {each.value for each in members}


def undeclared(capabilities: Capabilities) -> Iterator[str]:
    """Yield all undeclared capabilities of a device that `refuses` can test, in the form that `declared` takes."""
    types: dict[str, type[SemaphoreHandleType | MemoryHandleType]] = {
        kind: SemaphoreHandleType if kind.startswith("semaphore") else MemoryHandleType for kind in _KINDS}
    for kind, members in types.items():
        for member in members:
            if member not in getattr(capabilities, kind):
                yield f"{kind}:{member.value}"
    # MIPMAPPED_ARRAY includes IMAGE.
    implied = {Feature.IMAGE} if Feature.MIPMAPPED_ARRAY in capabilities.features else set()
    for feature in Feature:
        if feature not in capabilities.features | implied and feature is not Feature.NATIVE_CONTEXT:
            yield f"feature:{feature.value}"


def refuses(context: CaseContext, name: str) -> tuple[Outcome, str]:
    """Return UNSUPPORTED if xsem refuses the capability with UnsupportedError, otherwise FAIL; and the details.

    The call of a feature needs an object, for example a semaphore. If the device cannot get the object, no call is
    possible, and the outcome is also UNSUPPORTED.
    """
    kind, _, what = name.partition(":")
    try:
        call = _CALLS[kind](context, what)
    except (BlockedError, ParticipantFailedError, XsemError) as error:
        return Outcome.UNSUPPORTED, f"not declared; not asked: {error}"
    try:
        call()
    except UnsupportedError as error:
        if error.reason == "unsupported":
            return Outcome.UNSUPPORTED, "not declared; refused"
        return Outcome.FAIL, f"{name} is not declared, but was refused with the reason {error.reason}"
    except Exception as error:
        return Outcome.FAIL, f"{name} is not declared, but was refused with {error!r}, not UnsupportedError"
    return Outcome.FAIL, f"{name} is not declared, but the device did it"


def _import_semaphore(context: CaseContext, what: str) -> Callable[[], object]:
    type = SemaphoreHandleType(what)

    def call() -> None:
        with SemaphoreDesc(type=type, handle=_handle(type), device_uuid=_uuid(type)) as desc:
            context.device.import_semaphore(desc)

    return call


def _import_memory(context: CaseContext, what: str) -> Callable[[], object]:
    type = MemoryHandleType(what)

    def call() -> None:
        with MemoryDesc(type=type, handle=_handle(type), allocation_size=4096, dedicated=type.dedicated,
                        device_uuid=_uuid(type)) as desc:
            context.device.import_memory(desc)

    return call


def _handle(type: SemaphoreHandleType | MemoryHandleType) -> OwnedHandle | int:
    # A handle of the right OS kind, because the handle reaches the driver if xsem does not refuse the call.
    return OwnedHandle(null()) if type.os_handle_kind is OsHandleKind.FD else 4096


def _uuid(type: SemaphoreHandleType | MemoryHandleType) -> uuid.UUID | None:
    return _ANY if type.device_bound else None


def _create_semaphore(context: CaseContext, what: str) -> Callable[[], object]:
    return lambda: context.device.create_semaphore(SemaphoreHandleType(what))


def _create_memory(context: CaseContext, what: str) -> Callable[[], object]:
    return lambda: context.device.create_memory(MemoryHandleType(what), 4096)


def _feature(context: CaseContext, what: str) -> Callable[[], object]:
    here = context.here
    if what in ("host_signal", "host_wait", "read_value"):
        semaphore: xsem.Semaphore = here.get(context.semaphore(context.some_type()).here)
        return {"host_signal": lambda: semaphore.host_signal(1), "host_wait": lambda: semaphore.host_wait(1),
                "read_value": semaphore.value}[what]
    if what in ("image", "mipmapped_array"):
        memory: xsem.Memory = here.get(context.memory().here)
        return lambda: memory.map_mipmapped_array(
            _IMAGE if what == "image" else dataclasses.replace(_IMAGE, levels=2))
    if what == "recording":
        commands: xsem.CommandList = here.get(here.new_list())
        return commands.record
    return lambda: context.device.event(object())


_CALLS: Final[dict[str, Callable[[CaseContext, str], Callable[[], object]]]] = {
    "semaphore_import": _import_semaphore,
    "semaphore_export": _create_semaphore,
    "memory_import": _import_memory,
    "memory_export": _create_memory,
    "feature": _feature,
}
