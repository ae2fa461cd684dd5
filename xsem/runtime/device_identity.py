"""The device identity of a descriptor, compared on import: the UUIDs of device and driver, and the LUID on Windows."""

from __future__ import annotations

import uuid as _uuid
from typing import Protocol, cast

from xsem.data.uuids import UUIDLike, parse_uuid
from xsem.errors import WrongDeviceError
from xsem.types import DeviceInfo, MemoryDesc, MemoryHandleType, OsHandleKind, SemaphoreDesc, SemaphoreHandleType

__all__ = ["check_identity", "identity_for"]


def check_identity(desc: SemaphoreDesc | MemoryDesc, info: DeviceInfo) -> None:
    """Refuse a descriptor of another device (``wrong_device``) or of another driver (``wrong_driver``)."""
    # On some drivers an import on the wrong GPU succeeds and gives silent garbage. Types that any device may import
    # (dma-buf, sync file, NvSci) are not compared. Types of Windows, also those of Direct3D, are compared by LUID and
    # UUID. None means "not known": a device must have the UUID or LUID that the descriptor names, but two drivers are
    # compared only if both are known.
    if desc.device_luid is not None and desc.device_luid != info.luid:
        found = info.luid.hex() if info.luid is not None else None
        raise WrongDeviceError(
            f"the descriptor was exported by the adapter with the LUID {desc.device_luid.hex()}; {info.id} "
            f"{f'has the LUID {found}' if found else 'has no LUID'}",
            expected=desc.device_luid.hex(),
            actual=f"{info.id} ({found or 'no LUID'})",
            reason="wrong_device",
            backend=info.backend,
            handle_type=desc.type,
            likely_causes=(f"open_device({info.backend!r}, luid=desc.device_luid) opens the right device",),
        )
    if desc.type.portable:
        return
    # A Direct3D object is of one adapter, although its own API knows the adapter only by the LUID.
    if not desc.type.device_bound and desc.type.os_handle_kind not in (OsHandleKind.NT, OsHandleKind.KMT):
        return
    if desc.device_uuid is not None and desc.device_uuid != info.uuid:
        raise WrongDeviceError(
            f"the descriptor was exported by device {desc.device_uuid}; {info.id} is {info.uuid or 'without a UUID'}",
            expected=str(desc.device_uuid),
            actual=_named(info),
            reason="wrong_device",
            backend=info.backend,
            handle_type=desc.type,
            likely_causes=(f"open_device({info.backend!r}, uuid=desc.device_uuid) opens the right device",),
        )
    if desc.driver_uuid is not None and info.driver_uuid is not None and desc.driver_uuid != info.driver_uuid:
        raise WrongDeviceError(
            f"the descriptor was exported by driver {desc.driver_uuid}, and {info.id} has {info.driver_uuid}",
            expected=str(desc.driver_uuid),
            actual=str(info.driver_uuid),
            reason="wrong_driver",
            backend=info.backend,
            handle_type=desc.type,
            likely_causes=("the two processes use different drivers for this device, or different releases of one",),
        )


class _Device(Protocol):
    @property
    def info(self) -> DeviceInfo: ...


def identity_for(
    exporter: DeviceInfo, importer: _Device | UUIDLike | None, type: SemaphoreHandleType | MemoryHandleType
) -> tuple[_uuid.UUID | None, _uuid.UUID | None]:
    """Return the device UUID and the driver UUID for a descriptor; no importer means the exporting device."""
    # An object that is not bound to a device (dma-buf, sync file) may go to any device, because an import does not
    # compare its UUIDs. A portable one has none.
    if importer is None:
        return (None, None) if type.portable else (exporter.uuid, exporter.driver_uuid)
    info = getattr(importer, "info", None)
    known = info if isinstance(info, DeviceInfo) else None
    uuid = known.uuid if known is not None else parse_uuid(cast("UUIDLike", importer), "for_device")
    if type.portable:
        return None, None
    if exporter.uuid is None:
        # The exporter belongs to no device, so every importer is valid. The importer has another driver than the
        # exporter, so the driver's UUID stays unknown.
        return uuid, None
    if type.device_bound and exporter.uuid != uuid:
        raise WrongDeviceError(
            f"an export of {exporter.id} is not valid on {known.id if known else uuid}: they are different devices",
            expected=_named(exporter),
            actual=_named(known) if known else str(uuid),
            reason="wrong_device",
            backend=exporter.backend,
        )
    return exporter.uuid, exporter.driver_uuid


def _named(info: DeviceInfo) -> str:
    return f"{info.id} ({info.uuid})" if info.uuid is not None else f"{info.id} (no UUID)"
