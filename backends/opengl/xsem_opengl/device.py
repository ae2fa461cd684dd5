"""The device: a context, and the thread that imports, asks and frees."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from xsem import spi
from xsem.errors import BadArgumentError, UnsupportedError, XsemError
from xsem.spi import (
    DeviceDriver,
    HostMemory,
    Images,
    Imported,
    ImportFailure,
    MemoryImport,
    SemaphoreImport,
    Token,
)
from xsem.types import Capabilities, MemoryDesc, MipmapDesc, OwnedHandle, SemaphoreDesc
from xsem_opengl.answers import Answers, capabilities_of
from xsem_opengl.fences import fences_for
from xsem_opengl.glx import AnyContext
from xsem_opengl.host_fences import HostFence, HostFences
from xsem_opengl.images import Image, Level
from xsem_opengl.objects import HostBuffer, Mapping, Memory, delete, scratch_buffer
from xsem_opengl.queue import ContextQueue
from xsem_opengl.semaphores import Semaphore
from xsem_opengl.worker import Worker

__all__ = ["OpenGLDevice"]


class OpenGLDevice(DeviceDriver, SemaphoreImport, MemoryImport, Images, HostMemory, spi.HostFences):
    """A device on one context."""

    def __init__(
        self, context: AnyContext, answers: Answers, worker: Worker, own: Worker | None, lent: object | None = None,
        open_exporter: Callable[[], DeviceDriver] | None = None,
    ) -> None:
        self._context = context
        self._gl = context.gl
        self._answers = answers
        self._worker = worker
        self._own = own   # the thread of the context, if that is not the application's
        self._lent = lent   # the application's object, kept alive
        self._capabilities = capabilities_of(answers, exporter=open_exporter is not None)
        self._host_fences = HostFences(context.gl, worker, open_exporter) if open_exporter is not None else None
        self._fences = worker.call(fences_for, context.gl, answers)
        try:
            self._scratch = worker.call(scratch_buffer, context.gl)
        except BaseException:
            worker.call(self._fences.close)
            raise

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the context."""
        return self._capabilities

    def create_queue(self) -> ContextQueue:
        """Return the queue of the context, of which all lists are."""
        return ContextQueue(self._context, self._answers, self._name_for_wait, self._fences, self._scratch,
                            self._own)

    def query_fence(self, fence: Any) -> bool:
        """Call glClientWaitSync without a time."""
        if isinstance(fence, HostFence):
            return self._bridge().is_reached(fence)
        return self._worker.call(self._fences.is_reached, fence)

    def release_fence(self, fence: Any) -> None:
        """Call glDeleteSync."""
        if isinstance(fence, HostFence):
            self._bridge().release(fence)
            return
        self._worker.call(self._fences.delete, fence)

    def create_host_fence(self) -> HostFence:
        """Return a value of a timeline that Vulkan creates."""
        return self._bridge().create()

    def reach_host_fence(self, fence: HostFence) -> None:
        """Call vkSignalSemaphore."""
        self._bridge().reach(fence)

    def _bridge(self) -> HostFences:
        assert self._host_fences is not None  # noqa: S101 - declared only with them
        return self._host_fences

    def native_handle(self, token: Token | None) -> int:
        """Return the context for None, else the name of the semaphore, memory object or buffer."""
        if token is None:
            return self._context.address
        if isinstance(token, (Semaphore, Memory, Image)):
            return token.name
        if isinstance(token, Level):
            return token.image.name
        if isinstance(token, Mapping):
            return self._worker.call(token.exact)
        if isinstance(token, HostBuffer):
            return token.buffer
        raise UnsupportedError("this object has no native handle", capability="native_handle", backend="opengl")

    def close(self) -> None:
        """End the thread, and destroy the contexts of xsem."""
        with contextlib.ExitStack() as steps:   # each, also if another one fails
            steps.callback(setattr, self, "_lent", None)
            if self._own is not None:
                steps.callback(self._own.close)
            steps.callback(self._worker.close)
            steps.callback(self._worker.call, delete, self._gl, "glDeleteBuffers", self._scratch)
            steps.callback(self._worker.call, self._fences.close)
            if self._host_fences is not None:
                steps.callback(self._host_fences.close)

    # ---- semaphores
    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Imported:
        """Call glImportSemaphoreFdEXT."""
        return self._imported(Semaphore.imported, desc, handle)

    def release_semaphore(self, semaphore: Semaphore) -> None:
        """Call glDeleteSemaphoresEXT."""
        self._worker.call(semaphore.release)

    def _name_for_wait(self, semaphore: Semaphore) -> int:
        return self._worker.call(semaphore.for_wait) if self._answers.quirks.skips_second_wait else semaphore.name

    # ---- memory
    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Imported:
        """Call glImportMemoryFdEXT and glNamedBufferStorageMemEXT."""
        return self._imported(Memory.imported, desc, handle)

    def map_buffer(self, memory: Memory, offset: int, size: int) -> tuple[Mapping, None]:
        """Return a range of the memory, which has no address."""
        return Mapping(memory, offset, size), None

    def unmap_buffer(self, buffer: Mapping) -> None:
        """Delete the buffer of exactly this range, if its name was asked for."""
        self._worker.call(buffer.release)

    def release_memory(self, memory: Memory) -> None:
        """Call glDeleteBuffers and glDeleteMemoryObjectsEXT."""
        self._worker.call(memory.release)

    # ---- images
    def map_mipmapped_array(self, memory: Memory, desc: MipmapDesc) -> Image:
        """Call glTextureStorageMem…DEXT."""
        return self._worker.call(Image, self._gl, memory, desc)

    def mipmap_level(self, array: Image, level: int) -> Level:
        """Return a level of the texture."""
        if not 0 <= level < array.desc.levels:
            raise BadArgumentError(f"the image has {array.desc.levels} levels, and no level {level}",
                                   reason="bad_levels")
        return Level(array, level)

    def release_array(self, array: Image) -> None:
        """Call glDeleteTextures."""
        self._worker.call(array.release)

    def host_buffer(self, size: int) -> tuple[HostBuffer, int]:
        """Make a buffer that stays mapped."""
        made = self._worker.call(HostBuffer, self._gl, size)
        return made, made.address

    def release_host_buffer(self, buffer: HostBuffer) -> None:
        """Call glDeleteBuffers."""
        self._worker.call(buffer.release)

    def _imported(self, imported: Any, desc: SemaphoreDesc | MemoryDesc, handle: OwnedHandle | None) -> Imported:
        assert handle is not None  # noqa: S101 - all types here have files
        try:
            made: Imported = self._worker.call(imported, self._gl, self._answers, desc, handle)
        except XsemError as error:
            # A file that the driver has not seen is left; NVIDIA's driver closes some refused ones, and Mesa's all.
            state = "left" if error.call is None else "unknown"
            raise ImportFailure(error, handle=state) from error   # type: ignore[arg-type]
        return made
