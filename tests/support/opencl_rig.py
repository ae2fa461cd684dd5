"""A program on the simulated OpenCL device: raw calls, the host device as the exporter, and a cleanup."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager

import xsem
from support.opencl_raw import Raw
from xsem.types import MemoryHandleType, OwnedHandle, SemaphoreHandleType

__all__ = ["BINARY", "PAGE", "TIMELINE", "Rig", "rig"]

BINARY = SemaphoreHandleType.OPAQUE_FD
TIMELINE = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
PAGE = 4096


class Rig(Raw):
    """Raw calls with the exporter. At the end all objects of the test are released after its queues are done."""

    def __init__(self, host: xsem.Device, *devices: int) -> None:
        super().__init__(*devices)
        self.host = host
        self.exports: list[xsem.Semaphore] = []
        self.semaphores: list[int] = []
        self.queues: list[int] = []
        self.events: list[int] = []
        self.buffers: list[int] = []
        self.views: list[mmap.mmap] = []
        self.fds: list[int] = []

    def exported(self, kind: SemaphoreHandleType = BINARY) -> tuple[xsem.Semaphore, int]:
        """Return a semaphore and an fd for it, closed at the end."""
        there = self.host.create_semaphore(kind)
        self.exports.append(there)
        with there.export() as desc:
            assert isinstance(desc.handle, OwnedHandle)
            self.fds.append(os.dup(desc.handle.fileno()))
        return there, self.fds[-1]

    def semaphore(self, kind: SemaphoreHandleType = BINARY, *more: int) -> tuple[xsem.Semaphore, int]:
        there, fd = self.exported(kind)
        self.semaphores.append(self.import_fd(fd, *more))
        return there, self.semaphores[-1]

    def stream(self, device: int | None = None, *, in_order: bool = True) -> int:
        self.queues.append(self.queue(device, in_order=in_order))
        return self.queues[-1]

    def waits(self, queue: int, *semaphores: int, after: tuple[int, ...] = ()) -> int:
        """Enqueue a wait and return its event."""
        code, event = self.wait(queue, semaphores, after=after)
        assert code == 0
        self.events.append(event)
        return event

    def signals(self, queue: int, *semaphores: int, after: tuple[int, ...] = ()) -> int:
        code, event = self.signal(queue, semaphores, after=after)
        assert code == 0
        self.events.append(event)
        return event

    def memory_fd(self, size: int = PAGE) -> tuple[mmap.mmap, int]:
        """Return the exporter's view of new memory, and an fd for it, closed at the end."""
        there = self.host.create_memory(MemoryHandleType.OPAQUE_FD, size)
        with there.export() as desc:
            assert isinstance(desc.handle, OwnedHandle)
            self.views.append(mmap.mmap(desc.handle.fileno(), size))
            self.fds.append(os.dup(desc.handle.fileno()))
        return self.views[-1], self.fds[-1]

    def memory(self, size: int = PAGE) -> tuple[mmap.mmap, int]:
        view, fd = self.memory_fd(size)
        self.buffers.append(self.buffer(size, fd))
        return view, self.buffers[-1]

    def open_gates(self) -> None:
        """Meet all pending waits, so that a failed test does not block the next one."""
        for queue in self.queues:
            self.flush(queue)
        for there in self.exports:
            with contextlib.suppress(xsem.XsemError):
                there.host_signal(2**64 - 1 if there.type is TIMELINE else None)

    def end(self) -> None:
        for queue in self.queues:
            self.finish(queue)
            self.call("clReleaseCommandQueue", ctypes.c_void_p(queue))
        for event in self.events:
            self.release_event(event)
        for semaphore in self.semaphores:
            assert self.release(semaphore) == 0
        for buffer in self.buffers:
            self.release_buffer(buffer)
        for view in self.views:
            view.close()
        for fd in self.fds:
            with contextlib.suppress(OSError):
                os.close(fd)
        self.close()


@contextmanager
def rig(*devices: int) -> Iterator[Rig]:
    with xsem.open_device("host") as host:
        at = Rig(host, *devices)
        try:
            yield at
        except BaseException:
            at.open_gates()
            raise
        at.end()
