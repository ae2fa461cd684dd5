"""Fences: GLsync objects, or marks in memory where the driver's are reached too early."""

from __future__ import annotations

from ctypes import c_uint, memset
from typing import Any, Final, Protocol

from xsem.errors import DriverError
from xsem_opengl.answers import Answers
from xsem_opengl.contexts import do
from xsem_opengl.loader import Gl
from xsem_opengl.objects import HostBuffer, delete, stored

__all__ = ["Fences", "fences_for"]

_MARKS: Final = 1024
_NUMBERS: Final = 1 << 16


class Fences(Protocol):
    """Makes, asks and deletes fences. The last two are calls on the worker."""

    def append(self) -> Any:
        """Make a fence behind all commands of the current context, and flush."""
        ...

    def is_reached(self, fence: Any) -> bool:
        """Return whether it is reached, without blocking."""
        ...

    def delete(self, fence: Any) -> None:
        """Delete it."""
        ...

    def close(self) -> None:
        """Free what belongs to all fences."""
        ...


def fences_for(gl: Gl, answers: Answers) -> Fences:
    """Make the fences of a context. On the worker."""
    return _Marks(gl) if answers.quirks.early_fences else _Syncs(gl)


class _Syncs:
    def __init__(self, gl: Gl) -> None:
        self._gl = gl

    def append(self) -> Any:
        fence = do(self._gl, "glFenceSync", self._gl.GL_SYNC_GPU_COMMANDS_COMPLETE, 0)
        do(self._gl, "glFlush")   # also because the worker's context asks for the fence
        return fence

    def is_reached(self, fence: Any) -> bool:
        found = do(self._gl, "glClientWaitSync", fence, 0, 0)
        if found == self._gl.GL_WAIT_FAILED:
            raise DriverError("glClientWaitSync: GL_WAIT_FAILED", call="glClientWaitSync", code=int(found),
                              code_name="GL_WAIT_FAILED", reason="driver_error")
        return found in (self._gl.GL_ALREADY_SIGNALED, self._gl.GL_CONDITION_SATISFIED)

    def delete(self, fence: Any) -> None:
        do(self._gl, "glDeleteSync", fence)

    def close(self) -> None:
        """Do nothing."""


class _Marks:
    """Numbers that the device copies from a table to memory of the host."""

    def __init__(self, gl: Gl) -> None:
        self._gl = gl
        self._last = 0
        self._memory = HostBuffer(gl, 4 * _MARKS)
        try:
            self._numbers = stored(gl, 4 * _NUMBERS, (c_uint * _NUMBERS)(*range(_NUMBERS)))
        except BaseException:
            self._memory.release()
            raise
        memset(self._memory.address, 0, 4 * _MARKS)   # the driver gives memory of freed buffers, with their marks
        self._marks = (c_uint * _MARKS).from_address(self._memory.address)

    def append(self) -> int:
        self._last += 1
        number = self._last % _NUMBERS
        do(self._gl, "glFlush")   # zink may move the copy to the begin of its batch
        do(self._gl, "glCopyNamedBufferSubData", self._numbers, self._memory.buffer, 4 * number,
           4 * (number % _MARKS), 4)
        do(self._gl, "glFlush")
        return number

    def is_reached(self, fence: int) -> bool:
        return (self._marks[fence % _MARKS] - fence) % _NUMBERS < _NUMBERS // 2

    def delete(self, fence: int) -> None:
        """Do nothing: a later fence uses its mark."""

    def close(self) -> None:
        self._memory.release()
        delete(self._gl, "glDeleteBuffers", self._numbers)
