"""A fake GPU whose memory is ordinary memory, so that its copies move real bytes."""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import xsem
from support.fake_backend import ALL, INFO, FakeDriver, FakeList
from support.system_types import MEMORY
from support.waiting import until
from xsem import spi
from xsem.data.image_formats import PLAIN_FORMATS
from xsem.data.images import level_layout
from xsem.facade.device import Device
from xsem.types import Capabilities, Feature, MemoryHandleType, MipmapDesc

M = MemoryHandleType
PAGE = mmap.PAGESIZE


class Copying(FakeList, spi.ImageCopyQueue):
    """Copies real bytes at real addresses, at the append if `everything_is_done`."""

    def append_copy(
        self, dst: int, dst_offset: int, src: int, src_offset: int, size: int, wait_fences: Sequence[Any],
        want_fence: bool,
    ) -> Any:
        fence = super().append_copy(dst, dst_offset, src, src_offset, size, wait_fences, want_fence)
        driver = self.driver
        assert isinstance(driver, Gpu)
        ends = (driver.places[dst] + dst_offset, driver.places[src] + src_offset, size)
        driver.copies.append(ends)
        if driver.everything_is_done:
            driver.copy(*ends)
        return fence

    def append_region_copy(
        self, level: int, region: spi.ImageRegion, buffer: int, offset: int, row_pitch: int, slice_pitch: int,
        read: bool, wait_fences: Sequence[Any], want_fence: bool,
    ) -> Any:
        fence = self._issue(want_fence, "region", level, region, buffer, offset, row_pitch, slice_pitch, read)
        driver = self.driver
        assert isinstance(driver, ImageGpu)
        if driver.everything_is_done:
            driver.copy_region(level, region, buffer, offset, row_pitch, slice_pitch, read)
        return fence

    def append_image_copy(
        self, dst: int, dst_region: spi.ImageRegion, src: int, src_region: spi.ImageRegion,
        wait_fences: Sequence[Any], want_fence: bool,
    ) -> Any:
        fence = self._issue(want_fence, "images", dst, dst_region, src, src_region)
        driver = self.driver
        assert isinstance(driver, ImageGpu)
        if driver.everything_is_done:
            driver.elements(dst)[box_of(dst_region)] = driver.elements(src)[box_of(src_region)]
        return fence


def box_of(region: spi.ImageRegion) -> tuple[slice, slice, slice]:
    """Return the region as an index of an array of slices or layers, rows and elements."""
    (x, y, z), (width, height, _), first = region.offset, region.extent, region.layer
    return (slice(z + first, z + first + region.slices), slice(y, y + height), slice(x, x + width))


class Gpu(FakeDriver, spi.HostMemory):
    """Device memory backed by ordinary memory; the facade treats it as device memory."""

    def __init__(self, capabilities: Capabilities = ALL) -> None:
        super().__init__(capabilities)
        self.everything_is_done = True
        self.blocks: dict[int, Any] = {}
        self.copies: list[tuple[int, int, int]] = []
        self.staging: dict[int, Any] = {}
        self.places: dict[int, int] = {}   # addresses of mappings and host buffers
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

    def create_queue(self) -> FakeList:
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
        token = next(self.numbers)
        self.places[token] = ctypes.addressof(self.blocks[memory]) + offset
        return token, self.places[token]

    def host_buffer(self, size: int) -> tuple[int, int]:
        token = next(self.numbers)
        self.staging[token] = ctypes.create_string_buffer(size)
        self.places[token] = ctypes.addressof(self.staging[token])
        return token, self.places[token]

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
    assert not driver.misuse


@pytest.fixture(params=["gpu", "host"])
def gpu_or_host(request: pytest.FixtureRequest) -> Device:
    made: Device = request.getfixturevalue("gpu")[0] if request.param == "gpu" else request.getfixturevalue("device")
    return made


def mapped(device: Device, size: int = PAGE) -> xsem.Buffer:
    return device.create_memory(MEMORY, size).map_buffer()


class ImageGpu(Gpu, spi.PlanarImages):
    def __init__(self, feature: Feature = Feature.MIPMAPPED_ARRAY, formats: Iterable[str] = PLAIN_FORMATS) -> None:
        import dataclasses

        super().__init__(dataclasses.replace(ALL, features=ALL.features | {feature, Feature.IMAGE_COPY},
                                             image_formats=frozenset(formats)))
        self.descs: dict[int, MipmapDesc] = {}
        self.pixels: dict[int, Any] = {}   # of levels that copies use

    def map_mipmapped_array(self, memory: int, desc: MipmapDesc) -> int:
        if self.map_fails is not None:
            raise self.map_fails
        token = next(self.numbers)
        self.descs[token] = desc
        self.log.append(("map_mipmapped_array", token))
        return token

    def mipmap_level(self, array: int, level: int) -> int:
        return 1000 * array + level

    def image_plane(self, level: int, plane: int) -> int:
        return level + 100 * plane

    def elements(self, level: int) -> Any:
        """Return the elements of a level, (slices or layers, rows, elements) of void of the size of an element."""
        if level not in self.pixels:
            layout = level_layout(self.descs[level // 1000], level % 100, level % 1000 // 100)
            shape = (layout.slices, layout.rows, layout.row_size // layout.element_size)
            self.pixels[level] = np.zeros(shape, f"V{layout.element_size}")
        return self.pixels[level]

    def copy_region(
        self, level: int, region: spi.ImageRegion, buffer: int, offset: int, row_pitch: int, slice_pitch: int,
        read: bool,
    ) -> None:
        part = self.elements(level)[box_of(region)]
        assert part.shape == (region.slices, *region.extent[1::-1]), "the region leaves the level"
        row = region.extent[0] * part.dtype.itemsize
        for z, rows in enumerate(part):
            for y in range(region.extent[1]):
                address = self.places[buffer] + offset + z * slice_pitch + y * row_pitch
                self._inside(address, row)
                if read:
                    ctypes.memmove(address, rows[y].tobytes(), row)
                else:
                    rows[y] = np.frombuffer(ctypes.string_at(address, row), part.dtype)

    def release_array(self, array: int) -> None:
        self.log.append(("release_array", array))
