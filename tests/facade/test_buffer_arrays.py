"""A buffer is an array of other libraries, without a copy."""

from __future__ import annotations

import collections.abc
import gc
import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.real_bytes import PAGE, Gpu, mapped
from support.system_types import MEMORY
from support.waiting import until

import xsem
from xsem.errors import ReleasedError
from xsem.facade.device import Device


def test_an_array_is_the_memory_itself(device: Device) -> None:
    memory = device.create_memory(MEMORY, PAGE)
    buffer = memory.map_buffer(16, shape=(3, 4), dtype="int32", strides=(32, 4))
    array: Any = buffer.numpy()
    assert (array.shape, array.strides, array.dtype) == ((3, 4), (32, 4), np.int32)
    assert array.ctypes.data == buffer.address
    array[:] = np.arange(12).reshape(3, 4)
    raw = memory.map_buffer(overlap=True).numpy()
    assert raw[16:20].view(np.int32)[0] == 0
    assert list(raw[48:64].view(np.int32)) == [4, 5, 6, 7]
    for other in (np.asarray(buffer), np.from_dlpack(buffer), buffer.copy_to_host()):
        assert np.array_equal(other, array)
    assert np.shares_memory(np.asarray(buffer), array)
    assert np.shares_memory(np.from_dlpack(buffer), array)
    assert not np.shares_memory(buffer.copy_to_host(), array)


def test_two_processes_devices_see_one_memory(device: Device) -> None:
    made = device.create_memory(MEMORY, PAGE)
    with xsem.open_device("host") as other, made.export() as desc, other.import_memory(desc) as again:
        made.map_buffer().numpy()[7] = 42
        assert again.map_buffer().numpy()[7] == 42


ARRAYS: dict[str, Callable[[xsem.Buffer], Any]] = {
    "numpy": lambda buffer: buffer.numpy(),
    "asarray": np.asarray,
    "from_dlpack": np.from_dlpack,
    "numpy of a view": lambda buffer: buffer.view((PAGE,), "uint8").numpy(),
    "slice": lambda buffer: buffer.numpy()[:64][::2],
}


@pytest.mark.parametrize("way", ARRAYS)
def test_an_array_outlives_everything_that_it_came_from(way: str) -> None:
    device = xsem.open_device("host")
    memory = device.create_memory(MEMORY, PAGE)
    buffer = memory.map_buffer()
    buffer.copy_from_host(np.full(PAGE, 5, np.uint8))
    array = ARRAYS[way](buffer)
    buffer.release()
    memory.release()
    device.release()
    del buffer, memory
    gc.collect()
    assert (array == 5).all()
    assert device.released
    # The mapping and its fd are freed with the array; a fixture of all tests checks that.
    del array


@pytest.mark.parametrize("way", ["numpy", "from_dlpack"])
def test_array_keeps_its_mapping_until_it_is_collected(gpu: tuple[Device, Gpu], way: str) -> None:
    device, driver = gpu
    driver.dlpack = (1, 0)  # memory that the host can access
    memory = device.create_memory(MEMORY, PAGE)
    buffer = memory.map_buffer()
    array: Any = buffer.numpy() if way == "numpy" else np.from_dlpack(buffer)
    view = array[8:]
    buffer.release()
    memory.release()
    del array
    gc.collect()
    device.pending()
    assert not driver.released("unmap_buffer")
    del view
    until(lambda: driver.released("release_memory"))
    assert len(driver.released("unmap_buffer")) == 1


def test_object_with_cuda_array_interface_keeps_its_mapping(gpu: tuple[Device, Gpu]) -> None:
    device, driver = gpu
    memory = device.create_memory(MEMORY, PAGE)
    buffer: Any = memory.map_buffer()
    assert buffer.__cuda_array_interface__["data"] == (buffer.address, False)
    buffer.release()
    memory.release()
    device.pending()
    assert not driver.released("unmap_buffer")
    # cupy and Numba keep a reference to the object itself.
    del buffer
    until(lambda: driver.released("release_memory"))


def test_an_interface_that_was_refused_keeps_nothing(gpu: tuple[Device, Gpu]) -> None:
    device, driver = gpu
    buffer = device.create_memory(MEMORY, PAGE).map_buffer(dtype="bfloat16")
    with pytest.raises(BufferError, match="uint16"):
        _ = buffer.__cuda_array_interface__
    buffer.release()
    until(lambda: driver.released("unmap_buffer"))


@pytest.mark.parametrize("layout", [
    {"offset": 3, "shape": (10,), "dtype": "float32"},
    {"offset": 2, "shape": (10,), "dtype": "complex64"},
    {"shape": (2, 3), "dtype": "float32", "strides": (14, 4)},
], ids=str)
def test_misaligned_elements_go_to_numpy_and_not_to_a_gpu(
    device: Device, gpu: tuple[Device, Gpu], layout: dict[str, Any]
) -> None:
    here = device.create_memory(MEMORY, PAGE).map_buffer(**layout)
    here.copy_from_host(np.full(here.shape, 5, here.dtype))
    assert (here.numpy() == 5).all()
    there = gpu[0].create_memory(MEMORY, PAGE).map_buffer(**layout)
    for export in (lambda: there.__cuda_array_interface__, there.__dlpack__):
        with pytest.raises(BufferError, match=r"float32|complex64|multiples of 4"):
            export()
    there.view((4,), "uint8").__dlpack__()


