"""Test appended copies of images of the Level Zero backend on the simulated driver."""

from __future__ import annotations

from ctypes import byref
from typing import Any

import pytest
from support.image_exercise import SIMPLE
from support.levelzero_facade import BOUND_S, driver_of, opened
from support.levelzero_sim import on_level_zero

import xsem
from xsem.errors import DriverError
from xsem.spi import ImageRegion
from xsem_levelzero.images import image_region

IMAGES = {"SIMZE_IMAGES": "1"}
DESC = SIMPLE["2D"]


@on_level_zero(**IMAGES)
def test_function_with_pitches_is_called_only_for_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened() as at:
        loader, called = driver_of(at.here)._core.loader, []
        real = loader.raw

        def raw(name: str, *arguments: Any) -> Any:
            if "ImageCopy" in name:
                called.append((name.removeprefix("zeCommandListAppendImageCopy"), arguments[4:6]))
            return real(name, *arguments)

        monkeypatch.setattr(loader, "raw", raw)
        commands, buffer = at.here.create_command_list(), at.here.host_buffer(1 << 14)
        level = at.memory(1 << 16)[1].map_mipmapped_array(DESC).level(0)
        commands.append_copy(buffer, level)
        commands.append_copy(level, buffer, extent=(8, 1, 0), row_pitch=400)
        commands.append_copy(buffer, level, row_pitch=100, slice_pitch=2000)
        layered = at.memory(1 << 16)[1].map_mipmapped_array(SIMPLE["2D layers"]).level(0)
        commands.append_copy(layered, buffer, slice_pitch=1920)
        commands.synchronize(timeout_s=BOUND_S)
        assert [name for name, _ in called] == ["ToMemory", "FromMemory", "ToMemoryExt", "FromMemoryExt"]
        assert [pitches for _, pitches in called[2:]] == [(100, 0), (96, 1920)]


@on_level_zero(**IMAGES)
def test_missing_function_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened() as at:
        loader = driver_of(at.here)._core.loader
        monkeypatch.setitem(loader._known, "zeCommandListAppendImageCopyToMemoryExt", lambda *_: 0x78000003)
        commands, buffer = at.here.create_command_list(), at.here.host_buffer(1 << 14)
        level = at.memory(1 << 16)[1].map_mipmapped_array(DESC).level(0)
        with pytest.raises(xsem.UnsupportedError) as caught:
            commands.append_copy(buffer, level, row_pitch=100)
        assert caught.value.capability == "zeCommandListAppendImageCopyToMemoryExt"
        commands.append_copy(buffer, level)
        commands.synchronize(timeout_s=BOUND_S)
        driver: Any = commands._queue.driver
        region = ImageRegion((0, 0, 0), (8, 4, 1), 0, 2)
        with pytest.raises(xsem.UnsupportedError, match="32 bits"):
            driver.append_region_copy(level._level, region, 0, 0, 1 << 30, 1 << 32, True, (), False)


@on_level_zero(**IMAGES)
def test_refused_copy_is_an_error_of_the_append() -> None:
    with opened() as at:
        commands = at.here.create_command_list()
        level = at.memory(1 << 16)[1].map_mipmapped_array(DESC).level(0)
        wide = at.memory(1 << 16)[1].map_mipmapped_array(SIMPLE["wide elements"]).level(0)
        driver: Any = commands._queue.driver
        whole = ImageRegion((0, 0, 0), (24, 10, 1), 0, 1)
        with pytest.raises(DriverError):
            driver.append_image_copy(level._level, whole, wide._level, whole, (), False)


@on_level_zero(**IMAGES)
@pytest.mark.parametrize(("pitches", "layers"), [((92, 0), 1), ((96, 1920), 1), ((96, 900), 2)], ids=str)
def test_wrong_pitch_is_refused_by_the_simulated_driver(pitches: tuple[int, int], layers: int) -> None:
    with opened() as at:
        commands = at.here.create_command_list()
        buffer = at.here.host_buffer(1 << 14)
        level = at.memory(1 << 16)[1].map_mipmapped_array(SIMPLE["2D layers" if layers > 1 else "2D"]).level(0)
        core = driver_of(at.here)._core
        area = image_region(ImageRegion((0, 0, 0), (24, 10, 1), 0, layers))
        with pytest.raises(DriverError, match="refused an argument"):
            core.loader.do("zeCommandListAppendImageCopyToMemoryExt", commands.native_handle, buffer.address,
                           level.native_handle, byref(area), *pitches, None, 0, None)
