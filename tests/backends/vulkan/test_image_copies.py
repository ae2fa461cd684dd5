"""Test appended copies of images on SwiftShader: regions, pitches, acquire barriers and order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.image_exercise import (
    PLANES,
    copy_frame,
    pixels_of,
    write_pixels,
)
from support.vulkan_sim import BINARY, MEMORY

import xsem
from xsem.types import MipmapDesc
from xsem_vulkan import constants as vk

SIZE = 1 << 18
DESC = MipmapDesc(extent=(32, 16, 0), format="uint8", channels=4, levels=2)


@pytest.fixture
def commands(device: xsem.Device) -> xsem.CommandList:
    return device.create_command_list()


def imported(device: xsem.Device, exporter: xsem.Device) -> xsem.Memory:
    with exporter.create_memory(MEMORY, SIZE).export() as desc:
        return device.import_memory(desc)


def noise(desc: MipmapDesc = DESC, seed: int = 0) -> Any:
    width, height, _ = desc.extent
    return np.random.default_rng(seed).integers(0, 256, (1, height, width, desc.channels), np.uint8)


@pytest.mark.parametrize("name", list(PLANES))
def test_planes_of_a_frame_are_apart(device: xsem.Device, commands: xsem.CommandList, name: str) -> None:
    with device.create_memory(MEMORY, SIZE).map_mipmapped_array(PLANES[name]) as frame:
        copy_frame(device, commands, [frame.level(0, plane) for plane in range(2)])


def test_blocks_are_copied_between_images(device: xsem.Device, commands: xsem.CommandList) -> None:
    """Blocks of 8 bytes, to the blocks of another format and to pixels of 8 bytes. A copy converts nothing."""
    blocks = MipmapDesc(extent=(32, 16, 0), format="bc1_unorm", channels=4)
    pixels = MipmapDesc(extent=(8, 4, 0), format="uint32", channels=2)
    other = MipmapDesc(extent=(18, 8, 0), format="bc4_unorm", channels=1)
    with (device.create_memory(MEMORY, SIZE).map_mipmapped_array(blocks) as one,
          device.create_memory(MEMORY, SIZE).map_mipmapped_array(pixels) as two,
          device.create_memory(MEMORY, SIZE).map_mipmapped_array(other) as three):
        data = np.random.default_rng(1).integers(0, 256, (1, 4, 8, 8), np.uint8)
        write_pixels(one.level(0), blocks, data)
        commands.append_copy(two.level(0), one.level(0))
        commands.synchronize(timeout_s=20)
        assert (pixels_of(two.level(0), pixels) == data).all()
        write_pixels(two.level(0), pixels, 255 - data)
        commands.append_copy(one.level(0), two.level(0))
        commands.synchronize(timeout_s=20)
        assert (pixels_of(one.level(0), blocks) == 255 - data).all()
        expected = np.zeros((1, 2, 5, 8), np.uint8)
        write_pixels(three.level(0), other, expected)
        commands.append_copy(three.level(0), one.level(0), offset=(8, 4, 0), src_offset=(24, 8, 0), extent=(8, 4, 0))
        commands.synchronize(timeout_s=20)
        expected[0, 1, 2:4] = 255 - data[0, 2, 6:]
        assert (pixels_of(three.level(0), other) == expected).all()


def _barriers(monkeypatch: pytest.MonkeyPatch, gpu: Any) -> list[tuple[int, int]]:
    """Note of every image barrier the image and the family after it."""
    real = gpu.vk.vkCmdPipelineBarrier
    seen: list[tuple[int, int]] = []

    def barrier(*arguments: Any) -> Any:
        images = arguments[9]
        seen.extend((int(images[each].image), images[each].dstQueueFamilyIndex) for each in range(arguments[8]))
        return real(*arguments)

    monkeypatch.setattr(gpu.vk, "vkCmdPipelineBarrier", barrier)
    return seen


def test_images_are_acquired_once_before_their_first_copy(
    device: xsem.Device, exporter: xsem.Device, gpu: Any, commands: xsem.CommandList, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (imported(device, exporter).map_mipmapped_array(DESC) for _ in range(2))
    buffer = device.host_buffer(32 * 16 * 4)
    seen = _barriers(monkeypatch, gpu)
    commands.append_copy(first.level(0), second.level(0))
    assert sorted(seen) == sorted((each.native_handle, gpu.family) for each in (first, second))
    seen.clear()
    commands.append_copy(buffer, first.level(0))
    commands.append_copy(second.level(1), first.level(1))
    commands.append_copy(first.level(0), first.level(0), offset=(16, 0, 0), src_offset=(0, 0, 0), extent=(16, 16, 0))
    assert not seen
    commands.synchronize(timeout_s=20)


def test_images_go_to_the_other_side_and_come_back(
    device: xsem.Device, exporter: xsem.Device, gpu: Any, commands: xsem.CommandList, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = exporter.create_memory(MEMORY, SIZE)
    with theirs.export() as desc:
        ours = device.import_memory(desc)
    here, there = ours.map_mipmapped_array(DESC).level(0), theirs.map_mipmapped_array(DESC).level(0)
    out, back = device.host_buffer(2048), device.host_buffer(2048)
    with (exporter.create_semaphore(BINARY) as drawn, drawn.export() as drawn_desc,
          exporter.create_semaphore(BINARY) as shown, shown.export() as shown_desc):
        waits, signals = device.import_semaphore(drawn_desc), device.import_semaphore(shown_desc)
        renderer = exporter.create_command_list()
        for turn in range(3):
            write_pixels(there, DESC, noise(seed=turn))
            renderer.append_signal(drawn, release=[theirs])
            commands.append_wait(waits, acquire=[ours])
            commands.append_copy(out, here)
            back.numpy()[...] = 255 - noise(seed=turn).reshape(-1)
            with monkeypatch.context() as patch:
                seen = _barriers(patch, gpu)
                commands.append_copy(here, back)
                assert not seen   # the wait has acquired the image
                commands.append_signal(signals, release=[ours])
                assert seen[-1][1] == vk.VK_QUEUE_FAMILY_EXTERNAL
            renderer.append_wait(shown, acquire=[theirs])
            commands.synchronize(timeout_s=20)
            renderer.synchronize(timeout_s=20)
            assert (out.numpy() == noise(seed=turn).reshape(-1)).all()
            assert (pixels_of(there, DESC) == 255 - noise(seed=turn)).all()


def test_copy_that_the_driver_refuses_leaves_the_image_usable(
    device: xsem.Device, exporter: xsem.Device, commands: xsem.CommandList, monkeypatch: pytest.MonkeyPatch
) -> None:
    level = imported(device, exporter).map_mipmapped_array(DESC).level(0)
    buffer = device.host_buffer(2048)
    with monkeypatch.context() as patch:
        driver: Any = commands._queue.driver
        patch.setattr(driver._submission, "_submit", lambda *_: -1)   # VK_ERROR_OUT_OF_HOST_MEMORY
        with pytest.raises(xsem.OutOfMemoryError):
            commands.append_copy(buffer, level)
    buffer.numpy()[...] = noise().reshape(-1)
    commands.append_copy(level, buffer)
    commands.synchronize(timeout_s=20)
    assert (pixels_of(level, DESC) == noise()).all()
