"""One open OpenCL device."""

from __future__ import annotations

from typing import NoReturn

from xsem.errors import UnsupportedError, XsemError
from xsem.spi import DeviceDriver, ImportFailure, Token
from xsem.types import (
    Capabilities,
    Feature,
    MemoryDesc,
    MemoryHandleType,
    MipmapDesc,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
)
from xsem_opencl._addresses import Addresses
from xsem_opencl._core import Core
from xsem_opencl._images import Image, make_image
from xsem_opencl._lists import QueueList, queue_handle
from xsem_opencl._memory import HostMemories, HostMemory, Mapping, Memory, import_memory
from xsem_opencl._points import Point, foreign_event, is_done, release
from xsem_opencl._results import import_error
from xsem_opencl._semaphores import Semaphore, create_semaphore, export_semaphore, import_semaphore

__all__ = ["OpenCLDevice"]

_DLPACK_OPENCL = 4


class OpenCLDevice(DeviceDriver):
    """A device in one context, which it has a reference to.

    Parameters
    ----------
    core : Core
    index : int
    capabilities : Capabilities
    lent : object
        The application's object, kept alive; None in a context of our own.
    """

    def __init__(self, core: Core, index: int, capabilities: Capabilities, *, lent: object | None = None) -> None:
        self._core = core
        self._index = index
        self._capabilities = capabilities
        self._lent = lent
        self._addresses = Addresses()
        self._host = HostMemories(core, self._addresses)

    @property
    def capabilities(self) -> Capabilities:
        """What the driver answered when the device was opened."""
        return self._capabilities

    def dlpack_device(self) -> tuple[int, int]:
        """DLPack's kDLOpenCL and the index."""
        return (_DLPACK_OPENCL, self._index)

    def native_handle(self, token: Token | None) -> int:
        """cl_context for None; cl_semaphore_khr, cl_mem of a memory, of a mapping, of an image; cl_event."""
        if token is None:
            return self._core.context
        if isinstance(token, Mapping):
            return token.handle(self._core)
        if isinstance(token, Semaphore | Memory | Image | Point):
            return token.handle
        # None for host buffers: they are mapped, and no command may use the cl_mem of what is mapped.
        return super().native_handle(token)

    def close(self) -> None:
        """Give up the context: one of our own goes, a lent one stays the application's."""
        self._host.close()
        self._core.api.do("clReleaseContext", self._core.context)
        self._lent = None

    # ---- semaphores
    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Semaphore:
        """Call clCreateSemaphoreWithPropertiesKHR."""
        if desc.type not in self._capabilities.semaphore_import:
            self._refuse("semaphore.import", desc.type)
        try:
            return import_semaphore(self._core, desc, handle)
        except XsemError as error:
            raise ImportFailure(import_error(error, "a semaphore"), fate="unknown") from error

    def create_semaphore(self, type: SemaphoreHandleType, initial_value: int) -> Semaphore:
        """Call clCreateSemaphoreWithPropertiesKHR, for export."""
        if type not in self._capabilities.semaphore_export:
            self._refuse("semaphore.export", type)
        return create_semaphore(self._core, type)

    def export_semaphore(self, semaphore: Semaphore) -> OwnedHandle | None:
        """Call clGetSemaphoreHandleForTypeKHR."""
        return export_semaphore(self._core, semaphore)

    def release_semaphore(self, semaphore: Semaphore) -> None:
        """Call clReleaseSemaphoreKHR."""
        semaphore.release(self._core)

    # ---- memory
    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Memory:
        """Call clCreateBufferWithProperties."""
        if desc.type not in self._capabilities.memory_import:
            self._refuse("memory.import", desc.type)
        try:
            return import_memory(self._core, self._addresses, desc, handle)
        except XsemError as error:
            raise ImportFailure(import_error(error, "memory of that size"), fate="unknown") from error

    def map_buffer(self, memory: Memory, offset: int, size: int) -> tuple[Mapping, int]:
        """An address in the memory's own range: no pointer, a name for `append_copy` and `append_fill`."""
        return Mapping(memory, offset, size), memory.address + offset

    def unmap_buffer(self, buffer: Mapping) -> None:
        """Call clReleaseMemObject for its sub-buffer, if it has one."""
        buffer.release(self._core)

    def release_memory(self, memory: Memory) -> None:
        """Call clReleaseMemObject."""
        memory.release(self._core, self._addresses)

    def host_buffer(self, size: int) -> tuple[HostMemory, int]:
        """A buffer in page-locked memory, mapped for good."""
        made = self._host.allocate(size)
        return made, made.address

    def release_host_buffer(self, buffer: HostMemory) -> None:
        """Unmap it, and call clReleaseMemObject."""
        self._host.free(buffer)

    # ---- images
    def map_mipmapped_array(self, memory: Memory, desc: MipmapDesc) -> Image:
        """Call clCreateImageWithProperties."""
        if Feature.IMAGE not in self._capabilities.features:
            return super().map_mipmapped_array(memory, desc)  # type: ignore[no-any-return]
        return make_image(self._core, memory, desc)

    def mipmap_level(self, array: Image, level: int) -> Image:
        """The image itself: it has one level."""
        return array

    def release_array(self, array: Image) -> None:
        """Call clReleaseMemObject."""
        array.release(self._core)

    # ---- lists and points
    def create_command_list(self) -> QueueList:
        """A queue of our own, in order."""
        return QueueList(self._core, self._addresses, self._core.create_queue())

    def open_command_list(self, stream: object, in_order: bool) -> QueueList:
        """Borrow an in-order queue of this device and context."""
        return QueueList(self._core, self._addresses, queue_handle(self._core, stream, in_order=in_order), lent=stream)

    def open_event(self, native: object) -> Point:
        """Borrow the event of a command, in this context."""
        return foreign_event(self._core, native)

    def done(self, point: Point) -> bool:
        """Call clGetEventInfo."""
        return is_done(self._core, point)

    def release_point(self, point: Point) -> None:
        """Call clReleaseEvent."""
        release(self._core, point)

    # ---- inside
    def _refuse(self, what: str, handle_type: SemaphoreHandleType | MemoryHandleType) -> NoReturn:
        capability = f"{what}.{handle_type.value}"
        raise UnsupportedError(f"opencl:{self._index} does not declare {capability}", capability=capability,
                               handle_type=handle_type)
