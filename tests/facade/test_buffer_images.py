"""An image in memory has levels, and copies move their elements."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from support.fake_backend import INFO
from support.fixtures import refused
from support.real_bytes import PAGE, ImageGpu, M
from support.system_types import MEMORY
from support.waiting import until

from xsem.data.image_formats import FORMATS
from xsem.errors import DriverError, ReleasedError, UnsupportedError, WaitTimeoutError
from xsem.facade.device import Device
from xsem.spi import ImageRegion
from xsem.types import Feature, MemoryDesc, MemoryHandleType, MipmapDesc


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
        memory = device.create_memory(MEMORY, 64 * PAGE)
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
    array = device.create_memory(MEMORY, 64 * PAGE).map_mipmapped_array(desc)
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


@pytest.mark.parametrize(("fields", "level", "region", "pitches"), [
    ({"levels": 2}, 1, ImageRegion((0, 0, 0), (8, 4, 1), 0, 1), (32, 128)),
    ({"layers": 3}, 0, ImageRegion((0, 0, 0), (16, 8, 1), 0, 3), (64, 512)),
    ({"extent": (16, 8, 4), "levels": 2}, 1, ImageRegion((0, 0, 0), (8, 4, 2), 0, 1), (32, 128)),
    ({"extent": (9, 6, 0), "format": "bc1_unorm", "channels": 4}, 0, ImageRegion((0, 0, 0), (3, 2, 1), 0, 1), (24, 48)),
])
def test_a_level_is_copied_as_a_region_that_is_whole(
    fields: dict[str, Any], level: int, region: ImageRegion, pitches: tuple[int, int]
) -> None:
    driver = ImageGpu(formats=FORMATS)
    with Device(INFO, driver) as device:
        device.create_memory(MEMORY, PAGE).map_mipmapped_array(image(**fields)).level(level).read()
        (_, _, found, _, *rest), = driver.lists[0].calls
        assert (found, rest) == (region, [0, *pitches, True])


def test_a_level_takes_its_own_shape_and_type(images: tuple[Device, ImageGpu]) -> None:
    device, driver = images
    level = device.create_memory(MEMORY, PAGE).map_mipmapped_array(image(format="float32", channels=1)).level(0)
    for wrong in (np.zeros((16, 8, 1), "float32"), np.zeros((8, 16), "float32"), np.zeros((8, 16, 4), "float32"), 5):
        refused(lambda wrong=wrong: level.write(wrong), "shape_mismatch")  # type: ignore[misc]
    for name in ("float64", "int32", ">f4", "uint8"):
        refused(lambda name=name: level.write(np.zeros((8, 16, 1), name)), "dtype_mismatch")  # type: ignore[misc]
    assert not driver.pixels
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
    memory = device.create_memory(MEMORY, PAGE)
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
    memory = device.create_memory(MEMORY, PAGE)

    driver.map_fails = DriverError("no", reason="driver", call="map", code=1)
    with pytest.raises(DriverError):
        memory.map_mipmapped_array(image())
    driver.map_fails = None
    memory.map_mipmapped_array(image())


@pytest.mark.parametrize("wrong", [None, {}, "image", MemoryDesc.dmabuf_fd(0, allocation_size=1)], ids=repr)
def test_non_descriptor_of_an_image_is_refused(images: tuple[Device, ImageGpu], wrong: Any) -> None:
    device, _ = images
    memory = device.create_memory(MEMORY, PAGE)
    refused(lambda: memory.map_mipmapped_array(wrong), "not_a_descriptor")


def test_images_are_unsupported_when_not_declared(gpu_or_host: Device) -> None:
    memory = gpu_or_host.create_memory(MEMORY, PAGE)
    refused(lambda: memory.map_mipmapped_array(image()), "unsupported", UnsupportedError)


def test_a_released_image_has_no_levels_any_more(images: tuple[Device, ImageGpu]) -> None:
    device, driver = images
    memory = device.create_memory(MEMORY, PAGE)
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
    memory = device.create_memory(MEMORY, PAGE)
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
    (token, staging), = driver.staging.items()
    driver.copy_region(1000 * array._array, ImageRegion((0, 0, 0), (16, 8, 1), 0, 1), token, 0, 64, 512,
                       direction == "read")
    expected = bytes([2 if direction == "read" else 1]) * len(staging)
    assert staging.raw == driver.elements(1000 * array._array).tobytes() == expected
    driver.finish()
    until(lambda: not driver.staging)
    until(lambda: driver.released("release_memory"))


def test_level_copies_default_to_30_seconds_and_check_timeout(images: tuple[Device, ImageGpu]) -> None:
    device, driver = images
    level = device.create_memory(MEMORY, PAGE).map_mipmapped_array(image()).level(0)
    for function in (level.read, level.write):
        assert inspect.signature(function).parameters["timeout_s"].default == 30.0
    for wrong in (-1, True, "1", float("nan")):
        refused(lambda wrong=wrong: level.read(timeout_s=wrong), "bad_timeout")  # type: ignore[misc]
        refused(lambda wrong=wrong: level.write(  # type: ignore[misc]
            np.zeros((8, 16, 4), np.uint8), timeout_s=wrong), "bad_timeout")
    assert not driver.pixels
