"""Imported semaphores."""

from __future__ import annotations

from collections import deque
from ctypes import c_int, c_uint64
from typing import Any, Final

from xsem.spi import Imported, duplicate_fd
from xsem.types import OwnedHandle, SemaphoreDesc, SemaphoreKind
from xsem_opengl.answers import Answers
from xsem_opengl.contexts import do
from xsem_opengl.fences import Fences
from xsem_opengl.loader import Gl
from xsem_opengl.objects import OPAQUE_FD, delete, new_name

__all__ = ["Semaphore", "import_and_take", "set_value"]

_TYPE, _TIMELINE = 0x95B3, 0x95B5
_VALUE: Final = 0x9595


class Semaphore:
    """An imported semaphore."""

    def __init__(self, gl: Gl, name: int, *, timeline: bool, file: OwnedHandle | None) -> None:
        self._gl = gl
        self.name = name
        self.timeline = timeline
        self._file = file   # for further imports, where each wait needs its own
        self._used: deque[tuple[int, Any]] = deque()   # imports with a wait, and the fence behind it

    @classmethod
    def imported(cls, gl: Gl, answers: Answers, desc: SemaphoreDesc, handle: OwnedHandle) -> Imported:
        """Import a file, on the worker."""
        answers.check_file(handle.fileno())
        timeline = desc.type.kind is SemaphoreKind.TIMELINE
        file = duplicate_fd(handle.fileno()) if answers.quirks.skips_second_wait else None
        try:
            name = import_file(gl, handle.fileno(), timeline=timeline)
        except BaseException:
            if file is not None:
                file.close()
            raise
        return Imported(cls(gl, name, timeline=timeline, file=file), handle="taken")

    def for_wait(self) -> int:
        """Return the name for one wait."""
        if self._file is None:
            return self.name
        return import_and_take(self._gl, duplicate_fd(self._file.fileno()), timeline=self.timeline)

    def waited(self, name: int, fences: Fences) -> None:
        """Note the wait with a name of its own, and delete the names whose waits are done."""
        self._used.append((name, fences.append()))
        while self._used and fences.is_reached(self._used[0][1]):
            delete(self._gl, "glDeleteSemaphoresEXT", self._used.popleft()[0])

    def release(self) -> None:
        """Delete it, on the worker."""
        while self._used:
            delete(self._gl, "glDeleteSemaphoresEXT", self._used.popleft()[0])
        delete(self._gl, "glDeleteSemaphoresEXT", self.name)
        if self._file is not None:
            self._file.close()


def set_value(gl: Gl, name: int, value: int) -> None:
    """Set the value of the next wait or signal by this name of a timeline."""
    do(gl, "glSemaphoreParameterui64vEXT", name, _VALUE, c_uint64(value))


def import_file(gl: Gl, fd: int, *, timeline: bool) -> int:
    """Import a file, which the driver then has."""
    name = new_name(gl, "glCreateSemaphoresNV" if timeline else "glGenSemaphoresEXT")   # the latter makes binary ones
    try:
        if timeline:
            do(gl, "glSemaphoreParameterivNV", name, _TYPE, (c_int * 1)(_TIMELINE))   # before the import
        do(gl, "glImportSemaphoreFdEXT", name, OPAQUE_FD, fd)
    except BaseException:
        delete(gl, "glDeleteSemaphoresEXT", name)
        raise
    return name


def import_and_take(gl: Gl, file: OwnedHandle, *, timeline: bool) -> int:
    """Import a file, on the worker, of which nothing else remains: after an error, a driver may have closed it."""
    return import_file(gl, file.detach(), timeline=timeline)
