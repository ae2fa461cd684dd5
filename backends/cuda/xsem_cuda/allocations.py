"""Exportable memory: created by cuMemCreate (virtual memory management of the driver API), or of another library."""

# Measured on an H200 (driver 580.159.04):
# - The size of an allocation is a multiple of the granularity (2 MiB). A mapping covers a whole allocation.
# - An export returns a new fd at each call. The memory lives until the last fd, import and mapping.
# - Vulkan, cuImportExternalMemory and NVIDIA's OpenCL import the fd as OPAQUE_FD.
# - cuMemGetAddressRange returns the mapping of one allocation, also inside an expandable segment of torch.
# - cuMemRetainAllocationHandle refuses memory of cuMemAlloc and of memory pools with CUDA_ERROR_INVALID_VALUE.
# - cuMemImportFromShareableHandle leaves the fd open, on success and on failure (CUDA_ERROR_UNKNOWN). Each import is a
#   new handle, without an fd, which cannot be exported again.
# - cuMemMap with another size than the allocation's is CUDA_ERROR_NOT_SUPPORTED.
# - A dma-buf covers whole pages of the host. It can span several adjacent mappings. Memory pools have none.
# - Imports, mappings, cuMemUnmap, cuMemAddressFree and cuMemRelease do not block behind an unmet wait.

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

from xsem.errors import OutOfMemoryError, XsemError
from xsem.types import MemoryHandleType, OwnedHandle
from xsem_cuda.results import call
from xsem_cuda.tokens import DriverObject, HostObject

__all__ = [
    "Allocation", "Part", "create_allocation", "create_physical", "dmabuf", "exports_dmabuf", "map_range", "posix_fd",
    "shareable_handle",
]

_LARGEST: Final = 1 << 48
"""Bytes of the largest allocation: more than any device has, and few enough to round up."""


class Part(DriverObject):
    """A part of an `Allocation`, from its address on. It uses the mapping of the allocation."""

    __slots__ = ()


class HostPart(Part, HostObject):
    """A part of memory of the host."""

    __slots__ = ()


class Allocation:
    """Exportable memory at one address."""

    __slots__ = ("_driver", "_owner", "_undo", "address", "base", "native", "size", "type")

    def __init__(
        self, driver: Any, type: MemoryHandleType, native: Any, base: int, size: int, undo: ExitStack,
        owner: object = None,
    ) -> None:
        self.type = type   # of its exports
        self.native = native   # CUmemGenericAllocationHandle; None for a range that is exported as a dma-buf
        self.address = base if native is None else int(native)
        self.base = base
        self.size = size
        self._driver = driver
        self._undo = undo
        self._owner = owner

    def part(self, offset: int) -> Part:
        """Return the part from `offset` on."""
        kind = HostPart if self.type.portable else Part
        return kind(self._driver.CUdeviceptr(self.base + offset))

    def export(self) -> OwnedHandle:
        """Export the memory. The caller owns the new fd."""
        if self.type is MemoryHandleType.DMABUF_FD:
            return dmabuf(self._driver, self.base, self.size)
        return shareable_handle(self._driver, self.native)

    def close(self) -> None:
        """Unmap and release the memory. Importers keep it. Drop the owner of shared memory."""
        try:
            self._undo.close()
        finally:
            self._owner = None


def create_allocation(driver: Any, ordinal: int, type: MemoryHandleType, size: int) -> Allocation:
    """Allocate, map and enable at least `size` bytes."""
    with ExitStack() as undo:
        native, whole = create_physical(driver, ordinal, size, undo)
        base = map_range(driver, ordinal, [(native, whole)], undo)
        kept = undo.pop_all()
    return Allocation(driver, type, native, base, whole, kept)


def create_physical(driver: Any, ordinal: int, size: int, undo: ExitStack) -> tuple[Any, int]:
    """Call cuMemCreate for at least `size` bytes. Return the handle, which `undo` releases, and the size in bytes."""
    if size > _LARGEST:
        raise OutOfMemoryError(f"{size} bytes are more than a device allocates at once, {_LARGEST}",
                               reason="out_of_memory")
    wanted = _properties(driver, ordinal)
    granularity = int(call(driver.cuMemGetAllocationGranularity, wanted,
                           driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM))
    whole = -(-size // granularity) * granularity
    native = call(driver.cuMemCreate, whole, wanted, 0)
    undo.callback(call, driver.cuMemRelease, native)
    return native, whole


def map_range(driver: Any, ordinal: int, parts: Sequence[tuple[Any, int]], undo: ExitStack) -> int:
    """Map allocations, each with its size, one after the other. Return the address; `undo` undoes each step."""
    whole = sum(size for _, size in parts)
    address = call(driver.cuMemAddressReserve, whole, 0, 0, 0)
    undo.callback(call, driver.cuMemAddressFree, address, whole)
    at = base = int(address)
    for native, size in parts:
        call(driver.cuMemMap, at, size, 0, native, 0)
        undo.callback(call, driver.cuMemUnmap, at, size)
        at += size
    access = driver.CUmemAccessDesc()
    access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = ordinal
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    call(driver.cuMemSetAccess, address, whole, [access], 1)
    return base


def _properties(driver: Any, ordinal: int) -> Any:
    wanted = driver.CUmemAllocationProp()
    wanted.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id = ordinal
    wanted.requestedHandleTypes = posix_fd(driver)
    return wanted


def posix_fd(driver: Any) -> Any:
    """Return CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR."""
    return driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR


def shareable_handle(driver: Any, native: Any) -> OwnedHandle:
    """Call cuMemExportToShareableHandle. The caller owns the new fd."""
    return OwnedHandle(int(call(driver.cuMemExportToShareableHandle, native, posix_fd(driver), 0)))


def dmabuf(driver: Any, address: int, size: int) -> OwnedHandle:
    """Call cuMemGetHandleForAddressRange for whole pages of one allocation. The caller owns the fd of the dma-buf."""
    kind = driver.CUmemRangeHandleType.CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
    return OwnedHandle(int(call(driver.cuMemGetHandleForAddressRange, address, size, kind, 0)))


def exports_dmabuf(driver: Any, ordinal: int) -> bool:
    """Return whether the device exports a dma-buf: it makes one of the smallest allocation, and closes it."""
    # CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED says only that the device can. A virtual machine can refuse the call.
    try:
        allocation = create_allocation(driver, ordinal, MemoryHandleType.DMABUF_FD, 1)
    except XsemError:
        return False
    try:
        allocation.export().close()
    except XsemError:
        return False
    finally:
        allocation.close()
    return True
