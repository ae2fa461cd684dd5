"""Fences that the host reaches: values of timelines that Vulkan creates, and OpenGL waits for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from xsem.spi import Lock
from xsem.types import SemaphoreHandleType
from xsem_opengl.loader import Gl
from xsem_opengl.objects import delete
from xsem_opengl.semaphores import import_and_take
from xsem_opengl.worker import Worker

__all__ = ["HostFence", "HostFences"]


class HostFence:
    """A value of a timeline, which no other unreleased fence has."""

    __slots__ = ("name", "there", "value")

    def __init__(self, name: int, there: Any, value: int = 0) -> None:
        self.name = name   # in OpenGL
        self.there = there   # in Vulkan
        self.value = value


class HostFences:
    """The fences of one device. The exporter opens at the first one."""

    def __init__(self, gl: Gl, worker: Worker, open_exporter: Callable[[], Any]) -> None:
        self._gl = gl
        self._worker = worker
        self._open_exporter = open_exporter
        self._exporter: Any = None
        self._unused: list[HostFence] = []
        self._lock = Lock()

    def create(self) -> HostFence:
        """Return an unreached fence."""
        with self._lock:
            fence = self._unused.pop() if self._unused else self._made()
        fence.value += 1
        return fence

    def _made(self) -> HostFence:
        if self._exporter is None:
            self._exporter = self._open_exporter()
        there = self._exporter.create_semaphore(SemaphoreHandleType.TIMELINE_SEMAPHORE_FD, 0)
        try:
            file = self._exporter.export_semaphore(there)
            name = self._worker.call(partial(import_and_take, self._gl, file, timeline=True))
        except BaseException:
            self._exporter.release_semaphore(there)
            raise
        return HostFence(name, there)

    def reach(self, fence: HostFence) -> None:
        """Signal the value."""
        self._exporter.host_signal(fence.there, fence.value)

    def is_reached(self, fence: HostFence) -> bool:
        """Return whether the value is there."""
        return bool(self._exporter.semaphore_value(fence.there) >= fence.value)

    def release(self, fence: HostFence) -> None:
        """Keep the timeline for another fence."""
        with self._lock:
            self._unused.append(HostFence(fence.name, fence.there, fence.value))

    def close(self) -> None:
        """Delete the timelines, and close the exporter."""
        if self._exporter is None:
            return
        for each in self._unused:
            self._worker.call(delete, self._gl, "glDeleteSemaphoresEXT", each.name)
            self._exporter.release_semaphore(each.there)
        self._exporter.close()
