"""Test memory and images of the Level Zero backend on the simulated driver: sizes, offsets, refusals."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import pytest
from support.levelzero_facade import BOUND_S, PAGE, driver_of, failing, fd_of, library, opened
from support.levelzero_sim import on_level_zero

import xsem
from xsem.data.image_formats import FORMATS
from xsem.spi import ImageRegion, ImportFailure
from xsem.types import MemoryDesc, MemoryHandleType, MipmapDesc, OwnedHandle
from xsem_levelzero.backend import LevelZeroBackend
from xsem_levelzero.images import image_desc

IMAGES = {"SIMZE_IMAGES": "1"}


# ---- memory
@on_level_zero
def test_memory_is_one_pointer_with_the_offset_above_the_driver() -> None:
    with opened() as at:
        there, here = at.memory(4 * PAGE)
        shared = there.map_buffer().numpy()
        shared[:] = 1
        whole, part = here.map_buffer(), here.map_buffer(PAGE + 256, 512, overlap=True)
        assert part.address == whole.address + PAGE + 256
        assert driver_of(at.here).dlpack_device() == (14, 0)
        commands = at.here.create_command_list()
        commands.append_fill(part, b"\x07\x08")
        commands.synchronize(timeout_s=BOUND_S)
        assert bytes(shared[PAGE + 254:PAGE + 260]) == b"\1\1\7\10\7\10"
        assert bytes(shared[PAGE + 766:PAGE + 770]) == b"\7\10\1\1"
        assert bytes(part.copy_to_host(timeout_s=BOUND_S).tobytes()) == b"\7\10" * 256
        here.release()


@on_level_zero(**IMAGES)
def test_offsets_count_from_the_start_of_a_buffer() -> None:
    desc = MipmapDesc(extent=(16, 4, 0), format="uint8", channels=4)   # 256 bytes
    data = bytes(range(256))
    with opened() as at:
        _, here = at.memory(4 * PAGE)
        driver = driver_of(at.here)
        image = driver.map_mipmapped_array(here._token(), desc)
        (first, source), (second, target) = driver.host_buffer(PAGE), driver.host_buffer(PAGE)
        for address in (source, target):
            ctypes.memset(address, 0, PAGE)
        ctypes.memmove(source + 64, data, len(data))
        commands = driver.create_queue()
        level, whole = driver.mipmap_level(image, 0), ImageRegion((0, 0, 0), (16, 4, 1), 0, 1)
        commands.append_region_copy(level, whole, first, 64, 64, 256, False, (), False)
        commands.append_region_copy(level, whole, second, 32, 64, 256, True, (), False)
        commands.append_fill(second, 512, b"\1\2", 4, (), False)
        fence = commands.append_copy(second, 1024, first, 66, 3, (), True)
        assert driver.wait_fence(fence, int(BOUND_S * 1e9))
        driver.release_fence(fence)
        expected = bytearray(PAGE)
        expected[32:288], expected[512:516], expected[1024:1027] = data, b"\1\2\1\2", data[2:5]
        assert ctypes.string_at(target, PAGE) == expected
        for buffer in (first, second):
            driver.release_host_buffer(buffer)
        driver.release_array(image)
        commands.close()


@on_level_zero
def test_allocation_below_the_given_size_is_refused() -> None:
    with opened() as at:
        there, _ = at.memory(PAGE)
        driver = driver_of(at.here)
        with fd_of(there) as handle:
            own = OwnedHandle(os.dup(handle.fileno()))
            desc = MemoryDesc(type=MemoryHandleType.OPAQUE_FD, handle=own, allocation_size=2 * PAGE)
            with pytest.raises(ImportFailure) as caught:
                driver.import_memory(desc, own)
            assert caught.value.handle == "unknown"
            own.detach()   # the driver took the fd: the driver's import succeeded
        error = caught.value.error
        assert isinstance(error, xsem.BadHandleError)
        assert error.reason == "allocation_size_beyond_file"
        assert "4096" in error.message
        assert "8192" in error.message


@on_level_zero(SIMZE_MEMORY_TYPES="3")
def test_dma_buf_is_taken_where_the_driver_says_so() -> None:
    with opened() as at:
        assert MemoryHandleType.DMABUF_FD in at.here.capabilities.memory_import
        there, _ = at.memory()
        there.map_buffer().numpy()[:] = 5
        with fd_of(there) as handle:
            memory = at.here.import_memory(MemoryDesc.dmabuf_fd(handle, allocation_size=PAGE))
        assert (memory.map_buffer().copy_to_host(timeout_s=BOUND_S) == 5).all()


@on_level_zero
def test_pattern_is_refused_when_size_is_not_a_power_of_two() -> None:
    with opened() as at:
        _, here = at.memory(3 * PAGE)
        commands = at.here.create_command_list()
        with pytest.raises(xsem.BadArgumentError, match="1, 2, 4, … 128 bytes, not with 3") as caught:
            commands.append_fill(here.map_buffer(0, 3 * 1024), b"abc")
        assert caught.value.reason == "bad_pattern"
        commands.synchronize(timeout_s=BOUND_S)


# ---- images
@on_level_zero(**IMAGES)
@pytest.mark.parametrize(("what", "more"), [
    ("more than one level", {"levels": 2}), ("an offset", {"offset": 256}),
    ("a cubemap", {"cubemap": True, "layers": 6}), ("a colour attachment", {"color_attachment": True}),
])
def test_image_that_level_zero_cannot_make_is_refused_by_name(what: str, more: dict[str, Any]) -> None:
    with opened() as at:
        _, here = at.memory(64 * PAGE)
        with pytest.raises(xsem.UnsupportedError, match=what):
            here.map_mipmapped_array(MipmapDesc(extent=(16, 16, 0), format="uint8", channels=4, **more))


INTEL = {"SIMZE_MODE": "intel"}


@on_level_zero(**INTEL)
def test_images_of_intel_are_made_although_its_driver_reports_none() -> None:
    with opened() as at:
        assert {xsem.Feature.IMAGE, xsem.Feature.IMAGE_COPY} <= at.here.capabilities.features
        there, here = at.memory(16 * PAGE)
        there.map_buffer().numpy()[:] = 7
        level = here.map_mipmapped_array(MipmapDesc(extent=(16, 16, 0), format="uint8", channels=4)).level(0)
        commands, buffer = at.here.create_command_list(), at.here.host_buffer(1024)
        commands.append_copy(buffer, level)
        commands.synchronize(timeout_s=BOUND_S)
        assert (buffer.numpy() == 7).all()


def images_are_not_declared() -> None:
    alive, fds = set(), set()
    for _ in range(3):   # the first opening starts the driver
        driver = LevelZeroBackend().open(0)   # with a probe of its own
        assert not {xsem.Feature.IMAGE, xsem.Feature.IMAGE_COPY} & driver.capabilities.features
        driver.close()
        alive.add(library().simze_alive())
        fds.add(len(os.listdir("/proc/self/fd")))
    assert len(alive) == len(fds) == 1


@on_level_zero(**INTEL, SIMZE_FAIL="zeImageCreate:0x78000003")
def test_gpu_without_images_declares_none() -> None:
    images_are_not_declared()


@on_level_zero(**INTEL, SIMZE_MEMORY_TYPES="2")
def test_driver_without_opaque_fds_declares_no_images() -> None:
    images_are_not_declared()


@on_level_zero(**INTEL)
@pytest.mark.parametrize("call", ["zeMemAllocDevice:0x70000003:3", "zeImageCreate:0x70000002"])
def test_probe_of_images_without_memory_is_not_remembered(call: str) -> None:
    backend = LevelZeroBackend()
    with failing(call):
        driver = backend.open(0)
        assert xsem.Feature.IMAGE not in driver.capabilities.features
        driver.close()
    driver = backend.open(0)
    assert xsem.Feature.IMAGE in driver.capabilities.features
    driver.close()


@on_level_zero(**IMAGES)
def test_formats_with_a_layout_are_declared() -> None:
    with opened() as at:
        declared = at.here.capabilities
        assert set(FORMATS) - declared.image_formats == {
            "nv12", "p010", *(name for name in FORMATS if name.startswith("bc"))}
        assert declared.image_flags == {"surface_load_store"}


@pytest.mark.parametrize(("name", "channels", "expected"), [
    ("unorm8", 4, (4, 2)), ("snorm16", 2, (5, 3)), ("unorm_10_10_10_2", 4, (9, 2)), ("float16", 1, (1, 4)),
])
def test_format_is_a_layout_and_a_type(name: str, channels: int, expected: tuple[int, int]) -> None:
    found = image_desc(MipmapDesc(extent=(16, 16, 0), format=name, channels=channels)).format
    assert (found.layout, found.type) == expected


@pytest.mark.parametrize("fields", [{"format": "bc1_unorm", "channels": 4},
                                    {"format": "float32", "channels": 1, "depth_texture": True}])
def test_driver_refuses_a_format_without_a_layout(fields: dict[str, Any]) -> None:
    with pytest.raises(xsem.UnsupportedError) as refused:
        image_desc(MipmapDesc(extent=(16, 16, 0), **fields))
    assert refused.value.reason == "not_supported"
