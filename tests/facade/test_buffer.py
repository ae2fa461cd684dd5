"""Buffers: ranges, views, arrays without a copy, and the lifetime of the mapping."""

from __future__ import annotations

import ctypes
import gc
import inspect
import mmap
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from support.fake_backend import ALL, INFO, FakeDriver, FakeList, open_fake, timeline, until
from support.fixtures import refused

import xsem
from xsem.errors import DriverError, ReleasedError, UnsupportedError, WaitTimeoutError
from xsem.facade.device import Device
from xsem.types import Capabilities, Feature, MemoryDesc, MemoryHandleType, MipmapDesc

M = MemoryHandleType
PAGE = mmap.PAGESIZE


class Copying(FakeList):
    """Copies real bytes at real addresses, at the append if `everything_is_done`."""

    def append_copy(self, dst: int, src: int, size: int, wait_points: Sequence[Any], want_point: bool) -> Any:
        point = super().append_copy(dst, src, size, wait_points, want_point)
        driver = self.driver
        assert isinstance(driver, Gpu)
        driver.copies.append((dst, src, size))
        if driver.everything_is_done:
            driver.copy(dst, src, size)
        return point

    def append_level_copy(
        self, level: int, address: int, read: bool, wait_points: Sequence[Any], want_point: bool
    ) -> Any:
        point = self._issue(want_point, "level", level, address, read)
        driver = self.driver
        assert isinstance(driver, ImageGpu)
        if driver.everything_is_done:
            driver.copy_level(level, address, read)
        return point


class Gpu(FakeDriver):
    """Device memory backed by ordinary memory; the facade treats it as device memory."""

    def __init__(self, capabilities: Capabilities = ALL) -> None:
        super().__init__(capabilities)
        self.everything_is_done = True
        self.blocks: dict[int, Any] = {}
        self.copies: list[tuple[int, int, int]] = []
        self.staging: dict[int, Any] = {}
        self.hold: threading.Event | None = None
        self.held: threading.Event = threading.Event()
        self.map_fails: Exception | None = None

    def copy(self, dst: int, src: int, size: int) -> None:
        self._inside(dst, size)
        self._inside(src, size)
        ctypes.memmove(dst, src, size)

    def _inside(self, address: int, size: int) -> None:
        for block in (*self.blocks.values(), *self.staging.values()):
            start = ctypes.addressof(block)
            if start <= address and address + size <= start + len(block):
                return
        raise AssertionError(f"{size} bytes at {address:#x} belong to no block")

    def create_command_list(self) -> FakeList:
        self.lists.append(Copying(self, 0x1000 + len(self.lists)))
        return self.lists[-1]

    def create_memory(self, type: MemoryHandleType, size: int, dedicated: bool) -> tuple[int, int]:
        token, whole = super().create_memory(type, size, dedicated)
        self.blocks[token] = ctypes.create_string_buffer(whole)
        return token, whole

    def map_buffer(self, memory: int, offset: int, size: int) -> tuple[int, int]:
        if self.hold is not None:
            self.held.set()
            assert self.hold.wait(10)
        if self.map_fails is not None:
            raise self.map_fails
        return next(self.numbers), ctypes.addressof(self.blocks[memory]) + offset

    def host_buffer(self, size: int) -> tuple[int, int]:
        token = next(self.numbers)
        self.staging[token] = ctypes.create_string_buffer(size)
        return token, ctypes.addressof(self.staging[token])

    def release_host_buffer(self, buffer: int) -> None:
        del self.staging[buffer]

    def bytes_of(self, memory: xsem.Memory) -> Any:
        return np.frombuffer(self.blocks[memory._memory], np.uint8)


@pytest.fixture
def gpu() -> Iterator[tuple[Device, Gpu]]:
    driver = Gpu()
    with Device(INFO, driver) as device:
        yield device, driver
        driver.finish()
    until(lambda: ("close",) in driver.log)
    assert not driver.staging
    assert not driver.loud
    assert not driver.misuse


@pytest.fixture(params=["gpu", "host"])
def gpu_or_host(request: pytest.FixtureRequest) -> Device:
    made: Device = request.getfixturevalue("gpu")[0] if request.param == "gpu" else request.getfixturevalue("device")
    return made


def mapped(device: Device, size: int = PAGE) -> xsem.Buffer:
    return device.create_memory(M.OPAQUE_FD, size).map_buffer()


# ---- ranges and shapes
def test_default_buffer_is_the_whole_memory_as_bytes(gpu_or_host: Device) -> None:
    memory = gpu_or_host.create_memory(M.OPAQUE_FD, 3 * PAGE)
    buffer = memory.map_buffer()
    assert (buffer.size, buffer.shape, buffer.strides, buffer.dtype) == (3 * PAGE, (3 * PAGE,), (1,), "uint8")
    assert buffer.device is gpu_or_host
    assert f"{buffer.address:#x}" in repr(buffer)


