"""DLPack capsules: their structures, and the end of the lease with the last consumer."""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

import xsem.facade.dlpack
from xsem.data.layout import DType, parse_dtype, parse_layout
from xsem.facade.dlpack import make_capsule

NUMPY_IS_VERSIONED = np.lib.NumpyVersion(np.__version__) >= "2.1.0"


class Lease:
    """Counts the live leases."""

    alive: ClassVar[weakref.WeakSet[Lease]] = weakref.WeakSet()

    def __init__(self) -> None:
        self.alive.add(self)


@pytest.fixture(autouse=True)
def no_lease_left() -> Any:
    yield
    gc.collect()
    assert not Lease.alive


@pytest.fixture
def memory() -> Any:
    return ctypes.create_string_buffer(4096 + 64)


def aligned(memory: Any, by: int = 64) -> int:
    return -(-ctypes.addressof(memory) // by) * by


def capsule(
    address: int, dtype: str = "uint8", shape: tuple[int, ...] = (8,), strides: tuple[int, ...] | None = None,
    device: tuple[int, int] = (1, 0), versioned: bool = True,
) -> Any:
    element = parse_dtype(dtype)
    layout = parse_layout(shape, strides, element.itemsize)
    return make_capsule(address, device, element, layout.shape, layout.strides, Lease(), versioned=versioned)


class Producer:
    """The object that a consumer is given."""

    def __init__(self, address: int, device: tuple[int, int] = (1, 0), **fields: Any) -> None:
        self.address = address
        self.device = device
        self.fields = fields

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None, **_: Any) -> Any:
        return capsule(self.address, device=self.device, versioned=max_version is not None, **self.fields)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


# ---- a consumer for the tests: it reads the structures as dlpack.h defines them
class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    _fields_ = (("tensor", Tensor), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", Tensor),
    )


pointer = ctypes.pythonapi.PyCapsule_GetPointer
pointer.restype = ctypes.c_void_p
pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
get_name = ctypes.pythonapi.PyCapsule_GetName
get_name.restype = ctypes.c_char_p
get_name.argtypes = [ctypes.py_object]
set_name = ctypes.pythonapi.PyCapsule_SetName
set_name.argtypes = [ctypes.py_object, ctypes.c_char_p]
USED = {b"dltensor": b"used_dltensor", b"dltensor_versioned": b"used_dltensor_versioned"}


def read(made: Any) -> Managed | ManagedVersioned:
    name = get_name(made)
    kind = ManagedVersioned if name == b"dltensor_versioned" else Managed
    return kind.from_address(pointer(made, name))


def consume(made: Any) -> Callable[[], None]:
    """Take the tensor from the capsule, as a C++ library does. Return a function that frees it without the GIL."""
    managed = read(made)
    set_name(made, USED[get_name(made)])
    address = ctypes.addressof(managed)
    deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(managed.deleter)
    return lambda: deleter(address)


@pytest.mark.parametrize("versioned", [True, False])
def test_structures_describe_the_tensor(memory: Any, versioned: bool) -> None:
    address = aligned(memory)
    made = capsule(address, "float32", (3, 5), (64, 4), (2, 3), versioned)
    expected = b"dltensor_versioned" if versioned and NUMPY_IS_VERSIONED else b"dltensor"
    assert get_name(made) == expected
    managed = read(made)
    if isinstance(managed, ManagedVersioned):
        assert managed.major == 1
        assert managed.flags == 0
    tensor = managed.tensor
    assert tensor.data + tensor.byte_offset == address
    assert (tensor.device_type, tensor.device_id) == (2, 3)
    assert tensor.ndim == 2
    assert (tensor.code, tensor.bits, tensor.lanes) == (2, 32, 1)
    assert tensor.shape[:2] == [3, 5]
    assert tensor.strides[:2] == [16, 1]


