"""The device under stress and the one that exports to it."""

from __future__ import annotations

import random
import uuid as _uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import xsem
from xsem.types import MemoryDesc, MemoryHandleType, SemaphoreDesc, SemaphoreHandleType

__all__ = ["BINARY", "MEMORY", "TIMELINE", "Result", "Rig", "for_uuid", "open_exporter", "open_rig"]

TIMELINE: Final = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
BINARY: Final = SemaphoreHandleType.OPAQUE_FD
MEMORY: Final = MemoryHandleType.OPAQUE_FD

_Desc = TypeVar("_Desc", SemaphoreDesc, MemoryDesc)


@dataclass
class Result:
    """Result of a part of the run. It passed if `failures` is empty."""

    counts: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)

    def count(self, what: str, by: int = 1) -> None:
        """Add to a count."""
        self.counts[what] = self.counts.get(what, 0) + by


@dataclass
class Rig:
    """Both devices of this process, and the random seed."""

    device: xsem.Device
    exporter: xsem.Device
    seed: int

    def random(self, *what: object) -> random.Random:
        """Return a separate source for each user, so that draws of one do not change another."""
        return random.Random("/".join(map(str, (self.seed, *what))))

    def shared(self, kind: SemaphoreHandleType, label: str = "") -> tuple[xsem.Semaphore, xsem.Semaphore]:
        """Return a semaphore of the exporter, and its import by the device."""
        there = self.exporter.create_semaphore(kind)
        with there.export(for_device=self.device) as desc:
            return there, self.device.import_semaphore(desc, label=label)


@contextmanager
def open_rig(device: str, exporter: str, seed: int) -> Iterator[Rig]:
    """Open both, the exporter on the same GPU if it has one."""
    with xsem.open_device(device) as opened, open_exporter(exporter, opened.info.uuid) as source:
        yield Rig(opened, source, seed)


def open_exporter(name: str, uuid: _uuid.UUID | None) -> xsem.Device:
    """Open the exporter of that name on the GPU of the importer."""
    if ":" in name or uuid is None or all(info.uuid is None for info in xsem.devices(name)):
        return xsem.open_device(name)
    return xsem.open_device(name, uuid=uuid)


def for_uuid(desc: _Desc, exporter: xsem.Device, uuid: _uuid.UUID | None) -> _Desc:
    """Set the UUID of the importer's device, open in another process, if the exporter has no UUID."""
    return desc if exporter.info.uuid is not None else replace(desc, device_uuid=uuid)
