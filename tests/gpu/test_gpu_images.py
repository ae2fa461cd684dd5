"""Test xsem's own handling of images in Vulkan's memory on a real GPU. The conformance suite tests formats and shapes.

Skipped, with the reason, without a GPU.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from support.gpu import AT_ONCE_S, SIZE, Rig

import xsem
from xsem.types import SemaphoreHandleType

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]


def image(**more: Any) -> xsem.MipmapDesc:
    return xsem.MipmapDesc(extent=(64, 32, 0), format="uint8", channels=4, **more)


def noise(seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (32, 64, 4), dtype=np.uint8)


def test_image_is_used_and_released_while_a_wait_is_pending(rig: Rig) -> None:
    semaphore = rig.vulkan.create_semaphore(SemaphoreHandleType.TIMELINE_SEMAPHORE_FD)
    with semaphore.export(for_device=rig.cuda) as desc:
        mine = rig.cuda.import_semaphore(desc)
    commands = rig.cuda.create_command_list()
    commands.append_wait(mine, 1)
    begin = time.monotonic()
    with rig.here.map_mipmapped_array(image()) as mapped:
        mapped.level(0).write(noise(1))
        assert (mapped.level(0).read() == noise(1)).all()
    assert time.monotonic() - begin < AT_ONCE_S
    assert not commands.query()
    semaphore.host_signal(1)
    commands.synchronize(timeout_s=10)


def test_unaligned_offset_is_refused_and_aligned_ones_work(rig: Rig) -> None:
    with pytest.raises(xsem.BadArgumentError) as caught:
        rig.here.map_mipmapped_array(image(offset=256))
    assert caught.value.reason == "bad_offset"
    for offset in (512, 1536, 4096 + 512):
        with rig.here.map_mipmapped_array(image(offset=offset)) as mapped:
            mapped.level(0).write(noise(offset))
            assert (mapped.level(0).read() == noise(offset)).all()


def test_image_beyond_the_memory_is_refused_by_the_driver(rig: Rig) -> None:
    # The 16 KiB of pixels would fit, but not the tiles.
    with pytest.raises(xsem.DriverError) as caught:
        rig.here.map_mipmapped_array(xsem.MipmapDesc(extent=(4096, 0, 0), format="uint8", channels=4,
                                                     offset=SIZE - (1 << 15)))
    assert caught.value.reason == "invalid_value"
    assert caught.value.likely_causes


def test_images_over_the_same_bytes_show_the_same_pixels(rig: Rig) -> None:
    first = rig.here.map_mipmapped_array(image())
    first.level(0).write(noise(1))
    with pytest.raises(xsem.BadArgumentError):
        rig.here.map_mipmapped_array(image())
    with rig.here.map_mipmapped_array(image(), overlap=True) as second:
        assert (second.level(0).read() == noise(1)).all()
    first.release()
    with rig.there.export(for_device=rig.cuda) as desc:
        again = rig.cuda.import_memory(desc)
    with again.map_mipmapped_array(image()) as third:
        assert (third.level(0).read() == noise(1)).all()
