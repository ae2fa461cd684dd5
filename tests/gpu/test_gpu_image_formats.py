"""Test the formats and flags of images in Vulkan's memory on a real GPU, and the size that an image needs.

Skipped, with the reason, without a GPU.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.gpu import SIZE, Rig

import xsem
from xsem.data.image_formats import FORMATS
from xsem.types import MipmapDesc

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]


def image(name: str, extent: tuple[int, int, int] = (36, 20, 0), **more: Any) -> MipmapDesc:
    channels = more.pop("channels", FORMATS[name].channels[-1])
    return MipmapDesc(extent=extent, format=name, channels=channels, **more)


def written_and_read(memory: xsem.Memory, desc: MipmapDesc) -> None:
    with memory.map_mipmapped_array(desc, overlap=True) as mapped:
        planes = [mapped.level(0, plane) for plane in range(len(FORMATS[desc.format].planes))]
        data = [np.frombuffer(np.random.default_rng(seed).bytes(each.read().nbytes), each.read().dtype)
                .reshape(each.read().shape) for seed, each in enumerate(planes)]
        for level, each in zip(planes, data, strict=True):
            level.write(each)
        assert [level.read().tobytes() for level in planes] == [each.tobytes() for each in data], desc


def test_images_of_every_declared_format_keep_their_elements(rig: Rig) -> None:
    assert rig.cuda.capabilities.image_formats == set(FORMATS) - {"nv12", "p010"}
    for name in sorted(rig.cuda.capabilities.image_formats):
        for channels in FORMATS[name].channels:
            written_and_read(rig.here, image(name, channels=channels))


def test_vulkan_images_of_every_declared_format_keep_their_elements(rig: Rig) -> None:
    for name in sorted(rig.vulkan.capabilities.image_formats):
        written_and_read(rig.there, image(name))


def test_images_with_every_declared_flag_keep_their_elements(rig: Rig) -> None:
    for flag in sorted(rig.cuda.capabilities.image_flags - {"cubemap"}):
        written_and_read(rig.here, image("uint8", (36, 20, 0), **{flag: True}))
    for layers in (6, 12):
        for layered in (False, True):
            written_and_read(rig.here, image("unorm8", (16, 16, 0), cubemap=True, layers=layers,
                                             layered_cubemap=layered))


def test_planes_of_a_video_frame_are_two_images(rig: Rig) -> None:
    for name in ("nv12", "p010"):
        frame = image(name, (64, 64, 0))
        with pytest.raises(xsem.UnsupportedError, match=f"no image of the format {name}"):
            rig.here.map_mipmapped_array(frame)
        for index, offset in enumerate((0, SIZE // 2)):
            written_and_read(rig.here, frame.plane(index, offset=offset))


@pytest.mark.parametrize(("desc", "needed"), [
    (image("uint8", (64, 0, 0)), 2048), (image("uint8", (37, 19, 0)), 6144),
    (image("uint8", (64, 64, 0), levels=7), 23552), (image("uint8", (64, 64, 0), layers=3, levels=3), 73728),
], ids=str)
def test_error_of_a_small_allocation_size_names_the_size(rig: Rig, desc: MipmapDesc, needed: int) -> None:
    for size in (needed, needed - 1):
        with rig.there.export(for_device=rig.cuda) as exported:
            memory = rig.cuda.import_memory(replace(exported, allocation_size=size))
        if size == needed:
            memory.map_mipmapped_array(desc).release()
            continue
        with pytest.raises(xsem.DriverError) as refused:
            memory.map_mipmapped_array(desc)
        assert f"allocation_size of the imported memory, {size} bytes" in str(refused.value)
