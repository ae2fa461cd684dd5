"""Test appended copies of planes, in recordings, and native arrays of CUDA. On the stand-in for libcuda."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import pytest
from support.cuda_sim import on_stand_in
from support.image_exercise import PLANES, copy_frame, exercise, write_pixels
from support.importer import BOUND_S

import xsem
from xsem.types import MemoryHandleType, MipmapDesc

SIZE = 1 << 16
DESC = MipmapDesc(extent=(24, 10, 0), format="uint8", channels=4)


class Rig(NamedTuple):
    host: xsem.Device
    cuda: xsem.Device
    commands: xsem.CommandList

    def memory(self) -> xsem.Memory:
        with self.host.create_memory(MemoryHandleType.OPAQUE_FD, SIZE).export(for_device=self.cuda) as desc:
            return self.cuda.import_memory(desc)


@contextmanager
def rig() -> Iterator[Rig]:
    with xsem.open_device("host") as host, xsem.open_device("cuda:0") as cuda:
        yield Rig(host, cuda, cuda.create_command_list())


@on_stand_in
@pytest.mark.parametrize("name", list(PLANES))
def test_regions_of_planes_are_copied_exactly(name: str) -> None:
    """CUDA maps no image of two planes: each plane is an image of its own."""
    with rig() as at:
        memory, buffer = at.memory(), at.memory().map_buffer(0, 1 << 14)
        luma, chroma = (PLANES[name].plane(index, offset=offset) for index, offset in enumerate((0, SIZE // 2)))
        for what, desc in (("luma", luma), ("chroma", chroma)):
            exercise(at.cuda, at.commands, memory, buffer, {f"{what} of {name}": desc})
        with memory.map_mipmapped_array(luma) as one, memory.map_mipmapped_array(chroma) as other:
            copy_frame(at.cuda, at.commands, [one.level(0), other.level(0)])


@on_stand_in
def test_recording_repeats_a_copy_of_a_level() -> None:
    with rig() as at:
        level = at.memory().map_mipmapped_array(DESC).level(0)
        buffer = at.cuda.host_buffer(32 * 3)
        with at.commands.record() as recording:
            at.commands.append_copy(buffer, level, offset=(1, 2, 0), extent=(8, 3, 0))
        for value in (3, 4):
            write_pixels(level, DESC, np.full((1, 10, 24, 4), value, np.uint8))
            recording.replay()
            at.commands.synchronize(timeout_s=BOUND_S)
            assert (buffer.numpy() == value).all()


@on_stand_in
def test_handle_of_a_level_is_the_array_of_the_driver() -> None:
    driver = importlib.import_module("cuda.bindings.driver")
    with rig() as at:
        image = at.memory().map_mipmapped_array(MipmapDesc(extent=(24, 10, 0), format="uint8", channels=4, levels=2))
        code, found = driver.cuArray3DGetDescriptor(driver.CUarray(image.level(1).native_handle))
        assert (int(code), found.Width, found.Height, found.NumChannels) == (0, 12, 5, 4)
