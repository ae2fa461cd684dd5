"""One open OpenCL device."""

from __future__ import annotations

from collections.abc import Sequence

from xsem.errors import UnsupportedError, XsemError
from xsem.portable import SharedMemory
from xsem.spi import (
    BorrowedEvents,
    BorrowedQueues,
    DeviceDriver,
    HostFences,
    HostMemory,
    HostMemoryImport,
    Images,
    Imported,
    ImportFailure,
    MemoryImport,
    SemaphoreExport,
    SemaphoreImport,
    Token,
)
from xsem.types import Capabilities, MemoryDesc, MipmapDesc, OwnedHandle, SemaphoreDesc, SemaphoreHandleType
from xsem_opencl.core import Core
from xsem_opencl.fences import Fence, foreign_event, host_fence, is_done, reach, release
from xsem_opencl.images import Image, make_image, with_formats
from xsem_opencl.memory import (
    HostBuffer,
    HostBuffers,
    Mapping,
    Memory,
    SharedWithHost,
    import_memory,
    share_with_host,
)
from xsem_opencl.queue import CommandQueue, borrowed_queue, number_of
from xsem_opencl.results import import_error
from xsem_opencl.semaphores import Semaphore, create_semaphore, export_semaphore, import_semaphore

__all__ = ["OpenCLDevice"]

_DLPACK_OPENCL = 4


class OpenCLDevice(
    DeviceDriver, SemaphoreImport, SemaphoreExport, HostFences, MemoryImport, HostMemoryImport, Images, HostMemory,
    BorrowedQueues, BorrowedEvents,
):
    """A device in one context, to which it holds a reference."""

    def __init__(
        self, core: Core, index: int, capabilities: Capabilities, timeout_causes: Sequence[str] = (),
        undeclared_causes: dict[str, Sequence[str]] | None = None, *, lent: object | None = None,
    ) -> None:
        self._core = core
        self._index = index   # position among the backend's devices
        self._capabilities = with_formats(core, capabilities)
        self._lent = lent   # the application's object, kept alive; None for an owned context
        self.timeout_causes = timeout_causes
        self.undeclared_causes = undeclared_causes or {}
        self._host = HostBuffers(core)

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities that the driver reported when the device was opened."""
        return self._capabilities

    def native_handle(self, token: Token | None) -> int:
        """Return a cl_context for None, else the cl_semaphore_khr, cl_mem or cl_event of the object."""
        if token is None:
            return self._core.context
        if isinstance(token, Mapping):
            return token.handle(self._core)
        if isinstance(token, Semaphore | Memory | SharedWithHost | Image | Fence):
            return token.handle
        # Host buffers have no native handle: they are mapped, and commands must not use the cl_mem of a mapped buffer.
        return super().native_handle(token)

    def close(self) -> None:
        """Release the reference to the context. A borrowed context stays the application's."""
        self._host.close()
        self._core.api.do("clReleaseContext", self._core.context)
        self._lent = None

    # ---- semaphores
    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Imported:
        """Call clCreateSemaphoreWithPropertiesKHR."""
        try:
            return import_semaphore(self._core, desc, handle)
        except XsemError as error:
            raise ImportFailure(import_error(error, "a semaphore"), handle="unknown") from error

    def create_semaphore(self, type: SemaphoreHandleType, initial_value: int) -> Semaphore:
        """Call clCreateSemaphoreWithPropertiesKHR for a semaphore to export."""
        return create_semaphore(self._core, type)

    def export_semaphore(self, semaphore: Semaphore) -> OwnedHandle | None:
        """Call clGetSemaphoreHandleForTypeKHR."""
        return export_semaphore(self._core, semaphore)

    def release_semaphore(self, semaphore: Semaphore) -> None:
        """Call clReleaseSemaphoreKHR."""
        semaphore.release(self._core)

    # ---- memory
    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Imported:
        """Call clCreateBufferWithProperties."""
        try:
            return import_memory(self._core, desc, handle)
        except XsemError as error:
            raise ImportFailure(import_error(error, "memory of that size"), handle="unknown") from error

    def import_host_memory(self, memory: SharedMemory) -> SharedWithHost:
        """Call clCreateBuffer on the pages."""
        return share_with_host(self._core, memory)

    def dlpack_device(self) -> tuple[int, int]:
        """Return DLPack's kDLOpenCL and the index of the device."""
        # With the true number, no library takes a buffer for host memory.
        return (_DLPACK_OPENCL, self._index)

    def map_buffer(self, memory: Memory | SharedWithHost, offset: int, size: int) -> tuple[Mapping, None]:
        """Return a range of the memory."""
        return Mapping(memory, offset, size), None   # a cl_mem has no address

    def unmap_buffer(self, buffer: Mapping) -> None:
        """Call clReleaseMemObject for the sub-buffer, if one was created."""
        buffer.release(self._core)

    def release_memory(self, memory: Memory | SharedWithHost) -> None:
        """Call clReleaseMemObject."""
        memory.release(self._core)

    def host_buffer(self, size: int) -> tuple[HostBuffer, int]:
        """Create a buffer in page-locked memory, which stays mapped until its release."""
        made = self._host.allocate(size)
        return made, made.address

    def release_host_buffer(self, buffer: HostBuffer) -> None:
        """Unmap the buffer and call clReleaseMemObject."""
        self._host.free(buffer)

    # ---- images
    def map_mipmapped_array(self, memory: Memory | SharedWithHost, desc: MipmapDesc) -> Image:
        """Call clCreateImageWithProperties."""
        if isinstance(memory, SharedWithHost):
            raise UnsupportedError("xsem maps no images onto memory of the host: copy between a buffer on it and an "
                                   "image", capability="mipmapped_array.host_memory")
        return make_image(self._core, memory, desc)

    def mipmap_level(self, array: Image, level: int) -> Image:
        """Return the image itself: it has one level."""
        return array

    def release_array(self, array: Image) -> None:
        """Call clReleaseMemObject."""
        array.release(self._core)

    # ---- queues and fences
    def create_queue(self) -> CommandQueue:
        """Create an in-order queue, which the returned object owns."""
        return CommandQueue(self._core, self._core.create_queue())

    def queue_identity(self, stream: object) -> int:
        """Return the cl_command_queue: the identity of a borrowed queue."""
        return number_of(self._core, stream)

    def borrow_queue(self, stream: object, in_order: bool) -> CommandQueue:
        """Borrow an in-order queue of this device and context."""
        return CommandQueue(self._core, borrowed_queue(self._core, stream, in_order=in_order), lent=stream)

    def borrow_event(self, native: object) -> Fence:
        """Borrow the event of a command in this context."""
        return foreign_event(self._core, native)

    def query_fence(self, fence: Fence) -> bool:
        """Call clGetEventInfo."""
        return is_done(self._core, fence)

    def create_host_fence(self) -> Fence:
        """Call clCreateUserEvent."""
        return host_fence(self._core)

    def reach_host_fence(self, fence: Fence) -> None:
        """Call clSetUserEventStatus."""
        reach(self._core, fence)

    def release_fence(self, fence: Fence) -> None:
        """Call clReleaseEvent."""
        release(self._core, fence)
