"""The C exchange interface of DLPack 1.3, as a consumer in C uses it."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
from support.fake_backend import fake
from support.waiting import until

import xsem
from xsem.facade import dlpack
from xsem.types import MemoryHandleType

pytestmark = pytest.mark.skipif(vars(dlpack)["_native"] is None,
                                reason="the compiled part is missing (XSEM_PURE, no compiler)")


class Device(ctypes.Structure):
    _fields_: ClassVar = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class Tensor(ctypes.Structure):
    _fields_: ClassVar = [
        ("data", ctypes.c_void_p), ("device", Device), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    _fields_: ClassVar = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)), ("flags", ctypes.c_uint64), ("tensor", Tensor)]


# PYFUNCTYPE: these functions run with the interpreter's lock, and may set a Python error.
FROM_OBJECT = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))
TO_OBJECT = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
SET_ERROR = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
ALLOCATE = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, SET_ERROR)
STREAM = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))


class Exchange(ctypes.Structure):
    _fields_: ClassVar = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("previous", ctypes.c_void_p), ("allocate", ALLOCATE),
        ("from_object", FROM_OBJECT), ("to_object", TO_OBJECT), ("view", ctypes.c_void_p), ("stream", STREAM)]


_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))


def exchange() -> Exchange:
    """Return the table that a consumer finds on the type."""
    capsule = type.__getattribute__(xsem.Buffer, "__dlpack_c_exchange_api__")
    return Exchange.from_address(_pointer(capsule, b"dlpack_exchange_api"))


def exported(buffer: xsem.Buffer) -> Managed:
    out = ctypes.c_void_p()
    assert exchange().from_object(buffer, ctypes.byref(out)) == 0
    assert out.value is not None
    return Managed.from_address(out.value)


@pytest.fixture
def buffer() -> Iterator[xsem.Buffer]:
    with xsem.open_device("host") as device:
        memory = device.create_memory(MemoryHandleType.OPAQUE_FD, 4096)
        yield memory.map_buffer(64, shape=(3, 5), dtype="int16", strides=(16, 2))
        gc.collect()


def test_table_has_the_version_and_the_required_functions() -> None:
    table = exchange()
    assert (table.major, table.minor, table.previous) == (1, 3, None)
    assert all((table.allocate, table.from_object, table.to_object, table.stream))


def test_tensor_describes_the_buffer(buffer: xsem.Buffer) -> None:
    buffer.numpy()[:] = np.arange(15).reshape(3, 5)
    managed = exported(buffer)
    tensor = managed.tensor
    assert (managed.major, managed.flags, tensor.byte_offset) == (1, 0, 0)
    assert (tensor.device.type, tensor.device.id) == (1, 0)
    assert (tensor.code, tensor.bits, tensor.lanes) == (0, 16, 1)
    assert tensor.data == buffer.address
    assert (tensor.shape[:tensor.ndim], tensor.strides[:tensor.ndim]) == ([3, 5], [8, 1])
    rows = (ctypes.c_int16 * 24).from_address(tensor.data)
    assert list(rows)[8:13] == [5, 6, 7, 8, 9]
    managed.deleter(ctypes.addressof(managed))


@pytest.mark.parametrize("where", ["here", "another thread"])
def test_tensor_keeps_the_memory_until_its_deleter(buffer: xsem.Buffer, where: str) -> None:
    managed = exported(buffer)
    lifetime = buffer._lifetime
    buffer.release()
    gc.collect()
    assert not lifetime.freed
    assert ctypes.string_at(managed.tensor.data, 2) == b"\0\0"

    def delete() -> None:
        managed.deleter(ctypes.addressof(managed))   # ctypes calls it without the interpreter's lock

    if where == "here":
        delete()
    else:
        thread = threading.Thread(target=delete)
        thread.start()
        thread.join()
    buffer.device.releasing()
    until(lambda: lifetime.freed)


def test_refusal_is_a_python_error(buffer: xsem.Buffer) -> None:
    out = ctypes.c_void_p()
    buffer.release()
    with pytest.raises(xsem.ReleasedError):
        exchange().from_object(buffer, ctypes.byref(out))
    with fake() as (device, driver):
        driver.addresses = False
        without = device.create_memory(MemoryHandleType.OPAQUE_FD, 4096).map_buffer()
        with pytest.raises(BufferError, match="no address"):
            exchange().from_object(without, ctypes.byref(out))
    assert out.value is None


def test_tensors_of_others_are_refused_and_freed(buffer: xsem.Buffer) -> None:
    managed = exported(buffer)
    lifetime, out = buffer._lifetime, ctypes.c_void_p()
    with pytest.raises(BufferError, match="other libraries"):
        exchange().to_object(ctypes.addressof(managed), ctypes.byref(out))
    buffer.release()
    buffer.device.releasing()
    until(lambda: lifetime.freed)
    said: list[Any] = []
    status = exchange().allocate(None, ctypes.byref(out), None, SET_ERROR(lambda _, *text: said.append(text)))
    assert status == -1
    assert said[0][0] == b"BufferError"


def test_export_orders_nothing() -> None:
    out = ctypes.c_void_p(1)
    assert exchange().stream(2, 0, ctypes.byref(out)) == 0
    assert out.value is None


def test_exports_leak_nothing(buffer: xsem.Buffer) -> None:
    import tracemalloc

    def rounds(count: int) -> None:
        for _ in range(count):
            managed = exported(buffer)
            managed.deleter(ctypes.addressof(managed))
            del managed
            buffer.__dlpack__(max_version=(1, 0))   # a capsule that no consumer takes
            buffer.__dlpack__()

    rounds(50)
    tracemalloc.start()
    rounds(50)
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    rounds(1000)
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert after - before < 20_000


class Lying(list[int]):
    """A sequence whose second length is more than its first."""

    lengths: ClassVar[list[int]] = []

    def __len__(self) -> int:
        return self.lengths.pop(0) if self.lengths else 4


@pytest.mark.parametrize("versioned", [True, False])
def test_capsule_takes_only_lengths_that_cannot_change(versioned: bool) -> None:
    make = vars(dlpack)["_native"].managed_capsule
    Lying.lengths = [1]
    for shape, strides in ((Lying([1, 2, 3, 4]), (1,)), ((1,), [1]), ((1, 2), (1,)), (None, None), ((1,), None)):
        with pytest.raises((TypeError, IndexError)):
            make(4096, (1, 0), (0, 8), shape, strides, object(), versioned=versioned)
    assert make(4096, (1, 0), (0, 8), (1, 2), (2, 1), object(), versioned=versioned) is not None
