"""Semaphores: clCreateSemaphoreWithPropertiesKHR, and the properties that a list needs."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_int, c_uint64, sizeof
from typing import Any, cast

from xsem.errors import UnsupportedError
from xsem.spi import Imported
from xsem.types import MemoryDesc, OsHandleKind, OwnedHandle, SemaphoreDesc, SemaphoreHandleType, SemaphoreKind
from xsem_opencl import cl
from xsem_opencl.core import Core, properties
from xsem_opencl.file_descriptors import GivenFd

__all__ = ["Semaphore", "create_semaphore", "export_semaphore", "handle_number", "import_semaphore", "payloads"]


class Semaphore:
    """A cl_semaphore_khr."""

    __slots__ = ("_fd", "handle", "type")

    def __init__(self, handle: int, type: SemaphoreHandleType, fd: GivenFd | None) -> None:
        self.handle = handle
        self.type = type
        self._fd = fd

    def release(self, core: Core) -> None:
        """Call clReleaseSemaphoreKHR."""
        if self._fd is not None:
            self._fd.object_goes()
        core.api.do("clReleaseSemaphoreKHR", self.handle)
        if self._fd is not None:
            self._fd.object_gone()


def _for_device(core: Core) -> tuple[int, ...]:
    return () if core.alone else (cl.SEMAPHORE_DEVICE_HANDLE_LIST, core.device, 0)


def import_semaphore(core: Core, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Imported:
    """Call clCreateSemaphoreWithPropertiesKHR for an exporter's handle."""
    fd = GivenFd(handle) if handle is not None and desc.type.os_handle_kind is OsHandleKind.FD else None
    try:
        wanted = properties(cl.SEMAPHORE_TYPE, cl.SEMAPHORE_TYPE_BINARY, desc.type.native["opencl"][1],
                            handle_number(desc, handle if fd is None else fd.given), *_for_device(core))
        made = core.api.make("clCreateSemaphoreWithPropertiesKHR", core.context, wanted)
    except BaseException:
        if fd is not None:
            fd.refused()
        raise
    # The state of an NT handle is "left": the import does not take it.
    return Imported(Semaphore(made, desc.type, fd), handle="left" if fd is None else fd.imported())


def handle_number(desc: SemaphoreDesc | MemoryDesc, handle: OwnedHandle | None) -> int:
    """Return the number of the duplicate, or the KMT handle without one."""
    if handle is not None:
        return handle.fileno()
    if desc.handle is None:
        raise UnsupportedError("the OpenCL backend imports handles, not names", capability="name",
                               reason="not_supported")
    return cast("int", desc.handle)


def create_semaphore(core: Core, type: SemaphoreHandleType) -> Semaphore:
    """Create a semaphore for export."""
    wanted = properties(cl.SEMAPHORE_TYPE, cl.SEMAPHORE_TYPE_BINARY, cl.SEMAPHORE_EXPORT_HANDLE_TYPES,
                        type.native["opencl"][1], 0, *_for_device(core))
    return Semaphore(core.api.make("clCreateSemaphoreWithPropertiesKHR", core.context, wanted), type, None)


def export_semaphore(core: Core, semaphore: Semaphore) -> OwnedHandle | None:
    """Return a new fd, owned by the caller; None for a sync file that is already signalled."""
    fd = c_int(-1)
    core.api.do("clGetSemaphoreHandleForTypeKHR", semaphore.handle, core.device, semaphore.type.native["opencl"][1],
                sizeof(fd), byref(fd), None)
    return None if fd.value == -1 and semaphore.type is SemaphoreHandleType.SYNC_FD else OwnedHandle(fd.value)


def payloads(semaphores: Sequence[Semaphore], params: Sequence[Any]) -> Any:
    """Return cl_semaphore_payload_khr[] if a semaphore has values (D3D12 fences); else None."""
    if all(each.type.kind is not SemaphoreKind.TIMELINE for each in semaphores):
        return None
    return (c_uint64 * len(params))(*(param.value or 0 for param in params))
