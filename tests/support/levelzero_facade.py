"""xsem on the simulated Level Zero driver, with the host device as exporter."""

from __future__ import annotations

from contextlib import AbstractContextManager

from support.importer import BOUND_S, PAGE, Pair, driver_of, fd_of, list_of, pair, soon
from xsem.types import SemaphoreHandleType

__all__ = [
    "BINARY", "BOUND_S", "PAGE", "TIMELINE", "Pair", "driver_of", "fd_of", "list_of", "opened", "soon", "value_of",
]

TIMELINE = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
BINARY = SemaphoreHandleType.OPAQUE_FD


def opened(device: str = "levelzero:0", *, native: object | None = None) -> AbstractContextManager[Pair]:
    return pair(device, TIMELINE, native)


def value_of(kind: SemaphoreHandleType, value: int) -> int | None:
    return value if kind is TIMELINE else None
