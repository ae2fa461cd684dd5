"""Test images on external memory, on SwiftShader: copies of levels, handovers and refusals."""

from __future__ import annotations

import ctypes
import signal
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.importer import soon
from support.vulkan_sim import BINARY, MEMORY, driver_of, peer

import xsem
from xsem.errors import BadArgumentError, OutOfMemoryError, UnsupportedError, WaitTimeoutError
from xsem.spi import ImageRegion
from xsem.types import DrmLayout, DrmPlane, MipmapDesc, SignalParams, WaitParams
from xsem_vulkan import constants as vk
from xsem_vulkan import images
from xsem_vulkan.formats import shape_of
from xsem_vulkan.images import plane_of
from xsem_vulkan.instance import ImageLimits, PhysicalDevice

SIZE = 1 << 18
DESC = MipmapDesc(extent=(32, 16, 0), format="uint8", channels=4, levels=3)


@pytest.fixture
def theirs(exporter: xsem.Device) -> xsem.Memory:
    return exporter.create_memory(MEMORY, SIZE)


@pytest.fixture
def ours(device: xsem.Device, theirs: xsem.Memory) -> xsem.Memory:
    with theirs.export() as desc:
        return device.import_memory(desc)


def pixels(level: xsem.MipmapLevel, seed: int = 0) -> Any:
    shape = level.read().shape
    return np.random.default_rng(seed + level.extent[0]).integers(0, 256, shape, dtype=np.uint8)