@pytest.mark.parametrize(
    ("given", "size", "shape", "strides", "dtype"),
    [
        ({"offset": 8}, PAGE - 8, (PAGE - 8,), (1,), "uint8"),
        ({"offset": 8, "size": 16}, 16, (16,), (1,), "uint8"),
        ({"size": 16, "dtype": "float32"}, 16, (4,), (4,), "float32"),
        ({"dtype": np.int16}, PAGE, (PAGE // 2,), (2,), "int16"),
        ({"shape": (2, 3)}, 6, (2, 3), (3, 1), "uint8"),
        ({"shape": (2, 3), "dtype": "bfloat16"}, 12, (2, 3), (6, 2), "bfloat16"),
        ({"shape": (2, 3), "size": 100}, 100, (2, 3), (3, 1), "uint8"),
        ({"shape": (2, 3, 4), "strides": (64, 4, 1)}, 76, (2, 3, 4), (64, 4, 1), "uint8"),
        ({"shape": (), "dtype": "float64"}, 8, (), (), "float64"),
        ({"shape": [2, 2], "strides": [0, 4], "dtype": "float32"}, 8, (2, 2), (0, 4), "float32"),
        ({"offset": PAGE - 1}, 1, (1,), (1,), "uint8"),
        ({"shape": (PAGE,)}, PAGE, (PAGE,), (1,), "uint8"),
    ],
    ids=str,
)
def test_size_and_shape_follow_from_each_other(
    gpu_or_host: Device, given: dict[str, Any], size: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str
) -> None:
    memory = gpu_or_host.create_memory(M.OPAQUE_FD, PAGE)
    start = memory.map_buffer().address
    buffer = memory.map_buffer(**given, overlap=True)
    assert (buffer.size, buffer.shape, buffer.strides, buffer.dtype) == (size, shape, strides, dtype)
    assert buffer.address == start + given.get("offset", 0)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"shape": (PAGE + 1,)}, "out_of_range"),
        ({"shape": (2, 3), "size": 5}, "out_of_range"),
        ({"shape": (PAGE // 4 + 1,), "dtype": "float32"}, "out_of_range"),
        ({"shape": (2, 1), "strides": (PAGE, 1)}, "out_of_range"),
        ({"offset": 1, "shape": (PAGE,)}, "out_of_range"),
        ({"size": 5, "dtype": "float32"}, "bad_size"),
        ({"offset": 1, "dtype": "float32"}, "bad_size"),
        ({"strides": (1,)}, "bad_strides"),
        ({"shape": (2, 2), "strides": (1,)}, "bad_strides"),
        ({"shape": (2,), "strides": (-1,)}, "bad_strides"),
        ({"shape": (0,)}, "bad_shape"),
        ({"shape": 5}, "bad_shape"),
        ({"shape": (2**70,), "strides": (0,)}, "bad_shape"),
        ({"dtype": "float31"}, "bad_dtype"),
        ({"dtype": None}, "bad_dtype"),
    ],
    ids=str,
)
def test_range_or_shape_that_does_not_fit_is_refused(gpu_or_host: Device, given: dict[str, Any], reason: str) -> None:
    memory = gpu_or_host.create_memory(M.OPAQUE_FD, PAGE)
    refused(lambda: memory.map_buffer(**given), reason)
    memory.map_buffer()


# ---- overlap
def test_adjacent_ranges_are_mapped_and_overlapping_ones_refused(gpu_or_host: Device) -> None:
    memory = gpu_or_host.create_memory(M.OPAQUE_FD, PAGE)
    kept = [memory.map_buffer(0, 16), memory.map_buffer(16, 16), memory.map_buffer(64, 16)]
    for offset, size in ((0, 16), (0, 1), (15, 1), (15, 2), (31, 33), (0, PAGE), (79, 1), (48, 17), (63, 100)):
        refused(lambda offset=offset, size=size: memory.map_buffer(offset, size), "overlap")  # type: ignore[misc]
        memory.map_buffer(offset, size, overlap=True).release()
    kept += [memory.map_buffer(32, 32), memory.map_buffer(80)]
    assert [buffer.released for buffer in kept] == [False] * 5


def test_permitted_overlap_still_blocks_the_next_mapping(gpu_or_host: Device) -> None:
    memory = gpu_or_host.create_memory(M.OPAQUE_FD, PAGE)
    first = memory.map_buffer(0, 32)
    second = memory.map_buffer(16, 32, overlap=True)
    first.release()
    refused(lambda: memory.map_buffer(32, 8), "overlap")
    second.release()
    memory.map_buffer(32, 8)


def test_released_buffer_blocks_its_range_while_an_array_lives(device: Device) -> None:
    memory = device.create_memory(M.OPAQUE_FD, PAGE)
    buffer = memory.map_buffer()
    array: Any = buffer.numpy()
    buffer.release()
    refused(memory.map_buffer, "overlap")
    del array
    # The next call notices the end of the array.
    buffer = memory.map_buffer()
    view = buffer.view((1,), "uint8")
    buffer.release()
    refused(memory.map_buffer, "overlap")
    view.release()
    memory.map_buffer()


def test_a_range_that_the_driver_did_not_map_is_free(gpu: tuple[Device, Gpu]) -> None:
    device, driver = gpu
    memory = device.create_memory(M.OPAQUE_FD, PAGE)
    driver.map_fails = DriverError("no", reason="driver", call="map", code=1)
    with pytest.raises(DriverError) as caught:
        memory.map_buffer()
    assert caught.value.backend == "fake"
    assert caught.value.handle_type is M.OPAQUE_FD
    driver.map_fails = None
    memory.map_buffer()


@pytest.mark.timeout(20)
def test_one_of_two_threads_mapping_the_same_bytes_is_refused(gpu: tuple[Device, Gpu]) -> None:
    device, driver = gpu
    memory = device.create_memory(M.OPAQUE_FD, PAGE)
    driver.hold = threading.Event()
    made: list[xsem.Buffer] = []
    thread = threading.Thread(target=lambda: made.append(memory.map_buffer(0, 64)))
    thread.start()
    assert driver.held.wait(10)
    # The first thread is inside the driver's call.
    try:
        refused(lambda: memory.map_buffer(32, 64), "overlap")
    finally:
        driver.hold.set()
        thread.join()
    assert len(made) == 1
    memory.map_buffer(64, 64)


# ---- views
def test_a_view_is_a_part_with_another_shape(gpu_or_host: Device) -> None:
    buffer = gpu_or_host.create_memory(M.OPAQUE_FD, PAGE).map_buffer(shape=(4, 16))
    view = buffer.view((2, 3), "float32", offset=8, strides=(16, 4))
    assert view.address == buffer.address + 8
    assert (view.shape, view.strides, view.dtype, view.size) == ((2, 3), (16, 4), "float32", 28)
    inner = view.view((4,), "uint8", offset=24)
    assert inner.address == view.address + 24
    assert inner.size == 4
    assert view.device is gpu_or_host


def test_a_views_fill_ends_where_it_ends(gpu: tuple[Device, Gpu]) -> None:
    device, driver = gpu
    view = mapped(device).view((4,), "uint8", offset=8)
    commands = device.create_command_list()
    commands.append_fill(view, b"\1\2")
    other = mapped(device).view((2, 2), "uint8")
    commands.append_copy(other, view)
    assert driver.lists[-1].calls == [
        ("fill", view.address, b"\1\2", 4), ("copy", other.address, view.address, 4),
    ]
    refused(lambda: commands.append_copy(mapped(device), view), "size_mismatch")


@pytest.mark.parametrize(
    ("shape", "dtype", "given", "reason"),
    [
        ((65,), "uint8", {}, "out_of_range"),
        ((64,), "uint8", {"offset": 1}, "out_of_range"),
        ((17,), "float32", {}, "out_of_range"),
        ((1,), "uint8", {"offset": 64}, "out_of_range"),
        ((2, 1), "uint8", {"strides": (64, 1)}, "out_of_range"),
        ((1,), "uint8", {"offset": -1}, "out_of_range"),
        ((1,), "uint8", {"offset": True}, "not_an_int"),
        ((0,), "uint8", {}, "bad_shape"),
        ((1,), "x", {}, "bad_dtype"),
        ((2, 2), "uint8", {"strides": (1,)}, "bad_strides"),
    ],
    ids=str,
)
def test_a_view_beyond_the_buffer_is_refused(
    gpu_or_host: Device, shape: Any, dtype: Any, given: dict[str, Any], reason: str
) -> None:
    buffer = gpu_or_host.create_memory(M.OPAQUE_FD, PAGE).map_buffer(0, 64)
    refused(lambda: buffer.view(shape, dtype, **given), reason)


def test_a_mapping_lives_until_its_views_are_released(gpu: tuple[Device, Gpu]) -> None:
    device, driver = gpu
    memory = device.create_memory(M.OPAQUE_FD, PAGE)
    buffer = memory.map_buffer()
    view = buffer.view((4,), "uint8")
    inner = view.view((2,), "uint8")
    refused_view = buffer.view((1,), "uint8")
    buffer.release()
    memory.release()
    view.release()
    refused(lambda: view.view((1,), "uint8"), "released", ReleasedError)
    assert not inner.released
    inner.view((1,), "uint8").release()
    refused_view.release()
    assert not driver.released("unmap_buffer")
    inner.release()
    until(lambda: driver.released("release_memory"))
    assert [call[0] for call in driver.log][-2:] == ["unmap_buffer", "release_memory"]


def test_releasing_a_view_does_not_release_the_buffer(gpu: tuple[Device, Gpu]) -> None:
    device, driver = gpu
    buffer = mapped(device)
    with buffer.view((4,), "uint8") as view:
        assert view.size == 4
    del view
    gc.collect()
    buffer.copy_to_host()
    assert not driver.released("unmap_buffer")


# ---- arrays on the host
def test_an_array_is_the_memory_itself(device: Device) -> None:
    memory = device.create_memory(M.OPAQUE_FD, PAGE)
    buffer = memory.map_buffer(16, shape=(3, 4), dtype="int32", strides=(32, 4))
    array = buffer.numpy()
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
    made = device.create_memory(M.OPAQUE_FD, PAGE)
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
    memory = device.create_memory(M.OPAQUE_FD, PAGE)
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
    memory = device.create_memory(M.OPAQUE_FD, PAGE)
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
    memory = device.create_memory(M.OPAQUE_FD, PAGE)
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
    buffer = device.create_memory(M.OPAQUE_FD, PAGE).map_buffer(dtype="bfloat16")
    with pytest.raises(BufferError, match="uint16"):
        _ = buffer.__cuda_array_interface__
    buffer.release()
    until(lambda: driver.released("unmap_buffer"))


def test_cuda_array_interface_is_version_3(gpu: tuple[Device, Gpu]) -> None:
    device, _ = gpu
    buffer = device.create_memory(M.OPAQUE_FD, PAGE).map_buffer(8, shape=(2, 3), dtype="complex64", strides=(64, 8))
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
    buffer = device.create_memory(M.OPAQUE_FD, PAGE).map_buffer(shape=(2, 3), dtype="float64", strides=(64, 8))
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
    buffer = gpu_or_host.create_memory(M.OPAQUE_FD, PAGE).map_buffer(shape=(4,), dtype="bfloat16")
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
    memory = gpu_or_host.create_memory(M.OPAQUE_FD, PAGE)
    with pytest.raises(BufferError, match="strides"):
        memory.map_buffer(0, shape=(2,), dtype="float32", strides=(6,)).__dlpack__()
    with pytest.raises(BufferError, match="aligned"):
        memory.map_buffer(513, shape=(2,), dtype="float32").__dlpack__()


def test_a_refused_capsule_keeps_nothing(gpu: tuple[Device, Gpu]) -> None:
    device, driver = gpu
    buffer = device.create_memory(M.OPAQUE_FD, PAGE).map_buffer(1, shape=(2,), dtype="float32")
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


# ---- copies to and from the host
LAYOUTS: list[dict[str, Any]] = [
    {"shape": (6,), "dtype": "uint8"},
    {"shape": (2, 3), "dtype": "float32"},
    {"shape": (3, 4, 2), "dtype": "int16", "strides": (64, 6, 2)},
    {"shape": (2, 3), "dtype": "float64", "strides": (8, 16)},
    {"shape": (), "dtype": "int64"},
    {"shape": (5,), "dtype": "complex128", "offset": 16},
    {"shape": (4,), "dtype": "bool"},
    {"shape": (3,), "dtype": "float32", "offset": 3},
]


@pytest.mark.parametrize("given", LAYOUTS, ids=str)
def test_copy_to_host_returns_the_values_copied_in(gpu_or_host: Device, given: dict[str, Any]) -> None:
    memory = gpu_or_host.create_memory(M.OPAQUE_FD, PAGE)
    buffer = memory.map_buffer(**given)
    values = (np.arange(np.prod(given["shape"], dtype=int)) % 2).reshape(given["shape"]).astype(given["dtype"])
    buffer.copy_from_host(values)
    out = buffer.copy_to_host()
    assert np.array_equal(out, values)
    assert (out.dtype, out.shape, out.flags.c_contiguous, out.flags.owndata) == (values.dtype, values.shape, True, True)
    assert buffer.view(buffer.shape, buffer.dtype, strides=buffer.strides).copy_to_host().tolist() == values.tolist()


@pytest.mark.parametrize("given", LAYOUTS, ids=str)
def test_bytes_between_the_rows_are_unchanged(gpu_or_host: Device, given: dict[str, Any]) -> None:
    memory = gpu_or_host.create_memory(M.OPAQUE_FD, PAGE)
    whole = memory.map_buffer()
    whole.copy_from_host(np.full(PAGE, 0xAA, np.uint8))
    buffer = memory.map_buffer(**given, overlap=True)
    buffer.copy_from_host(np.zeros(given["shape"], given["dtype"]))
    expected = np.full(PAGE, 0xAA, np.uint8)
    np.ndarray(given["shape"], given["dtype"], expected.data, given.get("offset", 0), buffer.strides)[...] = 0
    assert np.array_equal(whole.copy_to_host(), expected)


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("float64", np.ones((2, 2), "float32")),
        ("float32", np.ones((2, 2), "int16")),
        ("int32", np.ones((2, 2), "uint16")),
        ("uint8", np.ones((2, 2), bool)),
        ("complex64", np.ones((2, 2), "float32")),
        ("float32", np.ones((2, 2), ">f4")),
        ("float32", np.asfortranarray(np.arange(4, dtype="float32").reshape(2, 2))),
        ("float64", [[1.0, 2.0], [3.0, 4.0]]),
    ],
    ids=lambda value: value if isinstance(value, str) else str(getattr(value, "dtype", "list")),
)
def test_lossless_conversion_is_accepted(gpu_or_host: Device, dtype: str, values: Any) -> None:
    buffer = gpu_or_host.create_memory(M.OPAQUE_FD, PAGE).map_buffer(shape=(2, 2), dtype=dtype)
    buffer.copy_from_host(values)
    assert np.array_equal(buffer.copy_to_host(), np.asarray(values))


