"""The stand-in's virtual memory management answers as an H200 does (driver 580.159.04)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.cuda_calls import ask, code, driver, primary_context
from support.cuda_sim import on_stand_in

GRANULE = 2 << 20
INVALID_VALUE, OUT_OF_MEMORY, INVALID_DEVICE, INVALID_CONTEXT, NOT_FOUND = 1, 2, 101, 201, 500
NOT_PERMITTED, NOT_SUPPORTED, UNKNOWN = 800, 801, 999
OPAQUE_FD = POSIX_FD = DMA_BUF = 1


def wanted(handle_type: int = POSIX_FD, device: int = 0) -> Any:
    made = driver().CUmemAllocationProp()
    made.type = driver().CUmemAllocationType(1)
    made.location.type = driver().CUmemLocationType(1)
    made.location.id = device
    made.requestedHandleTypes = driver().CUmemAllocationHandleType(handle_type)
    return made


def at(address: Any, offset: int) -> Any:
    return driver().CUdeviceptr(int(address) + offset)


def set_access(address: Any, size: int) -> int:
    access = driver().CUmemAccessDesc()
    access.location.type = driver().CUmemLocationType(1)
    access.flags = driver().CUmemAccess_flags(3)
    return code("cuMemSetAccess", address, size, [access], 1)


def export(handle: Any, handle_type: int = POSIX_FD, flags: int = 0) -> int:
    return code("cuMemExportToShareableHandle", handle, driver().CUmemAllocationHandleType(handle_type), flags)


def dma_buf(address: Any, size: int, flags: int = 0) -> tuple[int, int | None]:
    result, fd = driver().cuMemGetHandleForAddressRange(address, size, driver().CUmemRangeHandleType(DMA_BUF), flags)
    return int(result), fd


class Mapped:
    """An exportable allocation of two granules, mapped at the start of three reserved granules."""

    def __init__(self, handle_type: int = POSIX_FD) -> None:
        self.handle = ask("cuMemCreate", 2 * GRANULE, wanted(handle_type), 0)
        self.address = ask("cuMemAddressReserve", 3 * GRANULE, 0, 0, 0)
        ask("cuMemMap", self.address, 2 * GRANULE, 0, self.handle, 0)
        assert set_access(self.address, 2 * GRANULE) == 0

    def close(self) -> None:
        ask("cuMemUnmap", self.address, 2 * GRANULE)
        ask("cuMemAddressFree", self.address, 3 * GRANULE)
        ask("cuMemRelease", self.handle)


@contextmanager
def mapping() -> Iterator[Mapped]:
    with primary_context():
        made = Mapped()
        try:
            yield made
        finally:
            made.close()


@on_stand_in
def test_create_takes_whole_granules_and_posix_fds() -> None:
    with primary_context():
        assert ask("cuMemGetAllocationGranularity", wanted(), driver().CUmemAllocationGranularity_flags(0)) == GRANULE
        for size in (0, 4096, GRANULE + 1):
            assert code("cuMemCreate", size, wanted(), 0) == INVALID_VALUE
        assert code("cuMemCreate", 1 << 50, wanted(), 0) == OUT_OF_MEMORY
        assert [code("cuMemCreate", GRANULE, wanted(each), 0) for each in (2, 4, 8)] == [
            INVALID_VALUE, INVALID_VALUE, NOT_PERMITTED]
        assert code("cuMemCreate", GRANULE, wanted(device=7), 0) == INVALID_DEVICE
        assert code("cuMemCreate", GRANULE, wanted(), 1) == INVALID_VALUE


@on_stand_in
def test_reservations_and_mappings_are_checked() -> None:
    with mapping() as mapped:
        for size, alignment in ((0, 0), (4096, 0), (GRANULE, 3 * GRANULE)):
            assert code("cuMemAddressReserve", size, alignment, 0, 0) == INVALID_VALUE
        other = ask("cuMemCreate", GRANULE, wanted(), 0)
        free = at(mapped.address, 2 * GRANULE)
        assert code("cuMemMap", free, 2 * GRANULE, 0, other, 0) == NOT_SUPPORTED   # another size
        assert code("cuMemMap", free, GRANULE, GRANULE, other, 0) == NOT_SUPPORTED   # an offset
        assert code("cuMemMap", free, 0, 0, other, 0) == INVALID_VALUE
        assert code("cuMemMap", free, GRANULE, 0, other, 1) == INVALID_VALUE
        assert code("cuMemMap", at(free, 4096), GRANULE, 0, other, 0) == INVALID_VALUE
        assert code("cuMemMap", mapped.address, GRANULE, 0, other, 0) == INVALID_VALUE   # mapped already
        assert code("cuMemUnmap", mapped.address, GRANULE) == INVALID_VALUE   # a part
        assert code("cuMemAddressFree", mapped.address, 3 * GRANULE) == INVALID_VALUE   # mapped
        assert code("cuMemAddressFree", mapped.address, GRANULE) == INVALID_VALUE   # a part
        ask("cuMemMap", free, GRANULE, 0, other, 0)
        assert code("cuMemsetD8", free, 1, 16) == INVALID_VALUE   # no access yet
        assert [set_access(free, size) for size in (0, 4096, 2 * GRANULE)] == [INVALID_VALUE] * 3
        assert set_access(mapped.address, 3 * GRANULE) == 0
        assert code("cuMemsetD8", free, 1, 16) == 0
        ask("cuCtxSynchronize")
        ask("cuMemUnmap", free, GRANULE)
        assert code("cuMemUnmap", free, GRANULE) == INVALID_VALUE
        ask("cuMemRelease", other)
        assert code("cuMemRelease", other) == INVALID_VALUE


@on_stand_in
def test_export_gives_a_new_fd_of_the_asked_type() -> None:
    with mapping() as mapped:
        assert [export(mapped.handle, each) for each in (2, 4)] == [INVALID_VALUE] * 2
        assert export(mapped.handle, flags=1) == INVALID_VALUE
        assert export(0) == INVALID_VALUE
        private = ask("cuMemCreate", GRANULE, wanted(0), 0)
        assert export(private) == INVALID_VALUE
        ask("cuMemRelease", private)
        posix = driver().CUmemAllocationHandleType(POSIX_FD)
        fds = [ask("cuMemExportToShareableHandle", mapped.handle, posix, 0) for _ in range(2)]
        assert fds[0] != fds[1]
        ask("cuMemsetD8", mapped.address, 7, 2 * GRANULE)
        ask("cuCtxSynchronize")
        native = driver().CUDA_EXTERNAL_MEMORY_HANDLE_DESC()
        native.type = driver().CUexternalMemoryHandleType(OPAQUE_FD)
        native.handle.fd = fds[0]
        native.size = 2 * GRANULE
        imported = ask("cuImportExternalMemory", native)
        ask("cuDestroyExternalMemory", imported)
        assert os.pread(fds[1], 2, GRANULE) == b"\x07\x07"
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fds[0])
        os.close(fds[1])


@on_stand_in
def test_retain_works_on_mapped_memory_only() -> None:
    with mapping() as mapped:
        inside = ask("cuMemRetainAllocationHandle", int(mapped.address) + GRANULE + 12)
        assert int(inside) == int(mapped.handle)
        assert int(ask("cuMemGetAllocationPropertiesFromHandle", inside).requestedHandleTypes) == POSIX_FD
        ask("cuMemRelease", inside)
        base, size = ask("cuMemGetAddressRange", at(mapped.address, GRANULE + 12))
        assert (int(base), size) == (int(mapped.address), 2 * GRANULE)
        plain = ask("cuMemAlloc", 5000)
        pinned = ask("cuMemHostAlloc", 4096, 0)
        heap = ctypes.create_string_buffer(9)
        for address in (int(plain), int(pinned), ctypes.addressof(heap), 0):
            assert code("cuMemRetainAllocationHandle", address) == INVALID_VALUE
        for address in (ctypes.addressof(heap), 0):
            assert code("cuMemGetAddressRange", address) == NOT_FOUND
        ask("cuMemFree", plain)
        ask("cuMemFreeHost", pinned)
        assert code("cuMemFree", mapped.address) == INVALID_VALUE


@on_stand_in
def test_dma_buf_takes_whole_pages_of_device_memory() -> None:
    with mapping() as mapped:
        plain = ask("cuMemAlloc", 5000)
        pinned = ask("cuMemHostAlloc", 4096, 0)
        ask("cuMemsetD8", plain, 3, 5000)
        ask("cuCtxSynchronize")
        for address, size in ((mapped.address, 2 * GRANULE), (at(mapped.address, 4096), 4096), (plain, 8192)):
            result, fd = dma_buf(address, size)
            assert result == 0
            assert fd is not None
            os.close(fd)
        result, fd = dma_buf(plain, 4096)
        assert fd is not None
        assert os.pread(fd, 2, 0) == b"\x03\x03"
        ask("cuMemsetD8", plain, 4, 5000)
        ask("cuCtxSynchronize")
        assert os.pread(fd, 2, 0) == b"\x04\x04"
        os.close(fd)
        assert dma_buf(at(mapped.address, 1), 4096)[0] == INVALID_VALUE
        assert dma_buf(mapped.address, 4095)[0] == INVALID_VALUE
        assert dma_buf(mapped.address, 3 * GRANULE)[0] == INVALID_VALUE   # beyond the mapping
        assert dma_buf(mapped.address, 4096, 1)[0] == NOT_SUPPORTED
        assert dma_buf(pinned, 4096)[0] == INVALID_VALUE
        ask("cuMemFree", plain)
        ask("cuMemFreeHost", pinned)


@on_stand_in
def test_only_a_dma_buf_needs_a_context() -> None:
    with mapping():
        before = ask("cuCtxGetCurrent")
        ask("cuCtxSetCurrent", driver().CUcontext(0))
        try:
            other = Mapped()
            assert dma_buf(other.address, 4096)[0] == INVALID_CONTEXT
            other.close()
        finally:
            ask("cuCtxSetCurrent", before)


@on_stand_in
def test_mapped_memory_outlives_its_handle() -> None:
    with primary_context():
        made = Mapped()
        ask("cuMemRelease", made.handle)
        posix = driver().CUmemAllocationHandleType(POSIX_FD)
        os.close(ask("cuMemExportToShareableHandle", made.handle, posix, 0))
        assert code("cuMemsetD8", made.address, 1, GRANULE) == 0
        ask("cuCtxSynchronize")   # an unmapping does not wait for work
        assert code("cuMemRelease", made.handle) == INVALID_VALUE
        ask("cuMemUnmap", made.address, 2 * GRANULE)
        ask("cuMemAddressFree", made.address, 3 * GRANULE)
        assert code("cuMemAddressFree", made.address, 3 * GRANULE) == INVALID_VALUE
        assert export(made.handle) == INVALID_VALUE


@on_stand_in
def test_imported_handles_map_to_one_range_and_leave_the_fd() -> None:
    posix = driver().CUmemAllocationHandleType(POSIX_FD)
    with mapping() as mapped:
        fd = ask("cuMemExportToShareableHandle", mapped.handle, posix, 0)
        handles = [ask("cuMemImportFromShareableHandle", fd, posix) for _ in range(2)]
        os.close(fd)   # the import left it open
        assert int(ask("cuMemGetAllocationPropertiesFromHandle", handles[0]).requestedHandleTypes) == 0
        assert export(handles[0]) == INVALID_VALUE
        address = ask("cuMemAddressReserve", 4 * GRANULE, 0, 0, 0)
        for index, handle in enumerate(handles):
            ask("cuMemMap", at(address, 2 * index * GRANULE), 2 * GRANULE, 0, handle, 0)
            ask("cuMemRelease", handle)
        assert code("cuMemsetD8", address, 9, 4 * GRANULE) == INVALID_VALUE   # no access yet
        assert set_access(address, 4 * GRANULE) == 0
        ask("cuMemsetD8", at(address, 2 * GRANULE - 8), 9, 16)   # over both mappings
        ask("cuCtxSynchronize")
        found = ctypes.create_string_buffer(8)
        for place in (0, 2 * GRANULE - 8):
            ask("cuMemcpyDtoH", ctypes.addressof(found), at(mapped.address, place), 8)
            assert found.raw == b"\x09" * 8
        assert code("cuMemsetD8", address, 9, 4 * GRANULE + 1) == INVALID_VALUE
        for index in range(2):
            ask("cuMemUnmap", at(address, 2 * index * GRANULE), 2 * GRANULE)
        ask("cuMemAddressFree", address, 4 * GRANULE)


@on_stand_in
def test_import_refuses_what_is_no_memory() -> None:
    posix = driver().CUmemAllocationHandleType(POSIX_FD)
    with primary_context():
        read, write = os.pipe()
        memory = os.memfd_create("other")
        os.truncate(memory, GRANULE)
        for fd in (read, memory, 987654):
            assert code("cuMemImportFromShareableHandle", fd, posix) == UNKNOWN
        for fd in (read, write, memory):
            os.close(fd)   # each is open
