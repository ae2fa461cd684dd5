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

__all__ = ["BINARY", "MEMORY", "TIMELINE", "Result", "Rig", "open_exporter", "open_rig", "stamped"]

TIMELINE: Final = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
BINARY: Final = SemaphoreHandleType.OPAQUE_FD
MEMORY: Final = MemoryHandleType.OPAQUE_FD

_Desc = TypeVar("_Desc", SemaphoreDesc, MemoryDesc)


@dataclass
class Result:
    """What a part of the run found; `failures` empty means that it passed."""

    counts: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)

    def count(self, what: str, by: int = 1) -> None:
        """Count one more of something."""
        self.counts[what] = self.counts.get(what, 0) + by


@dataclass
class Rig:
    """Both devices of this process, and the seed of all that is random."""

    device: xsem.Device
    exporter: xsem.Device
    seed: int

    def random(self, *what: object) -> random.Random:
        """A source of its own for each user: what one draws must not move another's."""
        return random.Random("/".join(map(str, (self.seed, *what))))

    def shared(self, kind: SemaphoreHandleType, label: str = "") -> tuple[xsem.Semaphore, xsem.Semaphore]:
        """A semaphore as the exporter has it, and as the device does."""
        there = self.exporter.create_semaphore(kind)
        with there.export(for_device=self.device) as desc:
            return there, self.device.import_semaphore(desc, label=label)


@contextmanager
def open_rig(device: str, exporter: str, seed: int) -> Iterator[Rig]:
    """Open both, the exporter on the same GPU where it is on one."""
    with xsem.open_device(device) as opened, open_exporter(exporter, opened.info.uuid) as source:
        yield Rig(opened, source, seed)


def open_exporter(name: str, uuid: _uuid.UUID | None) -> xsem.Device:
    """The exporter of that name, for an importer's device: of several GPUs the same one."""
    if ":" in name or uuid is None or all(info.uuid is None for info in xsem.devices(name)):
        return xsem.open_device(name)
    return xsem.open_device(name, uuid=uuid)


def stamped(desc: _Desc, exporter: xsem.Device, uuid: _uuid.UUID | None) -> _Desc:
    """For the importer's device, which another process has open, where the exporter's objects belong to none."""
    return desc if exporter.info.uuid is not None else replace(desc, device_uuid=uuid)