@pytest.mark.parametrize("name", ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
                                  "float16", "bfloat16", "float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("versioned", [True, False])
def test_every_dtype_has_its_code_and_bits(memory: Any, name: str, versioned: bool) -> None:
    dtype: DType = parse_dtype(name)
    tensor = read(capsule(aligned(memory), name, versioned=versioned)).tensor
    assert (tensor.code, tensor.bits, tensor.lanes) == (dtype.dlpack_code, dtype.itemsize * 8, 1)


@pytest.mark.parametrize(
    ("shape", "strides"),
    [((), None), ((1,), None), ((8,), None), ((2, 3, 4), None), ((2, 3), (64, 4)), ((3, 2), (4, 16)), ((4,), (0,)),
     ((1, 4), (7, 4)), ((2, 1, 3), (24, 999, 8))],
    ids=str,
)
@pytest.mark.parametrize("versioned", [True, False])
def test_numpy_reads_and_writes_the_same_elements(
    memory: Any, shape: tuple[int, ...], strides: tuple[int, ...] | None, versioned: bool
) -> None:
    address = aligned(memory)
    whole = np.frombuffer(memory, np.uint8)
    whole[:] = np.arange(len(whole), dtype=np.uint8)
    layout = parse_layout(shape, strides, 4)
    expected = np.ndarray(shape, "<f4", memory, offset=address - ctypes.addressof(memory), strides=layout.strides)
    producer = Producer(address, dtype="float32", shape=shape, strides=strides)
    if not versioned:
        producer.__dlpack__ = lambda **_: capsule(  # type: ignore[method-assign]
            address, "float32", shape, strides, versioned=False)
    array = np.from_dlpack(producer)
    assert array.shape == shape
    assert array.dtype == np.float32
    assert np.array_equal(array.view(np.uint32), expected.view(np.uint32))
    assert len(Lease.alive) == 1
    assert array.flags.writeable or not (versioned and NUMPY_IS_VERSIONED)
    if array.flags.writeable:
        array[...] = 7.0
        assert np.all(expected == 7.0)


@pytest.mark.parametrize(
    ("name", "strides"),
    [("float32", (6,)), ("float32", (2,)), ("uint16", (3,)), ("complex128", (8,)), ("bfloat16", (1,))],
)
def test_strides_that_split_elements_are_refused(memory: Any, name: str, strides: tuple[int, ...]) -> None:
    with pytest.raises(BufferError, match="strides"):
        capsule(aligned(memory), name, (2,), strides)


@pytest.mark.parametrize(
    ("name", "offset"),
    [("float32", 1), ("float32", 2), ("uint16", 1), ("float64", 4), ("complex64", 2), ("bfloat16", 1)],
)
def test_an_address_that_is_not_aligned_is_refused(memory: Any, name: str, offset: int) -> None:
    with pytest.raises(BufferError, match="aligned"):
        capsule(aligned(memory) + offset, name)
    capsule(aligned(memory) + offset, "uint8")


@pytest.mark.parametrize(("name", "offset"), [("complex64", 4), ("complex128", 8), ("float64", 8), ("uint8", 1)])
def test_address_aligned_to_the_component_is_accepted(memory: Any, name: str, offset: int) -> None:
    assert read(capsule(aligned(memory) + offset, name)).tensor.data == aligned(memory) + offset


def test_an_address_that_the_host_cannot_read_is_never_read() -> None:
    made = capsule(0x7F00_0000_0000, "float32", (1024, 1024), device=(2, 0))
    assert read(made).tensor.data == 0x7F00_0000_0000
    consume(made)()


# ---- the end of the lease
@pytest.mark.parametrize("versioned", [True, False])
def test_an_unconsumed_capsule_ends_its_lease(memory: Any, versioned: bool) -> None:
    made = capsule(aligned(memory), versioned=versioned)
    assert len(Lease.alive) == 1
    del made
    assert not Lease.alive


@pytest.mark.parametrize("versioned", [True, False])
def test_consumed_capsule_ends_its_lease_with_its_consumer(memory: Any, versioned: bool) -> None:
    made = capsule(aligned(memory), versioned=versioned)
    give_back = consume(made)
    del made
    gc.collect()
    assert len(Lease.alive) == 1
    give_back()
    assert not Lease.alive


def test_the_capsule_may_outlive_its_consumer(memory: Any) -> None:
    made = capsule(aligned(memory))
    consume(made)()
    assert not Lease.alive
    del made


def test_views_and_copies_of_a_numpy_array_keep_or_end_the_lease(memory: Any) -> None:
    array = np.from_dlpack(Producer(aligned(memory), shape=(4, 4)))
    view, copied = array[1:, ::2], array.copy()
    del array
    gc.collect()
    assert len(Lease.alive) == 1
    del view
    assert not Lease.alive
    assert copied.shape == (4, 4)


@pytest.mark.parametrize("versioned", [True, False])
def test_a_deleter_may_be_called_on_any_thread(memory: Any, versioned: bool) -> None:
    give_back = [consume(capsule(aligned(memory), versioned=versioned)) for _ in range(64)]
    assert len(Lease.alive) == 64

    def run() -> None:
        while give_back:
            try:
                give_back.pop()()
            except IndexError:
                return

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not Lease.alive


@pytest.mark.parametrize("versioned", [True, False])
def test_dropped_capsule_keeps_the_current_error(memory: Any, versioned: bool) -> None:
    def raises() -> None:
        made = capsule(aligned(memory), versioned=versioned)
        assert made is not None
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        raises()
    gc.collect()
    assert not Lease.alive


@pytest.mark.parametrize("fields", [{"dtype": "bfloat16"}, {"device": (2, 0)}], ids=str)
def test_a_consumer_that_refuses_says_so_and_ends_the_lease(memory: Any, fields: dict[str, Any]) -> None:
    # NumPy drops the capsule while its error is set: a destructor in Python would lose the error (SystemError).
    with pytest.raises((RuntimeError, BufferError)) as caught:
        np.from_dlpack(Producer(aligned(memory), **fields))
    assert not isinstance(caught.value, SystemError)
    del caught
    gc.collect()
    assert not Lease.alive


def test_ten_thousand_capsules_leave_nothing(memory: Any) -> None:
    address = aligned(memory)

    def some(count: int) -> None:
        for number in range(count):
            made = capsule(address, versioned=bool(number % 2))
            if number % 3 == 0:
                consume(made)()

    some(100)
    gc.collect()
    before = len(gc.get_objects())
    grown = []
    for _ in range(3):
        resident = resident_bytes()
        some(10_000)
        gc.collect()
        grown.append(resident_bytes() - resident)
    assert not Lease.alive
    assert len(gc.get_objects()) - before < 100
    # Each capsule has about 200 bytes of C structures: a leak of 10,000 would be 2 MB in each round. The allocator
    # takes a megabyte of its own in some rounds.
    assert min(grown) < 1_000_000


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.parametrize("versioned", [True, False])
def test_an_older_numpy_gives_a_legacy_capsule(memory: Any, monkeypatch: pytest.MonkeyPatch, versioned: bool) -> None:
    monkeypatch.setattr(np, "__version__", "2.0.2")
    monkeypatch.setattr(xsem.facade.dlpack, "_native", None)
    assert get_name(capsule(aligned(memory), versioned=versioned)) == b"dltensor"
    monkeypatch.setattr(np, "__version__", "10.0.0.dev0+git20300101")
    assert xsem.facade.dlpack._numpy_is_versioned(np)
