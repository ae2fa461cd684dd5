"""Test imports of the Vulkan backend on a real GPU's driver: timelines, images, dma-bufs and bad files.

Exporter and importer are two VkDevices of one process; `xsem conformance run --device vulkan:0 --exporter vulkan:0`
has them in two. Skipped, with the reason, without a GPU.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.gpu import vulkan_gpu
from support.open_files import is_open, numbers, untouched

import xsem
from xsem.errors import BadHandleError, XsemError
from xsem.spi import ImportFailure
from xsem.types import (
    Feature,
    MemoryDesc,
    MemoryHandleType,
    MipmapDesc,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
)

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

BINARY, TIMELINE = SemaphoreHandleType.OPAQUE_FD, SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
MEMORY, DMABUF = MemoryHandleType.OPAQUE_FD, MemoryHandleType.DMABUF_FD
SIZE = 1 << 20
IMAGE = MipmapDesc(extent=(64, 32, 0), format="uint8", channels=4, levels=3)


@pytest.fixture(scope="module")
def gpu() -> xsem.DeviceInfo:
    return vulkan_gpu("export", "import")


@pytest.fixture
def exporter(gpu: xsem.DeviceInfo) -> Iterator[xsem.Device]:
    with xsem.open_device(gpu) as opened:
        yield opened


@pytest.fixture
def device(gpu: xsem.DeviceInfo) -> Iterator[xsem.Device]:
    with xsem.open_device(gpu) as opened:
        yield opened


def imported(device: xsem.Device, theirs: xsem.Semaphore) -> xsem.Semaphore:
    with theirs.export() as desc:
        return device.import_semaphore(desc)


def memory_of(device: xsem.Device, theirs: xsem.Memory) -> xsem.Memory:
    with theirs.export() as desc:
        return device.import_memory(desc)


def test_device_declares_imports_and_one_list_for_each_queue(device: xsem.Device) -> None:
    declared = device.capabilities
    assert {BINARY, TIMELINE} <= declared.semaphore_import
    assert MEMORY in declared.memory_import
    assert TIMELINE in declared.wait_before_signal
    assert BINARY not in declared.wait_before_signal
    assert Feature.NATIVE_CONTEXT in declared.features
    lists = [device.create_command_list() for _ in range(declared.independent_lists)]
    assert len({commands.native_handle for commands in lists}) == len(lists)


def test_two_devices_take_turns_on_one_timeline(exporter: xsem.Device, device: xsem.Device) -> None:
    theirs = exporter.create_semaphore(TIMELINE)
    ours = imported(device, theirs)
    one, other = exporter.create_command_list(), device.create_command_list()
    for value in range(1, 2001, 2):
        other.append_wait(ours, value)
        other.append_signal(ours, value + 1)
        one.append_wait(theirs, value - 1)
        one.append_signal(theirs, value)
        if value % 200 == 1:
            other.synchronize(timeout_s=20)
    other.synchronize(timeout_s=20)
    one.synchronize(timeout_s=20)
    assert theirs.value() == ours.value() == 2000


def test_importers_wait_is_pending_until_the_host_signals(
    exporter: xsem.Device, device: xsem.Device
) -> None:
    theirs = exporter.create_semaphore(TIMELINE)
    ours = imported(device, theirs)
    commands = device.create_command_list()
    commands.append_wait(ours, 2**40)
    theirs.host_signal(2**39)
    threading.Event().wait(0.05)
    assert not commands.query()
    theirs.host_signal(2**40)
    commands.synchronize(timeout_s=20)


def test_importers_host_signals_waits_and_reads(exporter: xsem.Device, device: xsem.Device) -> None:
    theirs = exporter.create_semaphore(TIMELINE, initial_value=5)
    ours = imported(device, theirs)
    assert ours.value() == 5
    commands = exporter.create_command_list()
    commands.append_wait(theirs, 6)
    commands.append_signal(theirs, 7)
    ours.host_signal(6)
    ours.host_wait(7, timeout_s=20)
    assert theirs.value() == ours.value() == 7


@pytest.mark.parametrize("dedicated", [False, True])
def test_memory_goes_back_and_forth(exporter: xsem.Device, device: xsem.Device, dedicated: bool) -> None:
    theirs = exporter.create_memory(MEMORY, SIZE, dedicated=dedicated)
    ours = memory_of(device, theirs)
    turns = exporter.create_semaphore(TIMELINE)
    ours_turns = imported(device, turns)
    there, here = theirs.map_buffer(), ours.map_buffer()
    writes, reads = exporter.create_command_list(), device.create_command_list()
    seen = [device.host_buffer(SIZE) for _ in range(50)]
    for turn, host in enumerate(seen):
        writes.append_fill(there, bytes([turn]))
        writes.append_signal(turns, 2 * turn + 1, release=[theirs])
        reads.append_wait(ours_turns, 2 * turn + 1, acquire=[ours])
        reads.append_copy(host, here.view((SIZE,), "uint8"))
        reads.append_signal(ours_turns, 2 * turn + 2, release=[ours])
        writes.append_wait(turns, 2 * turn + 2, acquire=[theirs])
    writes.synchronize(timeout_s=60)
    reads.synchronize(timeout_s=60)
    assert all((host.numpy() == turn).all() for turn, host in enumerate(seen))


def test_dmabuf_is_the_same_memory(exporter: xsem.Device, device: xsem.Device) -> None:
    if DMABUF not in device.capabilities.memory_import & exporter.capabilities.memory_export:
        pytest.skip("the driver does not export and import dma-bufs")
    theirs = exporter.create_memory(DMABUF, SIZE)
    ours = memory_of(device, theirs)
    there, here = theirs.map_buffer(), ours.map_buffer()
    data = np.random.default_rng(1).integers(0, 256, there.size, dtype=np.uint8)
    there.copy_from_host(data)
    assert np.array_equal(here.copy_to_host(), data)


def test_non_dmabuf_file_is_refused(exporter: xsem.Device, device: xsem.Device) -> None:
    if DMABUF not in device.capabilities.memory_import:
        pytest.skip("the driver does not import dma-bufs")
    with exporter.create_memory(MEMORY, SIZE).export() as desc:
        assert isinstance(desc.handle, OwnedHandle)
        with untouched(desc.handle.fileno()), pytest.raises(XsemError):
            device.import_memory(MemoryDesc.dmabuf_fd(desc.handle, allocation_size=SIZE))


def test_sync_file_that_is_signalled_meets_a_wait(device: xsem.Device) -> None:
    if SemaphoreHandleType.SYNC_FD not in device.capabilities.semaphore_import:
        pytest.skip("the driver does not import sync files")
    commands = device.create_command_list()
    commands.append_wait(device.import_semaphore(SemaphoreDesc.sync_fd(-1)))
    commands.synchronize(timeout_s=20)


def test_image_changes_hands_between_two_devices(exporter: xsem.Device, device: xsem.Device) -> None:
    if Feature.MIPMAPPED_ARRAY not in device.capabilities.features:
        pytest.skip("the device declares no images")
    theirs = exporter.create_memory(MEMORY, SIZE)
    ours = memory_of(device, theirs)
    there, here = theirs.map_mipmapped_array(IMAGE), ours.map_mipmapped_array(IMAGE)
    turns = exporter.create_semaphore(TIMELINE)
    ours_turns = imported(device, turns)
    one, other = exporter.create_command_list(), device.create_command_list()

    def noise(level: xsem.MipmapLevel, seed: int) -> Any:
        width, height, _ = level.extent
        return np.random.default_rng(seed).integers(0, 256, (height, width, 4), dtype=np.uint8)

    for turn in range(10):
        for index in range(3):
            there.level(index).write(noise(there.level(index), 10 * turn + index))
        one.append_signal(turns, 2 * turn + 1, release=[theirs])
        other.append_wait(ours_turns, 2 * turn + 1, acquire=[ours])
        other.synchronize(timeout_s=20)
        for index in range(3):
            level = here.level(index)
            assert np.array_equal(level.read(), noise(level, 10 * turn + index)), f"turn {turn}, level {index}"
        other.append_signal(ours_turns, 2 * turn + 2, release=[ours])
        one.append_wait(turns, 2 * turn + 2, acquire=[theirs])
        one.synchronize(timeout_s=20)


@pytest.mark.parametrize("kind", ["semaphore", "memory"])
@pytest.mark.parametrize("path", ["/dev/null", "/", "pipe"])
def test_file_of_another_kind_is_refused_and_later_imports_work(
    exporter: xsem.Device, device: xsem.Device, kind: str, path: str
) -> None:
    driver: Any = device._device_state.driver
    if path == "pipe":
        number, write = os.pipe()
        os.close(write)
    else:
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    own, uuid = OwnedHandle(number), device.info.uuid
    with pytest.raises(ImportFailure) as raised:
        if kind == "semaphore":
            driver.import_semaphore(SemaphoreDesc.opaque_fd(own, device_uuid=uuid), own)
        else:
            driver.import_memory(MemoryDesc.opaque_fd(own, allocation_size=4096, device_uuid=uuid), own)
    alive = is_open(number)
    print(f"{path} as {kind}: {raised.value.error}; fate {raised.value.handle}, {'open' if alive else 'closed'}")
    # The file does not reach NVIDIA's driver, which would refuse good files from then on.
    assert raised.value.handle == "left"
    assert isinstance(raised.value.error, BadHandleError)
    if alive:
        own.close()
    else:
        own.detach()
    for each in (BINARY, TIMELINE):
        with exporter.create_semaphore(each) as there, there.export() as desc:
            device.import_semaphore(desc).release()
    with exporter.create_memory(MEMORY, SIZE) as memory, memory.export() as given:
        device.import_memory(given).release()


def test_imports_leave_no_file_open(exporter: xsem.Device, device: xsem.Device) -> None:
    objects = (exporter.create_semaphore(BINARY), exporter.create_semaphore(TIMELINE),
               exporter.create_memory(MEMORY, SIZE))

    def once() -> None:
        for each in objects:
            with each.export() as desc:
                made = (device.import_semaphore(desc) if isinstance(desc, SemaphoreDesc)
                        else device.import_memory(desc))
                made.release()
        device.create_command_list().release()

    for _ in range(5):
        once()
    before = len(numbers())
    for _ in range(50):
        once()
    deadline = threading.Event()
    for _ in range(1000):
        if len(numbers()) <= before + 5:
            return
        deadline.wait(0.01)
    raise AssertionError(f"{len(numbers()) - before} files more than before")


def test_applications_own_device_has_timelines_too(exporter: xsem.Device) -> None:
    from xsem_vulkan import Native

    theirs = exporter._device_state.driver._gpu   # type: ignore[attr-defined]
    lock = threading.Lock()
    native = Native(
        instance=theirs.library.address(theirs.physical.instance.handle),
        physical_device=theirs.library.address(theirs.physical.handle), device=exporter.native_handle,
        family=theirs.family, queues=[queue.address for queue in theirs.queues[:2]], lock=lock,
        extensions=sorted(theirs.answers.extensions), timeline_semaphore=True)
    with xsem.open_device("vulkan", native=native) as device:
        assert device.capabilities.independent_lists == max(1, min(2, len(theirs.queues)) - 1)
        timeline = device.create_semaphore(TIMELINE)
        commands = device.command_list(native.queues[0])
        gate = device.create_semaphore(TIMELINE)
        commands.append_wait(gate, 1)
        commands.append_signal(timeline, 2)
        gate.host_signal(1)
        timeline.host_wait(2, timeout_s=20)
        commands.synchronize(timeout_s=20)
    assert not lock.locked()
    exporter.create_command_list().synchronize(timeout_s=20)
