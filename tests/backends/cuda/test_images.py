"""Test formats and flags of images, and the size of their memory, on the stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from support.cuda_sim import on_stand_in
from support.importer import Pair

import xsem
from xsem.data.image_formats import FLAGS, FORMATS
from xsem.data.images import least_size
from xsem.types import MipmapDesc, SemaphoreHandleType

SIZE = 1 << 20
# Measured on an H200 (580.159.04).
REFUSED_FORMATS = {"nv12", "p010"}
REFUSED_FLAGS = {"depth_texture", "deferred_mapping", "sparse"}


@contextmanager
def rig() -> Iterator[Pair]:
    with xsem.open_device("host") as host, xsem.open_device("cuda:0") as cuda:
        yield Pair(host, cuda, SemaphoreHandleType.TIMELINE_SEMAPHORE_FD)


def image(name: str, extent: tuple[int, int, int] = (36, 20, 0), **more: Any) -> MipmapDesc:
    channels = more.pop("channels", FORMATS[name].channels[-1])
    return MipmapDesc(extent=extent, format=name, channels=channels, **more)


@on_stand_in
def test_formats_and_flags_that_cuda_lacks_are_refused_by_name() -> None:
    with rig() as at:
        _, here = at.memory(SIZE)
        assert at.here.capabilities.image_formats == set(FORMATS) - REFUSED_FORMATS
        for name in sorted(REFUSED_FORMATS):
            text = f"cuda:0 maps no image of the format {name}; its formats: uint8, uint16"
            with pytest.raises(xsem.UnsupportedError, match=text) as refused:
                here.map_mipmapped_array(image(name))
            assert (refused.value.capability, refused.value.call) == (f"image_formats.{name}", None)
        assert at.here.capabilities.image_flags == set(FLAGS) - REFUSED_FLAGS
        for flag in sorted(REFUSED_FLAGS):
            text = f"cuda:0 maps no image with the flag {flag}; its flags: cubemap, surface_load_store"
            with pytest.raises(xsem.UnsupportedError, match=text) as refused:
                here.map_mipmapped_array(image("float32", (36, 20, 0), channels=1, **{flag: True}))
            assert (refused.value.capability, refused.value.call) == (f"image_flags.{flag}", None)
        for flag in ("surface_load_store", "color_attachment", "texture_gather", "video"):
            here.map_mipmapped_array(image("uint8", (36, 20, 0), **{flag: True})).release()
        for layers in (6, 12):
            here.map_mipmapped_array(
                image("unorm8", (8, 8, 0), layers=layers, cubemap=True, layered_cubemap=True), overlap=True).release()


# The sizes that the driver asked for: blocks of 64 bytes and 8 rows, measured on an H200 (580.159.04).
NEEDED = [
    (image("uint8", (64, 0, 0)), 2048), (image("uint8", (64, 0, 0), channels=1), 512),
    (image("uint8", (1, 1, 0)), 512), (image("uint8", (16, 9, 0)), 1024), (image("uint8", (37, 19, 0)), 6144),
    (image("uint8", (33, 17, 0), channels=1), 2048), (image("uint8", (1000, 700, 0), channels=1), 786432),
    (image("uint8", (64, 32, 0), levels=3), 10752), (image("uint8", (64, 64, 0), levels=7), 23552),
    (image("uint8", (16, 8, 4)), 2048), (image("uint8", (16, 8, 4), levels=3), 3584),
    (image("uint8", (64, 32, 0), layers=3), 24576), (image("uint8", (16, 8, 0), layers=5), 2560),
    (image("uint8", (64, 64, 0), layers=3, levels=3), 73728),
    (image("uint8", (16, 16, 0), layers=6, cubemap=True), 6144), (image("bc1_unorm", (64, 64, 0)), 2048),
    (image("bc1_unorm", (512, 512, 0)), 131072), (image("float32", (64, 64, 0)), 65536),
]


@on_stand_in
def test_error_of_a_small_allocation_size_names_the_size() -> None:
    with rig() as at:
        there, _ = at.memory(SIZE)
        for desc, needed in NEEDED:
            for size in (needed, needed - 1):
                with there.export() as exported:
                    memory = at.here.import_memory(replace(exported, allocation_size=size))
                if size == needed:
                    memory.map_mipmapped_array(desc).release()
                    continue
                if size < least_size(desc):
                    with pytest.raises(xsem.BadArgumentError, match=f"beyond the allocation of {size}"):
                        memory.map_mipmapped_array(desc)
                    continue
                with pytest.raises(xsem.DriverError) as refused:
                    memory.map_mipmapped_array(desc)
                assert refused.value.reason == "invalid_value"
                assert f"allocation_size of the imported memory, {size} bytes" in str(refused.value)
                assert len(refused.value.likely_causes) == 3