def test_image_of_a_layout_is_created_with_its_modifier_and_planes(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ffi, seen = gpu.library.ffi, []

    def create(_gpu: Any, wanted: Any, _allocator: Any, _made: Any) -> int:
        explicit = ffi.cast("VkImageDrmFormatModifierExplicitCreateInfoEXT *", wanted.pNext)
        external = ffi.cast("VkExternalMemoryImageCreateInfo *", explicit.pNext)
        planes = [(each.offset, each.size, each.rowPitch, each.arrayPitch, each.depthPitch)
                  for each in explicit.pPlaneLayouts[0:explicit.drmFormatModifierPlaneCount]]
        seen.append((wanted.tiling, explicit.sType, explicit.drmFormatModifier, planes, external.handleTypes))
        return 0

    monkeypatch.setattr(gpu.vk, "vkCreateImage", create)
    layout = DrmLayout(modifier=1 << 56 | 4, planes=(DrmPlane(offset=64, pitch=512), DrmPlane(offset=8192, pitch=256)))
    images._create(gpu, shape_of(DESC), 1, 0x200, layout)
    assert seen == [(1000158000, 1000158004, 1 << 56 | 4, [(64, 0, 512, 0, 0), (8192, 0, 256, 0, 0)], 0x200)]


def test_layout_with_another_number_of_planes_is_refused(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PhysicalDevice, "modifiers", lambda *_: {5: 2})
    one = DrmLayout(modifier=5, planes=(DrmPlane(offset=0, pitch=512),))
    with pytest.raises(BadArgumentError, match="has 2 memory planes, and the layout has 1") as caught:
        images._check_planes(gpu, shape_of(DESC), one)
    assert caught.value.reason == "bad_plane"
    images._check_planes(gpu, shape_of(DESC), replace(one, planes=one.planes * 2))


def test_driver_has_two_planes(gpu: Any, ours: xsem.Memory) -> None:
    image = ours.map_mipmapped_array(MipmapDesc(extent=(8, 8, 0), format="nv12", channels=3))
    level = image.level(0, 1)._level
    assert (level.aspect, level.extent, level.element_size) == (vk.VK_IMAGE_ASPECT_PLANE_1_BIT, (4, 4, 1), 2)
    with pytest.raises(BadArgumentError) as caught:
        plane_of(level, 2)
    assert caught.value.reason == "bad_plane"


def test_copy_of_a_level_counts_from_the_start_of_the_host_buffer(device: xsem.Device, ours: xsem.Memory) -> None:
    level = ours.map_mipmapped_array(DESC).level(2)
    data = pixels(level)
    level.write(data)
    driver, commands = driver_of(device), driver_of(device).create_queue()
    host, address = driver.host_buffer(data.nbytes + 8)
    ctypes.memset(address, 0xEE, data.nbytes + 8)
    whole = ImageRegion((0, 0, 0), (8, 4, 1), 0, 1)
    fence = commands.append_region_copy(level._level, whole, host, 4, 32, 128, True, (), True)
    assert driver.wait_fence(fence, 20 * 10**9)
    assert ctypes.string_at(address, data.nbytes + 8) == b"\xee" * 4 + data.tobytes() + b"\xee" * 4
    driver.release_fence(fence)
    commands.close()
    driver.release_host_buffer(host)


def test_native_handle_of_a_level_is_its_image(ours: xsem.Memory) -> None:
    image = ours.map_mipmapped_array(DESC)
    assert image.native_handle == image.level(1).native_handle != 0


# ---- arguments of the driver's calls
def _created(monkeypatch: pytest.MonkeyPatch, gpu: Any) -> list[Any]:
    real, seen = gpu.vk.vkCreateImage, []

    def create(gpu_: Any, wanted: Any, allocator: Any, made: Any) -> Any:
        external = gpu.library.ffi.cast("VkExternalMemoryImageCreateInfo *", wanted.pNext)
        seen.append((wanted.flags, wanted.imageType, wanted.usage, wanted.arrayLayers, wanted.mipLevels,
                     external.handleTypes))
        return real(gpu_, wanted, allocator, made)

    monkeypatch.setattr(gpu.vk, "vkCreateImage", create)
    return seen


def test_driver_is_told_what_the_image_is_for(ours: xsem.Memory, gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _created(monkeypatch, gpu)
    basic, storage, target = 0x7, 0x8, 0x10
    for more, expected in (
        ({}, (0, 1, basic, 1, 3, 1)), ({"surface_load_store": True}, (0, 1, basic | storage, 1, 3, 1)),
        ({"color_attachment": True}, (0, 1, basic | target, 1, 3, 1)),
        ({"extent": (32, 0, 0)}, (0, 0, basic, 1, 3, 1)), ({"extent": (32, 16, 4)}, (0, 2, basic, 1, 3, 1)),
        ({"extent": (16, 16, 0), "layers": 12, "cubemap": True},
         (vk.VK_IMAGE_CREATE_CUBE_COMPATIBLE_BIT, 1, basic, 12, 3, 1)),
    ):
        ours.map_mipmapped_array(replace(DESC, **more)).release()
        assert seen.pop() == expected


def _barriers(monkeypatch: pytest.MonkeyPatch, gpu: Any) -> list[tuple[int, int, int, int]]:
    """Note of every image barrier the old and new layout, and the family before and after."""
    real = gpu.vk.vkCmdPipelineBarrier
    seen: list[tuple[int, int, int, int]] = []

    def barrier(*arguments: Any) -> Any:
        images = arguments[9]
        seen.extend((images[each].oldLayout, images[each].newLayout, images[each].srcQueueFamilyIndex,
                     images[each].dstQueueFamilyIndex) for each in range(arguments[8]))
        return real(*arguments)

    monkeypatch.setattr(gpu.vk, "vkCmdPipelineBarrier", barrier)
    return seen


UNDEFINED, GENERAL, EXTERNAL = vk.VK_IMAGE_LAYOUT_UNDEFINED, vk.VK_IMAGE_LAYOUT_GENERAL, vk.VK_QUEUE_FAMILY_EXTERNAL


def test_imported_image_is_taken_over_once_and_keeps_its_pixels(
    ours: xsem.Memory, gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = _barriers(monkeypatch, gpu)
    image = ours.map_mipmapped_array(DESC)
    assert seen == []   # mapping submits nothing
    image.level(0).read()
    image.level(1).read()
    assert seen == [(GENERAL, GENERAL, EXTERNAL, gpu.family)]


def test_new_image_of_the_exporter_has_no_pixels_to_keep(
    exporter: xsem.Device, theirs: xsem.Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = driver_of(exporter)._gpu
    seen = _barriers(monkeypatch, gpu)
    theirs.map_mipmapped_array(DESC).level(0).read()
    assert seen == [(UNDEFINED, GENERAL, gpu.family, gpu.family)]


def test_image_changes_hands_with_its_memory(
    exporter: xsem.Device, theirs: xsem.Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = driver_of(exporter)._gpu
    image = theirs.map_mipmapped_array(DESC)
    semaphore, commands = exporter.create_semaphore(BINARY), exporter.create_command_list()
    seen = _barriers(monkeypatch, gpu)

    def hand_over() -> None:
        commands.append_signal(semaphore, release=[theirs])
        commands.append_wait(semaphore)

    hand_over()
    assert seen == []   # no device has the image yet
    image.level(0).read()
    assert seen.pop() == (GENERAL, GENERAL, EXTERNAL, gpu.family)
    hand_over()
    assert seen == [(GENERAL, GENERAL, gpu.family, EXTERNAL)]
    seen.clear()
    hand_over()
    assert seen == []   # the exporter has the image
    commands.append_signal(semaphore)
    commands.append_wait(semaphore, acquire=[theirs])
    assert seen == [(GENERAL, GENERAL, EXTERNAL, gpu.family)]
    image.level(0).read()
    assert len(seen) == 1   # the importer has the image again
    again = theirs.map_mipmapped_array(DESC, overlap=True)
    commands.append_signal(semaphore)
    commands.append_wait(semaphore, acquire=[theirs])
    seen.clear()
    again.level(0).read()
    assert seen == []   # acquired together with its memory
    commands.synchronize(timeout_s=20)


def test_image_is_not_released_in_the_middle_of_a_handover(exporter: xsem.Device, theirs: xsem.Memory) -> None:
    driver = driver_of(exporter)
    semaphore = exporter.create_semaphore(BINARY)
    token = driver.map_mipmapped_array(theirs._memory, DESC)
    releases = threading.Thread(target=driver.release_array, args=[token])
    commands = driver.create_queue()
    real = commands._commands.handover

    def handover(*arguments: Any, **named: Any) -> Any:
        releases.start()
        releases.join(0.1)
        assert theirs._memory.images == {token}
        return real(*arguments, **named)

    commands._commands.handover = handover
    commands.append_signal([semaphore._state.token], [SignalParams()], (), (), False)
    commands.append_wait([semaphore._state.token], [WaitParams()], (), [theirs._memory], False)
    releases.join(20)
    assert not releases.is_alive()
    assert theirs._memory.images == set()
    commands.close()


def test_image_released_behind_a_handover_is_destroyed_after_it(
    exporter: xsem.Device, theirs: xsem.Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = driver_of(exporter)
    gpu = driver._gpu
    gate, semaphore = exporter.create_semaphore(BINARY), exporter.create_semaphore(BINARY)
    destroyed = threading.Event()
    real = gpu.vk.vkDestroyImage

    def destroy(*arguments: Any) -> None:
        destroyed.set()
        real(*arguments)

    token = driver.map_mipmapped_array(theirs._memory, DESC)
    other = driver.map_mipmapped_array(theirs._memory, DESC)
    monkeypatch.setattr(gpu.vk, "vkDestroyImage", destroy)
    with peer() as signaller, gate.export() as desc:
        assert isinstance(desc.handle, xsem.OwnedHandle)
        opens = signaller.import_semaphore(desc.handle.detach())
        commands = driver.create_queue()
        commands.append_wait([gate._state.token], [WaitParams()], (), (), False)
        commands.append_signal([semaphore._state.token], [SignalParams()], (), (), False)
        commands.append_wait([semaphore._state.token], [WaitParams()], (), [theirs._memory], False)
        releases = threading.Thread(target=driver.release_array, args=[token])
        releases.start()
        assert not destroyed.wait(0.1)   # its barrier is pending
        signaller.submit(signal=opens)
        releases.join(20)
        assert destroyed.is_set()
        driver.release_array(other)
        assert theirs._memory.images == set()
        commands.append_signal([semaphore._state.token], [SignalParams()], (), [theirs._memory], False)   # no image
        fence = commands.append_barrier((), True)
        assert driver.wait_fence(fence, 20 * 10**9)
        driver.release_fence(fence)
        commands.close()


def test_image_of_a_refused_handover_is_released_at_once(
    exporter: xsem.Device, theirs: xsem.Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = driver_of(exporter)
    token = driver.map_mipmapped_array(theirs._memory, DESC)
    commands = driver.create_queue()
    with monkeypatch.context() as patch:
        patch.setattr(commands._submission, "_submit", lambda *_arguments: vk.VK_ERROR_OUT_OF_DEVICE_MEMORY)
        with pytest.raises(OutOfMemoryError):
            commands.append_wait([], [], (), [theirs._memory], False)
    releases = threading.Thread(target=driver.release_array, args=[token], daemon=True)
    releases.start()
    releases.join(20)
    assert not releases.is_alive()
    commands.close()


# ---- refusals
@pytest.mark.parametrize("limits", [
    None, ImageLimits((64, 64, 1), 7, 6, 2), ImageLimits((64, 64, 1), 7, 6, 7), ImageLimits((16, 64, 1), 7, 6, 6),
    ImageLimits((64, 64, 1), 2, 6, 6), ImageLimits((64, 64, 1), 7, 0, 6),
])
def test_image_unknown_to_the_driver_is_refused_before_creation(
    ours: xsem.Memory, gpu: Any, monkeypatch: pytest.MonkeyPatch, limits: ImageLimits | None
) -> None:
    monkeypatch.setattr(PhysicalDevice, "image_limits", lambda *_arguments: limits)
    monkeypatch.setattr(gpu.vk, "vkCreateImage", None)
    with pytest.raises(UnsupportedError) as raised:
        ours.map_mipmapped_array(DESC)
    assert raised.value.capability == "mipmapped_array.format"


def test_format_unknown_to_the_driver_has_no_image_limits(exporter: xsem.Device) -> None:
    physical = driver_of(exporter)._gpu.physical
    assert physical.image_limits(vk.VK_FORMAT_R8G8B8A8_UINT, 1, 3, 0, 1) is not None
    assert physical.image_limits(1000, 1, 3, 0, 1) is None


def test_image_in_memory_dedicated_to_a_buffer_is_refused(exporter: xsem.Device, device: xsem.Device) -> None:
    memory = exporter.create_memory(MEMORY, SIZE, dedicated=True)
    with memory.export() as desc:
        for each in (memory, device.import_memory(desc)):
            with pytest.raises(UnsupportedError, match="dedicated"):
                each.map_mipmapped_array(DESC)


@pytest.mark.parametrize(("needs", "error", "reason"), [
    ({"alignment": 512}, BadArgumentError, "bad_offset"), ({"size": SIZE}, BadArgumentError, "out_of_range"),
    ({"memoryTypeBits": 2}, UnsupportedError, "unsupported"), ({"dedicated": 1}, UnsupportedError, "unsupported"),
])
def test_image_that_does_not_fit_is_refused_and_destroyed(
    ours: xsem.Memory, gpu: Any, monkeypatch: pytest.MonkeyPatch, needs: dict[str, int], error: Any, reason: str
) -> None:
    destroyed: list[int] = []
    real = gpu.vk.vkDestroyImage

    def answer(_gpu: Any, _wanted: Any, found: Any) -> None:
        given = {"size": 4096, "alignment": 1, "memoryTypeBits": 1} | needs
        dedicated = given.pop("dedicated", 0)
        found.memoryRequirements = given
        ffi = gpu.library.ffi
        ffi.cast("VkMemoryDedicatedRequirements *", found.pNext).requiresDedicatedAllocation = dedicated

    def destroy(gpu_: Any, image: int, allocator: Any) -> None:
        destroyed.append(image)
        real(gpu_, image, allocator)

    monkeypatch.setattr(gpu.vk, "vkGetImageMemoryRequirements2", answer)
    monkeypatch.setattr(gpu.vk, "vkDestroyImage", destroy)
    with pytest.raises(error) as raised:
        ours.map_mipmapped_array(replace(DESC, offset=256))
    assert raised.value.reason == reason
    assert len(destroyed) == 1


# ---- failures
def transfers(device: xsem.Device) -> Any:
    """Return the driver's list for copies to and from the host."""
    queue = device._queues.copy_queue
    assert queue is not None
    return queue.driver


@pytest.mark.parametrize("fails", ["vkAllocateMemory", "vkBeginCommandBuffer", "vkQueueSubmit"])
def test_copy_that_fails_leaves_nothing_and_the_next_works(
    ours: xsem.Memory, device: xsem.Device, gpu: Any, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    level = ours.map_mipmapped_array(DESC).level(0)
    data = pixels(level)
    level.write(data)
    freed, allocated = [], []
    real_free, real_allocate = gpu.vk.vkFreeMemory, gpu.vk.vkAllocateMemory

    def free(*arguments: Any) -> None:
        freed.append(arguments[1])
        real_free(*arguments)

    def allocate(*arguments: Any) -> Any:
        code = real_allocate(*arguments)
        allocated.append(arguments[3][0])
        return code

    with monkeypatch.context() as watched:
        watched.setattr(gpu.vk, "vkFreeMemory", free)
        watched.setattr(gpu.vk, "vkAllocateMemory", allocate)
        # A list looks up its vkQueueSubmit once.
        submission = transfers(device)._submission
        where, name = (submission, "_submit") if fails == "vkQueueSubmit" else (gpu.vk, fails)
        with monkeypatch.context() as patch:
            patch.setattr(where, name, lambda *_arguments: vk.VK_ERROR_OUT_OF_DEVICE_MEMORY)
            with pytest.raises(OutOfMemoryError):
                level.read()
        # The marker for the end of the copy is also a submission.
        soon(lambda: set(allocated) <= set(freed))
    assert np.array_equal(level.read(), data)


def test_interrupted_copy_keeps_its_memory_until_it_is_made(
    device: xsem.Device, exporter: xsem.Device, ours: xsem.Memory
) -> None:
    level = ours.map_mipmapped_array(DESC).level(0)
    data = pixels(level)
    level.write(data)
    theirs = exporter.create_semaphore(BINARY)
    with theirs.export() as desc:
        gate = device.import_semaphore(desc)
    commands, signals = device.create_command_list(), exporter.create_command_list()
    commands.append_wait(gate)   # there is one queue: the copy waits behind this wait
    submitted = threading.Event()
    real = transfers(device).append_region_copy

    def append(*arguments: Any, **named: Any) -> Any:
        fence = real(*arguments, **named)
        submitted.set()
        return fence

    transfers(device).append_region_copy = append
    main = threading.get_ident()

    def interrupt() -> None:
        assert submitted.wait(20)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        level.read()
    thread.join()
    assert "staging buffer" in device.releasing()
    signals.append_signal(theirs)
    assert np.array_equal(level.read(), data)
    commands.synchronize(timeout_s=20)


def test_copy_behind_an_unmet_wait_times_out_and_is_made_later(
    device: xsem.Device, exporter: xsem.Device, ours: xsem.Memory
) -> None:
    image = ours.map_mipmapped_array(DESC)
    level = image.level(0)
    data = pixels(level)
    level.write(data)
    soon(lambda: not device.releasing())
    theirs = exporter.create_semaphore(BINARY)
    with theirs.export() as desc:
        gate = device.import_semaphore(desc)
    commands, signals = device.create_command_list(), exporter.create_command_list()
    commands.append_wait(gate)   # there is one queue: the copies wait behind this wait
    with pytest.raises(WaitTimeoutError) as caught:
        level.read(timeout_s=0.05)
    assert [op.operation for op in caught.value.pending] == ["copy"]
    with pytest.raises(WaitTimeoutError):
        level.write(255 - data, timeout_s=0.05)
    assert device.releasing().count("staging buffer") == 2
    signals.append_signal(theirs)
    assert np.array_equal(level.read(), 255 - data)   # the driver made the late write
    commands.synchronize(timeout_s=20)
    soon(lambda: not device.releasing())
