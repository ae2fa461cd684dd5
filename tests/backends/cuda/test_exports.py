"""Test memory that the CUDA device creates and exports. On the stand-in for libcuda."""

from __future__ import annotations

import ctypes
import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from support.cuda_sim import on_stand_in
from support.importer import BOUND_S

import xsem
from xsem.types import MemoryHandleType

OPAQUE, DMABUF = MemoryHandleType.OPAQUE_FD, MemoryHandleType.DMABUF_FD
GRANULE = 2 << 20


def fail(before: bytes | None = None, after: bytes | None = None) -> None:
    ctypes.CDLL("libcuda.so.1").simcuda_fail(before, after)


@contextmanager
def failing(before: bytes | None = None, after: bytes | None = None) -> Iterator[None]:
    fail(before, after)
    try:
        yield
    finally:
        fail()


def until_freed(device: xsem.Device) -> None:
    deadline = time.monotonic() + BOUND_S
    while device.releasing():
        assert time.monotonic() < deadline
        gc.collect()
        time.sleep(0.002)


def fds() -> set[str]:
    return {os.readlink(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd")
            if os.path.islink(f"/proc/self/fd/{each}")}


def write(memory: xsem.Memory, data: np.ndarray[Any, Any], offset: int = 0) -> None:
    with memory.map_buffer(offset, data.nbytes, dtype=str(data.dtype)) as buffer:
        buffer.copy_from_host(data, timeout_s=BOUND_S)


@on_stand_in
def test_mappings_are_parts_of_one_mapping() -> None:
    with xsem.open_device("cuda:0") as device:
        created = device.create_memory(OPAQUE, GRANULE)
        one, other = created.map_buffer(0, 4096), created.map_buffer(4096, 4096)
        assert other.address - one.address == 4096
        one.release()
        until_freed(device)
        other.copy_from_host(np.full(4096, 3, np.uint8), timeout_s=BOUND_S)
        assert created.native_handle != one.address


@on_stand_in
def test_dma_buf_of_created_memory_is_this_memory() -> None:
    with xsem.open_device("cuda:0") as device:
        created = device.create_memory(DMABUF, 4096)
        write(created, np.full(16, 9, np.uint8), 4096)
        with created.export() as desc:
            assert desc.type is DMABUF
            assert os.pread(desc.handle.fileno(), 16, 4096) == b"\x09" * 16   # type: ignore[union-attr]


@on_stand_in
def test_memory_has_whole_granules() -> None:
    with xsem.open_device("cuda:0") as device:
        assert device.create_memory(OPAQUE, 1).allocation_size == GRANULE
        assert device.create_memory(OPAQUE, 3 * GRANULE - 1).allocation_size == 3 * GRANULE


@on_stand_in
def test_failed_creation_leaves_nothing() -> None:
    with xsem.open_device("cuda:0") as device:
        before = fds()
        for call in (b"cuMemGetAllocationGranularity", b"cuMemCreate", b"cuMemAddressReserve", b"cuMemMap",
                     b"cuMemSetAccess"):
            with failing(call + b":999"), pytest.raises(xsem.XsemError):
                device.create_memory(OPAQUE, 4096)
        assert fds() == before
        # The stand-in has 1 GiB: memory that a failed call kept would be missing here.
        whole = device.create_memory(OPAQUE, 1 << 30)
        whole.release()


@on_stand_in
def test_failed_export_leaves_nothing_and_the_memory_usable() -> None:
    with xsem.open_device("cuda:0") as device:
        created = device.create_memory(OPAQUE, 4096)
        before = fds()
        with failing(b"cuMemExportToShareableHandle:304"), pytest.raises(xsem.XsemError) as caught:
            created.export()
        assert caught.value.reason == "operating_system"
        assert fds() == before
        created.export().close()


@on_stand_in(SIMCUDA_ATTRIBUTES="103:0")
def test_device_without_posix_handles_declares_no_export() -> None:
    with xsem.open_device("cuda:0") as device:
        assert device.capabilities.memory_export == {MemoryHandleType.HOST_MEMORY_FD}
        assert xsem.Feature.MEMORY_SHARING not in device.capabilities.features
        with pytest.raises(xsem.UnsupportedError):
            device.create_memory(OPAQUE, 4096)


@on_stand_in(SIMCUDA_FAIL="cuMemGetHandleForAddressRange:801")
def test_refused_dma_buf_is_not_declared() -> None:
    """The attribute says that the device can. A virtual machine can still refuse the call."""
    with xsem.open_device("cuda:0") as device:
        assert device.capabilities.memory_export == {OPAQUE, MemoryHandleType.HOST_MEMORY_FD}


@on_stand_in(SIMCUDA_MISSING="cuMemGetHandleForAddressRange")
def test_driver_without_dma_bufs_exports_fds() -> None:
    with xsem.open_device("cuda:0") as device:
        assert device.capabilities.memory_export == {OPAQUE, MemoryHandleType.HOST_MEMORY_FD}
        device.create_memory(OPAQUE, 4096).export().close()
