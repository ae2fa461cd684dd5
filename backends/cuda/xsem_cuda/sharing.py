"""Memory of other libraries, as exportable memory."""

from __future__ import annotations

import mmap
from contextlib import ExitStack
from typing import Any, Final

from xsem.errors import BadArgumentError, UnsupportedError, WrongDeviceError, XsemError
from xsem.types import MemoryHandleType
from xsem_cuda.allocations import Allocation, dmabuf, posix_fd
from xsem_cuda.chunks import Chunks
from xsem_cuda.codes import INVALID_VALUE, NOT_FOUND
from xsem_cuda.results import call

__all__ = ["share_allocation"]

_DEVICE: Final = 2   # CU_MEMORYTYPE_DEVICE
_EXPANDABLE: Final = "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True before torch allocates"
_COPY: Final = "or copy the array into memory of create_memory()"


def share_allocation(
    driver: Any, ordinal: int, type: MemoryHandleType, address: int, size: int, owner: object, *, dmabufs: bool
) -> tuple[Allocation, int]:
    """Make a range of device memory exportable. Return its allocation, and the bytes from its start to `address`."""
    _check_place(driver, ordinal, address)
    ranges = _ranges(driver, address, size)
    if type is MemoryHandleType.DMABUF_FD:
        shared = _pages(driver, address, size, owner)
    else:
        shared = _retained(driver, ranges, owner, dmabufs)
    return shared, address - shared.base


def _check_place(driver: Any, ordinal: int, address: int) -> None:
    """Refuse an address that is not device memory of this device."""
    attributes = driver.CUpointer_attribute
    try:
        kind = int(call(driver.cuPointerGetAttribute, attributes.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address))
        managed = bool(call(driver.cuPointerGetAttribute, attributes.CU_POINTER_ATTRIBUTE_IS_MANAGED, address))
        there = int(call(driver.cuPointerGetAttribute, attributes.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address))
    except XsemError as error:
        if error.code != INVALID_VALUE:
            raise
        raise _not_allocated(address, error) from error
    if managed:
        raise BadArgumentError("managed memory moves between host and device, so CUDA cannot export it: allocate "
                               "device memory", reason="managed_memory")
    if kind != _DEVICE:
        raise BadArgumentError(f"{address:#x} is page-locked host memory, which CUDA does not export: use "
                               "create_memory() and a copy", reason="host_array")
    if there != ordinal:
        raise WrongDeviceError(f"the memory at {address:#x} is on cuda:{there}, not on cuda:{ordinal}",
                               expected=f"cuda:{ordinal}", actual=f"cuda:{there}", reason="wrong_device")


def _ranges(driver: Any, address: int, size: int) -> list[tuple[int, int]]:
    """Return address and size of the allocations of the range, in ascending order."""
    found: list[tuple[int, int]] = []
    at, end = address, address + size
    while at < end:
        try:
            base, whole = call(driver.cuMemGetAddressRange, at)
        except XsemError as error:
            if error.code not in (NOT_FOUND, INVALID_VALUE):
                raise
            if not found:
                raise _not_allocated(address, error) from error
            raise BadArgumentError(f"the allocation ends at {at:#x}, before the end of {size} bytes at {address:#x}",
                                   reason="out_of_range", call=error.call, code=error.code,
                                   code_name=error.code_name) from error
        found.append((int(base), int(whole)))
        at = int(base) + int(whole)
    return found


def _retained(driver: Any, ranges: list[tuple[int, int]], owner: object, dmabufs: bool) -> Allocation:
    """Retain the allocations of cuMemCreate."""
    with ExitStack() as undo:
        parts = [(_retain(driver, base, undo, dmabufs), whole) for base, whole in ranges]
        kept = undo.pop_all()
    base, whole = ranges[0]
    if len(parts) > 1:
        return Chunks(driver, parts, base, kept, owner)
    return Allocation(driver, MemoryHandleType.OPAQUE_FD, parts[0][0], base, whole, kept, owner)


def _retain(driver: Any, address: int, undo: ExitStack, dmabufs: bool) -> Any:
    """Retain one allocation until `undo` releases it."""
    dmabuf_advice = ", or pass type=MemoryHandleType.DMABUF_FD" if dmabufs else ""
    try:
        native = call(driver.cuMemRetainAllocationHandle, address)
    except XsemError as error:
        if error.code != INVALID_VALUE:
            raise
        raise UnsupportedError(
            "the array is not in memory of cuMemCreate, and CUDA exports no other memory as opaque_fd: "
            f"{_EXPANDABLE}{dmabuf_advice}, {_COPY}", capability="memory.share.opaque_fd", reason="not_shareable",
            call=error.call, code=error.code, code_name=error.code_name) from error
    undo.callback(call, driver.cuMemRelease, native)
    properties = call(driver.cuMemGetAllocationPropertiesFromHandle, native)
    if not int(properties.requestedHandleTypes) & int(posix_fd(driver)):
        raise UnsupportedError(
            "the allocation of the array was made without CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR: allocate it "
            f"with this handle type{dmabuf_advice}, {_COPY}", capability="memory.share.opaque_fd",
            reason="not_shareable")
    return native


def _pages(driver: Any, address: int, size: int, owner: object) -> Allocation:
    """Check that the pages of the range can be exported as a dma-buf."""
    page = mmap.PAGESIZE
    base = address // page * page
    whole = -(-(address + size) // page) * page - base
    try:
        dmabuf(driver, base, whole).close()
    except XsemError as error:
        if error.code != INVALID_VALUE:
            raise
        raise UnsupportedError(
            f"CUDA makes no dma-buf of the memory at {address:#x} (memory of a pool and imported memory have none): "
            f"allocate with cuMemAlloc or cuMemCreate, {_COPY}", capability="memory.share.dmabuf_fd",
            reason="not_shareable", call=error.call, code=error.code, code_name=error.code_name) from error
    return Allocation(driver, MemoryHandleType.DMABUF_FD, None, base, whole, ExitStack(), owner)


def _not_allocated(address: int, error: XsemError) -> BadArgumentError:
    return BadArgumentError(f"no device memory is allocated at {address:#x}: the array was freed, or the address is "
                            "wrong", reason="not_device_memory", call=error.call, code=error.code,
                            code_name=error.code_name)
