"""xsem on the simulated Level Zero driver, with the host device as exporter."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import xsem
from xsem.types import MemoryHandleType, OwnedHandle, SemaphoreHandleType

__all__ = [
    "BINARY", "BOUND_S", "PAGE", "TIMELINE", "Pair", "driver_of", "fd_of", "list_of", "opened", "soon", "value_of",
]

TIMELINE = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
BINARY = SemaphoreHandleType.OPAQUE_FD
PAGE = 4096
BOUND_S = 20.0


class Pair:
    """The exporter, and the device on which everything is imported."""

    def __init__(self, host: xsem.Device, here: xsem.Device) -> None:
        self.host = host
        self.here = here

    def semaphore(self, kind: SemaphoreHandleType = TIMELINE) -> tuple[xsem.Semaphore, xsem.Semaphore]:
        there = self.host.create_semaphore(kind)
        with there.export(for_device=self.here) as desc:
            return there, self.here.import_semaphore(desc)

    def memory(self, size: int = PAGE) -> tuple[xsem.Memory, xsem.Memory]:
        there = self.host.create_memory(MemoryHandleType.OPAQUE_FD, size)
        with there.export(for_device=self.here) as desc:
            return there, self.here.import_memory(desc)


@contextmanager
def opened(device: str = "levelzero:0", *, native: object | None = None) -> Iterator[Pair]:
    with xsem.open_device("host") as host:
        with xsem.open_device(device, native=native) as here:
            yield Pair(host, here)
        # A device is closed on a thread of xsem's; a lent context must last as long.
        soon(lambda: here._record.freed)


def driver_of(device: xsem.Device) -> Any:
    """The backend's half of a device."""
    return device._session.driver


def list_of(commands: xsem.CommandList) -> Any:
    """The backend's half of a list."""
    return commands._book.driver


def fd_of(there: xsem.Semaphore | xsem.Memory) -> OwnedHandle:
    """A new fd of an exporter's object."""
    handle = there.export().handle
    assert isinstance(handle, OwnedHandle)
    return handle


def value_of(kind: SemaphoreHandleType, value: int) -> int | None:
    return value if kind is TIMELINE else None


def soon(reached: Callable[[], object]) -> None:
    deadline = time.monotonic() + BOUND_S
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.002)
