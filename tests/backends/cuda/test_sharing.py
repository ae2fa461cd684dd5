"""Test arrays of other libraries that the CUDA device makes exportable. On the stand-in for libcuda."""

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
from support.cuda_segments import GRANULE, Array, ask, driver, segment
from support.cuda_sim import on_stand_in
from support.importer import BOUND_S

import xsem
from xsem.types import MemoryHandleType

OPAQUE, DMABUF = MemoryHandleType.OPAQUE_FD, MemoryHandleType.DMABUF_FD


@contextmanager
def opened(device: str = "cuda:0") -> Iterator[xsem.Device]:
    """Open a device whose context is also current for the library of the arrays."""
    with xsem.open_device(device) as found:
        ask("cuCtxPushCurrent", driver().CUcontext(found.native_handle))
        try:
            yield found
        finally:
            ask("cuCtxPopCurrent")


@contextmanager
def plain(size: int = 5000) -> Iterator[int]:
    """Memory as torch allocates it without expandable segments."""
    address = ask("cuMemAlloc", size)
    try:
        yield int(address)
    finally:
        ask("cuMemFree", address)


class DLPackArray:
    """An array of JAX or a bfloat16 tensor of torch: DLPack of another device's memory."""

    def __init__(self, array: Any, device: tuple[int, int]) -> None:
        self._array = array
        self._device = device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(self) -> Any:
        return self._array.__dlpack__()


def read(memory: xsem.Memory, offset: int, dtype: str, count: int) -> list[Any]:
    itemsize = np.dtype(dtype).itemsize
    with memory.map_buffer(offset, count * itemsize, dtype=dtype, overlap=True) as buffer:
        values: list[Any] = buffer.copy_to_host(timeout_s=BOUND_S).tolist()
        return values


def refused(error: type[xsem.XsemError], device: xsem.Device, array: Any, **options: Any) -> xsem.XsemError:
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(error) as caught:
        device.share(array, **options)
    assert sorted(os.listdir("/proc/self/fd")) == before
    return caught.value


# ---- shared
def until_freed(device: xsem.Device) -> None:
    deadline = time.monotonic() + BOUND_S
    while device.releasing():
        assert time.monotonic() < deadline
        gc.collect()
        time.sleep(0.002)


@on_stand_in
def test_several_arrays_of_one_allocation_are_shared() -> None:
    with opened() as device, segment() as memory:
        one, other = device.share(Array(memory.base, (4,))), device.share(Array(memory.base + 512, (4,)))
        assert (one.offset, other.offset) == (0, 512)
        assert one.allocation_size == other.allocation_size == GRANULE
        one.release()
        until_freed(device)
        with other.export() as desc, device.import_memory(desc) as imported:
            other.buffer().copy_from_host(np.full(4, 2, np.float32), timeout_s=BOUND_S)
            assert read(imported, 512, "float32", 4) == [2.0] * 4
        other.release()
        until_freed(device)


@on_stand_in
def test_strides_are_kept() -> None:
    with opened() as device, segment() as memory:
        shared = device.share(Array(memory.base, (4, 2), "<i4", (64, 4)))
        assert (shared.strides, shared.size) == ((64, 4), 3 * 64 + 8)
        assert shared.buffer().strides == (64, 4)
        assert refused(xsem.BadArgumentError, device, Array(memory.base + 64, (4,), "<i4", (-4,))
                       ).reason == "bad_strides"


@on_stand_in
def test_dlpack_array_is_shared() -> None:
    with opened() as device:
        with device.create_memory(OPAQUE, 4096) as own:
            buffer = own.map_buffer(64, 48, dtype="bfloat16", shape=(4, 6))
            shared = device.share(buffer)
            assert (shared.dtype, shared.shape, shared.offset) == ("bfloat16", (4, 6), 64)
        assert refused(xsem.WrongDeviceError, device, DLPackArray(np.ones(3), (2, 0))).reason == "wrong_device"
        assert refused(xsem.BadArgumentError, device, np.ones(3)).reason == "host_array"
        shared.release()
        buffer.release()


@on_stand_in
def test_address_and_size_are_shared() -> None:
    with opened() as device, segment() as memory:
        shared = device.share(memory.base + 100, size=50)
        assert (shared.offset, shared.shape, shared.dtype) == (100, (50,), "uint8")
        for array, size, reason in ((memory.base, None, "bad_size"), (0, 4, "null_address"),
                                    (True, 4, "not_an_int"), (memory.base, 0, "bad_size")):
            assert refused(xsem.BadArgumentError, device, array, size=size).reason == reason
        assert refused(xsem.BadArgumentError, device, Array(memory.base, (4,)), size=4).reason == "bad_size"
        assert refused(xsem.BadArgumentError, device, memory.base, size=GRANULE + 1).reason == "out_of_range"
        assert refused(xsem.BadArgumentError, device, object()).reason == "not_an_array"


