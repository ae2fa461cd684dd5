"""Memory: imported as one cl_mem; mappings of it; page-locked host memory."""

from __future__ import annotations

import threading
from ctypes import addressof
from typing import Any

from xsem.errors import UnsupportedError, XsemError
from xsem.types import MemoryDesc, OsHandleKind, OwnedHandle
from xsem_opencl import _cl as cl
from xsem_opencl._addresses import Addresses
from xsem_opencl._core import Core, array, properties
from xsem_opencl._fds import GivenFd
from xsem_opencl._results import MISALIGNED_SUB_BUFFER_OFFSET
from xsem_opencl._semaphores import handle_number

__all__ = ["HostMemories", "HostMemory", "Mapping", "Memory", "import_memory", "memory_properties"]


class Memory:
    """An imported cl_mem over the exporter's whole allocation, released once.

    Attributes
    ----------
    handle : int
        cl_mem.
    address : int
        The first byte's, of our own making.
    desc : MemoryDesc
        What it was imported with; its handle is not to be used any more.
    fd : GivenFd or None
    images : set of int
        The cl_mem of each image over the same bytes: they change hands with it.
    acquired : bool
        The last that was appended of it is that it is ours.
    """

    __slots__ = ("_left", "acquired", "address", "desc", "fd", "handle", "images")

    def __init__(self, handle: int, address: int, desc: MemoryDesc, fd: GivenFd | None) -> None:
        self.handle = handle
        self.address = address
        self.desc = desc
        self.fd = fd
        self.images: set[int] = set()
        self.acquired = False
        self._left = [handle]

    def release(self, core: Core, addresses: Addresses) -> None:
        """Call clReleaseMemObject, the first time."""
        try:
            handle = self._left.pop()
        except IndexError:
            return
        addresses.remove(self.address)
        if self.acquired:
            _give_back(core, handle)
        if self.fd is not None:
            self.fd.object_goes()
        core.api.do("clReleaseMemObject", handle)
        if self.fd is not None:
            self.fd.object_gone()


def _give_back(core: Core, handle: int) -> None:
    """Measured on an H200: with memory that is released while it is acquired, clReleaseContext never returns."""
    queue = core.create_queue()
    try:
        core.api.do(cl.GIVE_BACK, queue, 1, array([handle]), 0, None, None)
    finally:
        core.api.do("clReleaseCommandQueue", queue)   # flushes it


def memory_properties(core: Core, desc: MemoryDesc, number: int) -> Any:
    """What names the handle to import, for buffers and images."""
    for_device = () if core.alone else (cl.MEM_DEVICE_HANDLE_LIST, core.device, 0)
    return properties(desc.type.native["opencl"][1], number, *for_device)


def import_memory(core: Core, addresses: Addresses, desc: MemoryDesc, handle: OwnedHandle | None) -> Memory:
    """Call clCreateBufferWithProperties; `handle` is detached if it is the driver's now.

    Raises
    ------
    UnsupportedError
        ``not_supported``: an NT object by its name.
    XsemError
        The driver's refusal; what became of `handle` is not known.
    """
    fd = GivenFd(handle) if handle is not None and desc.type.os_handle_kind is OsHandleKind.FD else None
    try:
        wanted = memory_properties(core, desc, handle_number(desc, handle if fd is None else fd.given))
        made = core.api.make("clCreateBufferWithProperties", core.context, wanted, cl.MEM_READ_WRITE,
                             desc.allocation_size, None)
    except BaseException:
        if fd is not None:
            fd.refused()
        raise
    if fd is not None:
        fd.imported()
    return Memory(made, addresses.add_memory(made, desc.allocation_size), desc, fd)


class Mapping:
    """A range of a memory. Copies use the memory and an offset; a cl_mem of its own is made when somebody asks for it.

    Parameters
    ----------
    memory : Memory
    offset, size : int
        Bytes.
    """

    __slots__ = ("_lock", "_own", "memory", "offset", "size")

    def __init__(self, memory: Memory, offset: int, size: int) -> None:
        self.memory = memory
        self.offset = offset
        self.size = size
        self._lock = threading.Lock()
        self._own: int | None = None

    def handle(self, core: Core) -> int:
        """A cl_mem of just this range: the memory's where that is all of it, else a sub-buffer.

        Raises
        ------
        UnsupportedError
            ``native_handle``: a sub-buffer begins at a multiple of CL_DEVICE_MEM_BASE_ADDR_ALIGN.
        """
        if self.offset == 0 and self.size == self.memory.desc.allocation_size:
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
                        f"this device has no cl_mem that begins at offset {self.offset}, but at multiples of "
                        f"{bits // 8} bytes: map from such a one on, and use an offset in the kernel",
                        capability="native_handle", call=error.call, code=error.code, code_name=error.code_name,
                    ) from error
            return self._own

    def release(self, core: Core) -> None:
        """Release the sub-buffer, if there is one."""
        with self._lock:
            own, self._own = self._own, None
        if own is not None:
            core.api.do("clReleaseMemObject", own)


class HostMemory:
    """Page-locked host memory: a buffer that stays mapped."""

    __slots__ = ("address", "buffer", "size")

    def __init__(self, buffer: int, address: int, size: int) -> None:
        self.buffer = buffer
        self.address = address
        self.size = size


class HostMemories:
    """Makes and frees page-locked host memory, on a queue that has nothing else to do.

    A copy to or from ordinary memory holds the caller until it is made; the way to page-locked memory is a buffer of
    the driver's own, mapped for good. What is mapped may be copied to and from as host memory, never as a buffer.
    """

    def __init__(self, core: Core, addresses: Addresses) -> None:
        self._core = core
        self._addresses = addresses
        self._lock = threading.Lock()
        self._queue: int | None = None

    def allocate(self, size: int) -> HostMemory:
        """`size` bytes."""
        api, queue = self._core.api, self._own_queue()
        buffer = api.make("clCreateBuffer", self._core.context, cl.MEM_READ_WRITE | cl.MEM_ALLOC_HOST_PTR, size, None)
        try:
            address = api.make("clEnqueueMapBuffer", queue, buffer, cl.CL_TRUE, cl.MAP_READ_AND_WRITE, 0, size, 0, None,
                               None)
        except BaseException:
            api.do("clReleaseMemObject", buffer)
            raise
        self._addresses.add_host(address, size)
        return HostMemory(buffer, address, size)

    def free(self, memory: HostMemory) -> None:
        """Undo `allocate`, the first time."""
        buffer, memory.buffer = memory.buffer, 0
        if not buffer:
            return
        api, queue = self._core.api, self._own_queue()
        self._addresses.remove(memory.address)
        api.do("clEnqueueUnmapMemObject", queue, buffer, memory.address, 0, None, None)
        self._core.flush(queue)
        api.do("clReleaseMemObject", buffer)  # the driver keeps it until it is unmapped

    def close(self) -> None:
        """Release the queue."""
        queue, self._queue = self._queue, None
        if queue is not None:
            self._core.api.do("clReleaseCommandQueue", queue)

    def _own_queue(self) -> int:
        with self._lock:
            if self._queue is None:
                self._queue = self._core.create_queue()
            return self._queue
