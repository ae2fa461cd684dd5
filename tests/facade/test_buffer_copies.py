"""Copies move values between a buffer and the host."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from support.fake_backend import open_fake, timeline
from support.fixtures import refused
from support.real_bytes import PAGE, Gpu, mapped
from support.system_types import MEMORY
from support.waiting import until

from xsem.errors import DriverError, UnsupportedError, WaitTimeoutError
from xsem.facade.device import Device

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
    memory = gpu_or_host.create_memory(MEMORY, PAGE)
    buffer = memory.map_buffer(**given)
    values = (np.arange(np.prod(given["shape"], dtype=int)) % 2).reshape(given["shape"]).astype(given["dtype"])
    buffer.copy_from_host(values)
    out = buffer.copy_to_host()
    assert np.array_equal(out, values)
    assert (out.dtype, out.shape, out.flags.c_contiguous, out.flags.owndata) == (values.dtype, values.shape, True, True)
    assert buffer.view(buffer.shape, buffer.dtype, strides=buffer.strides).copy_to_host().tolist() == values.tolist()


@pytest.mark.parametrize("given", LAYOUTS, ids=str)
def test_bytes_between_the_rows_are_unchanged(gpu_or_host: Device, given: dict[str, Any]) -> None:
    memory = gpu_or_host.create_memory(MEMORY, PAGE)
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
    buffer = gpu_or_host.create_memory(MEMORY, PAGE).map_buffer(shape=(2, 2), dtype=dtype)
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
    buffer = gpu_or_host.create_memory(MEMORY, PAGE).map_buffer(shape=(2, 2), dtype=dtype)
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
    buffer = device.create_memory(MEMORY, PAGE).map_buffer(shape=(2, 2), strides=(16, 1))
    buffer.copy_from_host(np.ones((2, 2), np.uint8))
    assert [size for _, _, size in driver.copies] == [18, 18]
    driver.copies.clear()
    buffer.view((4,), "uint8").copy_from_host(np.ones(4, np.uint8))
    assert [size for _, _, size in driver.copies] == [4]


def test_copy_that_times_out_keeps_its_memory_until_it_ends(gpu: tuple[Device, Gpu]) -> None:
    device, driver = gpu
    memory = device.create_memory(MEMORY, PAGE)
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
        for fence in driver.lists[0].fences:
            fence.error = failure

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
        buffer = device.create_memory(MEMORY, PAGE).map_buffer()
        refused(buffer.copy_to_host, "unsupported", UnsupportedError)
        refused(lambda: device.host_buffer(5), "unsupported", UnsupportedError)
