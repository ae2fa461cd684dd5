"""Imported memory, and buffers."""

from __future__ import annotations

from ctypes import c_int, c_uint, c_void_p
from typing import Any, Final

from xsem.errors import OutOfMemoryError, UnsupportedError, XsemError
from xsem.spi import Imported, ImportFailure
from xsem.types import MemoryDesc, MemoryHandleType, OwnedHandle
from xsem_opengl.answers import Answers
from xsem_opengl.contexts import do
from xsem_opengl.loader import Gl

__all__ = ["SCRATCH", "Buffer", "HostBuffer", "Mapping", "Memory", "clear_errors", "delete",
           "new_name", "scratch_buffer", "stored"]

SCRATCH: Final = 8   # bytes of a buffer for work that changes nothing
OPAQUE_FD: Final = MemoryHandleType.OPAQUE_FD.native["opengl"][1]   # also of semaphores
_DEDICATED: Final = 0x9581
_MOST_ERRORS: Final = 16


def new_name(gl: Gl, call: str, *arguments: Any) -> int:
    """Call a function that writes one new name."""
    names = (c_uint * 1)()
    do(gl, call, *arguments, 1, names)
    return int(names[0])


def delete(gl: Gl, call: str, *names: int) -> None:
    """Call a function that deletes names."""
    do(gl, call, len(names), (c_uint * len(names))(*names))


def clear_errors(gl: Gl) -> None:
    """Clear the errors that are set in the context, so that they are not taken for those of the next call."""
    for _ in range(_MOST_ERRORS):   # a lost context has one for ever
        if not gl.glGetError():
            return


def scratch_buffer(gl: Gl) -> int:
    """Make a buffer of `SCRATCH` bytes."""
    return stored(gl, SCRATCH, None)


def stored(gl: Gl, size: int, data: Any) -> int:
    """Make a buffer with these bytes, which only the device changes."""
    name = new_name(gl, "glCreateBuffers")
    try:
        do(gl, "glNamedBufferStorage", name, size, data, 0)
    except BaseException:
        delete(gl, "glDeleteBuffers", name)
        raise
    return name


class Memory:
    """An imported memory object, with a buffer over all of it."""

    def __init__(self, gl: Gl, name: int, buffer: int, size: int, *, offsets: bool) -> None:
        self.gl = gl
        self.name = name
        self.buffer = buffer
        self.size = size
        self.offsets = offsets
        self.buffers = {buffer}   # that change hands with the memory, as the textures do
        self.textures = set[int]()

    @classmethod
    def imported(cls, gl: Gl, answers: Answers, desc: MemoryDesc, handle: OwnedHandle) -> Imported:
        """Import a file, on the worker."""
        answers.check_file(handle.fileno())
        name = new_name(gl, "glCreateMemoryObjectsEXT")
        try:
            if desc.dedicated:
                do(gl, "glMemoryObjectParameterivEXT", name, _DEDICATED, (c_int * 1)(1))
            do(gl, "glImportMemoryFdEXT", name, desc.allocation_size, OPAQUE_FD, handle.fileno())
        except BaseException:
            delete(gl, "glDeleteMemoryObjectsEXT", name)
            raise
        try:
            made = cls(gl, name, buffer_on(gl, name, 0, desc.allocation_size), desc.allocation_size,
                       offsets=answers.quirks.offsets)
        except XsemError as error:
            delete(gl, "glDeleteMemoryObjectsEXT", name)
            raise ImportFailure(error, handle="taken") from error   # the driver has the file
        return Imported(made, handle="taken")

    def release(self) -> None:
        """Delete it, on the worker."""
        delete(self.gl, "glDeleteBuffers", self.buffer)
        delete(self.gl, "glDeleteMemoryObjectsEXT", self.name)


def buffer_on(gl: Gl, memory: int, offset: int, size: int) -> int:
    """Make a buffer on a range of a memory object."""
    name = new_name(gl, "glCreateBuffers")
    try:
        do(gl, "glNamedBufferStorageMemEXT", name, size, memory, offset)
    except BaseException:
        delete(gl, "glDeleteBuffers", name)
        raise
    return name


class Mapping:
    """A range of a memory."""

    def __init__(self, memory: Memory, offset: int, size: int) -> None:
        self.memory = memory
        self.offset = offset
        self._size = size
        self._own = 0   # a buffer of exactly this range, made when its name is asked for

    @property
    def buffer(self) -> int:
        """The buffer for copies, in which `offset` is the first byte."""
        return self.memory.buffer

    def exact(self) -> int:
        """Return the name of a buffer of exactly this range, on the worker."""
        if self.offset == 0 and self._size == self.memory.size:
            return self.memory.buffer
        if self.offset and not self.memory.offsets:
            raise UnsupportedError("the driver ignores the offset of a buffer in its memory: take the native_handle of "
                                   "a mapping from offset 0", reason="native_handle", capability="native_handle",
                                   backend="opengl")
        if not self._own:
            self._own = buffer_on(self.memory.gl, self.memory.name, self.offset, self._size)
            self.memory.buffers.add(self._own)
        return self._own

    def release(self) -> None:
        """Delete the buffer of the range, on the worker."""
        if self._own:
            self.memory.buffers.discard(self._own)
            delete(self.memory.gl, "glDeleteBuffers", self._own)


class HostBuffer:
    """A buffer in memory of the host, which stays mapped."""

    offset = 0

    def __init__(self, gl: Gl, size: int) -> None:
        self._gl = gl
        flags = gl.GL_MAP_READ_BIT | gl.GL_MAP_WRITE_BIT | gl.GL_MAP_PERSISTENT_BIT | gl.GL_MAP_COHERENT_BIT
        self.buffer = new_name(gl, "glCreateBuffers")
        try:
            do(gl, "glNamedBufferStorage", self.buffer, size, None, flags | gl.GL_CLIENT_STORAGE_BIT)
            found = do(gl, "glMapNamedBufferRange", self.buffer, 0, size, flags)
            self.address = c_void_p(found).value or 0
            if not self.address:
                raise OutOfMemoryError(f"glMapNamedBufferRange gives no address for {size} bytes",
                                       call="glMapNamedBufferRange", reason="out_of_memory")
        except BaseException:
            delete(gl, "glDeleteBuffers", self.buffer)
            raise

    def release(self) -> None:
        """Delete it, on the worker."""
        delete(self._gl, "glDeleteBuffers", self.buffer)


Buffer = Mapping | HostBuffer
