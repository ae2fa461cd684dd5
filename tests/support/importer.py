"""A device that imports objects of the host device through the facade, for tests on simulated drivers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import xsem
from support.waiting import until as soon  # the name that the tests of backends know
from xsem.types import MemoryHandleType, OwnedHandle, SemaphoreHandleType

__all__ = ["BOUND_S", "PAGE", "Pair", "driver_of", "fd_of", "list_of", "pair", "soon"]

PAGE = 4096
BOUND_S = 20.0


class Pair:
    """The exporter and the importing device. `usual` is the type of new semaphores."""

    def __init__(self, host: xsem.Device, here: xsem.Device, usual: SemaphoreHandleType) -> None:
        self.host = host
        self.here = here
        self.usual = usual

    def semaphore(self, kind: SemaphoreHandleType | None = None) -> tuple[xsem.Semaphore, xsem.Semaphore]:
        there = self.host.create_semaphore(kind or self.usual)
        with there.export(for_device=self.here) as desc:
            return there, self.here.import_semaphore(desc)

    def memory(self, size: int = PAGE) -> tuple[xsem.Memory, xsem.Memory]:
        there = self.host.create_memory(MemoryHandleType.OPAQUE_FD, size)
        with there.export(for_device=self.here) as desc:
            return there, self.here.import_memory(desc)


@contextmanager
def pair(device: str, usual: SemaphoreHandleType, native: object | None) -> Iterator[Pair]:
    with xsem.open_device("host") as host:
        with xsem.open_device(device, native=native) as here:
            yield Pair(host, here, usual)
        # A thread of xsem closes the device. A borrowed context and the process must exist until then.
        soon(lambda: not here.releasing())


def driver_of(device: xsem.Device) -> Any:
    """Return the driver object of a device."""
    return device._device_state.driver


def list_of(commands: xsem.CommandList) -> Any:
    """Return the driver object of a list."""
    return commands._queue.driver


def fd_of(there: xsem.Semaphore | xsem.Memory) -> OwnedHandle:
    """Return a new fd of an object of the exporter."""
    handle = there.export().handle
    assert isinstance(handle, OwnedHandle)
    return handle