@pytest.mark.parametrize(
    ("dtype", "values", "reason"),
    [
        ("float32", np.ones((2, 2), "float64"), "dtype_mismatch"),
        ("uint8", np.ones((2, 2), "int64"), "dtype_mismatch"),
        ("int16", np.ones((2, 2), "uint16"), "dtype_mismatch"),
        ("float32", np.ones((2, 2), "complex64"), "dtype_mismatch"),
        ("uint8", [["a", "b"], ["c", "d"]], "dtype_mismatch"),
        ("uint8", np.ones((2, 2), object), "dtype_mismatch"),
        ("uint8", np.ones(4, "uint8"), "shape_mismatch"),
        ("uint8", np.ones((2, 3), "uint8"), "shape_mismatch"),
        ("uint8", np.ones((1, 2, 2), "uint8"), "shape_mismatch"),
        ("uint8", np.uint8(1), "shape_mismatch"),
        ("uint8", None, "shape_mismatch"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_lossy_conversion_is_refused(gpu_or_host: Device, dtype: str, values: Any, reason: str) -> None:
    buffer = gpu_or_host.create_memory(M.OPAQUE_FD, PAGE).map_buffer(shape=(2, 2), dtype=dtype)
    refused(lambda: buffer.copy_from_host(values), reason)


@pytest.mark.parametrize("timeout_s", [-1, float("nan"), True, "1"])
def test_bad_timeout_is_refused(gpu_or_host: Device, timeout_s: Any) -> None:
    buffer = mapped(gpu_or_host)
    refused(lambda: buffer.copy_to_host(timeout_s=timeout_s), "bad_timeout")
    refused(lambda: buffer.copy_from_host(np.zeros(PAGE, np.uint8), timeout_s=timeout_s), "bad_timeout")


def test_copies_of_a_gpu_use_a_transfer_list(gpu: tuple[Device, Gpu]) -> None:
    device, driver = gpu
    buffer = mapped(device)
    commands = device.create_command_list()
    commands.append_wait(timeline(device), 1)
    buffer.copy_from_host(np.arange(PAGE, dtype=np.uint64).astype(np.uint8))
    buffer.copy_to_host()
    assert not [call for call in driver.lists[0].calls if call[0] == "copy"]
    assert [call[0] for call in driver.lists[1].calls if call[0] == "copy"] == ["copy", "copy"]
    assert len(driver.lists) == 2
    until(lambda: not driver.staging)


def test_a_strided_write_reads_first(gpu: tuple[Device, Gpu]) -> None:
    device, driver = gpu
    buffer = device.create_memory(M.OPAQUE_FD, PAGE).map_buffer(shape=(2, 2), strides=(16, 1))
    buffer.copy_from_host(np.ones((2, 2), np.uint8))
    assert [size for _, _, size in driver.copies] == [18, 18]
    driver.copies.clear()
    buffer.view((4,), "uint8").copy_from_host(np.ones(4, np.uint8))
    assert [size for _, _, size in driver.copies] == [4]


def test_copy_that_times_out_keeps_its_memory_until_it_ends(gpu: tuple[Device, Gpu]) -> None:
    device, driver = gpu
    memory = device.create_memory(M.OPAQUE_FD, PAGE)
    buffer = memory.map_buffer()
    driver.everything_is_done = False
    with pytest.raises(WaitTimeoutError) as caught:
        buffer.copy_to_host(timeout_s=0)
    assert [op.operation for op in caught.value.pending] == ["copy"]
    assert caught.value.pending[0].command_list == "fake:0/transfer"
    buffer.release()
    memory.release()
    device.pending()
    assert driver.staging
    assert not driver.released("unmap_buffer")
    # The late copy still finds both ends.
    driver.copy(*driver.copies[0])
    driver.lists[0].reach_all()
    until(lambda: not driver.staging)
    until(lambda: driver.released("release_memory"))


def test_a_failed_copy_is_raised_and_the_next_has_a_new_list(gpu: tuple[Device, Gpu]) -> None:
    device, driver = gpu
    buffer = mapped(device)
    buffer.copy_to_host()
    driver.everything_is_done = False
    failure = DriverError("the context is gone", reason="driver", call="memcpy", code=700)

    def fails() -> None:
        for point in driver.lists[0].points:
            point.error = failure

    driver.on_wait = fails
    with pytest.raises(DriverError) as caught:
        buffer.copy_to_host()
    assert caught.value.code == 700
    driver.on_wait = lambda: None
    driver.everything_is_done = True
    until(lambda: not driver.staging)
    buffer.copy_to_host()
    assert len(driver.lists) == 2


def test_a_copy_that_the_driver_refuses_leaves_nothing(gpu: tuple[Device, Gpu]) -> None:
    device, driver = gpu
    buffer = mapped(device)
    buffer.copy_to_host()
    driver.lists[0].fail_next = DriverError("no", reason="driver", call="memcpy", code=1)
    with pytest.raises(DriverError) as caught:
        buffer.copy_to_host()
    assert caught.value.backend == "fake"
    until(lambda: not driver.staging)


def test_copies_in_many_threads_do_not_mix(gpu: tuple[Device, Gpu]) -> None:
    device, _ = gpu
    wrong: list[object] = []

    def run(number: int) -> None:
        try:
            buffer = mapped(device)
            for step in range(20):
                value = (number * 20 + step) % 256
                buffer.copy_from_host(np.full(PAGE, value, np.uint8))
                if not (buffer.copy_to_host() == value).all():
                    wrong.append((number, step))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_device_without_copies_says_so() -> None:
    device, driver = open_fake()
    driver.everything_is_done = True
    with device:
        buffer = device.create_memory(M.OPAQUE_FD, PAGE).map_buffer()
        refused(buffer.copy_to_host, "unsupported", UnsupportedError)
        refused(lambda: device.host_buffer(5), "unsupported", UnsupportedError)


# ---- images
class ImageGpu(Gpu):
    def __init__(self, feature: Feature = Feature.MIPMAPPED_ARRAY) -> None:
        import dataclasses

        super().__init__(dataclasses.replace(ALL, features=ALL.features | {feature}))
        self.levels: dict[int, bytes] = {}

    def map_mipmapped_array(self, memory: int, desc: MipmapDesc) -> int:
        if self.map_fails is not None:
            raise self.map_fails
        token = next(self.numbers)
        self.log.append(("map_mipmapped_array", token))
        return token

    def mipmap_level(self, array: int, level: int) -> int:
        return 1000 * array + level

    def copy_level(self, level: int, address: int, read: bool) -> None:
        staging, = (each for each in self.staging.values() if ctypes.addressof(each) == address)
        if read:
            staging.raw = self.levels.get(level, bytes(len(staging)))
        else:
            self.levels[level] = staging.raw

    def release_array(self, array: int) -> None:
        self.log.append(("release_array", array))


@pytest.fixture
def images() -> Iterator[tuple[Device, ImageGpu]]:
    driver = ImageGpu()
    with Device(INFO, driver) as device:
        yield device, driver


def image(**fields: Any) -> MipmapDesc:
    return MipmapDesc(**{"extent": (16, 8, 0), "format": "uint8", "channels": 4, **fields})


@pytest.mark.parametrize(("fields", "what"), [
    ({"levels": 2}, "more than one level"), ({"offset": 512}, "an offset"),
    ({"extent": (8, 8, 0), "layers": 6, "cubemap": True}, "a cubemap"),
    ({"color_attachment": True}, "a colour attachment"),
])
def test_device_with_simple_images_refuses_other_images(fields: dict[str, Any], what: str) -> None:
    driver = ImageGpu(Feature.IMAGE)
    with Device(INFO, driver) as device:
        memory = device.create_memory(M.OPAQUE_FD, 64 * PAGE)
        with pytest.raises(UnsupportedError, match=what) as refused:
            memory.map_mipmapped_array(image(**fields))
        assert refused.value.capability == "mipmapped_array"
        assert not [name for name, _ in driver.log if name == "map_mipmapped_array"]
        assert memory.map_mipmapped_array(image(layers=3)).level(0).extent == (16, 8, 0)


@pytest.mark.parametrize(
    ("fields", "extents", "shapes"),
    [
        ({"levels": 5}, [(16, 8, 0), (8, 4, 0), (4, 2, 0), (2, 1, 0), (1, 1, 0)],
         [(8, 16, 4), (4, 8, 4), (2, 4, 4), (1, 2, 4), (1, 1, 4)]),
        ({"extent": (16, 0, 0), "channels": 1, "levels": 2}, [(16, 0, 0), (8, 0, 0)], [(16, 1), (8, 1)]),
        ({"extent": (4, 4, 4), "channels": 2, "levels": 3}, [(4, 4, 4), (2, 2, 2), (1, 1, 1)],
         [(4, 4, 4, 2), (2, 2, 2, 2), (1, 1, 1, 2)]),
        ({"extent": (8, 8, 0), "layers": 6, "cubemap": True, "levels": 2}, [(8, 8, 0), (4, 4, 0)],
         [(6, 8, 8, 4), (6, 4, 4, 4)]),
        ({"extent": (8, 0, 0), "layers": 3}, [(8, 0, 0)], [(3, 8, 4)]),
    ],
    ids=str,
)
@pytest.mark.parametrize("component", ["uint8", "float16", "int32", "float32"])
def test_levels_halve_and_read_back_written_values(
    images: tuple[Device, ImageGpu], fields: dict[str, Any], component: str, extents: list[Any], shapes: list[Any]
) -> None:
    device, _ = images
    desc = image(format=component, **fields)
    array = device.create_memory(M.OPAQUE_FD, 64 * PAGE).map_mipmapped_array(desc)
    assert array.desc is desc
    for index, (extent, shape) in enumerate(zip(extents, shapes, strict=True)):
        level = array.level(index)
        assert level.extent == extent
        assert level.native_handle == 1000 * array.native_handle + index
        values = np.arange(np.prod(shape)).reshape(shape).astype(component)
        level.write(values)
        out = level.read()
        assert out.dtype == component
        assert np.array_equal(out, values)
    for index in (-1, len(extents)):
        refused(lambda index=index: array.level(index), "bad_levels")  # type: ignore[misc]
    refused(lambda: array.level(True), "not_an_int")


def test_a_level_takes_its_own_shape_and_type(images: tuple[Device, ImageGpu]) -> None:
    device, driver = images
    level = device.create_memory(M.OPAQUE_FD, PAGE).map_mipmapped_array(image(format="float32", channels=1)).level(0)
    for wrong in (np.zeros((16, 8, 1), "float32"), np.zeros((8, 16), "float32"), np.zeros((8, 16, 4), "float32"), 5):
        refused(lambda wrong=wrong: level.write(wrong), "shape_mismatch")  # type: ignore[misc]
    for name in ("float64", "int32", ">f4", "uint8"):
        refused(lambda name=name: level.write(np.zeros((8, 16, 1), name)), "dtype_mismatch")  # type: ignore[misc]
    assert not driver.levels
    level.write(np.asfortranarray(np.arange(128, dtype="float32").reshape(8, 16, 1)))
    assert np.array_equal(level.read(), np.arange(128).reshape(8, 16, 1))


@pytest.mark.parametrize(
    ("type", "fields", "reason"),
    [
        (M.DMABUF_FD, {}, "mipmap_of_dmabuf"),
        (M.NVSCIBUF, {"levels": 2}, "bad_levels"),
        (M.OPAQUE_FD, {"offset": PAGE}, "out_of_range"),
        (M.OPAQUE_FD, {"offset": PAGE - 511}, "out_of_range"),
        (M.OPAQUE_FD, {"extent": (PAGE, 0, 0), "channels": 2}, "out_of_range"),
        (M.OPAQUE_FD, {"extent": (32, 32, 0), "format": "float32", "channels": 2}, "out_of_range"),
        (M.OPAQUE_FD, {"extent": (16, 16, 16), "channels": 2}, "out_of_range"),
        (M.OPAQUE_FD, {"layers": 9}, "out_of_range"),
        (M.OPAQUE_FD, {"layers": 8, "levels": 2}, "out_of_range"),
        (M.OPAQUE_FD, {"offset": PAGE - 512 - 128 - 32 - 8 - 4 + 1, "levels": 5}, "out_of_range"),
        (M.OPAQUE_FD, {"extent": (2**63, 2**63, 0)}, "out_of_range"),
    ],
    ids=str,
)
def test_image_unsuitable_for_the_memory_is_refused(
    images: tuple[Device, ImageGpu], type: MemoryHandleType, fields: dict[str, Any], reason: str
) -> None:
    device, driver = images
    memory = device.create_memory(type, PAGE)
    refused(lambda: memory.map_mipmapped_array(image(**fields)), reason)
    assert not driver.released("map_mipmapped_array")


def test_an_image_that_just_fits_is_mapped(images: tuple[Device, ImageGpu]) -> None:
    device, _ = images
    for type, fields in (
        (M.OPAQUE_FD, {"offset": PAGE - 512}), (M.OPAQUE_FD, {"layers": 8}),
        (M.OPAQUE_FD, {"offset": PAGE - 512 - 128 - 32 - 8 - 4, "levels": 5}), (M.NVSCIBUF, {"levels": 1}),
        (M.OPAQUE_FD, {"extent": (PAGE, 0, 0), "channels": 1}),
    ):
        device.create_memory(type, PAGE).map_mipmapped_array(image(**fields)).release()


def test_images_and_buffers_over_the_same_bytes_need_permission(images: tuple[Device, ImageGpu]) -> None:
    device, _ = images
    memory = device.create_memory(M.OPAQUE_FD, PAGE)
    first = memory.map_mipmapped_array(image(offset=1024))   # 512 bytes of pixels
    acts: list[Callable[[], object]] = [
        memory.map_buffer, lambda: memory.map_buffer(1535, 1),
        lambda: memory.map_mipmapped_array(image(offset=1024)), lambda: memory.map_mipmapped_array(image(offset=1535)),
        lambda: memory.map_mipmapped_array(image(offset=385, levels=2)),
    ]
    for act in acts:
        refused(act, "overlap")
    beside = [memory.map_buffer(0, 1024), memory.map_mipmapped_array(image(offset=1536, levels=2)),
              memory.map_buffer(1536 + 640)]
    assert not first.released
    refused(lambda: memory.map_mipmapped_array(image(offset=512)), "overlap")   # overlaps a buffer
    memory.map_mipmapped_array(image(offset=512), overlap=True).release()
    for each in (first, *beside):
        each.release()
    memory.map_buffer().release()


def test_bytes_of_an_image_that_the_driver_did_not_map_are_free(images: tuple[Device, ImageGpu]) -> None:
    device, driver = images
    memory = device.create_memory(M.OPAQUE_FD, PAGE)

    driver.map_fails = DriverError("no", reason="driver", call="map", code=1)
    with pytest.raises(DriverError):
        memory.map_mipmapped_array(image())
    driver.map_fails = None
    memory.map_mipmapped_array(image())


@pytest.mark.parametrize("wrong", [None, {}, "image", MemoryDesc.dmabuf_fd(0, allocation_size=1)], ids=repr)
def test_non_descriptor_of_an_image_is_refused(images: tuple[Device, ImageGpu], wrong: Any) -> None:
    device, _ = images
    memory = device.create_memory(M.OPAQUE_FD, PAGE)
    refused(lambda: memory.map_mipmapped_array(wrong), "not_a_descriptor")


def test_images_are_unsupported_when_not_declared(gpu_or_host: Device) -> None:
    memory = gpu_or_host.create_memory(M.OPAQUE_FD, PAGE)
    refused(lambda: memory.map_mipmapped_array(image()), "unsupported", UnsupportedError)


def test_a_released_image_has_no_levels_any_more(images: tuple[Device, ImageGpu]) -> None:
    device, driver = images
    memory = device.create_memory(M.OPAQUE_FD, PAGE)
    array = memory.map_mipmapped_array(image())
    level = array.level(0)
    memory.release()
    assert not driver.released("release_memory")
    with array:
        level.read()
    acts: list[Callable[[], object]] = [
        lambda: array.level(0), lambda: array.native_handle, level.read, lambda: level.native_handle,
        lambda: level.write(np.zeros((8, 16, 4), np.uint8)),
    ]
    for act in acts:
        refused(act, "released", ReleasedError)
    until(lambda: driver.released("release_memory"))
    assert [call[0] for call in driver.log][-2:] == ["release_array", "release_memory"]


@pytest.mark.parametrize("direction", ["read", "write"])
@pytest.mark.parametrize("interrupted", [False, True])
def test_level_copy_that_times_out_keeps_its_memory(
    images: tuple[Device, ImageGpu], direction: str, interrupted: bool
) -> None:
    device, driver = images
    memory = device.create_memory(M.OPAQUE_FD, PAGE)
    array = memory.map_mipmapped_array(image())
    level = array.level(0)
    ones = np.ones((8, 16, 4), np.uint8)
    level.write(2 * ones)
    until(lambda: not driver.staging)
    driver.everything_is_done = False
    copy = level.read if direction == "read" else partial(level.write, ones)
    if interrupted:
        def interrupt() -> None:
            raise KeyboardInterrupt

        driver.on_wait = interrupt
        with pytest.raises(KeyboardInterrupt):
            copy()
    else:
        driver.slices.clear()
        with pytest.raises(WaitTimeoutError) as caught:
            copy(timeout_s=0.11)
        assert caught.value.reason == "timeout"
        assert [(op.operation, op.command_list) for op in caught.value.pending] == [("copy", "fake:0/transfer")]
        assert max(driver.slices) <= 50_000_000
    driver.on_wait = lambda: None
    array.release()
    memory.release()
    device.pending()
    assert driver.staging
    assert not driver.released("release_array")
    # The late copy still finds both ends.
    (staging,) = driver.staging.values()
    driver.copy_level(1000 * array._array, ctypes.addressof(staging), direction == "read")
    assert driver.levels[1000 * array._array] == bytes([2 if direction == "read" else 1]) * len(staging)
    driver.finish()
    until(lambda: not driver.staging)
    until(lambda: driver.released("release_memory"))


def test_level_copies_default_to_30_seconds_and_check_timeout(images: tuple[Device, ImageGpu]) -> None:
    device, driver = images
    level = device.create_memory(M.OPAQUE_FD, PAGE).map_mipmapped_array(image()).level(0)
    for function in (level.read, level.write):
        assert inspect.signature(function).parameters["timeout_s"].default == 30.0
    for wrong in (-1, True, "1", float("nan")):
        refused(lambda wrong=wrong: level.read(timeout_s=wrong), "bad_timeout")  # type: ignore[misc]
        refused(lambda wrong=wrong: level.write(  # type: ignore[misc]
            np.zeros((8, 16, 4), np.uint8), timeout_s=wrong), "bad_timeout")
    assert not driver.levels
