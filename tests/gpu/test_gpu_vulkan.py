"""Test the Vulkan backend on a real GPU's driver: features that SwiftShader lacks, timelines above all.

Skipped, with the reason, without a GPU. Of several GPUs the tests use the first one that exports timelines.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from support.gpu import AT_ONCE_S, SIZE, vulkan_gpu
from support.vulkan_lists import contents
from support.waiting import until

import xsem
from xsem.types import Feature, MemoryHandleType, SemaphoreHandleType

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

BINARY = SemaphoreHandleType.OPAQUE_FD
TIMELINE = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
MEMORY = MemoryHandleType.OPAQUE_FD


@pytest.fixture(scope="module")
def gpu() -> xsem.DeviceInfo:
    return vulkan_gpu("export")


@pytest.fixture
def device(gpu: xsem.DeviceInfo) -> Iterator[xsem.Device]:
    with xsem.open_device(gpu) as opened:
        yield opened


@pytest.fixture
def commands(device: xsem.Device) -> xsem.CommandList:
    return device.create_command_list()


def test_device_declares_and_identifies_itself(device: xsem.Device) -> None:
    declared, info = device.capabilities, device.info
    assert {BINARY, TIMELINE} <= declared.semaphore_export
    assert MEMORY in declared.memory_export
    assert {Feature.HOST_SIGNAL, Feature.HOST_WAIT, Feature.READ_VALUE} <= declared.features
    assert TIMELINE in declared.wait_before_signal
    assert info.uuid is not None
    assert info.driver_uuid is not None
    assert info.driver_version


@pytest.mark.parametrize("type", [BINARY, TIMELINE])
def test_every_export_is_a_new_fd_that_no_program_inherits(device: xsem.Device, type: SemaphoreHandleType) -> None:
    for each in (device.create_semaphore(type), device.create_memory(MEMORY, SIZE)):
        with each.export() as first, each.export() as second:
            assert isinstance(first.handle, xsem.OwnedHandle)
            assert isinstance(second.handle, xsem.OwnedHandle)
            assert first.handle.fileno() != second.handle.fileno()
            assert not os.get_inheritable(first.handle.fileno())
            assert first.device_uuid == device.info.uuid


def test_host_signals_waits_and_reads_a_timeline(device: xsem.Device) -> None:
    timeline = device.create_semaphore(TIMELINE, initial_value=3)
    assert timeline.value() == 3
    timeline.host_wait(3, timeout_s=0)
    with pytest.raises(xsem.WaitTimeoutError):
        timeline.host_wait(4, timeout_s=0.02)
    timeline.host_signal(4)
    timeline.host_wait(4, timeout_s=10)
    assert timeline.value() == 4


def test_another_thread_signals_while_the_host_waits(device: xsem.Device) -> None:
    timeline = device.create_semaphore(TIMELINE)
    waiting = threading.Event()

    def wait() -> None:
        waiting.set()
        timeline.host_wait(1, timeout_s=20)

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait(10)
    timeline.host_signal(1)
    thread.join(20)
    assert not thread.is_alive()


def test_list_waits_for_a_value_that_the_host_signals_later(
    device: xsem.Device, commands: xsem.CommandList
) -> None:
    timeline, done = device.create_semaphore(TIMELINE), device.create_semaphore(TIMELINE)
    memory = device.create_memory(MEMORY, SIZE)
    buffer, host = memory.map_buffer(), device.host_buffer(memory.allocation_size)
    commands.append_fill(buffer, b"\1")
    commands.append_copy(host, buffer)
    commands.synchronize(timeout_s=20)
    assert (host.numpy() == 1).all()
    began = time.monotonic()
    commands.append_wait(timeline, 1, acquire=[memory])
    commands.append_fill(buffer, b"\2")
    commands.append_copy(host, buffer)
    commands.append_signal(done, 2**20, release=[memory])
    assert time.monotonic() - began < AT_ONCE_S
    assert not commands.query()
    assert (host.numpy() == 1).all()
    assert done.value() == 0
    timeline.host_signal(1)
    done.host_wait(2**20, timeout_s=20)
    commands.synchronize(timeout_s=20)
    assert (host.numpy() == 2).all()


def test_lists_make_progress_while_another_one_waits(device: xsem.Device) -> None:
    timeline = device.create_semaphore(TIMELINE)
    lists = [device.create_command_list() for _ in range(device.capabilities.independent_lists)]
    lists[0].append_wait(timeline, 1)
    for each in lists[1:]:
        each.append_barrier()
        each.synchronize(timeout_s=20)
    assert not lists[0].query()
    timeline.host_signal(1)
    lists[0].synchronize(timeout_s=20)


def test_events_order_two_lists(device: xsem.Device) -> None:
    first, second = device.create_command_list(), device.create_command_list()
    timeline = device.create_semaphore(TIMELINE)
    buffer = device.create_memory(MEMORY, SIZE).map_buffer()
    host = device.host_buffer(buffer.size)
    filled = device.create_event()
    first.append_wait(timeline, 1)
    first.append_fill(buffer, b"\7", signal_event=filled)
    second.append_copy(host, buffer, wait_events=[filled])
    assert not second.query()
    timeline.host_signal(1)
    second.synchronize(timeout_s=20)
    assert (host.numpy() == 7).all()


def test_binary_semaphore_orders_two_lists_and_is_reset(device: xsem.Device) -> None:
    first, second = device.create_command_list(), device.create_command_list()
    semaphore = device.create_semaphore(BINARY)
    buffer = device.create_memory(MEMORY, SIZE).map_buffer()
    host = device.host_buffer(buffer.size)
    for number in range(1, 50):
        first.append_fill(buffer, bytes([number]))
        first.append_signal(semaphore)
        second.append_wait(semaphore)
        second.append_copy(host, buffer)
        second.synchronize(timeout_s=20)
        assert (host.numpy() == number).all()


@pytest.mark.parametrize("dedicated", [False, True])
@pytest.mark.parametrize("size", [1, 5000, SIZE])
def test_exported_memory_can_be_mapped_whole(
    device: xsem.Device, commands: xsem.CommandList, size: int, dedicated: bool
) -> None:
    memory = device.create_memory(MEMORY, size, dedicated=dedicated)
    whole = memory.map_buffer()
    assert whole.size == memory.allocation_size >= size
    up = device.host_buffer(whole.size)
    up.numpy()[:] = np.random.default_rng(1).integers(0, 256, whole.size, dtype=np.uint8)
    commands.append_copy(whole, up)
    assert (contents(commands, whole) == up.numpy()).all()


@pytest.mark.parametrize(("start", "size", "pattern"), [
    (0, SIZE, b"\x5a"), (0, SIZE, b"\1\2\3\4"), (1, 3, b"\7"), (3, 4, b"abcd"), (0, SIZE - 1, b"\1\2\3"),
    (8, 4096, bytes(range(256))),
])
def test_fill_repeats_the_pattern_there_and_nowhere_else(
    device: xsem.Device, commands: xsem.CommandList, start: int, size: int, pattern: bytes
) -> None:
    buffer = device.create_memory(MEMORY, SIZE).map_buffer(0, SIZE)
    commands.append_fill(buffer, b"\xee")
    commands.append_fill(buffer.view((size,), "uint8", offset=start), pattern)
    expected = np.full(SIZE, 0xEE, np.uint8)
    expected[start:start + size] = np.frombuffer(pattern * (size // len(pattern)), np.uint8)
    assert (contents(commands, buffer) == expected).all()


def test_blocking_copies_go_both_ways(device: xsem.Device) -> None:
    buffer = device.create_memory(MEMORY, SIZE).map_buffer(shape=(256, 1024), dtype="float32")
    data = np.arange(256 * 1024, dtype=np.float32).reshape(256, 1024)
    buffer.copy_from_host(data)
    assert (buffer.copy_to_host() == data).all()


def test_release_with_a_pending_wait_returns_at_once(gpu: xsem.DeviceInfo) -> None:
    began = time.monotonic()
    with xsem.open_device(gpu) as device:
        timeline = device.create_semaphore(TIMELINE)
        memory = device.create_memory(MEMORY, SIZE)
        commands = device.create_command_list()
        opened_s = time.monotonic() - began
        commands.append_wait(timeline, 1, acquire=[memory])
        commands.append_fill(memory.map_buffer(), b"\1")
        began = time.monotonic()
        memory.release()
        commands.release()
        assert time.monotonic() - began < AT_ONCE_S
        timeline.host_signal(1)
    assert opened_s < 60


def test_fds_and_threads_are_as_before(gpu: xsem.DeviceInfo) -> None:
    def work() -> None:
        with xsem.open_device(gpu) as device:
            timeline = device.create_semaphore(TIMELINE)
            timeline.export().close()
            device.create_memory(MEMORY, SIZE).export().close()
            commands = device.create_command_list()
            commands.append_signal(timeline, 1)
            commands.synchronize(timeout_s=20)

    def counts() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    work()
    before = counts()
    for _ in range(5):
        work()
    until(lambda: counts() <= before)


def test_many_appends_behind_an_unmet_wait(device: xsem.Device, commands: xsem.CommandList) -> None:
    # No limit is declared: max_pending is None, so the limit is not known. The test notes the number of appends.
    # Another thread meets the wait if the driver blocks the caller.
    timeline = device.create_semaphore(TIMELINE)
    many = 3000
    appended: list[int] = []
    done = threading.Event()

    def meet() -> None:
        done.wait(20)
        timeline.host_signal(1)

    watchdog = threading.Thread(target=meet)
    watchdog.start()
    commands.append_wait(timeline, 1)
    slowest_s = 0.0
    for number in range(many):
        began = time.monotonic()
        commands.append_barrier()
        slowest_s = max(slowest_s, time.monotonic() - began)
        appended.append(number)
    done.set()
    watchdog.join(30)
    commands.synchronize(timeout_s=60)
    print(f"{len(appended)} appends behind an unmet wait, the slowest took {slowest_s * 1e3:.2f} ms")
    assert len(appended) == many
