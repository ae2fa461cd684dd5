"""Images in dma-bufs: the layout is checked, and a modifier that the device lacks is refused by name."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support.fake_backend import INFO
from support.fixtures import refused
from support.real_bytes import ImageGpu

from xsem.errors import UnsupportedError
from xsem.facade.device import Device
from xsem.facade.memory import Memory
from xsem.types import DrmLayout, DrmPlane, MemoryDesc, MipmapDesc

SIZE = 1 << 16
TILES = 1 << 56 | 2


class DmabufGpu(ImageGpu):
    def __init__(self, *modifiers: int) -> None:
        super().__init__()
        self._capabilities = dataclasses.replace(self._capabilities, drm_modifiers=frozenset(modifiers),
                                                 image_formats=frozenset({"unorm8", "bc1_unorm"}))


@pytest.fixture
def fd() -> Iterator[int]:
    if sys.platform == "win32":
        yield 3   # the driver gets the number of a type that the system lacks, unchanged
        return
    made = os.memfd_create("dmabuf")
    os.ftruncate(made, SIZE)
    yield made
    os.close(made)


@pytest.fixture
def device() -> Iterator[Device]:
    with Device(INFO, DmabufGpu(0, TILES)) as opened:
        yield opened


def layout(*planes: tuple[int, int], **fields: Any) -> DrmLayout:
    made = tuple(DrmPlane(offset=offset, pitch=pitch) for offset, pitch in planes or ((512, 256),))
    return DrmLayout(**{"modifier": 0, "planes": made, **fields})


def memory(device: Device, fd: int, drm_layout: DrmLayout | None) -> Memory:
    return device.import_memory(MemoryDesc.dmabuf_fd(fd, allocation_size=SIZE, drm_layout=drm_layout))


def image(**fields: Any) -> MipmapDesc:
    return MipmapDesc(**{"extent": (64, 32, 0), "format": "unorm8", "channels": 4, **fields})


def test_image_in_a_dma_buf_with_a_layout_is_mapped(device: Device, fd: int) -> None:
    tiled = layout((0, 256), (4096, 64), modifier=TILES)
    for drm_layout in (layout(), layout(fourcc="AB24"), layout(fourcc="XR24"), tiled):
        with memory(device, fd, drm_layout).map_mipmapped_array(image()) as mapped:
            assert mapped.level(0).extent == (64, 32, 0)


@pytest.mark.parametrize(("drm_layout", "fields", "reason"), [
    (None, {}, "mipmap_of_dmabuf"),
    (layout(), {"extent": (64, 0, 0)}, "bad_extent"), (layout(), {"extent": (8, 8, 8)}, "bad_extent"),
    (layout(), {"levels": 2}, "bad_levels"), (layout(), {"layers": 1}, "bad_layers"),
    (layout(), {"offset": 512}, "bad_offset"), (layout(fourcc="GR88"), {}, "bad_fourcc"),
    (layout((0, 256), (8192, 256)), {}, "bad_plane"), (layout((0, 255)), {}, "bad_pitch"),
    (layout((SIZE - 31 * 256 - 255, 256)), {}, "out_of_range"), (layout((0, 1 << 12)), {}, "out_of_range"),
])
def test_image_that_does_not_fit_the_layout_is_refused(
    device: Device, fd: int, drm_layout: DrmLayout | None, fields: dict[str, Any], reason: str
) -> None:
    refused(lambda: memory(device, fd, drm_layout).map_mipmapped_array(image(**fields)), reason)


def test_linear_image_ends_at_its_last_pixel(device: Device, fd: int) -> None:
    memory(device, fd, layout((SIZE - 31 * 256 - 256, 256))).map_mipmapped_array(image()).release()


def test_blocks_count_as_rows(device: Device, fd: int) -> None:
    blocks = image(format="bc1_unorm")
    memory(device, fd, layout((0, 128))).map_mipmapped_array(blocks).release()
    refused(lambda: memory(device, fd, layout((0, 127))).map_mipmapped_array(blocks), "bad_pitch")


def test_modifier_that_the_device_lacks_is_refused_by_name_before_the_driver(fd: int) -> None:
    driver = DmabufGpu(0)
    with Device(INFO, driver) as device:
        text = "fake:0 imports no dma-buf with the DRM format modifier INTEL 0x0100000000000002; its modifiers: DRM_"
        with pytest.raises(UnsupportedError, match=text) as caught:
            memory(device, fd, layout(modifier=TILES))
        assert caught.value.capability == "drm_modifiers"
        assert not [name for name, *_ in driver.log if name == "import_memory"]


def test_device_without_modifiers_maps_linear_memory_as_a_buffer_only(fd: int) -> None:
    with Device(INFO, DmabufGpu()) as device:
        linear = memory(device, fd, layout())
        with pytest.raises(UnsupportedError, match="DRM_FORMAT_MOD_LINEAR; its modifiers: none"):
            linear.map_mipmapped_array(image())
