"""Memory: imported as one cl_mem, its mappings, and page-locked host memory."""

from __future__ import annotations

from ctypes import addressof
from typing import Any

from xsem.errors import UnsupportedError, XsemError
from xsem.portable import SharedMemory
from xsem.spi import Imported, Lock
from xsem.types import MemoryDesc, OsHandleKind, OwnedHandle
from xsem_opencl import cl
from xsem_opencl.core import Core, array, properties
from xsem_opencl.file_descriptors import GivenFd
from xsem_opencl.results import MISALIGNED_SUB_BUFFER_OFFSET
from xsem_opencl.semaphores import handle_number

__all__ = ["HostBuffer", "HostBuffers", "Mapping", "Memory", "SharedWithHost", "import_memory", "memory_properties",
           "share_with_host"]


class Memory:
    """An imported cl_mem over the exporter's whole allocation."""

    __slots__ = ("acquired", "desc", "fd", "handle", "images")

    def __init__(self, handle: int, desc: MemoryDesc, fd: GivenFd | None) -> None:
        self.handle = handle   # cl_mem
        self.desc = desc   # of the import; its handle must not be used any more
        self.fd = fd
        self.images: set[int] = set()   # the cl_mem of the images over the same bytes, which change hands with it
        self.acquired = False   # whether the last appended handover is an acquire

    @property
    def size(self) -> int:
        """Bytes of the whole allocation."""
        return self.desc.allocation_size

    def handed(self, call: str) -> None:
        """Note an appended handover."""
        self.acquired = call == cl.ACQUIRE

    def release(self, core: Core) -> None:
        """Call clReleaseMemObject."""
        if self.acquired:
            _give_back(core, self.handle)
        if self.fd is not None:
            self.fd.object_goes()
        core.api.do("clReleaseMemObject", self.handle)
        if self.fd is not None:
            self.fd.object_gone()


class SharedWithHost:
    """A cl_mem over pages of the host."""

    # OpenCL may keep a copy on the device. Only a map brings the device's writes into the pages, and only an unmap
    # brings the host's writes to the device. So the memory is mapped while the other side has it.

    __slots__ = ("address", "handle", "mapped", "shared", "size")

    def __init__(self, handle: int, address: int, shared: SharedMemory) -> None:
        self.handle = handle   # cl_mem
        self.address = address   # of the pages
        self.shared = shared
        self.size = shared.size
        self.mapped = False   # by the last appended handover

    def handed(self, call: str) -> None:
        """Note an appended handover."""
        self.mapped = call == cl.MAP

    def release(self, core: Core) -> None:
        """Unmap the pages and call clReleaseMemObject."""
        if self.mapped:
            queue = core.create_queue()
            try:
                core.api.do(cl.UNMAP, queue, self.handle, self.address, 0, None, None)
                core.api.do("clFinish", queue)   # afterwards the driver does not touch the pages
            finally:
                core.api.do("clReleaseCommandQueue", queue)
        core.api.do("clReleaseMemObject", self.handle)
        self.shared.unmap()


def share_with_host(core: Core, shared: SharedMemory) -> SharedWithHost:
    """Call clCreateBuffer with CL_MEM_USE_HOST_PTR."""
    address = shared.map(0).address
    try:
        handle = core.api.make("clCreateBuffer", core.context, cl.MEM_READ_WRITE | cl.MEM_USE_HOST_PTR, shared.size,
                               address)
    except BaseException:
        shared.unmap()
        raise
    return SharedWithHost(handle, address, shared)


def _give_back(core: Core, handle: int) -> None:
    """Release external memory to its exporter before the cl_mem is released."""
    # Measured on an H200: clReleaseContext never returns if a memory is released while it is acquired.
    queue = core.create_queue()
    try:
        core.api.do(cl.GIVE_BACK, queue, 1, array([handle]), 0, None, None)
    finally:
        core.api.do("clReleaseCommandQueue", queue)   # flushes it


def memory_properties(core: Core, desc: MemoryDesc, number: int) -> Any:
    """Return the properties that name the handle to import, for buffers and images."""
    for_device = () if core.alone else (cl.MEM_DEVICE_HANDLE_LIST, core.device, 0)
    return properties(desc.type.native["opencl"][1], number, *for_device)


