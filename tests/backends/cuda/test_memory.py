"""Test mapped memory as an array of other libraries. On the stand-in for libcuda."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.cuda_sim import on_stand_in

import xsem
from xsem.types import MemoryHandleType

SIZE = 1 << 16


@contextmanager
def imported(device: str = "cuda:0") -> Iterator[xsem.Memory]:
    with (xsem.open_device("host") as host, xsem.open_device(device) as cuda,
          host.create_memory(MemoryHandleType.OPAQUE_FD, SIZE).export(for_device=cuda) as desc):
        yield cuda.import_memory(desc)


@on_stand_in
def test_cuda_array_interface_says_where_and_what() -> None:
    with imported() as memory:
        buffer = memory.map_buffer(shape=(8, 4, 2), dtype="float32", strides=(64, 8, 4))
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
    with imported(f"cuda:{index}") as memory:
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
    with imported() as memory, pytest.raises(BufferError):
        memory.map_buffer().numpy()
