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
from xsem_opencl.addresses import Addresses
from xsem_opencl.core import Core
from xsem_opencl.fences import Fence, foreign_event, is_done, release
from xsem_opencl.images import Image, make_image
from xsem_opencl.memory import HostMemories, HostMemory, Mapping, Memory, import_memory
from xsem_opencl.queue import QueueList, queue_handle
from xsem_opencl.results import import_error
from xsem_opencl.semaphores import Semaphore, create_semaphore, export_semaphore, import_semaphore

__all__ = ["OpenCLDevice"]

_DLPACK_OPENCL = 4


class OpenCLDevice(DeviceDriver):
    """A device in one context, to which it holds a reference.

    Parameters
    ----------
    core : Core
    index : int
    capabilities : Capabilities
    lent : object
        The application's object, kept alive; None for an owned context.
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
        """The capabilities that the driver reported when the device was opened."""
        return self._capabilities

    def dlpack_device(self) -> tuple[int, int]:
        """DLPack's kDLOpenCL and the device index."""
        return (_DLPACK_OPENCL, self._index)

    def native_handle(self, token: Token | None) -> int:
        """Return a native handle.

        Returns
        -------
        int
            cl_context for None; cl_semaphore_khr for a semaphore; cl_mem for a memory, a mapping or an image; cl_event
            for a fence.

        Raises
        ------
        UnsupportedError
            The object has no native handle, or a sub-buffer cannot begin at the mapping's offset.
        """
        if token is None:
            return self._core.context
        if isinstance(token, Mapping):
            return token.handle(self._core)
        if isinstance(token, Semaphore | Memory | Image | Fence):
            return token.handle
        # Host buffers have no native handle: they are mapped, and commands must not use the cl_mem of a mapped buffer.
        return super().native_handle(token)

    def close(self) -> None:
        """Release the reference to the context. A borrowed context stays the application's."""
        self._host.close()
        self._core.api.do("clReleaseContext", self._core.context)
        self._lent = None

    # ---- semaphores
    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Semaphore:
        """Call clCreateSemaphoreWithPropertiesKHR.

        On success, the fd belongs to the driver and `handle` is detached. On failure, the kernel is asked whether the
        driver closed the fd.

        Raises
        ------
        UnsupportedError
            The capabilities do not declare the handle type.
        ImportFailure
            The driver refused the import; the fate of the handle is "unknown".
        """
        if desc.type not in self._capabilities.semaphore_import:
            self._refuse("semaphore.import", desc.type)
        try:
            return import_semaphore(self._core, desc, handle)
        except XsemError as error:
            raise ImportFailure(import_error(error, "a semaphore"), fate="unknown") from error

    def create_semaphore(self, type: SemaphoreHandleType, initial_value: int) -> Semaphore:
        """Call clCreateSemaphoreWithPropertiesKHR for a semaphore to export.

        Raises
        ------
        UnsupportedError
            The capabilities do not declare the handle type.
        """
        if type not in self._capabilities.semaphore_export:
            self._refuse("semaphore.export", type)
        return create_semaphore(self._core, type)

    def export_semaphore(self, semaphore: Semaphore) -> OwnedHandle | None:
        """Call clGetSemaphoreHandleForTypeKHR.

        Returns
        -------
        OwnedHandle or None
            A new fd, owned by the caller; None for a sync file that is already signalled.
        """
        return export_semaphore(self._core, semaphore)

    def release_semaphore(self, semaphore: Semaphore) -> None:
        """Call clReleaseSemaphoreKHR."""
        semaphore.release(self._core)

    # ---- memory
    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Memory:
        """Call clCreateBufferWithProperties.

        On success, the fd belongs to the driver and `handle` is detached. On failure, the kernel is asked whether the
        driver closed the fd.

        Raises
        ------
        UnsupportedError
            The capabilities do not declare the handle type.
        ImportFailure
            The driver refused the import; the fate of the handle is "unknown".
        """
        if desc.type not in self._capabilities.memory_import:
            self._refuse("memory.import", desc.type)
        try:
            return import_memory(self._core, self._addresses, desc, handle)
        except XsemError as error:
            raise ImportFailure(import_error(error, "memory of that size"), fate="unknown") from error

    def map_buffer(self, memory: Memory, offset: int, size: int) -> tuple[Mapping, int]:
        """Return a range of the memory and its address.

        The address is not a pointer. It names the range for `append_copy` and `append_fill`.
        """
        return Mapping(memory, offset, size), memory.address + offset

    def unmap_buffer(self, buffer: Mapping) -> None:
        """Call clReleaseMemObject for the sub-buffer, if one was created."""
        buffer.release(self._core)

    def release_memory(self, memory: Memory) -> None:
        """Call clReleaseMemObject."""
        memory.release(self._core, self._addresses)

    def host_buffer(self, size: int) -> tuple[HostMemory, int]:
        """Create a buffer in page-locked memory. It stays mapped until its release."""
        made = self._host.allocate(size)
        return made, made.address

    def release_host_buffer(self, buffer: HostMemory) -> None:
        """Unmap the buffer and call clReleaseMemObject."""
        self._host.free(buffer)

    # ---- images
    def map_mipmapped_array(self, memory: Memory, desc: MipmapDesc) -> Image:
        """Call clCreateImageWithProperties."""
        if Feature.IMAGE not in self._capabilities.features:
            return super().map_mipmapped_array(memory, desc)  # type: ignore[no-any-return]
        return make_image(self._core, memory, desc)

    def mipmap_level(self, array: Image, level: int) -> Image:
        """Return the image itself: it has one level."""
        return array

    def release_array(self, array: Image) -> None:
        """Call clReleaseMemObject."""
        array.release(self._core)

    # ---- lists and fences
    def create_queue(self) -> QueueList:
        """Create an in-order queue, owned by the list."""
        return QueueList(self._core, self._addresses, self._core.create_queue())

    def stream_identity(self, stream: object) -> int | None:
        """Return the native handle of the queue: the identity of a borrowed list. None for other objects."""
        handle = getattr(stream, "int_ptr", stream)
        return handle if type(handle) is int else None

    def borrow_queue(self, stream: object, in_order: bool) -> QueueList:
        """Borrow an in-order queue of this device and context.

        The list holds its own reference to the queue.

        Raises
        ------
        TypeError
            `stream` has an unsupported type.
        BadArgumentError
            ``null_stream``; ``out_of_order``.
        WrongDeviceError
            ``wrong_device``, ``wrong_context``.
        """
        return QueueList(self._core, self._addresses, queue_handle(self._core, stream, in_order=in_order), lent=stream)

    def borrow_event(self, native: object) -> Fence:
        """Borrow the event of a command in this context.

        The fence holds its own reference to the event.

        Raises
        ------
        TypeError
            `native` has an unsupported type.
        BadArgumentError
            ``null_event``; ``user_event``.
        WrongDeviceError
            ``wrong_context``.
        """
        return foreign_event(self._core, native)

    def query_fence(self, fence: Fence) -> bool:
        """Call clGetEventInfo."""
        return is_done(self._core, fence)

    def release_fence(self, fence: Fence) -> None:
        """Call clReleaseEvent."""
        release(self._core, fence)

    # ---- inside
    def _refuse(self, what: str, handle_type: SemaphoreHandleType | MemoryHandleType) -> NoReturn:
        capability = f"{what}.{handle_type.value}"
        raise UnsupportedError(f"opencl:{self._index} does not declare {capability}", capability=capability,
                               handle_type=handle_type)
