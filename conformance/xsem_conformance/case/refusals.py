"""Test that xsem refuses the undeclared capabilities of a device."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import xsem
from xsem.errors import UnsupportedError, XsemError
from xsem.types import (
    Capabilities,
    Feature,
    MemoryChunk,
    MemoryDesc,
    MemoryHandleType,
    MipmapDesc,
    OsHandleKind,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
)
from xsem_conformance.case.remote_participant import ParticipantFailedError
from xsem_conformance.outcomes import BlockedError, Outcome
from xsem_conformance.system import handles

if TYPE_CHECKING:
    from xsem_conformance.case.context import CaseContext

__all__ = ["declared", "refuses", "undeclared"]

_ANY: Final = uuid.UUID(int=0)
_IMAGE: Final = MipmapDesc(extent=(4, 4, 0), format="uint8", channels=4)
_BEYOND_IMAGE: Final = (
    dataclasses.replace(_IMAGE, levels=2),
    dataclasses.replace(_IMAGE, offset=1 << 12),
    dataclasses.replace(_IMAGE, layers=6, cubemap=True),
    dataclasses.replace(_IMAGE, color_attachment=True),
)
"""An image for each property that `Feature.IMAGE` excludes."""
_REASONS: Final = {"feature:memory_chunks": "several_allocations"}
"""The reasons that say more than "unsupported"."""
_Call: TypeAlias = Callable[[], object]
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
    # Without images, no call can ask for a copy of one.
    if capabilities.features.isdisjoint({Feature.IMAGE, Feature.MIPMAPPED_ARRAY}):
        implied = implied | {Feature.IMAGE_COPY}
    for feature in Feature:
        if feature not in capabilities.features | implied:
            yield f"feature:{feature.value}"


def refuses(context: CaseContext, name: str) -> tuple[Outcome, str]:
    """Return UNSUPPORTED if xsem refuses the capability with UnsupportedError, otherwise FAIL; and the details."""
    # The call of a feature needs an object, for example a semaphore. If the device cannot get the object, no call is
    # possible, and the outcome is also UNSUPPORTED.
    kind, _, what = name.partition(":")
    try:
        calls = _CALLS[kind](context, what)
    except (BlockedError, ParticipantFailedError, XsemError) as error:
        return Outcome.UNSUPPORTED, f"not declared; not asked: {error}"
    for call in calls:
        outcome, detail = _refuses(name, call)
        if outcome is not Outcome.UNSUPPORTED:
            return outcome, detail
    return Outcome.UNSUPPORTED, "not declared; refused"


def _refuses(name: str, call: _Call) -> tuple[Outcome, str]:
    try:
        call()
    except UnsupportedError as error:
        if error.reason in ("unsupported", _REASONS.get(name)):
            return Outcome.UNSUPPORTED, ""
        return Outcome.FAIL, f"{name} is not declared, but was refused with the reason {error.reason}"
    except Exception as error:
        return Outcome.FAIL, f"{name} is not declared, but was refused with {error!r}, not UnsupportedError"
    return Outcome.FAIL, f"{name} is not declared, but the device did it"


def _import_semaphore(context: CaseContext, what: str) -> Sequence[_Call]:
    type = SemaphoreHandleType(what)

    def call(**given: Any) -> None:
        with SemaphoreDesc(type=type, device_uuid=_uuid(type), **given) as desc:
            context.device.import_semaphore(desc)

    return [lambda: call(handle=_handle(type)), *_by_name(type, call),
            *_of_the_exporter(context, type, "semaphore_export",
                              lambda: context.exporter.create_semaphore(what, context.importer_uuid)[1],
                              context.device.import_semaphore)]


def _import_memory(context: CaseContext, what: str) -> Sequence[_Call]:
    type = MemoryHandleType(what)

    def call(**given: Any) -> None:
        with MemoryDesc(type=type, allocation_size=4096, dedicated=type.dedicated, device_uuid=_uuid(type),
                        **given) as desc:
            context.device.import_memory(desc)

    return [lambda: call(handle=_handle(type)), *_by_name(type, call),
            *_of_the_exporter(context, type, "memory_export",
                              lambda: context.exporter.create_memory(what, 4096, context.importer_uuid)[1],
                              context.device.import_memory)]


def _import_chunks(context: CaseContext) -> None:
    handles = [MemoryChunk(size=4096, handle=_handle(MemoryHandleType.OPAQUE_FD)) for _ in range(2)]
    with MemoryDesc(type="opaque_fd", allocation_size=8192, device_uuid=_ANY, chunks=handles) as desc:
        context.device.import_memory(desc)


def _by_name(type: SemaphoreHandleType | MemoryHandleType, call: Callable[..., None]) -> Iterator[_Call]:
    if type.os_handle_kind is OsHandleKind.NT:
        yield lambda: call(name="xsem-undeclared")


def _of_the_exporter(
    context: CaseContext, type: SemaphoreHandleType | MemoryHandleType, declared: str, made: Callable[[], Any],
    importing: Callable[[Any], object],
) -> Iterator[_Call]:
    """Yield the import of an object of a type, if the exporter creates such an object."""
    try:
        if type.value not in context.exporter.about()[declared]:
            return
        desc = made()
    except (BlockedError, ParticipantFailedError):
        return   # without the exporter's object, the other calls remain

    def call() -> None:
        with desc:
            importing(desc)

    yield call


def _handle(type: SemaphoreHandleType | MemoryHandleType) -> OwnedHandle | int:
    # A handle of the right OS kind, because the handle reaches the driver if xsem does not refuse the call.
    return OwnedHandle(handles.null()) if type.os_handle_kind is OsHandleKind.FD else 4096


def _uuid(type: SemaphoreHandleType | MemoryHandleType) -> uuid.UUID | None:
    return _ANY if type.device_bound else None


def _create_semaphore(context: CaseContext, what: str) -> Sequence[_Call]:
    return [lambda: context.device.create_semaphore(SemaphoreHandleType(what))]


def _create_memory(context: CaseContext, what: str) -> Sequence[_Call]:
    return [lambda dedicated=dedicated: context.device.create_memory(   # type: ignore[misc]
        MemoryHandleType(what), 4096, dedicated=dedicated) for dedicated in (False, True)]


def _feature(context: CaseContext, what: str) -> Sequence[_Call]:
    here = context.here
    if what in ("host_signal", "host_wait", "read_value"):
        type = context.some_type()
        if SemaphoreHandleType(type).portable:
            raise BlockedError("the host reads, signals and waits for a portable timeline on each device")
        semaphore: xsem.Semaphore = here.get(context.semaphore(type).here)
        return [{"host_signal": lambda: semaphore.host_signal(1), "host_wait": lambda: semaphore.host_wait(1),
                 "read_value": semaphore.value}[what]]
    if what in ("image", "mipmapped_array"):
        memory: xsem.Memory = here.get(context.memory().here)
        return [lambda image=image: memory.map_mipmapped_array(image)   # type: ignore[misc]
                for image in ((_IMAGE,) if what == "image" else _BEYOND_IMAGE)]
    if what == "image_copy":
        return _image_copies(context)
    if what == "recording":
        commands: xsem.CommandList = here.get(here.new_list())
        return [commands.record]
    if what == "native_context":
        return [lambda: xsem.open_device(context.device.info.backend, native=object())]
    if what == "memory_sharing":
        return [lambda: context.device.share(4096, size=1)]
    if what == "memory_chunks":
        return [lambda: _import_chunks(context)]
    return [lambda: context.device.event(object())]


def _image_copies(context: CaseContext) -> Sequence[_Call]:
    """Return copies of a level, both ways."""
    here = context.here
    memory: xsem.Memory = here.get(context.memory(1 << 20).here)
    level = memory.map_mipmapped_array(_IMAGE).level(0)
    queue: xsem.CommandList = here.get(here.new_list())
    staging = context.device.host_buffer(1 << 16)
    return [lambda: queue.append_copy(staging, level), lambda: queue.append_copy(level, staging)]


_CALLS: Final[dict[str, Callable[[CaseContext, str], Sequence[_Call]]]] = {
    "semaphore_import": _import_semaphore,
    "semaphore_export": _create_semaphore,
    "memory_import": _import_memory,
    "memory_export": _create_memory,
    "feature": _feature,
}
