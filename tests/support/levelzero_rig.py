"""A program on the simulated Level Zero driver: raw calls, the host device as the exporter, and a cleanup."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager

import xsem
from support import levelzero_raw as ze
from support.levelzero_raw import Raw
from xsem.types import MemoryHandleType, OwnedHandle, SemaphoreHandleType

__all__ = ["BINARY", "KINDS", "PAGE", "TIMELINE", "Rig", "rig", "value_of"]

TIMELINE = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
BINARY = SemaphoreHandleType.OPAQUE_FD
KINDS = {TIMELINE: ze.TIMELINE_FD, BINARY: ze.OPAQUE_FD}
PAGE = 4096


class Rig(Raw):
    """Raw calls with the exporter. At the end all objects of the test are destroyed, in order."""

    def __init__(self, host: xsem.Device, *, driver: int = 0, device: int = 0) -> None:
        super().__init__(driver, device)
        self.host = host
        self.exports: list[xsem.Semaphore] = []
        self.semaphores: list[int] = []
        self.lists: list[int] = []
        self.streams: set[int] = set()   # the immediate lists
        self.events_of: dict[int, list[int]] = {}
        self.memories: list[int] = []
        self.views: list[mmap.mmap] = []

    def exported(self, kind: SemaphoreHandleType) -> tuple[xsem.Semaphore, int]:
        """Return a semaphore and a new fd for it."""
        there = self.host.create_semaphore(kind)
        self.exports.append(there)
        with there.export() as desc:
            assert isinstance(desc.handle, OwnedHandle)
            return there, os.dup(desc.handle.fileno())

    def semaphore(self, kind: SemaphoreHandleType = TIMELINE) -> tuple[xsem.Semaphore, int]:
        there, fd = self.exported(kind)
        here = self.import_fd(fd, KINDS[kind])
        self.semaphores.append(here)
        return there, here

    def again(self, there: xsem.Semaphore) -> int:
        """Import the same semaphore again."""
        with there.export() as desc:
            assert isinstance(desc.handle, OwnedHandle)
            here = self.import_fd(os.dup(desc.handle.fileno()), KINDS[there.type])
        self.semaphores.append(here)
        return here

    def stream(self, flags: int = ze.IN_ORDER, mode: int = 2) -> int:
        self.lists.append(self.immediate(flags, mode))
        self.streams.add(self.lists[-1])
        return self.lists[-1]

    def events(self, count: int) -> list[int]:
        pool = self.pool(count)
        self.events_of[pool] = [self.event(pool, index) for index in range(count)]
        return self.events_of[pool]

    def memory_fd(self, size: int = PAGE) -> tuple[mmap.mmap, int]:
        """Return the exporter's view of new memory, and an fd for it."""
        there = self.host.create_memory(MemoryHandleType.OPAQUE_FD, size)
        with there.export() as desc:
            assert isinstance(desc.handle, OwnedHandle)
            view = mmap.mmap(desc.handle.fileno(), size)
            self.views.append(view)
            return view, os.dup(desc.handle.fileno())

    def memory(self, size: int = PAGE) -> tuple[mmap.mmap, int]:
        view, fd = self.memory_fd(size)
        address = self.allocate(size, fd=fd)
        self.memories.append(address)
        return view, address

    def open_gates(self) -> None:
        """Meet all pending waits, so that a failed test does not block the next one."""
        for there in self.exports:
            with contextlib.suppress(xsem.XsemError):
                there.host_signal(2**64 - 1 if there.type is TIMELINE else None)

    def end(self) -> None:
        for commands in self.lists:
            if commands in self.streams:
                # The new value of a semaphore is visible shortly before the list has finished the signal.
                (idle,) = self.events(1)
                self.barrier(commands, event=idle)
                assert self.reached(idle)
            self.call("zeCommandListDestroy", ctypes.c_void_p(commands))
        for semaphore in self.semaphores:
            assert self.release(semaphore) == 0
        for pool, events in self.events_of.items():
            self.destroy(**{f"Event_{number}": event for number, event in enumerate(events)})
            self.destroy(EventPool=pool)
        for address in self.memories:
            self.free(address)
        for view in self.views:
            view.close()
        self.close()


@contextmanager
def rig(*, driver: int = 0, device: int = 0) -> Iterator[Rig]:
    with xsem.open_device("host") as host:
        at = Rig(host, driver=driver, device=device)
        try:
            yield at
        except BaseException:
            at.open_gates()
            raise
        at.end()


def value_of(kind: SemaphoreHandleType, value: int) -> int | None:
    return value if kind is TIMELINE else None