def import_memory(core: Core, desc: MemoryDesc, handle: OwnedHandle | None) -> Imported:
    """Call clCreateBufferWithProperties."""
    fd = GivenFd(handle) if handle is not None and desc.type.os_handle_kind is OsHandleKind.FD else None
    try:
        wanted = memory_properties(core, desc, handle_number(desc, handle if fd is None else fd.given))
        made = core.api.make("clCreateBufferWithProperties", core.context, wanted, cl.MEM_READ_WRITE,
                             desc.allocation_size, None)
    except BaseException:
        if fd is not None:
            fd.refused()
        raise
    # The state of an NT handle is "left": the import does not take it.
    return Imported(Memory(made, desc, fd), handle="left" if fd is None else fd.imported())


class Mapping:
    """A range of a memory, in bytes."""

    __slots__ = ("_lock", "_own", "memory", "offset", "size")

    def __init__(self, memory: Memory | SharedWithHost, offset: int, size: int) -> None:
        self.memory = memory
        self.offset = offset
        self.size = size
        self._lock = Lock()
        # Copies use the memory's cl_mem and an offset. This one is created when the native handle is requested.
        self._own: int | None = None

    def handle(self, core: Core) -> int:
        """Return a cl_mem of exactly this range: the memory's if the range covers it, else a sub-buffer."""
        if self.offset == 0 and self.size == self.memory.size:
            return self.memory.handle
        with self._lock:
            if self._own is None:
                region = cl.Region(self.offset, self.size)
                try:
                    self._own = core.api.make("clCreateSubBuffer", self.memory.handle, 0, cl.BUFFER_CREATE_TYPE_REGION,
                                              addressof(region))
                except XsemError as error:
                    if error.code != MISALIGNED_SUB_BUFFER_OFFSET:
                        raise
                    bits = core.api.number("clGetDeviceInfo", core.device, cl.DEVICE_MEM_BASE_ADDR_ALIGN)
                    raise UnsupportedError(
                        f"a cl_mem of this device cannot begin at offset {self.offset}, but at multiples of "
                        f"{bits // 8} bytes: map from such a multiple, and use an offset in the kernel",
                        capability="native_handle", call=error.call, code=error.code, code_name=error.code_name,
                    ) from error
            return self._own

    def release(self, core: Core) -> None:
        """Release the sub-buffer, if one was created."""
        with self._lock:
            own, self._own = self._own, None
        if own is not None:
            core.api.do("clReleaseMemObject", own)


class HostBuffer:
    """Page-locked host memory: a buffer that stays mapped."""

    __slots__ = ("address", "buffer")

    def __init__(self, buffer: int, address: int) -> None:
        self.buffer = buffer   # cl_mem
        self.address = address   # pointer to the first byte


# A copy to or from pageable memory blocks the caller until it is complete. Page-locked memory is a buffer that the
# driver allocates and that stays mapped until it is freed. Copies may use mapped memory as host memory, never as a
# buffer.
class HostBuffers:
    """Allocates and frees page-locked host memory, on a queue without other work."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = Lock()
        self._queue: int | None = None

    def allocate(self, size: int) -> HostBuffer:
        """Allocate `size` bytes."""
        api, queue = self._core.api, self._own_queue()
        buffer = api.make("clCreateBuffer", self._core.context, cl.MEM_READ_WRITE | cl.MEM_ALLOC_HOST_PTR, size, None)
        try:
            address = api.make("clEnqueueMapBuffer", queue, buffer, cl.CL_TRUE, cl.MAP_READ_AND_WRITE, 0, size, 0, None,
                               None)
        except BaseException:
            api.do("clReleaseMemObject", buffer)
            raise
        return HostBuffer(buffer, address)

    def free(self, memory: HostBuffer) -> None:
        """Free memory of `allocate`."""
        api, queue = self._core.api, self._own_queue()
        api.do("clEnqueueUnmapMemObject", queue, memory.buffer, memory.address, 0, None, None)
        self._core.flush(queue)
        api.do("clReleaseMemObject", memory.buffer)  # the driver keeps the buffer until it is unmapped

    def close(self) -> None:
        """Release the queue."""
        if self._queue is not None:
            self._core.api.do("clReleaseCommandQueue", self._queue)

    def _own_queue(self) -> int:
        with self._lock:
            if self._queue is None:
                self._queue = self._core.create_queue()
            return self._queue