# ---- as a dma-buf
@on_stand_in
def test_plain_memory_is_shared_as_a_dma_buf() -> None:
    with opened() as device, plain(9000) as address:
        shared = device.share(Array(address + 4100, (4,), "|u1"), type="DMABUF_FD")
        assert (shared.offset, shared.allocation_size) == (4, 4096)
        ask("cuMemsetD8", address, 6, 9000)
        ask("cuCtxSynchronize")
        with shared.export() as desc:
            fd = desc.handle.fileno()   # type: ignore[union-attr]
            start = os.lseek(fd, 0, os.SEEK_CUR)   # of the stand-in: the place in its file
            assert os.pread(fd, 4, start + 4) == b"\x06" * 4
        assert shared.buffer().address == address + 4100
        shared.release()
        until_freed(device)


# ---- refused
@on_stand_in
def test_plain_memory_is_refused_with_the_setting() -> None:
    with opened() as device, plain() as address:
        error = refused(xsem.UnsupportedError, device, Array(address, (4,)))
        assert error.reason == "not_shareable"
        assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in str(error)
        assert "MemoryHandleType.DMABUF_FD" in str(error)


@on_stand_in(SIMCUDA_ATTRIBUTES="124:0")
def test_advice_names_no_dma_buf_where_there_is_none() -> None:
    with opened() as device, plain() as address:
        assert "DMABUF" not in str(refused(xsem.UnsupportedError, device, Array(address, (4,))))
        assert refused(xsem.UnsupportedError, device, Array(address, (4,)), type=DMABUF).reason == "unsupported"


@on_stand_in
def test_private_allocation_is_refused() -> None:
    with opened() as device, segment(handle_type=0) as memory:
        error = refused(xsem.UnsupportedError, device, Array(memory.base, (4,)))
        assert (error.reason, "POSIX_FILE_DESCRIPTOR" in str(error)) == ("not_shareable", True)


@on_stand_in
def test_freed_array_and_host_memory_are_refused() -> None:
    with opened() as device:
        with plain() as address:
            pass
        freed = refused(xsem.BadArgumentError, device, Array(address, (4,)))
        assert (freed.reason, freed.code_name) == ("not_device_memory", "CUDA_ERROR_INVALID_VALUE")
        assert refused(xsem.BadArgumentError, device, Array(0, (4,))).reason == "null_address"
        assert refused(xsem.BadArgumentError, device, Array(address, (0,))).reason == "bad_shape"
        assert refused(xsem.BadArgumentError, device, Array(address, (4,), "<V2")).reason == "bad_dtype"
        with device.host_buffer(64) as pinned:
            assert refused(xsem.BadArgumentError, device, pinned.address, size=64).reason == "host_array"
        heap = ctypes.create_string_buffer(64)
        assert refused(xsem.BadArgumentError, device, ctypes.addressof(heap), size=64).reason == "not_device_memory"


@on_stand_in(SIMCUDA_DEVICES="2")
def test_array_of_another_device_is_refused() -> None:
    with opened() as device, segment(device=1) as memory:
        error = refused(xsem.WrongDeviceError, device, Array(memory.base, (4,)))
        assert (error.reason, "cuda:1" in str(error)) == ("wrong_device", True)


@on_stand_in
def test_array_without_a_description_is_refused() -> None:
    class Deleted:
        @property
        def __cuda_array_interface__(self) -> object:
            raise RuntimeError("Array has been deleted")

    class Incomplete:
        __cuda_array_interface__ = {"shape": (4,)}   # noqa: RUF012 - as libraries write it

    with opened() as device, segment() as memory:
        error = refused(xsem.BadArgumentError, device, Deleted())
        assert (error.reason, "has been deleted" in str(error)) == ("array_refused", True)
        assert refused(xsem.BadArgumentError, device, Incomplete()).reason == "array_refused"
        masked = Array(memory.base, (4,))
        masked.__cuda_array_interface__["mask"] = masked
        assert refused(xsem.BadArgumentError, device, masked).reason == "masked_array"
        assert refused(xsem.BadArgumentError, device, masked, type="OPAQUE").reason == "bad_type"
