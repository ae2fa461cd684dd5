"""The queue of a context: every append is made in it, and flushed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import c_ubyte, c_uint
from typing import Any, Final

from xsem.errors import BadArgumentError, BusyError
from xsem.spi import Callers, CopyQueue, ImageCopyQueue, ImageRegion, SemaphoreQueue
from xsem.types import SignalParams, WaitParams
from xsem_opengl.answers import Answers
from xsem_opengl.contexts import do
from xsem_opengl.fences import Fences
from xsem_opengl.glx import AnyContext
from xsem_opengl.host_fences import HostFence
from xsem_opengl.images import Level, copy_levels, copy_rows, pixel_store
from xsem_opengl.objects import SCRATCH, Buffer, Memory, clear_errors
from xsem_opengl.semaphores import Semaphore, set_value
from xsem_opengl.worker import Worker

__all__ = ["ContextQueue"]

_GENERAL: Final = 0x958D   # GL_LAYOUT_GENERAL_EXT


class ContextQueue(SemaphoreQueue, CopyQueue, ImageCopyQueue):
    """The commands of one context."""

    def __init__(
        self, context: AnyContext, answers: Answers, fresh: Callable[[Semaphore], int], fences: Fences, scratch: int,
        own: Worker | None,
    ) -> None:
        self.identity = self.native_handle = context.address
        self._context = context
        self._gl = context.gl
        self._fresh = fresh   # makes a name for a wait
        self._fences = fences
        self._needs_work = answers.quirks.drops_idle_signals
        self._scratch = scratch   # a buffer of SCRATCH bytes
        self._own = own   # the thread of xsem's own context
        # The application calls its own context without xsem's lock.
        self.callers = Callers.APPLICATION if own is None else Callers.ONE_AT_A_TIME

    # ---- semaphores
    def append_wait(
        self, semaphores: Sequence[Semaphore], params: Sequence[WaitParams], wait_fences: Sequence[Any],
        acquire: Sequence[Memory], want_fence: bool,
    ) -> Any:
        """Call glWaitSemaphoreEXT for each semaphore."""
        def wait() -> None:
            handed = _handed(acquire)
            for each, param in zip(semaphores, params, strict=True):
                name = self._fresh(each)
                try:
                    if each.timeline:
                        set_value(self._gl, name, param.value or 0)
                    do(self._gl, "glWaitSemaphoreEXT", name, *handed)
                    self._touch()
                finally:
                    if name != each.name:
                        each.waited(name, self._fences)

        return self._append(wait, wait_fences, want_fence, acquire)

    def append_signal(
        self, semaphores: Sequence[Semaphore], params: Sequence[SignalParams], wait_fences: Sequence[Any],
        release: Sequence[Memory], want_fence: bool,
    ) -> Any:
        """Call glSignalSemaphoreEXT for each semaphore."""
        def signal() -> None:
            handed = _handed(release)
            self._touch()
            for each, param in zip(semaphores, params, strict=True):
                if each.timeline:
                    set_value(self._gl, each.name, param.value or 0)
                do(self._gl, "glSignalSemaphoreEXT", each.name, *handed)

        return self._append(signal, wait_fences, want_fence)

    # ---- work
    def append_barrier(self, wait_fences: Sequence[Any], want_fence: bool) -> Any:
        """Call glMemoryBarrier. The commands of a context are in order, and so are those of all its lists."""
        return self._append(lambda: do(self._gl, "glMemoryBarrier", self._gl.GL_ALL_BARRIER_BITS),
                            wait_fences, want_fence)

    def append_copy(
        self, dst: Buffer, dst_offset: int, src: Buffer, src_offset: int, size: int, wait_fences: Sequence[Any],
        want_fence: bool,
    ) -> Any:
        """Call glCopyNamedBufferSubData."""
        return self._append(lambda: do(self._gl, "glCopyNamedBufferSubData", src.buffer, dst.buffer,
                                       src.offset + src_offset, dst.offset + dst_offset, size), wait_fences, want_fence)

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
                f"OpenGL fills with patterns of {', '.join(map(str, formats))} bytes, at offsets that are multiples of "
                f"the length, not with {len(pattern)} bytes at byte {at}", reason="bad_pattern")
        internal, layout, kind = formats[len(pattern)]
        data = (c_ubyte * len(pattern)).from_buffer_copy(pattern)

        def fill() -> None:
            with pixel_store(gl, "UNPACK", 0):   # which OpenGL applies to the pattern
                do(gl, "glClearNamedBufferSubData", dst.buffer, internal, at, size, layout, kind, data)

        return self._append(fill, wait_fences, want_fence)

    def append_region_copy(
        self, level: Level, region: ImageRegion, buffer: Buffer, offset: int, row_pitch: int, slice_pitch: int,
        read: bool, wait_fences: Sequence[Any], want_fence: bool,
    ) -> Any:
        """Call glGetTextureSubImage or glTextureSubImage…D."""
        return self._append(lambda: copy_rows(level, region, buffer.buffer, buffer.offset + offset, row_pitch,
                                              slice_pitch, read=read), wait_fences, want_fence)

    def append_image_copy(
        self, dst: Level, dst_region: ImageRegion, src: Level, src_region: ImageRegion, wait_fences: Sequence[Any],
        want_fence: bool,
    ) -> Any:
        """Call glCopyImageSubData."""
        return self._append(lambda: copy_levels(dst, dst_region, src, src_region), wait_fences, want_fence)

    def close(self) -> None:
        """Do nothing: the context is the device's, or the application's."""

    # ---- inside
    def _touch(self) -> None:
        """Append work that changes nothing, where a wait or a signal needs work beside it."""
        # zink makes no signal without work since the last flush (Mesa 22.3.6).
        if self._needs_work:
            do(self._gl, "glCopyNamedBufferSubData", self._scratch, self._scratch, 0, SCRATCH // 2,
               SCRATCH // 2)

    def _append(
        self, work: Callable[[], object], wait_fences: Sequence[Any], want_fence: bool, acquire: Sequence[Memory] = ()
    ) -> Any:
        if self._own is not None:
            return self._own.call(self._appended, work, wait_fences, want_fence, acquire)
        if not self._context.is_current():
            raise BusyError("the device's context is not current on this thread: make it current before the call",
                            reason="not_current")
        clear_errors(self._gl)
        return self._appended(work, wait_fences, want_fence, acquire)

    def _appended(
        self, work: Callable[[], object], wait_fences: Sequence[Any], want_fence: bool, acquire: Sequence[Memory]
    ) -> Any:
        for fence in wait_fences:   # the others are of this context, whose commands are in order
            if isinstance(fence, HostFence):
                set_value(self._gl, fence.name, fence.value)
                do(self._gl, "glWaitSemaphoreEXT", fence.name, *_handed(acquire))
        work()
        if want_fence:
            return self._fences.append()
        do(self._gl, "glFlush")
        return None


def _names(names: Sequence[int]) -> Any:
    return (c_uint * len(names))(*names)


def _handed(memories: Sequence[Memory]) -> tuple[int, Any, int, Any, Any]:
    # Copies, because the worker changes the sets.
    buffers = _names([name for each in memories for name in tuple(each.buffers)])
    textures = _names([name for each in memories for name in tuple(each.textures)])
    return len(buffers), buffers, len(textures), textures, _names([_GENERAL] * len(textures))
