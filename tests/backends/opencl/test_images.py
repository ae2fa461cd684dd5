"""Test images of the OpenCL backend: formats, shapes and copies, on PoCL's images; no available driver imports one.

PoCL has images, so these tests leave out only the property that names the handle.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from support.image_exercise import SIMPLE, between, exercise, pixels_of, write_pixels
from support.open_files import numbers
from support.opencl_facade import BOUND_S, driver_of, fd_of, on_pocl, opened
from support.opencl_sim import on_opencl

from xsem.errors import UnsupportedError
from xsem.spi import ImageRegion, duplicate_fd, level_layout
from xsem.types import Feature, MemoryDesc, MemoryHandleType, MipmapDesc
from xsem_opencl import cl
from xsem_opencl import images as _images
from xsem_opencl.file_descriptors import GivenFd
from xsem_opencl.images import image_desc, image_format, make_image, supported, with_formats
from xsem_opencl.memory import Memory

SHAPES = {
    "of one dimension": MipmapDesc(extent=(64, 0, 0), format="uint8", channels=4),
    "of one dimension with layers": MipmapDesc(extent=(64, 0, 0), format="uint8", channels=4, layers=3),
    "of two dimensions": MipmapDesc(extent=(37, 19, 0), format="uint8", channels=4),
    "with layers": MipmapDesc(extent=(16, 8, 0), format="uint8", channels=4, layers=5),
    "of three dimensions": MipmapDesc(extent=(16, 8, 4), format="uint8", channels=4),
}
FORMATS = ("uint8", "uint16", "uint32", "int8", "int16", "int32", "float16", "float32")
FRACTIONS = ("unorm8", "unorm16", "snorm8", "snorm16")


@pytest.fixture
def memory() -> Iterator[Memory]:
    """Make a memory as after an import, without a driver: it has an fd and no cl_mem."""
    number = os.memfd_create("memory")
    handle = duplicate_fd(number)
    os.close(number)
    fd = GivenFd(handle, ours=True)
    fd.imported()
    desc = MemoryDesc(type=MemoryHandleType.OPAQUE_FD, handle=0, allocation_size=1 << 20, device_uuid=None)
    yield Memory(0, desc, fd)
    fd.object_goes()
    fd.object_gone()


def round_trip(driver: Any, memory: Memory, desc: MipmapDesc) -> bool:
    core = driver._core
    image = make_image(core, memory, desc)
    assert memory.images == {image.handle}
    layout, depth = level_layout(desc), max(1, desc.extent[2])
    data = np.random.default_rng(5).bytes(layout.size)
    region = ImageRegion((0, 0, 0), (desc.extent[0], layout.rows, depth), 0, layout.slices // depth)
    pitches = layout.row_size, layout.row_size * layout.rows
    commands = driver.create_queue()
    # The rows begin at other offsets than 0.
    (one, source), (other, target) = driver.host_buffer(len(data) + 4), driver.host_buffer(len(data) + 8)
    ctypes.memmove(source + 4, data, len(data))
    assert commands.append_region_copy(image, region, one, 4, *pitches, False, (), False) is None
    fence = commands.append_region_copy(image, region, other, 8, *pitches, True, (), True)
    while not driver.wait_fence(fence, 50_000_000):
        pass
    found = ctypes.string_at(target + 8, len(data))
    driver.release_fence(fence)
    commands.close()
    for staging in (one, other):
        driver.release_host_buffer(staging)
    image.release(core)
    assert not memory.images
    return found == data


@on_pocl
@pytest.mark.parametrize("shape", SHAPES)
def test_image_of_each_shape_keeps_what_is_written(shape: str, memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_images, "memory_properties", lambda *_: None)
    with opened() as at:
        before = numbers()
        assert round_trip(driver_of(at.here), memory, SHAPES[shape])
        assert numbers() == before


@on_pocl
@pytest.mark.parametrize("kind", [*FORMATS, *FRACTIONS])
@pytest.mark.parametrize("channels", [1, 4])
def test_image_of_each_format_keeps_what_is_written(
    kind: str, channels: int, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_images, "memory_properties", lambda *_: None)
    with opened() as at:
        desc = MipmapDesc(extent=(32, 16, 0), format=kind, channels=channels)
        assert round_trip(driver_of(at.here), memory, desc)


@on_pocl
def test_formats_are_those_that_the_driver_lists() -> None:
    with opened() as at:
        declared = dataclasses.replace(at.here.capabilities, features=frozenset({Feature.IMAGE}))
        found = with_formats(driver_of(at.here)._core, declared)
        assert found.image_formats == {*FORMATS, *FRACTIONS}
        assert found.image_flags == {"surface_load_store"}   # PoCL lists no CL_DEPTH with these types
        assert with_formats(driver_of(at.here)._core, at.here.capabilities) is at.here.capabilities


def test_declared_formats_have_a_pair_of_order_and_type() -> None:
    assert supported([(0x10B5, 0x10D2), (0x10B9, 0x10D3), (0x10BD, 0x10DE)]) == (
        frozenset({"unorm8"}), frozenset({"surface_load_store", "depth_texture"}))
    depth = image_format(MipmapDesc(extent=(4, 4, 0), format="float32", channels=1, depth_texture=True))
    assert (depth.channel_order, depth.channel_data_type) == (0x10BD, 0x10DE)


@pytest.mark.parametrize("name", ["unorm_10_10_10_2", "nv12", "bc1_unorm"])
def test_format_that_opencl_lacks_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedError, match=name) as refused:
        image_format(MipmapDesc(extent=(4, 4, 0), format=name, channels=3 if name == "nv12" else 4))
    assert refused.value.reason == "not_supported"


@on_pocl
def test_format_unknown_to_the_driver_is_unsupported(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_images, "memory_properties", lambda *_: None)
    with opened() as at:
        before = numbers()
        with pytest.raises(UnsupportedError) as refused:   # PoCL has no images of two components
            make_image(driver_of(at.here)._core, memory, MipmapDesc(extent=(4, 4, 0), format="uint8", channels=2))
        assert refused.value.call == cl.CREATE_IMAGE
        assert numbers() == before


@on_opencl
def test_refused_image_leaves_no_file_open_and_the_memory_usable() -> None:
    with opened() as at:
        there = at.host.create_memory(MemoryHandleType.OPAQUE_FD, 1 << 20)
        driver = driver_of(at.here)
        handle = fd_of(there)
        desc = MemoryDesc.opaque_fd(handle, allocation_size=1 << 20, device_uuid=None)
        token = driver.import_memory(desc, handle).token
        handle.detach()
        before = numbers()
        with pytest.raises(Exception, match=cl.CREATE_IMAGE):   # the simulated device imports none
            make_image(driver._core, token, SHAPES["of two dimensions"])
        assert numbers() == before
        assert not token.images
        driver.release_memory(token)


@on_opencl
def test_images_are_refused_where_they_are_not_declared() -> None:
    with opened() as at:
        _, memory = at.memory(1 << 20)
        assert Feature.IMAGE not in at.here.capabilities.features
        with pytest.raises(UnsupportedError):
            memory.map_mipmapped_array(SHAPES["of two dimensions"])


@pytest.mark.parametrize("more", [
    {"levels": 2}, {"offset": 4096}, {"layers": 6, "cubemap": True}, {"color_attachment": True},
])
def test_what_opencl_cannot_make_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError) as refused:
        image_desc(MipmapDesc(extent=(16, 16, 0), format="uint8", channels=4, **more))
    assert refused.value.reason == "not_supported"


def test_memory_without_an_fd_makes_no_image() -> None:
    desc = MemoryDesc(type=MemoryHandleType.OPAQUE_WIN32, handle=4, allocation_size=4096, device_uuid=None)
    core: Any = None
    with pytest.raises(UnsupportedError) as refused:
        make_image(core, Memory(1, desc, None), SHAPES["of two dimensions"])
    assert refused.value.reason == "not_supported"


def test_components_are_whole_numbers_and_floats_not_fractions() -> None:
    found = {(image_format(desc).channel_order, image_format(desc).channel_data_type)
             for desc in (MipmapDesc(extent=(4, 4, 0), format=each, channels=2) for each in FORMATS)}
    assert {order for order, _ in found} == {0x10B2}
    assert sorted(kind for _, kind in found) == list(range(0x10D7, 0x10DF))


# ---- appended copies of regions
IN_BYTES = {name: desc for name, desc in SIMPLE.items() if desc.channels != 2}   # PoCL has no images of two components


@contextmanager
def imaged(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Open the simulated device as one with images. PoCL makes them, in memory of its own."""
    monkeypatch.setattr(_images, "memory_properties", lambda *_: None)
    with opened() as at:
        state = at.here._device_state
        monkeypatch.setattr(state, "capabilities", dataclasses.replace(
            state.capabilities, features=state.capabilities.features | {Feature.IMAGE, Feature.IMAGE_COPY}))
        yield at


