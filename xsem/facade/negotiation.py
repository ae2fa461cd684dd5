"""The handle types that two devices have in common, best first."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

from xsem.data.params import parse_member
from xsem.errors import BadArgumentError, UnsupportedError
from xsem.facade.device import Device
from xsem.types import (
    Capabilities,
    DeviceInfo,
    MemoryHandleType,
    OsHandleKind,
    SemaphoreHandleType,
    SemaphoreKind,
)

__all__ = ["CommonTypes", "negotiate"]

_Type = TypeVar("_Type", SemaphoreHandleType, MemoryHandleType)
_Side: TypeAlias = tuple[DeviceInfo, Capabilities]

_SAME_DEVICE, _PORTABLE, _UNSURE = range(3)   # best first
_WHY_LATER: Final = {
    _SAME_DEVICE: "{} comes first",
    _PORTABLE: "it is in host memory, so {} comes first",
    _UNSURE: "the two drivers decide whether its import works, so {} comes first",
}
_OF_WINDOWS: Final = (OsHandleKind.NT, OsHandleKind.KMT)


@dataclass(frozen=True, kw_only=True, slots=True)
class CommonTypes:
    """The best handle types that one device exports and another one imports: the result of `negotiate`.

    Attributes
    ----------
    semaphore : SemaphoreHandleType
        Type for `Device.create_semaphore`, of the requested kind.
    memory : MemoryHandleType
        Type for `Device.create_memory`.
    why_not : mapping of str to str
        For each other type of memory, and of semaphores of this kind, why it was not chosen. The keys are
        ``"semaphore."`` or ``"memory."`` and the value of the type.

    Examples
    --------
    >>> import xsem
    >>> with xsem.open_device("host") as exporter, xsem.open_device("host") as importer:
    ...     common = xsem.negotiate(exporter, importer)
    >>> common.why_not["memory.dmabuf_fd"]
    'host:0 does not export it'
    """

    semaphore: SemaphoreHandleType
    memory: MemoryHandleType
    why_not: Mapping[str, str]


def negotiate(
    exporter: Device | tuple[DeviceInfo, Capabilities], importer: Device | tuple[DeviceInfo, Capabilities],
    kind: SemaphoreKind | str = SemaphoreKind.TIMELINE,
) -> CommonTypes:
    """Choose the handle types of objects that one device exports and another one imports.

    Types of the driver come first if both are the same device. Then come the portable types: any two devices of a
    machine that declare them share these objects, which are in host memory (docs/host-objects.md). Last come types
    whose import depends on the two drivers, for example a dma-buf from another GPU.

    Parameters
    ----------
    exporter : Device or (DeviceInfo, Capabilities)
        The device that creates the objects. A device of another process is its `Device.info` and its
        `Device.capabilities`, which multiprocessing carries.
    importer : Device or (DeviceInfo, Capabilities)
        The device that imports the objects.
    kind : SemaphoreKind or str
        Kind of the semaphores. ``"binary"`` has no portable type.

    Returns
    -------
    CommonTypes
        The types, and why each other type was not chosen.

    Raises
    ------
    UnsupportedError
        ``no_common_type``: the devices have no type of semaphores of this kind, or no type of memory in common. The
        likely causes say why, for each type of this operating system.
    BadArgumentError
        ``not_a_device``; ``bad_kind``.

    Examples
    --------
    >>> import xsem
    >>> with xsem.open_device("host") as exporter, xsem.open_device("host") as importer:
    ...     common = xsem.negotiate(exporter, importer)
    ...     frames = exporter.create_semaphore(common.semaphore)
    ...     imported = importer.import_semaphore(frames.export(for_device=importer))
    """
    wanted = parse_member("kind", kind, SemaphoreKind, reason="bad_kind")
    (source, exports), (target, imports) = _side(exporter), _side(importer)
    semaphore, why_no_semaphore = _best(
        f"{wanted.value} semaphore", [each for each in SemaphoreHandleType if each.kind is wanted],
        exports.semaphore_export, imports.semaphore_import, source, target)
    memory, why_no_memory = _best(
        "memory", MemoryHandleType, exports.memory_export, imports.memory_import, source, target)
    return CommonTypes(semaphore=semaphore, memory=memory, why_not=MappingProxyType(
        {f"semaphore.{each.value}": why for each, why in why_no_semaphore.items()}
        | {f"memory.{each.value}": why for each, why in why_no_memory.items()}))


def _side(given: object) -> _Side:
    if isinstance(given, Device):
        return given.info, given.capabilities
    if isinstance(given, tuple) and [*map(type, given)] == [DeviceInfo, Capabilities]:
        return given
    raise BadArgumentError(f"negotiate takes two devices, or (device.info, device.capabilities) of one in another "
                           f"process, not {type(given).__name__}", reason="not_a_device")


def _best(
    what: str, types: Iterable[_Type], exported: Collection[_Type], imported: Collection[_Type], source: DeviceInfo,
    target: DeviceInfo,
) -> tuple[_Type, dict[_Type, str]]:
    """Return the best type, and for each other one the reason against it."""
    against: dict[_Type, str] = {}
    ranks: dict[_Type, int] = {}
    for each in types:
        obstacle = (_obstacle_of_system(each)
                    or (f"{source.id} does not export it" if each not in exported else None)
                    or (f"{target.id} does not import it" if each not in imported else None)
                    or _obstacle_of_identity(each, source, target))
        if obstacle is None:
            ranks[each] = _PORTABLE if each.portable else _SAME_DEVICE if _same(source, target) else _UNSURE
        else:
            against[each] = obstacle
    if not ranks:
        raise UnsupportedError(
            f"{source.id} exports no {what} that {target.id} imports", capability="negotiate",
            reason="no_common_type", likely_causes=tuple(
                f"{each.name}: {why}" for each, why in against.items() if _obstacle_of_system(each) is None))
    best = min(ranks, key=lambda each: ranks[each])   # of one rank: the first of the enumeration
    return best, against | {each: _WHY_LATER[rank].format(best.name) for each, rank in ranks.items()
                            if each is not best}


def _obstacle_of_system(type: SemaphoreHandleType | MemoryHandleType) -> str | None:
    if type.os_handle_kind in _OF_WINDOWS and sys.platform != "win32":
        return "it exists only on Windows"
    if type.os_handle_kind is OsHandleKind.FD and sys.platform == "win32":
        return "Windows has no file descriptors of such objects"
    return None


def _obstacle_of_identity(
    type: SemaphoreHandleType | MemoryHandleType, source: DeviceInfo, target: DeviceInfo
) -> str | None:
    """Return why an import would refuse the descriptor's device or driver (`device_identity.check_identity`)."""
    if type.portable or not (type.device_bound or type.os_handle_kind in _OF_WINDOWS):
        return None
    if source.uuid is not None and source.uuid != target.uuid:
        return (f"it is valid on one device, and {target.id} is another one: {target.uuid or 'without a UUID'}, not "
                f"{source.uuid} as {source.id}")
    if None not in (source.driver_uuid, target.driver_uuid) and source.driver_uuid != target.driver_uuid:
        return (f"it is valid with one driver, and {target.id} has another one: {target.driver_uuid}, not "
                f"{source.driver_uuid} as {source.id}")
    return None


def _same(source: DeviceInfo, target: DeviceInfo) -> bool:
    # `host` has no UUID.
    return source.id == target.id if source.uuid is None and target.uuid is None else source.uuid == target.uuid
