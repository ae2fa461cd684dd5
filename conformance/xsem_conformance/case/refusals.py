"""Ask a driver directly, without the check of the facade, whether it refuses undeclared capabilities."""

from __future__ import annotations

import dataclasses
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from xsem.errors import UnsupportedError
from xsem.spi import DeviceDriver, ImportFailure
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
from xsem_conformance.outcomes import Outcome

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
    """Yield all capabilities of that form that a device does not declare and that a driver can be asked for."""
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


def refuses(driver: DeviceDriver, name: str) -> tuple[Outcome, str]:
    """Return UNSUPPORTED if the driver refuses the capability with UnsupportedError, else FAIL; and the details."""
    kind, _, what = name.partition(":")
    try:
        _ASK[kind](driver, what)
    except UnsupportedError:
        return Outcome.UNSUPPORTED, "not declared; refused"
    except ImportFailure as failure:
        if isinstance(failure.error, UnsupportedError):
            return Outcome.UNSUPPORTED, "not declared; refused"
        return Outcome.FAIL, f"{name} is not declared, but was refused with {failure.error!r}, not UnsupportedError"
    except Exception as error:
        return Outcome.FAIL, f"{name} is not declared, but was refused with {error!r}, not UnsupportedError"
    return Outcome.FAIL, f"{name} is not declared, but the driver did it"


@contextmanager
def _handle(os_handle_kind: OsHandleKind) -> Iterator[OwnedHandle | None]:
    # A harmless file of the right OS kind, in case the driver inspects it.
    if os_handle_kind is not OsHandleKind.FD:
        yield None
        return
    with OwnedHandle(os.open(os.devnull, os.O_RDWR)) as handle:
        yield handle


def _desc_fields(os_handle_kind: OsHandleKind, handle: OwnedHandle | None) -> dict[str, object]:
    return {"handle": handle if os_handle_kind is OsHandleKind.FD else 4096}


def _import_semaphore(driver: DeviceDriver, what: str) -> None:
    type = SemaphoreHandleType(what)
    with _handle(type.os_handle_kind) as handle:
        fields = _desc_fields(type.os_handle_kind, handle)
        desc = SemaphoreDesc(type=type, device_uuid=_ANY if type.device_bound else None, **fields)  # type: ignore[arg-type]
        driver.import_semaphore(desc, handle)


def _import_memory(driver: DeviceDriver, what: str) -> None:
    type = MemoryHandleType(what)
    with _handle(type.os_handle_kind) as handle:
        fields = _desc_fields(type.os_handle_kind, handle)
        desc = MemoryDesc(type=type, allocation_size=4096, dedicated=type.dedicated,
                          device_uuid=_ANY if type.device_bound else None, **fields)  # type: ignore[arg-type]
        driver.import_memory(desc, handle)


def _create_semaphore(driver: DeviceDriver, what: str) -> None:
    driver.release_semaphore(driver.create_semaphore(SemaphoreHandleType(what), 0))


def _create_memory(driver: DeviceDriver, what: str) -> None:
    driver.release_memory(driver.create_memory(MemoryHandleType(what), 4096, False)[0])


def _feature(driver: DeviceDriver, what: str) -> None:
    asks: dict[str, Callable[[], object]] = {
        "host_signal": lambda: driver.host_signal(None, 1),
        "host_wait": lambda: driver.host_wait(None, 1, 0),
        "read_value": lambda: driver.semaphore_value(None),
        "image": lambda: driver.map_mipmapped_array(None, _IMAGE),
        "mipmapped_array": lambda: driver.map_mipmapped_array(None, dataclasses.replace(_IMAGE, levels=2)),
        "recording": lambda: _record(driver),
        "native_events": lambda: driver.borrow_event(object()),
    }
    asks[what]()


def _record(driver: DeviceDriver) -> None:
    commands = driver.create_queue()
    try:
        commands.begin_recording()
    finally:
        commands.close()


_ASK: Final[dict[str, Callable[[DeviceDriver, str], None]]] = {
    "semaphore_import": _import_semaphore,
    "semaphore_export": _create_semaphore,
    "memory_import": _import_memory,
    "memory_export": _create_memory,
    "feature": _feature,
}
