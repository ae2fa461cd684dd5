"""Test memory of the host device on CUDA: mappings, copies, fills, arrays. On the stand-in for libcuda."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest
from support.cuda_sim import on_stand_in

import xsem
from xsem.types import MemoryHandleType, SemaphoreHandleType

SIZE = 1 << 16
BOUND_S = 20.0


class Rig(NamedTuple):
    host: xsem.Device
    cuda: xsem.Device
    there: xsem.Memory
    here: xsem.Memory


@contextmanager
def rig() -> Iterator[Rig]:
    with xsem.open_device("host") as host, xsem.open_device("cuda:0") as cuda:
        there = host.create_memory(MemoryHandleType.OPAQUE_FD, SIZE)
        with there.export(for_device=cuda) as desc:
            here = cuda.import_memory(desc)
        yield Rig(host, cuda, there, here)


@on_stand_in
def test_copies_reach_the_exporters_memory_and_come_back() -> None:
    with rig() as at:
        data = np.arange(SIZE // 4, dtype="uint32")
        view = at.there.map_buffer(shape=(SIZE // 4,), dtype="uint32").numpy()
        buffer = at.here.map_buffer(shape=(SIZE // 4,), dtype="uint32")
        buffer.copy_from_host(data)
        assert (view == data).all()
        view[:] = data[::-1]
        assert (buffer.copy_to_host() == data[::-1]).all()


@on_stand_in
def test_mapping_at_an_offset_is_that_part() -> None:
    with rig() as at:
        view = at.there.map_buffer().numpy()
        view[:] = np.arange(SIZE, dtype="uint32").astype("uint8")
        part = at.here.map_buffer(100, 50)
        assert (part.copy_to_host() == view[100:150]).all()


@on_stand_in
@pytest.mark.parametrize("pattern", [b"\x07", b"\x01\x02", b"\x01\x02\x03\x04", b"\x05" * 16])
def test_fill_repeats_its_pattern(pattern: bytes) -> None:
    with rig() as at:
        buffer = at.here.map_buffer()
        commands = at.cuda.create_command_list()
        commands.append_fill(buffer, pattern)
        commands.synchronize(timeout_s=BOUND_S)
        assert at.there.map_buffer().numpy().tobytes() == pattern * (SIZE // len(pattern))


@on_stand_in
def test_fill_is_refused_when_the_pattern_is_too_long() -> None:
    with rig() as at:
        buffer = at.here.map_buffer()
        commands = at.cuda.create_command_list()
        with pytest.raises(xsem.BadArgumentError) as caught:
            commands.append_fill(buffer, bytes(range(8)))
        assert caught.value.reason == "bad_pattern"
        commands.synchronize(timeout_s=BOUND_S)
        assert not at.there.map_buffer().numpy().any()


@on_stand_in
def test_copy_waits_for_its_turn_and_takes_page_locked_memory() -> None:
    with rig() as at:
        there = at.host.create_semaphore(SemaphoreHandleType.TIMELINE_SEMAPHORE_FD)
        with there.export(for_device=at.cuda) as desc:
            here = at.cuda.import_semaphore(desc)
        view = at.there.map_buffer().numpy()
        buffer, host = at.here.map_buffer(), at.cuda.host_buffer(SIZE)
        host.numpy()[:] = 0
        commands = at.cuda.create_command_list()
        commands.append_wait(here, 1)
        commands.append_copy(host, buffer)
        commands.append_signal(here, 2)
        view[:] = 5
        assert not host.numpy().any()
        there.host_signal(1)
        there.host_wait(2, timeout_s=BOUND_S)
        assert (host.numpy() == 5).all()


@on_stand_in
def test_release_behind_an_unmet_wait_of_another_list_returns() -> None:
    with rig() as at:
        there = at.host.create_semaphore(SemaphoreHandleType.TIMELINE_SEMAPHORE_FD)
        with there.export(for_device=at.cuda) as desc:
            here = at.cuda.import_semaphore(desc)
        commands = at.cuda.create_command_list()
        done = at.cuda.create_event()
        commands.append_wait(here, 1, signal_event=done)
        buffer, host = at.here.map_buffer(), at.cuda.host_buffer(64)
        for each in (buffer, at.here, host):
            each.release()
            each.release()
        assert not done.query()
        with pytest.raises(xsem.ReleasedError):
            at.here.map_buffer()
        there.host_signal(1)
        commands.synchronize(timeout_s=BOUND_S)


@on_stand_in
def test_size_beyond_the_file_or_the_import_is_refused() -> None:
    with rig() as at, at.there.export(for_device=at.cuda) as desc:
        assert isinstance(desc.handle, xsem.OwnedHandle)
        with pytest.raises(xsem.BadHandleError) as caught:
            at.cuda.import_memory(xsem.MemoryDesc.opaque_fd(
                desc.handle.fileno(), allocation_size=16 * SIZE, device_uuid=at.cuda.info.uuid))
        assert caught.value.reason == "allocation_size_beyond_file"
        with pytest.raises(xsem.BadArgumentError):
            at.here.map_buffer(SIZE - 8, 16)
        os.fstat(desc.handle.fileno())


# ---- arrays of other libraries
@on_stand_in
def test_cuda_array_interface_says_where_and_what() -> None:
    with rig() as at:
        buffer = at.here.map_buffer(shape=(8, 4, 2), dtype="float32", strides=(64, 8, 4))
        assert buffer.__cuda_array_interface__ == {
            "shape": (8, 4, 2), "strides": (64, 8, 4), "typestr": "<f4", "data": (buffer.address, False), "version": 3,
            "stream": None}


class DLDevice(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class DLTensor(ctypes.Structure):
    _fields_ = (("data", ctypes.c_uint64), ("device", DLDevice), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64))


def content(capsule: Any, name: bytes, header: int) -> tuple[Any, ...]:
    # The functions of ctypes.pythonapi are shared: a change of their types would change them for xsem too.
    get = ctypes.PyDLL(None).PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = DLTensor.from_address(get(capsule, name) + header)
    return (tensor.data, tensor.device.type, tensor.device.id, tensor.code, tensor.bits, tensor.lanes,
            tensor.shape[: tensor.ndim], tensor.strides[: tensor.ndim], tensor.byte_offset)


@on_stand_in(SIMCUDA_DEVICES="2")
@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize(("version", "name", "header"), [(None, b"dltensor", 0), ((1, 0), b"dltensor_versioned", 32)])
def test_dlpack_capsules_say_where_and_what(
    index: int, version: tuple[int, int] | None, name: bytes, header: int
) -> None:
    with xsem.open_device("host") as host, xsem.open_device(f"cuda:{index}") as cuda:
        with host.create_memory(MemoryHandleType.OPAQUE_FD, SIZE).export(for_device=cuda) as desc:
            memory = cuda.import_memory(desc)
        buffer = memory.map_buffer(shape=(8, 4, 2), dtype="float32", strides=(64, 8, 4))
        assert buffer.__dlpack_device__() == (2, index)
        capsule = buffer.__dlpack__(max_version=version)
        kdl_float = 2
        assert content(capsule, name, header) == (
            buffer.address, 2, index, kdl_float, 32, 1, [8, 4, 2], [16, 2, 1], 0)
        del capsule
        gc.collect()


@on_stand_in
def test_numpy_cannot_take_device_memory() -> None:
    with rig() as at, pytest.raises(BufferError):
        at.here.map_buffer().numpy()
