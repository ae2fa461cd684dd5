"""Appended copies between buffers and levels of images, and between levels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support.fake_backend import ALL, INFO, FakeDriver, FakeList
from support.fixtures import refused
from support.real_bytes import PAGE, Gpu, ImageGpu, M
from support.waiting import until

import xsem
from xsem import spi
from xsem.data.image_formats import FORMATS
from xsem.errors import (
    BackendUnavailableError,
    EventNotAppendedError,
    ReleasedError,
    UnsupportedError,
    WrongDeviceError,
)
from xsem.facade.device import Device
from xsem.types import Feature, MipmapDesc

Rig = tuple[Device, ImageGpu, xsem.CommandList]


@pytest.fixture
def rig() -> Iterator[Rig]:
    driver = ImageGpu(formats=FORMATS)
    with Device(INFO, driver) as device:
        yield device, driver, device.create_command_list()


def image(device: Device, **fields: Any) -> xsem.MipmappedArray:
    desc = MipmapDesc(**{"extent": (16, 8, 0), "format": "uint8", "channels": 4, **fields})
    return device.create_memory(M.OPAQUE_FD, 64 * PAGE).map_mipmapped_array(desc)


def mapped(device: Device, **fields: Any) -> xsem.Buffer:
    return device.create_memory(M.OPAQUE_FD, 16 * PAGE).map_buffer(**fields)


def noise(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).integers(0, 256, shape, np.uint8)


def holding(device: Device, values: Any) -> xsem.Buffer:
    """Return a host buffer with these values."""
    buffer = device.host_buffer(values.nbytes).view(values.shape, values.dtype)
    buffer.numpy()[...] = values
    return buffer


def pixels_of(driver: ImageGpu, level: xsem.MipmapLevel) -> Any:
    """Return the bytes of the elements: (slices or layers, rows, elements, bytes)."""
    elements = driver.elements(level._level)
    return np.ascontiguousarray(elements).view(np.uint8).reshape(*elements.shape, -1)


def calls(device_list: xsem.CommandList) -> list[Any]:
    driver: Any = device_list._queue.driver
    return [call for call in driver.calls if call[0] in ("region", "images", "copy")]


# ---- contents
def test_whole_level_is_copied_both_ways(rig: Rig) -> None:
    device, driver, commands = rig
    level, values = image(device).level(0), noise(8, 16, 4)
    commands.append_copy(level, holding(device, values))
    assert (pixels_of(driver, level)[0] == values).all()
    out = mapped(device, shape=(8, 16, 4), dtype="uint8")
    commands.append_copy(out, level)
    assert (out.copy_to_host() == values).all()
    assert calls(commands)[0][2] == spi.ImageRegion((0, 0, 0), (16, 8, 1), 0, 1)
    assert calls(commands)[0][5:] == (64, 512, False)


def test_region_of_a_level_leaves_the_other_elements(rig: Rig) -> None:
    device, driver, commands = rig
    level, values = image(device).level(0), noise(3, 5, 4)
    commands.append_copy(level, holding(device, values), offset=(11, 5, 0), extent=(5, 3, 0))
    expected = np.zeros((8, 16, 4), np.uint8)
    expected[5:, 11:] = values
    assert (pixels_of(driver, level)[0] == expected).all()
    out = device.host_buffer(100)
    commands.append_copy(out, level, offset=[11, 5, 0])   # the rest of the level
    assert (out.numpy()[:60] == values.reshape(-1)).all()
    assert not out.numpy()[60:].any()


@pytest.mark.parametrize("read", [True, False])
def test_pitches_leave_the_bytes_between_rows(rig: Rig, read: bool) -> None:
    device, driver, commands = rig
    level = image(device, layers=3).level(0)
    driver.elements(level._level)[...] = noise(3, 8, 16 * 4).view("V4")
    before = pixels_of(driver, level).copy()
    buffer = device.host_buffer(3 * 800)
    buffer.numpy()[...] = 0x5a
    ends = (buffer, level) if read else (level, buffer)
    commands.append_copy(*ends, row_pitch=80, slice_pitch=800)
    rows = buffer.numpy().reshape(3, 10, 80)
    if read:
        assert (rows[:, :8, :64].reshape(before.shape) == before).all()
        assert (rows[:, 8:] == 0x5a).all()
        assert (rows[:, :, 64:] == 0x5a).all()
    else:
        assert (pixels_of(driver, level) == 0x5a).all()
    assert calls(commands)[-1][5:7] == (80, 800)


def test_strides_of_a_view_are_the_pitches(rig: Rig) -> None:
    device, driver, commands = rig
    level, values = image(device, extent=(4, 3, 2)).level(0), noise(2, 3, 4, 4)
    whole = device.host_buffer(4096)
    whole.numpy()[...] = 0x5a
    part = whole.view((2, 3, 4, 4), "uint8", offset=64, strides=(400, 40, 4, 1))
    part.numpy()[...] = values
    commands.append_copy(level, part)
    assert (pixels_of(driver, level) == values).all()
    assert calls(commands)[-1][4:7] == (64, 40, 400)
    part.numpy()[...] = 0
    commands.append_copy(part, level)
    assert (part.numpy() == values).all()
    assert (whole.numpy()[:64] == 0x5a).all()


@pytest.mark.parametrize(("shape", "dtype", "fields"), [
    ((8, 16, 4), "uint8", {}), ((8, 16), "uint32", {}), ((1, 8, 16, 4), "int8", {}), ((8, 16, 2), "float16", {}),
    ((8, 16, 1), "float32", {}), ((512,), "uint8", {}), ((4, 32), "uint32", {"row_pitch": 64}),
    ((2, 8, 16, 4), "uint8", {"layers": 2, "layer": 1}), ((8, 16, 4), "uint8", {"layer": 2}),
    ((2, 8), "uint32", {"extent": (1, 8, 0), "layer": 0, "layers": 2}),
], ids=str)
def test_shapes_of_a_region_are_taken(rig: Rig, shape: tuple[int, ...], dtype: str, fields: dict[str, Any]) -> None:
    device, driver, commands = rig
    level = image(device, **({"layers": 4} if "layer" in fields else {})).level(0)
    values = noise(int(np.prod(shape)) * np.dtype(dtype).itemsize)
    buffer = device.host_buffer(values.size)
    buffer.numpy()[...] = values
    commands.append_copy(level, buffer.view(shape, dtype), **fields)
    region = calls(commands)[-1][2]
    first, count = region.layer, region.layers
    written = pixels_of(driver, level)[first:first + count, :region.extent[1], :region.extent[0]]
    assert (written.reshape(-1) == values).all()
    assert count == fields.get("layers", 1)


@pytest.mark.parametrize(("shape", "strides", "dtype", "reason"), [
    ((16, 8, 4), None, "uint8", "shape_mismatch"), ((8, 16), None, "uint8", "shape_mismatch"),
    ((8, 16, 3), None, "uint8", "shape_mismatch"), ((8, 16), None, "uint64", "shape_mismatch"),
    ((4, 8, 16), None, "uint8", "shape_mismatch"), ((8, 8), None, "uint64", "shape_mismatch"),
    ((7, 16, 4), None, "uint8", "shape_mismatch"), ((), None, "uint32", "shape_mismatch"),
    ((8, 16, 4), (64, 1, 16), "uint8", "bad_strides"), ((8, 16), (128, 8), "uint32", "bad_strides"),
    ((512,), (2,), "uint8", "bad_strides"), ((8, 16, 4), (0, 4, 1), "uint8", "bad_pitch"),
    ((8, 16, 4), (32, 4, 1), "uint8", "bad_pitch"), ((8, 16, 4), (66, 4, 1), "uint8", "bad_pitch"),
], ids=str)
def test_buffers_without_the_shape_are_refused(
    rig: Rig, shape: tuple[int, ...], strides: Any, dtype: str, reason: str
) -> None:
    device, _, commands = rig
    level = image(device).level(0)
    buffer = device.host_buffer(8192).view(shape, dtype, strides=strides)
    refused(lambda: commands.append_copy(buffer, level), reason)
    refused(lambda: commands.append_copy(level, buffer), reason)
    assert not calls(commands)


def test_element_is_copied_to_a_buffer_without_dimensions(rig: Rig) -> None:
    device, driver, commands = rig
    level = image(device).level(0)
    buffer = device.host_buffer(4).view((), "uint32")
    buffer.numpy()[...] = 0x01020304
    commands.append_copy(level, buffer, offset=(3, 2, 0), extent=(1, 1, 0))
    assert pixels_of(driver, level)[0, 2, 3].tolist() == [4, 3, 2, 1]


def test_levels_are_copied_with_their_own_regions(rig: Rig) -> None:
    device, driver, commands = rig
    first, second = image(device, layers=3), image(device, extent=(8, 8, 0), format="uint32", channels=1, levels=2)
    one, other = first.level(0), second.level(0)
    driver.elements(other._level)[...] = noise(8, 8 * 4).view("V4")
    commands.append_copy(one, other, offset=(8, 0, 0), extent=(8, 8, 0), layer=2, src_offset=(0, 0, 0), src_layer=0)
    assert (pixels_of(driver, one)[2, :, 8:] == pixels_of(driver, other)[0]).all()
    assert not pixels_of(driver, one)[:2].any()
    assert not pixels_of(driver, one)[2, :, :8].any()
    # The defaults of the source are those of the destination.
    commands.append_copy(second.level(1), other, offset=(1, 2, 0), extent=(3, 2, 1))
    assert (pixels_of(driver, second.level(1))[0, 2:4, 1:4] == pixels_of(driver, other)[0, 2:4, 1:4]).all()


def test_regions_of_one_level_must_not_overlap(rig: Rig) -> None:
    device, driver, commands = rig
    array = image(device, layers=2)
    level, again = array.level(0), array.level(0)
    refused(lambda: commands.append_copy(level, level), "overlap")
    for offset, layer in (((7, 0, 0), 0), ((0, 3, 0), 0), ((0, 0, 0), 0)):
        refused(lambda offset=offset, layer=layer: commands.append_copy(  # type: ignore[misc]
            level, again, offset=offset, layer=layer, src_offset=(0, 0, 0), src_layer=0, extent=(8, 4, 0)), "overlap")
    refused(lambda: commands.append_copy(level, level, layer=0, layers=2, src_layer=0), "overlap")
    assert not calls(commands)
    driver.elements(level._level)[...] = noise(2, 8, 64).view("V4")
    apart: list[dict[str, Any]] = [{"offset": (8, 0, 0)}, {"offset": (0, 4, 0)}, {"layer": 1}]
    for more in apart:
        commands.append_copy(level, again, **{"layer": 0, "src_layer": 0, "src_offset": (0, 0, 0),
                                              "extent": (8, 4, 0), **more})
    pixels = pixels_of(driver, level)
    for copied in (pixels[0, :4, 8:], pixels[0, 4:, :8], pixels[1, :4, :8]):
        assert (copied == pixels[0, :4, :8]).all()


def test_images_and_buffers_over_the_same_bytes_are_refused(rig: Rig) -> None:
    device, _, commands = rig
    memory = device.create_memory(M.OPAQUE_FD, PAGE)
    desc = MipmapDesc(extent=(16, 8, 0), format="uint8", channels=4, offset=512, levels=2)
    first = memory.map_mipmapped_array(desc)
    again = memory.map_mipmapped_array(desc, overlap=True)
    other = memory.map_mipmapped_array(
        MipmapDesc(extent=(16, 8, 0), format="uint8", channels=4, offset=1024), overlap=True)
    buffer = memory.map_buffer(overlap=True)
    refused(lambda: commands.append_copy(first.level(0), other.level(0)), "overlap")
    refused(lambda: commands.append_copy(first.level(0), again.level(0)), "overlap")
    refused(lambda: commands.append_copy(first.level(0), buffer.view((512,), "uint8", offset=1024)), "overlap")
    refused(lambda: commands.append_copy(buffer.view((512,), "uint8", offset=4), first.level(0)), "overlap")
    assert not calls(commands)
    commands.append_copy(first.level(0), buffer.view((512,), "uint8"))
    commands.append_copy(buffer.view((512,), "uint8", offset=512 + 512 + 128), first.level(0))
    # One image, mapped twice: its levels are apart, and so are parts of one level.
    commands.append_copy(first.level(0), again.level(1), extent=(8, 4, 0))
    commands.append_copy(first.level(0), again.level(0), extent=(8, 8, 0), src_offset=(8, 0, 0))


# ---- elements of other formats
def blocks(device: Device, **fields: Any) -> xsem.MipmappedArray:
    """Return an image of 6 x 4 blocks of 16 bytes. The last blocks of the rows and of the columns are cut."""
    return image(device, **{"format": "bc7_unorm", "extent": (22, 13, 0), **fields})


@pytest.mark.parametrize(("offset", "extent", "first", "count"), [
    (None, None, (0, 0), (6, 4)), ((4, 8, 0), None, (1, 2), (5, 2)), ((4, 8, 0), (8, 4, 0), (1, 2), (2, 1)),
    ((8, 0, 0), (14, 13, 1), (2, 0), (4, 4)), ((20, 12, 0), (2, 1, 0), (5, 3), (1, 1)),
    ((0, 4, 0), (4, 9, 0), (0, 1), (1, 3)), ((12, 4, 0), (10, 8, 0), (3, 1), (3, 2)),
], ids=str)
def test_region_of_blocks_is_counted_in_blocks(
    rig: Rig, offset: Any, extent: Any, first: tuple[int, int], count: tuple[int, int]
) -> None:
    device, driver, commands = rig
    level, (x, y), (width, height) = blocks(device).level(0), first, count
    values = noise(height, width, 16)
    commands.append_copy(level, holding(device, values), offset=offset, extent=extent)
    assert calls(commands)[-1][2] == spi.ImageRegion((x, y, 0), (width, height, 1), 0, 1)
    assert calls(commands)[-1][5:7] == (16 * width, 16 * width * height)
    expected = np.zeros((4, 6, 16), np.uint8)
    expected[y:y + height, x:x + width] = values
    assert (pixels_of(driver, level)[0] == expected).all()
    out = device.host_buffer(values.nbytes)
    commands.append_copy(out, level, offset=offset, extent=extent)
    assert (out.numpy() == values.reshape(-1)).all()


@pytest.mark.parametrize(("fields", "reason"), [
    ({"offset": (2, 0, 0)}, "bad_extent"), ({"offset": (0, 1, 0)}, "bad_extent"),
    ({"offset": (21, 0, 0)}, "bad_extent"), ({"extent": (6, 4, 0)}, "bad_extent"),
    ({"extent": (4, 6, 0)}, "bad_extent"), ({"extent": (1, 1, 0)}, "bad_extent"),
    ({"extent": (21, 13, 0)}, "bad_extent"), ({"extent": (22, 12, 0), "offset": (0, 1, 0)}, "bad_extent"),
    ({"extent": (2, 4, 0), "offset": (16, 0, 0)}, "bad_extent"), ({"extent": (24, 13, 0)}, "out_of_range"),
    ({"extent": (22, 16, 0)}, "out_of_range"), ({"offset": (24, 0, 0)}, "out_of_range"),
    ({"row_pitch": 100}, "bad_pitch"), ({"row_pitch": 80}, "bad_pitch"),
], ids=str)
def test_part_of_a_block_is_refused_before_the_driver(rig: Rig, fields: dict[str, Any], reason: str) -> None:
    device, _, commands = rig
    level, buffer = blocks(device).level(0), device.host_buffer(4096)
    error = refused(lambda: commands.append_copy(buffer, level, **fields), reason)
    refused(lambda: commands.append_copy(level, buffer, **fields), reason)
    if reason == "bad_extent":
        assert "blocks of 4 x 4 pixels" in str(error)
        refused(lambda: commands.append_copy(level, blocks(device).level(0), **fields), reason)
    assert not calls(commands)


def test_buffer_has_the_shape_of_the_blocks(rig: Rig) -> None:
    device, _, commands = rig
    level, buffer = blocks(device, layers=2).level(0), device.host_buffer(4096)
    for shape in ((2, 4, 96), (2, 13, 22, 4), (8, 6, 16)):
        refused(lambda shape=shape: commands.append_copy(  # type: ignore[misc]
            buffer.view(shape, "uint8"), level), "shape_mismatch")
    refused(lambda: commands.append_copy(buffer.view((383,), "uint8"), level, layer=0), "out_of_range")
    refused(lambda: commands.append_copy(buffer.view((384,), "uint8", offset=8), level, layer=0), "bad_offset")
    assert not calls(commands)
    commands.append_copy(buffer.view((2, 4, 6, 16), "uint8"), level)
    commands.append_copy(buffer.view((384,), "uint8", offset=16), level, layer=0)
    assert [call[4:7] for call in calls(commands)] == [(0, 96, 384), (16, 96, 384)]


def test_smaller_levels_of_blocks_keep_whole_blocks(rig: Rig) -> None:
    device, driver, commands = rig
    array = blocks(device, levels=5)
    for index, (columns, rows) in enumerate([(6, 4), (3, 2), (2, 1), (1, 1), (1, 1)]):
        level, values = array.level(index), noise(rows, columns, 16)
        commands.append_copy(level, holding(device, values))
        assert (pixels_of(driver, level)[0] == values).all()
    refused(lambda: commands.append_copy(array.level(1), array.level(2)), "size_mismatch")
    # 3 rows of pixels end level 2, and are a part of a block of level 1.
    refused(lambda: commands.append_copy(array.level(1), array.level(2), extent=(4, 3, 0)), "bad_extent")


def test_blocks_are_copied_to_elements_of_their_size(rig: Rig) -> None:
    device, driver, commands = rig
    level, plain = blocks(device).level(0), image(device, format="uint32", extent=(6, 4, 0)).level(0)
    values = noise(4, 6, 16)
    commands.append_copy(level, holding(device, values))
    commands.append_copy(plain, level)
    assert (pixels_of(driver, plain)[0] == values).all()
    refused(lambda: commands.append_copy(image(device, format="bc1_unorm").level(0), level), "format_mismatch")


@pytest.mark.parametrize(("name", "channels", "size", "dtype"), [
    ("unorm8", 4, 4, "uint8"), ("snorm8", 2, 2, "int8"), ("unorm16", 1, 2, "uint16"), ("snorm16", 4, 8, "int16"),
    ("unorm_10_10_10_2", 4, 4, "uint32"),
])
def test_fractions_and_packed_pixels_are_copied_as_bytes(
    rig: Rig, name: str, channels: int, size: int, dtype: str
) -> None:
    device, driver, commands = rig
    level, values = image(device, format=name, channels=channels).level(0), noise(8, 16, size)
    buffer = device.host_buffer(values.nbytes)
    buffer.numpy()[...] = values.reshape(-1)
    packed = (8, 16, size // np.dtype(dtype).itemsize)
    commands.append_copy(level, buffer.view(packed, dtype))
    assert (pixels_of(driver, level)[0] == values).all()
    out = device.host_buffer(values.nbytes).view(packed, dtype)
    commands.append_copy(out, level)
    assert out.numpy().tobytes() == values.tobytes()


@pytest.mark.parametrize(("name", "bytes_of_a_component"), [("nv12", 1), ("p010", 2)])
def test_planes_are_copied_with_their_own_extent(rig: Rig, name: str, bytes_of_a_component: int) -> None:
    device, driver, commands = rig
    array = image(device, format=name, channels=3)
    luma, chroma = array.level(0), array.level(0, 1)
    for level, values in ((luma, noise(8, 16, bytes_of_a_component)), (chroma, noise(4, 8, 2 * bytes_of_a_component))):
        commands.append_copy(level, holding(device, values))
        assert (pixels_of(driver, level)[0] == values).all()
    part = noise(2, 3, 2 * bytes_of_a_component)
    commands.append_copy(chroma, holding(device, part), offset=(5, 2, 0), extent=(3, 2, 0))
    assert (pixels_of(driver, chroma)[0, 2:, 5:] == part).all()
    buffer = device.host_buffer(4096)
    refused(lambda: commands.append_copy(buffer, chroma, extent=(9, 4, 0)), "out_of_range")
    refused(lambda: commands.append_copy(buffer, chroma, offset=(0, 4, 0)), "out_of_range")
    refused(lambda: commands.append_copy(luma, chroma, extent=(8, 4, 0)), "format_mismatch")


# ---- refusals
@pytest.mark.parametrize(("fields", "reason"), [
    ({"offset": (16, 0, 0)}, "out_of_range"), ({"offset": (0, 8, 0)}, "out_of_range"),
    ({"offset": (0, 0, 1)}, "out_of_range"), ({"offset": (-1, 0, 0)}, "out_of_range"),
    ({"offset": (0, 0)}, "bad_offset"), ({"offset": 5}, "bad_offset"), ({"offset": (0, 0.5, 0)}, "not_an_int"),
    ({"offset": (True, 0, 0)}, "not_an_int"), ({"extent": (17, 8, 0)}, "out_of_range"),
    ({"extent": (16, 9, 0)}, "out_of_range"), ({"extent": (16, 8, 2)}, "out_of_range"),
    ({"extent": (16, 8, 0), "offset": (1, 0, 0)}, "out_of_range"), ({"extent": (0, 8, 0)}, "bad_extent"),
    ({"extent": (16, 0, 0)}, "bad_extent"), ({"extent": (16, 8)}, "bad_extent"), ({"extent": "abc"}, "bad_extent"),
    ({"extent": (16, 8, -1)}, "bad_extent"), ({"extent": (16, "8", 0)}, "not_an_int"),
    ({"extent": (2**70, 8, 0)}, "bad_extent"),
    ({"layer": 1}, "bad_layers"), ({"layer": -1}, "bad_layers"), ({"layers": 2}, "bad_layers"),
    ({"layers": 0}, "bad_layers"), ({"layer": "0"}, "not_an_int"), ({"layers": 1.0}, "not_an_int"),
    ({"row_pitch": 63}, "bad_pitch"), ({"row_pitch": 66}, "bad_pitch"), ({"row_pitch": 0}, "bad_pitch"),
    ({"row_pitch": -64}, "bad_pitch"), ({"row_pitch": 2**31}, "bad_pitch"), ({"row_pitch": "64"}, "not_an_int"),
    ({"slice_pitch": 448}, "bad_pitch"), ({"slice_pitch": 520}, "bad_pitch"), ({"slice_pitch": -1}, "bad_pitch"),
    ({"slice_pitch": None, "row_pitch": 1.5}, "not_an_int"),
    ({"row_pitch": 65536}, "out_of_range"), ({"src_offset": (0, 0, 0)}, "not_an_image"),
    ({"src_layer": 0}, "not_an_image"),
], ids=str)
def test_bad_regions_are_refused_before_the_driver(rig: Rig, fields: dict[str, Any], reason: str) -> None:
    device, _, commands = rig
    level, buffer = image(device).level(0), device.host_buffer(4096)
    refused(lambda: commands.append_copy(buffer, level, **fields), reason)
    refused(lambda: commands.append_copy(level, buffer, **fields), reason)
    assert not calls(commands)


@pytest.mark.parametrize(("fields", "reason"), [
    ({"row_pitch": 64}, "bad_pitch"), ({"slice_pitch": 512}, "bad_pitch"), ({"layer": 3}, "bad_layers"),
    ({"layer": 0, "layers": 3}, "bad_layers"), ({"src_layer": 2}, "bad_layers"), ({}, "size_mismatch"),
    ({"layer": 2, "layers": 2, "src_layer": 0}, "bad_layers"),
    ({"layers": 2, "offset": (1, 0, 0), "src_offset": (0, 0, 0)}, "size_mismatch"),
    ({"layers": 1, "src_offset": (1, 0)}, "bad_offset"), ({"layers": 1, "src_offset": (16, 0, 0)}, "out_of_range"),
    ({"layers": 1, "extent": (8, 8, 0), "src_offset": (9, 0, 0)}, "out_of_range"),
], ids=str)
def test_bad_regions_between_levels_are_refused(rig: Rig, fields: dict[str, Any], reason: str) -> None:
    device, _, commands = rig
    three, two = image(device, layers=3).level(0), image(device, layers=2).level(0)
    refused(lambda: commands.append_copy(three, two, **fields), reason)
    assert not calls(commands)


def test_levels_with_elements_of_other_sizes_are_refused(rig: Rig) -> None:
    device, _, commands = rig
    four, eight = image(device).level(0), image(device, format="uint16").level(0)
    refused(lambda: commands.append_copy(four, eight), "format_mismatch")
    commands.append_copy(four, image(device, format="float16", channels=2).level(0))


def test_a_small_or_crooked_buffer_is_refused(rig: Rig) -> None:
    device, _, commands = rig
    level, buffer = image(device).level(0), device.host_buffer(1024)
    refused(lambda: commands.append_copy(buffer.view((511,), "uint8"), level), "out_of_range")
    refused(lambda: commands.append_copy(level, buffer.view((7 * 80 + 63,), "uint8"), row_pitch=80), "out_of_range")
    refused(lambda: commands.append_copy(buffer.view((512,), "uint8", offset=2), level), "bad_offset")
    inside = device.create_memory(M.OPAQUE_FD, PAGE).map_buffer(1022, 1024)
    refused(lambda: commands.append_copy(inside, level), "bad_offset")
    assert not calls(commands)
    commands.append_copy(level, buffer.view((7 * 80 + 64,), "uint8"), row_pitch=80)   # the last row needs no padding
    commands.append_copy(inside.view((512,), "uint8", offset=2), level)


@pytest.mark.parametrize("field", ["offset", "extent", "layer", "layers", "src_offset", "src_layer", "row_pitch",
                                   "slice_pitch"])
def test_copy_between_buffers_takes_no_region(rig: Rig, field: str) -> None:
    device, _, commands = rig
    first, second = device.host_buffer(64), device.host_buffer(64)
    region: dict[str, Any] = {field: 1}
    refused(lambda: commands.append_copy(first, second, **region), "not_an_image")
    assert not calls(commands)


@pytest.mark.parametrize("wrong", [None, 5, b"1234", np.zeros(512, np.uint8)], ids=lambda each: type(each).__name__)
def test_other_objects_are_not_copied_to_a_level(rig: Rig, wrong: Any) -> None:
    device, _, commands = rig
    level = image(device).level(0)
    refused(lambda: commands.append_copy(level, wrong), "not_a_buffer")
    refused(lambda: commands.append_copy(wrong, level), "not_a_buffer")


def test_image_itself_is_not_a_level(rig: Rig) -> None:
    device, _, commands = rig
    array: Any = image(device)
    refused(lambda: commands.append_copy(array, array.level(0)), "not_a_buffer")


def test_levels_of_another_device_are_refused(rig: Rig) -> None:
    device, _, commands = rig
    with Device(INFO, ImageGpu()) as other:
        theirs, ours = image(other).level(0), image(device).level(0)
        acts: list[Callable[[], object]] = [
            lambda: commands.append_copy(theirs, device.host_buffer(512)),
            lambda: commands.append_copy(ours, other.host_buffer(512)),
            lambda: commands.append_copy(ours, theirs), lambda: commands.append_copy(theirs, ours),
        ]
        for act in acts:
            refused(act, "wrong_device", WrongDeviceError)
    assert not calls(commands)


def test_device_without_image_copies_refuses_them_by_name() -> None:
    class Without(ImageGpu):
        @property
        def capabilities(self) -> Any:
            import dataclasses

            declared = super().capabilities
            return dataclasses.replace(declared, features=declared.features - {Feature.IMAGE_COPY})

    with Device(INFO, Without()) as device:
        level, commands = image(device).level(0), device.create_command_list()
        error = refused(lambda: commands.append_copy(device.host_buffer(512), level), "unsupported", UnsupportedError)
        assert isinstance(error, UnsupportedError)
        assert error.capability == "image_copy"
        assert not calls(commands)


def test_device_that_declares_image_copies_has_them() -> None:
    import dataclasses

    driver = FakeDriver(dataclasses.replace(ALL, features=ALL.features | {Feature.IMAGE_COPY}))
    assert not isinstance(FakeList(driver, 1), spi.ImageCopyQueue)
    with Device(INFO, driver) as device:
        error = refused(device.create_command_list, "broken_promise", BackendUnavailableError)
        assert "ImageCopyQueue" in str(error)


# ---- order and lifetime
def test_events_order_a_copy_of_a_level(rig: Rig) -> None:
    device, _, commands = rig
    level, buffer = image(device).level(0), device.host_buffer(512)
    done, never = device.create_event(), device.create_event()
    refused(lambda: commands.append_copy(buffer, level, wait_events=[never]), "event_not_appended",
            EventNotAppendedError)
    commands.append_copy(buffer, level, signal_event=done)
    commands.append_copy(level, buffer, wait_events=[done])
    assert done.query()
    assert [call[0] for call in calls(commands)] == ["region", "region"]


@pytest.mark.parametrize("levels", [1, 2])
def test_release_waits_for_the_copies_of_an_image(rig: Rig, levels: int) -> None:
    device, driver, commands = rig
    arrays = [image(device) for _ in range(2)]
    buffer = mapped(device)
    driver.everything_is_done = False
    if levels == 1:
        commands.append_copy(buffer, arrays[0].level(0))
        commands.append_copy(arrays[1].level(0), buffer)
    else:
        commands.append_copy(arrays[0].level(0), arrays[1].level(0))
    assert [op.operation for op in device.pending()] == ["copy"] * (3 - levels)
    for array in arrays:
        array.release()
    buffer.release()
    refused(lambda: commands.append_copy(arrays[0].level(0), buffer), "released", ReleasedError)
    device.pending()
    assert not driver.released("release_array")
    driver.finish()
    until(lambda: len(driver.released("release_array")) == 2)


def test_a_released_image_is_not_copied(rig: Rig) -> None:
    device, _, commands = rig
    array = image(device)
    level = array.level(0)
    array.release()
    buffer = device.host_buffer(512)
    refused(lambda: commands.append_copy(buffer, level), "released", ReleasedError)
    refused(lambda: commands.append_copy(level, buffer), "released", ReleasedError)
    refused(lambda: commands.append_copy(image(device).level(0), level), "released", ReleasedError)
    assert not calls(commands)


def test_devices_without_images_copy_only_buffers() -> None:
    driver = Gpu()
    with Device(INFO, driver) as device:
        commands = device.create_command_list()
        commands.append_copy(mapped(device), mapped(device))
