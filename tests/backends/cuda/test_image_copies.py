"""Test appended copies of images on CUDA, with memory of the host device. On the stand-in for libcuda."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest
from support.cuda_sim import on_stand_in
from support.image_exercise import (
    BLOCKS,
    FORMATS,
    PLANES,
    SHAPES,
    between,
    copy_frame,
    exercise,
    pixels_of,
    write_pixels,
)
from support.importer import BOUND_S, Pair

import xsem
from xsem.types import Feature, MemoryHandleType, MipmapDesc, SemaphoreHandleType

ALL = SHAPES | FORMATS | BLOCKS
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
@pytest.mark.parametrize("name", list(ALL))
def test_regions_are_copied_exactly(name: str) -> None:
    with rig() as at:
        assert Feature.IMAGE_COPY in at.cuda.capabilities.features
        buffer = at.memory().map_buffer(0, 1 << 14)
        exercise(at.cuda, at.commands, at.memory(), buffer, {name: ALL[name]}, seed=len(name))


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
def test_regions_are_copied_between_images() -> None:
    def desc(**fields: Any) -> MipmapDesc:
        return MipmapDesc(**{"extent": (16, 8, 0), "format": "uint16", "channels": 2, **fields})

    with rig() as at:
        for one, other in ((desc(), desc(extent=(20, 5, 0), format="uint32", channels=1)),
                           (desc(layers=3), desc(layers=2, levels=2)),
                           (desc(extent=(4, 4, 4)), desc(extent=(6, 3, 5)))):
            with (at.memory().map_mipmapped_array(one) as dst, at.memory().map_mipmapped_array(other) as src):
                between(at.commands, dst, src)


@on_stand_in
def test_copy_of_a_level_waits_for_the_semaphore_before_it() -> None:
    with rig() as at:
        pair = Pair(at.host, at.cuda, SemaphoreHandleType.TIMELINE_SEMAPHORE_FD)
        there, here = pair.semaphore()
        level = at.memory().map_mipmapped_array(DESC).level(0)
        buffer, done = at.cuda.host_buffer(960), at.cuda.create_event()
        write_pixels(level, DESC, np.full((1, 10, 24, 4), 7, np.uint8))
        at.commands.append_wait(here, 1)
        at.commands.append_copy(buffer, level, signal_event=done)
        assert not done.query()
        assert not buffer.numpy().any()
        write_pixels(level, DESC, np.full((1, 10, 24, 4), 9, np.uint8))
        there.host_signal(1)
        done.wait(timeout_s=BOUND_S)
        assert (buffer.numpy() == 9).all()


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
def test_image_is_released_behind_a_pending_copy() -> None:
    with rig() as at:
        there, here = Pair(at.host, at.cuda, SemaphoreHandleType.TIMELINE_SEMAPHORE_FD).semaphore()
        memory = at.memory()
        image = memory.map_mipmapped_array(DESC)
        level = image.level(0)
        pixels = np.arange(960, dtype=np.uint8).reshape(1, 10, 24, 4)
        write_pixels(level, DESC, pixels)
        buffer = at.cuda.host_buffer(960)
        at.commands.append_wait(here, 1)
        at.commands.append_copy(buffer, level)
        image.release()
        memory.release()
        assert [op.operation for op in at.cuda.pending()] == ["wait", "copy"]
        assert len(at.cuda.releasing()) >= 2
        there.host_signal(1)
        at.commands.synchronize(timeout_s=BOUND_S)
        assert (buffer.numpy() == pixels.reshape(-1)).all()


@on_stand_in
def test_threads_without_a_context_copy_levels() -> None:
    with rig() as at:
        image = at.memory().map_mipmapped_array(DESC)
        buffer = at.cuda.host_buffer(960)
        buffer.numpy()[...] = 5
        thread = threading.Thread(target=lambda: at.commands.append_copy(image.level(0), buffer))
        thread.start()
        thread.join(BOUND_S)
        at.commands.synchronize(timeout_s=BOUND_S)
        assert (pixels_of(image.level(0), DESC) == 5).all()


@on_stand_in
def test_handle_of_a_level_is_the_array_of_the_driver() -> None:
    driver = importlib.import_module("cuda.bindings.driver")
    with rig() as at:
        image = at.memory().map_mipmapped_array(MipmapDesc(extent=(24, 10, 0), format="uint8", channels=4, levels=2))
        code, found = driver.cuArray3DGetDescriptor(driver.CUarray(image.level(1).native_handle))
        assert (int(code), found.Width, found.Height, found.NumChannels) == (0, 12, 5, 4)