def test_aligned_elements_of_one_row_have_any_stride(gpu: tuple[Device, Gpu]) -> None:
    one = gpu[0].create_memory(MEMORY, PAGE).map_buffer(4, shape=(1, 3), dtype="float32", strides=(13, 4))
    assert one.__cuda_array_interface__["strides"] == (13, 4)


def test_cuda_array_interface_is_version_3(gpu: tuple[Device, Gpu]) -> None:
    device, _ = gpu
    buffer = device.create_memory(MEMORY, PAGE).map_buffer(8, shape=(2, 3), dtype="complex64", strides=(64, 8))
    assert buffer.__cuda_array_interface__ == {
        "shape": (2, 3), "strides": (64, 8), "typestr": "<c8", "data": (buffer.address, False), "version": 3,
        "stream": None,
    }
    assert buffer.__dlpack_device__() == (2, 0)
    with pytest.raises(AttributeError):
        _ = buffer.__array_interface__
    assert not hasattr(buffer, "__array_interface__")
    with pytest.raises(BufferError, match="copy_to_host"):
        buffer.numpy()


@pytest.mark.parametrize("dlpack", [(4, 0), (14, 1), (7, 0)], ids=["OpenCL", "oneAPI", "Vulkan"])
def test_other_devices_have_neither_interface(gpu: tuple[Device, Gpu], dlpack: tuple[int, int]) -> None:
    device, driver = gpu
    driver.dlpack = dlpack
    buffer = mapped(device)
    assert not hasattr(buffer, "__array_interface__")
    assert not hasattr(buffer, "__cuda_array_interface__")
    assert buffer.__dlpack_device__() == dlpack


def test_host_buffer_has_array_interface_and_no_cuda_one(device: Device) -> None:
    buffer = device.create_memory(MEMORY, PAGE).map_buffer(shape=(2, 3), dtype="float64", strides=(64, 8))
    assert buffer.__array_interface__ == {
        "shape": (2, 3), "strides": (64, 8), "typestr": "<f8", "data": (buffer.address, False), "version": 3,
    }
    assert not hasattr(buffer, "__cuda_array_interface__")
    assert buffer.__dlpack_device__() == (1, 0)


def test_page_locked_memory_of_a_gpu_is_a_host_array(gpu: tuple[Device, Gpu]) -> None:
    device, driver = gpu
    buffer = device.host_buffer(64)
    buffer.numpy()[:] = 3
    assert bytes(next(iter(driver.staging.values()))) == b"\3" * 64
    assert buffer.__dlpack_device__() == (1, 0)
    assert not hasattr(buffer, "__cuda_array_interface__")
    array = np.from_dlpack(buffer)
    buffer.release()
    del buffer
    gc.collect()
    device.pending()
    assert driver.staging
    del array
    until(lambda: not driver.staging)


def test_bfloat16_is_exported_by_dlpack_and_not_by_numpy(gpu_or_host: Device) -> None:
    buffer = gpu_or_host.create_memory(MEMORY, PAGE).map_buffer(shape=(4,), dtype="bfloat16")
    assert "dltensor" in repr(buffer.__dlpack__())
    acts: list[Callable[[], object]] = [
        buffer.copy_to_host, lambda: buffer.copy_from_host([1, 2, 3, 4]), buffer.numpy,
        lambda: np.asarray(buffer) if buffer.__dlpack_device__() == (1, 0) else buffer.numpy(),
    ]
    for act in acts:
        with pytest.raises(BufferError):
            act()
    buffer.view((4,), "uint16").copy_from_host(np.zeros(4, "uint16"))


def test_a_released_buffer_gives_no_array(gpu_or_host: Device) -> None:
    buffer = mapped(gpu_or_host)
    host = buffer.__dlpack_device__() == (1, 0)
    buffer.release()
    with pytest.raises(ReleasedError):
        _ = buffer.__array_interface__ if host else buffer.__cuda_array_interface__
    if host:
        # NumPy makes an object array of an object without an interface; this must not happen.
        with pytest.raises(ReleasedError):
            np.asarray(buffer)
    for act in (buffer.__dlpack__, buffer.__dlpack_device__, buffer.numpy):
        with pytest.raises(ReleasedError):
            act()


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="NumPy 2.0 makes unversioned capsules")
def test_dlpack_is_versioned_when_the_consumer_supports_it(gpu_or_host: Device) -> None:
    buffer = mapped(gpu_or_host)
    where = buffer.__dlpack_device__()
    assert "dltensor_versioned" in repr(buffer.__dlpack__(max_version=(1, 0)))
    assert "dltensor_versioned" in repr(buffer.__dlpack__(max_version=(2, 3), dl_device=where, copy=False, stream=1))
    for given in ({}, {"max_version": None}, {"max_version": (0, 8)}):
        text = repr(buffer.__dlpack__(**given))
        assert "dltensor" in text
        assert "versioned" not in text