@on_opencl
@pytest.mark.parametrize("name", list(IN_BYTES))
def test_regions_are_copied_exactly(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with imaged(monkeypatch) as at:
        buffer = at.memory(1 << 14)[1].map_buffer()
        exercise(at.here, at.here.create_command_list(), at.memory(1 << 16)[1], buffer, {name: IN_BYTES[name]},
                 seed=len(name))


@on_opencl
def test_regions_are_copied_between_images(monkeypatch: pytest.MonkeyPatch) -> None:
    def desc(**fields: Any) -> MipmapDesc:
        return MipmapDesc(**{"extent": (16, 8, 0), "format": "uint8", "channels": 4, **fields})

    with imaged(monkeypatch) as at:
        commands = at.here.create_command_list()
        for one, other in ((desc(), desc(extent=(20, 5, 0))), (desc(layers=3), desc(layers=2)),
                           (desc(), desc(extent=(20, 5, 0), format="uint32", channels=1)),   # through a buffer
                           (desc(extent=(16, 0, 0), layers=3), desc(extent=(20, 0, 0), layers=2)),
                           (desc(extent=(4, 4, 4)), desc(extent=(6, 3, 5)))):
            with (at.memory(1 << 16)[1].map_mipmapped_array(one) as dst,
                  at.memory(1 << 16)[1].map_mipmapped_array(other) as src):
                between(commands, dst, src)


@on_opencl
def test_layers_of_one_dimension_are_copied_to_layers_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    with imaged(monkeypatch) as at:
        commands = at.here.create_command_list()
        flat, high = (MipmapDesc(extent=extent, format="uint8", channels=4, layers=3)
                      for extent in ((16, 0, 0), (16, 1, 0)))
        with (at.memory(1 << 16)[1].map_mipmapped_array(flat) as src,
              at.memory(1 << 16)[1].map_mipmapped_array(high) as dst):
            data = np.random.default_rng(2).integers(0, 256, (3, 1, 16, 4), np.uint8)
            write_pixels(src.level(0), flat, data)
            commands.append_copy(dst.level(0), src.level(0), extent=(16, 1, 0))
            commands.synchronize(timeout_s=BOUND_S)
            assert (pixels_of(dst.level(0), high) == data).all()


@on_opencl
def test_only_rows_with_padding_go_through_a_temporary_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    with imaged(monkeypatch) as at:
        commands, buffer = at.here.create_command_list(), at.memory(1 << 14)[1].map_buffer()
        level = at.memory(1 << 16)[1].map_mipmapped_array(SIMPLE["2D"]).level(0)
        api, made = driver_of(at.here)._core.api, []
        real = api.make

        def make(name: str, *arguments: Any) -> Any:
            made.append(name)
            return real(name, *arguments)

        monkeypatch.setattr(api, "make", make)
        commands.append_copy(buffer, level)
        commands.append_copy(buffer, level, extent=(8, 1, 0), row_pitch=400)
        assert not made
        commands.append_copy(buffer, level, row_pitch=100)
        assert made == ["clCreateBuffer"]
        commands.synchronize(timeout_s=BOUND_S)
