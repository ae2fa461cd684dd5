"""Memory: imported as one USM pointer to the start of the exporter's allocation."""

from __future__ import annotations

from ctypes import byref, c_size_t, c_void_p

from xsem.errors import BadHandleError, OutOfMemoryError, UnsupportedError, XsemError
from xsem.portable import SharedMemory
from xsem.spi import duplicate_fd
from xsem.types import MemoryDesc, OsHandleKind, OwnedHandle
from xsem_levelzero import ze
from xsem_levelzero.core import Core
from xsem_levelzero.results import UNSUPPORTED_SIZE
from xsem_levelzero.semaphores import handle_number, win32_name

__all__ = ["Memory", "SharedWithHost", "allocate", "free", "import_memory", "memory_struct", "new_host_memory",
           "share_with_host", "too_large"]


class Memory:
    """Imported memory."""

    __slots__ = ("address", "desc", "kept")

    def __init__(self, address: int, desc: MemoryDesc, kept: OwnedHandle | None) -> None:
        self.address = address   # USM pointer to the first byte
        self.desc = desc         # of the import; its handle must not be used any more
        self.kept = kept         # owned duplicate of the fd: images are created from it, not from the pointer

    def release(self, core: Core) -> None:
        """Call zeMemFree and close the duplicate."""
        try:
            free(core, self.address)
        finally:
            if self.kept is not None:
                self.kept.close()


def memory_struct(desc: MemoryDesc, number: int | None) -> ze.Base:
    """Return the ze_external_memory_import_fd_t or …_win32_handle_t; `number` is None for a named object."""
    flags = desc.type.native["levelzero"][1]
    if desc.type.os_handle_kind is OsHandleKind.FD:
        return ze.ImportFd.made(flags=flags, fd=number)
    struct = ze.ImportWin32.made(flags=flags, handle=number)
    if desc.name is not None:
        win32_name(struct, (desc.name + "\0").encode("utf-16-le"))  # const void*: UTF-16, as Windows names
    return struct


def import_memory(core: Core, desc: MemoryDesc, handle: OwnedHandle | None, *, keep: bool) -> Memory:
    """Call zeMemAllocDevice with an import, and keep a duplicate of the fd for images if `keep`."""
    kept = None
    if keep and handle is not None and desc.type.os_handle_kind is OsHandleKind.FD:
        # The duplicate is made before the driver's call, because some releases of the driver close the fd in the call.
        kept = duplicate_fd(handle.fileno())
    try:
        wanted = ze.DeviceMemAllocDesc.made(pNext=memory_struct(desc, handle_number(desc, handle)))
        address = core.loader.make("zeMemAllocDevice", core.context, byref(wanted), desc.allocation_size, 0,
                                   core.device)
        try:
            _check_size(core, desc, address)
        except BaseException:
            free(core, address)
            raise
    except BaseException:
        if kept is not None:
            kept.close()
        raise
    return Memory(address, desc, kept)


def _check_size(core: Core, desc: MemoryDesc, address: int) -> None:
    # Drivers ignore the requested size and take the size from the handle.
    base, size = c_void_p(), c_size_t()
    try:
        core.loader.do("zeMemGetAddressRange", core.context, address, byref(base), byref(size))
    except XsemError as error:
        error.likely_causes = (*error.likely_causes, "the driver does not know the pointer that it has just returned")
        raise
    there = size.value - (address - (base.value or 0))
    if there < desc.allocation_size:
        raise BadHandleError(
            f"the driver sees {there} bytes in this memory, fewer than the allocation_size of {desc.allocation_size}",
            reason="allocation_size_beyond_file", handle_type=desc.type, call="zeMemGetAddressRange",
        )


def new_host_memory(core: Core, size: int) -> int:
    """Call zeMemAllocHost and return the USM pointer."""
    return allocate(core, "zeMemAllocHost", ze.HostMemAllocDesc.made(), size)


def allocate(core: Core, function: str, desc: ze.Base, size: int, *device: int) -> int:
    """Allocate new memory and return the USM pointer."""
    try:
        return core.loader.make(function, core.context, byref(desc), size, 0, *device)
    except UnsupportedError as error:
        if error.code != UNSUPPORTED_SIZE:
            raise
        raise too_large(size, error) from error


def too_large(size: int, error: XsemError | None = None) -> OutOfMemoryError:
    """Return the error for a size beyond the limit of the device or the driver."""
    call, code, name = (None, None, None) if error is None else (error.call, error.code, error.code_name)
    return OutOfMemoryError(f"{size} bytes are more than the device allocates at once", reason="out_of_memory",
                            call=call, code=code, code_name=name)


class SharedWithHost:
    """Pages of the host that the driver knows as host memory, at their own address."""

    __slots__ = ("_shared", "address")

    def __init__(self, address: int, shared: SharedMemory) -> None:
        self.address = address
        self._shared = shared

    def release(self, core: Core) -> None:
        """Call zeMemFree, which ends the driver's use, and unmap the pages."""
        free(core, self.address)
        self._shared.unmap()


def share_with_host(core: Core, shared: SharedMemory) -> SharedWithHost:
    """Call zeMemAllocHost on the pages (ZE_extension_external_memmap_sysmem)."""
    try:
        pages = ze.SystemMemory.made(pSystemMemory=shared.map(0).address, size=shared.size)
        desc = ze.HostMemAllocDesc.made(pNext=pages)
        address = core.loader.make("zeMemAllocHost", core.context, byref(desc), shared.size, 0)
    except BaseException:
        shared.unmap()
        raise
    return SharedWithHost(address, shared)


def free(core: Core, address: int) -> None:
    """Call zeMemFree."""
    core.destroy("zeMemFree", core.context, address)
