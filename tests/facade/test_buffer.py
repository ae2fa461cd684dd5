"""A buffer has a range and a shape that fit its memory, overlaps others only by permission, and has views."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest
from support.fixtures import refused
from support.real_bytes import PAGE, Gpu, mapped
from support.system_types import MEMORY
from support.waiting import until

import xsem
from xsem.errors import DriverError, ReleasedError
from xsem.facade.device import Device


# ---- ranges and shapes
def test_default_buffer_is_the_whole_memory_as_bytes(gpu_or_host: Device) -> None:
    memory = gpu_or_host.create_memory(MEMORY, 3 * PAGE)
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
    memory = gpu_or_host.create_memory(MEMORY, PAGE)
    whole = memory.map_buffer()   # kept, because the next mapping may have another address
    start = whole.address
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
    memory = gpu_or_host.create_memory(MEMORY, PAGE)
    refused(lambda: memory.map_buffer(**given), reason)
    memory.map_buffer()


# ---- overlap
def test_adjacent_ranges_are_mapped_and_overlapping_ones_refused(gpu_or_host: Device) -> None:
    memory = gpu_or_host.create_memory(MEMORY, PAGE)
    kept = [memory.map_buffer(0, 16), memory.map_buffer(16, 16), memory.map_buffer(64, 16)]
    for offset, size in ((0, 16), (0, 1), (15, 1), (15, 2), (31, 33), (0, PAGE), (79, 1), (48, 17), (63, 100)):
        refused(lambda offset=offset, size=size: memory.map_buffer(offset, size), "overlap")  # type: ignore[misc]
        memory.map_buffer(offset, size, overlap=True).release()
    kept += [memory.map_buffer(32, 32), memory.map_buffer(80)]
    assert [buffer.released for buffer in kept] == [False] * 5


def test_permitted_overlap_still_blocks_the_next_mapping(gpu_or_host: Device) -> None:
    memory = gpu_or_host.create_memory(MEMORY, PAGE)
    first = memory.map_buffer(0, 32)
    second = memory.map_buffer(16, 32, overlap=True)
    first.release()
    refused(lambda: memory.map_buffer(32, 8), "overlap")
    second.release()
    memory.map_buffer(32, 8)


def test_released_buffer_blocks_its_range_while_an_array_lives(device: Device) -> None:
    memory = device.create_memory(MEMORY, PAGE)
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
    memory = device.create_memory(MEMORY, PAGE)
    driver.map_fails = DriverError("no", reason="driver", call="map", code=1)
    with pytest.raises(DriverError) as caught:
        memory.map_buffer()
    assert caught.value.backend == "fake"
    assert caught.value.handle_type is MEMORY
    driver.map_fails = None
    memory.map_buffer()


@pytest.mark.timeout(20)
def test_one_of_two_threads_mapping_the_same_bytes_is_refused(gpu: tuple[Device, Gpu]) -> None:
    device, driver = gpu
    memory = device.create_memory(MEMORY, PAGE)
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
    buffer = gpu_or_host.create_memory(MEMORY, PAGE).map_buffer(shape=(4, 16))
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
        ("fill", view._place.token, 8, b"\1\2", 4), ("copy", other._place.token, 0, view._place.token, 8, 4),
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
    buffer = gpu_or_host.create_memory(MEMORY, PAGE).map_buffer(0, 64)
    refused(lambda: buffer.view(shape, dtype, **given), reason)


def test_a_mapping_lives_until_its_views_are_released(gpu: tuple[Device, Gpu]) -> None:
    device, driver = gpu
    memory = device.create_memory(MEMORY, PAGE)
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
