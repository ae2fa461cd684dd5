"""The queue of a context: every append is made in it, and flushed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import c_ubyte, c_uint
from typing import Any, Final

from xsem.errors import BadArgumentError, BusyError
from xsem.spi import Callers, CopyQueue, SemaphoreQueue
from xsem.types import SignalParams, WaitParams
from xsem_opengl.answers import Answers
from xsem_opengl.contexts import Context, Here, current, do
from xsem_opengl.objects import SCRATCH, Buffer, Memory, Semaphore, clear_errors

__all__ = ["ContextQueue"]

_NO_NAMES: Final = (c_uint * 0)()


class ContextQueue(SemaphoreQueue, CopyQueue):
    """The commands of one context."""

    def __init__(
        self, context: Context, answers: Answers, fresh: Callable[[Semaphore], int], scratch: int, *, owned: bool
    ) -> None:
        self.identity = self.native_handle = context.address
        self._context = context
        self._gl = context.gl
        self._fresh = fresh   # makes a name for a wait
        self._fences = 2 if answers.early_fences else 1   # of each append that wants one
        self._scratch = scratch   # a buffer of SCRATCH bytes
        self._owned = owned
        # The application calls its own context without xsem's lock.
        self.callers = Callers.ONE_AT_A_TIME if owned else Callers.APPLICATION

    # ---- semaphores
    def append_wait(
        self, semaphores: Sequence[Semaphore], params: Sequence[WaitParams], wait_fences: Sequence[Any],
        acquire: Sequence[Memory], want_fence: bool,
    ) -> Any:
        """Call glWaitSemaphoreEXT for each semaphore."""
        names = [self._fresh(each) for each in semaphores]

        def wait() -> None:
            for each, name, param in zip(semaphores, names, params, strict=True):
                if each.timeline:
                    each.set_value(param.value or 0)
                do(self._gl, "glWaitSemaphoreEXT", name, *self._handed(acquire))
                self._touch()
                each.waited(name)

        return self._append(wait, want_fence)

    def append_signal(
        self, semaphores: Sequence[Semaphore], params: Sequence[SignalParams], wait_fences: Sequence[Any],
        release: Sequence[Memory], want_fence: bool,
    ) -> Any:
        """Call glSignalSemaphoreEXT for each semaphore."""
        def signal() -> None:
            self._touch()
            for each, param in zip(semaphores, params, strict=True):
                if each.timeline:
                    each.set_value(param.value or 0)
                do(self._gl, "glSignalSemaphoreEXT", each.name, *self._handed(release))

        return self._append(signal, want_fence)

    # ---- work
    def append_barrier(self, wait_fences: Sequence[Any], want_fence: bool) -> Any:
        """Call glMemoryBarrier. The commands of a context are in order, and so are those of all its lists."""
        return self._append(self._touch, want_fence)

    def append_copy(
        self, dst: Buffer, dst_offset: int, src: Buffer, src_offset: int, size: int, wait_fences: Sequence[Any],
        want_fence: bool,
    ) -> Any:
        """Call glCopyNamedBufferSubData."""
        return self._append(lambda: do(self._gl, "glCopyNamedBufferSubData", src.buffer, dst.buffer,
                                       src.offset + src_offset, dst.offset + dst_offset, size), want_fence)

    def append_fill(
        self, dst: Buffer, offset: int, pattern: bytes, size: int, wait_fences: Sequence[Any], want_fence: bool
    ) -> Any:
        """Call glClearNamedBufferSubData."""
        gl, at = self._gl, dst.offset + offset
        byte, short, word = gl.GL_UNSIGNED_BYTE, gl.GL_UNSIGNED_SHORT, gl.GL_UNSIGNED_INT
        formats = {1: (gl.GL_R8UI, gl.GL_RED_INTEGER, byte), 2: (gl.GL_R16UI, gl.GL_RED_INTEGER, short),
                   4: (gl.GL_R32UI, gl.GL_RED_INTEGER, word), 8: (gl.GL_RG32UI, gl.GL_RG_INTEGER, word),
                   16: (gl.GL_RGBA32UI, gl.GL_RGBA_INTEGER, word)}
        if len(pattern) not in formats or at % len(pattern):
            raise BadArgumentError(
                f"OpenGL fills with patterns of {', '.join(map(str, formats))} bytes, at multiples of them, not with "
                f"{len(pattern)} bytes at byte {at}", reason="bad_pattern")
        internal, layout, kind = formats[len(pattern)]
        data = (c_ubyte * len(pattern)).from_buffer_copy(pattern)
        return self._append(lambda: do(gl, "glClearNamedBufferSubData", dst.buffer, internal, at, size, layout, kind,
                                       data), want_fence)

    def close(self) -> None:
        """Do nothing: the context is the device's, or the application's."""

    # ---- inside
    def _touch(self) -> None:
        """Append work that changes nothing."""
        # zink takes a fence without work since the last flush for reached, also behind an unmet wait (Mesa 22.3.6).
        do(self._gl, "glCopyNamedBufferSubData", self._scratch, self._scratch, 0, SCRATCH // 2, SCRATCH // 2)

    def _handed(self, memories: Sequence[Memory]) -> tuple[int, Any, int, Any, Any]:
        names = [name for each in memories for name in each.buffers]
        return len(names), (c_uint * len(names))(*names), 0, _NO_NAMES, _NO_NAMES

    def _append(self, work: Callable[[], object], want_fence: bool) -> Any:
        if self._owned:
            with Here(self._context):
                return self._appended(work, want_fence)
        if current(self._gl) != self._context.address:
            raise BusyError("the device's context is not current on this thread: make it current before the call",
                            reason="not_current")
        clear_errors(self._gl)
        return self._appended(work, want_fence)

    def _appended(self, work: Callable[[], object], want_fence: bool) -> Any:
        work()
        if not want_fence:
            do(self._gl, "glFlush")
            return None
        return tuple([self._fence() for _ in range(self._fences)])

    def _fence(self) -> Any:
        gl = self._gl
        self._touch()
        fence = do(gl, "glFenceSync", gl.GL_SYNC_GPU_COMMANDS_COMPLETE, 0)
        do(gl, "glFlush")   # also because the worker's context asks for the fence
        return fence