def test_dlpack_makes_no_copy_and_changes_no_device(gpu_or_host: Device) -> None:
    buffer = mapped(gpu_or_host)
    here = buffer.__dlpack_device__()
    elsewhere = (2, 0) if here == (1, 0) else (1, 0)
    with pytest.raises(BufferError, match="copy"):
        buffer.__dlpack__(copy=True)
    with pytest.raises(BufferError, match="device"):
        buffer.__dlpack__(dl_device=elsewhere)
    with pytest.raises(BufferError, match="device"):
        buffer.__dlpack__(dl_device=(here[0], here[1] + 1))


def test_dlpack_of_odd_strides_or_addresses_is_refused(gpu_or_host: Device) -> None:
    memory = gpu_or_host.create_memory(MEMORY, PAGE)
    with pytest.raises(BufferError, match="strides"):
        memory.map_buffer(0, shape=(2,), dtype="float32", strides=(6,)).__dlpack__()
    with pytest.raises(BufferError, match="aligned"):
        memory.map_buffer(513, shape=(2,), dtype="float32").__dlpack__()


def test_a_refused_capsule_keeps_nothing(gpu: tuple[Device, Gpu]) -> None:
    device, driver = gpu
    buffer = device.create_memory(MEMORY, PAGE).map_buffer(1, shape=(2,), dtype="float32")
    for _ in range(3):
        with pytest.raises(BufferError):
            buffer.__dlpack__()
    buffer.release()
    until(lambda: driver.released("unmap_buffer"))


def test_ten_thousand_capsules_end_ten_thousand_leases(gpu: tuple[Device, Gpu]) -> None:
    device, driver = gpu
    buffer = mapped(device)
    for _ in range(10_000):
        buffer.__dlpack__()
    device.pending()
    buffer.release()
    until(lambda: driver.released("unmap_buffer"))


# ---- the buffer protocol
FROM_312 = pytest.mark.skipif(sys.version_info < (3, 12), reason="PEP 688 needs Python 3.12")


def protocol(buffer: xsem.Buffer) -> memoryview:
    """Return the view that Python 3.12 and newer make for memoryview(buffer)."""
    return memoryview(buffer) if sys.version_info >= (3, 12) else buffer.__buffer__(0)


def test_a_buffer_is_a_memoryview_without_a_copy(device: Device) -> None:
    memory = device.create_memory(MEMORY, PAGE)
    buffer = memory.map_buffer(16, shape=(3, 4), dtype="int32", strides=(32, 4))
    view = protocol(buffer)
    assert (view.shape, view.strides, view.format, view.readonly) == ((3, 4), (32, 4), np.dtype("int32").char, False)
    view[1, 2] = 7
    assert buffer.numpy()[1, 2] == 7
    flat = protocol(memory.map_buffer(1024, 4, overlap=True))
    flat[:] = b"abcd"
    assert bytes(flat) == b"abcd"


@pytest.mark.parametrize("view", [protocol, lambda buffer: buffer.numpy().data], ids=["protocol", "numpy"])
def test_a_memoryview_keeps_the_memory_until_its_release(view: Callable[[xsem.Buffer], memoryview]) -> None:
    with xsem.open_device("host") as device:
        memory = device.create_memory(MEMORY, PAGE)
        buffer = memory.map_buffer()
        seen = view(buffer)
        buffer.release()
        memory.release()
        del buffer, memory
        gc.collect()
        assert device.releasing() == ("buffer", f"{MEMORY.value} memory")
        seen[5] = 9
        assert bytes(seen[4:7]) == b"\0\x09\0"
        seen.release()
        del seen
        gc.collect()
        until(lambda: device.releasing() == ())


def test_memory_that_the_host_cannot_access_has_no_memoryview(gpu: tuple[Device, Gpu]) -> None:
    buffer = mapped(gpu[0])
    with pytest.raises(BufferError, match="copy_to_host"):
        protocol(buffer)
    buffer.release()
    with pytest.raises(ReleasedError):
        protocol(buffer)


@FROM_312
def test_libraries_take_a_buffer_as_bytes(device: Device, tmp_path: Path) -> None:
    buffer = mapped(device)
    (tmp_path / "source").write_bytes(b"x" * PAGE)
    with open(tmp_path / "source", "rb") as file:
        assert file.readinto(buffer) == PAGE
    assert (buffer.numpy() == ord("x")).all()
    assert bytes(buffer) == b"x" * PAGE
    assert hashlib.sha256(buffer).digest() == hashlib.sha256(b"x" * PAGE).digest()
    assert isinstance(buffer, collections.abc.Buffer)  # type: ignore[attr-defined]
    rows = buffer.view((4, 4), "uint8", strides=(64, 1))
    with pytest.raises(BufferError):   # Python checks the request
        hashlib.sha256(rows)
