"""DRM syncobjs without a kernel that has them: each is a timeline of the host, which the simulated drivers import.

A simulated Level Zero driver takes it as both types of semaphore (SIMZE_SYNCOBJS=1).
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

from xsem.portable import open_timeline
from xsem.types import OwnedHandle
from xsem_levelzero import objects

__all__ = ["Kernel", "syncobjs"]


class Kernel:
    """Two render nodes, of which the first has no syncobjs."""

    def __init__(self, folder: Path) -> None:
        self.calls: list[tuple[str, bytes]] = []
        self.nodes = [str(folder / "renderD128"), str(folder / "renderD129")]
        self.handles: dict[int, int] = {}   # each with an fd of its page
        for node in self.nodes:
            Path(node).touch()

    def glob(self, _pattern: str) -> list[str]:
        return self.nodes

    def ioctl(self, card: int, number: int, data: bytes) -> bytes:
        if os.path.realpath(f"/proc/self/fd/{card}") == os.path.realpath(self.nodes[0]):
            raise OSError(95, "Operation not supported")
        name, form = {
            objects.CREATE: ("create", "=II"), objects.DESTROY: ("destroy", "=II"),
            objects.HANDLE_TO_FD: ("to_fd", "=IIiI"), objects.FD_TO_HANDLE: ("from_fd", "=IIiI"),
            objects.QUERY: ("query", "=QQII"), objects.TIMELINE_SIGNAL: ("signal", "=QQII"),
        }[number]
        self.calls.append((name, data))
        fields = struct.unpack(form, data)
        answer = getattr(self, f"_{name}")(*fields)
        return data if answer is None else struct.pack(form, *answer)

    def _new(self, page: int) -> int:
        handle = 5 + len(self.handles)
        self.handles[handle] = page
        return handle

    def _create(self, _handle: int, flags: int) -> tuple[int, int]:
        page = objects.timeline_page(flags & 1)
        assert page is not None
        return self._new(page.detach()), flags

    def _destroy(self, handle: int, _pad: int) -> None:
        os.close(self.handles[handle])
        self.handles[handle] = -1

    def _to_fd(self, handle: int, flags: int, _fd: int, pad: int) -> tuple[int, int, int, int]:
        return handle, flags, os.dup(self.handles[handle]), pad

    def _from_fd(self, _handle: int, flags: int, fd: int, pad: int) -> tuple[int, int, int, int]:
        if "xsem-timeline" not in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(22, "Invalid argument")
        return self._new(os.dup(fd)), flags, fd, pad

    def _query(self, handles: int, points: int, count: int, _flags: int) -> None:
        assert count == 1
        page = self.handles[ctypes.c_uint32.from_address(handles).value]
        ctypes.c_uint64.from_address(points).value = int.from_bytes(os.pread(page, 8, 16), "little")

    def _signal(self, handles: int, points: int, count: int, _flags: int) -> None:
        assert count == 1
        page = os.dup(self.handles[ctypes.c_uint32.from_address(handles).value])
        timeline = open_timeline(OwnedHandle(page))
        timeline.signal(ctypes.c_uint64.from_address(points).value)
        timeline.close()


@contextmanager
def syncobjs() -> Iterator[Kernel]:
    """Give the Level Zero backend a kernel with syncobjs."""
    with TemporaryDirectory() as folder:
        kernel = Kernel(Path(folder))
        with mock.patch("glob.glob", kernel.glob), mock.patch("fcntl.ioctl", kernel.ioctl):
            yield kernel
