"""Test command lists of the Vulkan backend on SwiftShader: order, copies, fills, points, and errors."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.fake_backend import until
from support.vulkan_sim import BINARY, MEMORY, Peer, driver_of, environment, list_of, peer

import xsem
from xsem.errors import BadArgumentError, BusyError, DeviceLostError, DriverError, OutOfMemoryError
from xsem_vulkan import constants as vk
from xsem_vulkan.addresses import AddressSpace, Place

SIZE = 4096


@pytest.fixture
def commands(device: xsem.Device) -> xsem.CommandList:
    return device.create_command_list()


@pytest.fixture
def shared(device: xsem.Device) -> xsem.Buffer:
    return device.create_memory(MEMORY, SIZE).map_buffer()


@pytest.fixture
def other(device: xsem.Device) -> Iterator[Peer]:
    with peer() as opened:
        yield opened


def give(semaphore: xsem.Semaphore, to: Peer) -> int:
    with semaphore.export() as desc:
        assert isinstance(desc.handle, xsem.OwnedHandle)
        return to.import_semaphore(desc.handle.detach())


def contents(commands: xsem.CommandList, buffer: xsem.Buffer) -> Any:
    """Return the bytes of the buffer, by a copy in the given list."""
    host = commands.device.host_buffer(buffer.size)
    commands.append_copy(host, buffer)
    commands.synchronize(timeout_s=20)
    return host.numpy().copy()


# ---- copies and fills
@pytest.mark.parametrize(("start", "end"), [(0, SIZE), (0, 1), (3, 4), (1, 14), (5, SIZE), (SIZE - 7, SIZE), (4, 8)])
def test_copy_moves_those_bytes_and_no_others(
    commands: xsem.CommandList, shared: xsem.Buffer, start: int, end: int
) -> None:
    before = np.arange(SIZE, dtype=np.uint32).astype(np.uint8)
    up = commands.device.host_buffer(SIZE)
    up.numpy()[:] = before
    commands.append_copy(shared, up)
    new = commands.device.host_buffer(SIZE)
    new.numpy()[:] = 255 - before
    commands.append_copy(shared.view((end - start,), "uint8", offset=start),
                         new.view((end - start,), "uint8", offset=SIZE - end))
    expected = before.copy()
    expected[start:end] = (255 - before)[SIZE - end: SIZE - start]
    assert (contents(commands, shared) == expected).all()


@pytest.mark.parametrize(("start", "size", "pattern"), [
    (0, SIZE, b"\x5a"), (0, SIZE, b"\1\2"), (0, SIZE, b"\1\2\3\4"), (4, 8, b"\1\2"), (0, 12, b"abc"),
    (1, 3, b"\7"), (3, 4, b"abcd"), (2, 6, b"\1\2"), (0, 6, b"\1\2\3"), (8, SIZE - 8, b"12345678"),
    (0, 8, b"\1\2\3\4\1\2\3\4"), (0, 4096, bytes(range(256)) * 16), (1, 4095, b"\xff\0\xff"), (0, 4, b"\xff" * 4),
])
def test_fill_repeats_the_pattern_there_and_nowhere_else(
    commands: xsem.CommandList, shared: xsem.Buffer, start: int, size: int, pattern: bytes
) -> None:
    commands.append_fill(shared, b"\xee")
    commands.append_fill(shared.view((size,), "uint8", offset=start), pattern)
    expected = np.full(SIZE, 0xEE, np.uint8)
    expected[start:start + size] = np.frombuffer(pattern * (size // len(pattern)), np.uint8)
    assert (contents(commands, shared) == expected).all()


@pytest.mark.parametrize("pattern", [b"abc", bytes(range(251)) * 299])
def test_fill_longer_than_its_scratch_memory(
    device: xsem.Device, commands: xsem.CommandList, pattern: bytes
) -> None:
    times = 3 if len(pattern) > 65536 else 60_000
    size = times * len(pattern)
    target = device.create_memory(MEMORY, size).map_buffer(0, size)
    commands.append_fill(target, pattern)
    assert contents(commands, target).tobytes() == pattern * times


def test_host_buffer_can_be_filled_and_copied_to_another(commands: xsem.CommandList) -> None:
    first, second = commands.device.host_buffer(100), commands.device.host_buffer(100)
    commands.append_fill(first, b"\5")
    commands.append_copy(second, first)
    commands.synchronize(timeout_s=20)
    assert (second.numpy() == 5).all()


def test_operations_are_done_in_the_order_of_their_appends(
    device: xsem.Device, commands: xsem.CommandList, shared: xsem.Buffer
) -> None:
    # Each of 300 copies reads the bytes of the fill before it; all are appended before the first host wait.
    host = device.host_buffer(300 * 8)
    for number in range(300):
        commands.append_fill(shared, bytes([number % 251]))
        commands.append_copy(host.view((8,), "uint8", offset=8 * number), shared.view((8,), "uint8", offset=number))
    commands.synchronize(timeout_s=20)
    assert (host.numpy().reshape(300, 8) == (np.arange(300) % 251)[:, None]).all()


def test_blocking_copies_work_beside_an_open_list(commands: xsem.CommandList, shared: xsem.Buffer) -> None:
    data = np.arange(SIZE, dtype=np.uint32).astype(np.uint8)
    shared.copy_from_host(data)
    assert (shared.copy_to_host() == data).all()


def test_command_buffers_and_scratch_are_used_again(
    commands: xsem.CommandList, shared: xsem.Buffer
) -> None:
    mine = list_of(commands)._commands
    for _ in range(50):
        commands.append_fill(shared.view((9,), "uint8"), b"abc")
        commands.synchronize(timeout_s=20)
    assert len(mine._free) + len(mine._busy) == 1


# ---- semaphores
def test_list_waits_for_what_another_device_signals(
    commands: xsem.CommandList, shared: xsem.Buffer, other: Peer
) -> None:
    semaphore = commands.device.create_semaphore(BINARY)
    theirs = give(semaphore, other)
    commands.append_fill(shared, b"\1")
    commands.append_wait(semaphore)
    host = commands.device.host_buffer(SIZE)
    commands.append_copy(host, shared)
    host.numpy()[:] = 0
    assert not commands.query()
    with pytest.raises(xsem.WaitTimeoutError):
        commands.synchronize(timeout_s=0.05)
    assert (host.numpy() == 0).all()
    other.submit(signal=theirs)
    commands.synchronize(timeout_s=20)
    assert (host.numpy() == 1).all()


def test_other_device_waits_for_what_the_list_signals(commands: xsem.CommandList, other: Peer) -> None:
    semaphore = commands.device.create_semaphore(BINARY)
    theirs = give(semaphore, other)
    other.submit(wait=theirs)
    assert not other.reached(0.02)
    commands.append_signal(semaphore)
    assert other.reached(20)


def test_met_wait_resets_the_semaphore(commands: xsem.CommandList, other: Peer) -> None:
    semaphore = commands.device.create_semaphore(BINARY)
    theirs = give(semaphore, other)
    for _ in range(3):
        commands.append_signal(semaphore)
        commands.append_wait(semaphore)
        commands.synchronize(timeout_s=20)
    commands.append_wait(semaphore)
    assert not commands.query()
    other.submit(signal=theirs)
    commands.synchronize(timeout_s=20)


def test_batch_longer_than_the_arrays_is_met_by_all(commands: xsem.CommandList, other: Peer) -> None:
    semaphores = [commands.device.create_semaphore(BINARY) for _ in range(11)]
    last = give(semaphores[-1], other)
    commands.append_signal(semaphores[:-1], [None] * 10)
    commands.append_wait(semaphores, [None] * 11)
    assert not commands.query()
    other.submit(signal=last)
    commands.synchronize(timeout_s=20)


def test_memory_changes_hands_both_ways(commands: xsem.CommandList, device: xsem.Device, other: Peer) -> None:
    memories = [device.create_memory(MEMORY, SIZE) for _ in range(3)]
    ours = [memory.map_buffer() for memory in memories]
    there, back = device.create_semaphore(BINARY), device.create_semaphore(BINARY)
    theirs = give(there, other), give(back, other)
    with memories[0].export() as desc:
        assert isinstance(desc.handle, xsem.OwnedHandle)
        buffer = other.import_memory(desc.handle.detach(), desc.allocation_size)
    for number in range(20):
        commands.append_fill(ours[0], bytes([number]))
        commands.append_signal(there, release=memories)
        other.submit(other.commands.fill(Place(buffer, 0), bytes([100 + number]), SIZE // 2)[0],
                     wait=theirs[0], signal=theirs[1])
        commands.append_wait(back, acquire=memories)
        found = contents(commands, ours[0])
        assert (found[:SIZE // 2] == 100 + number).all()
        assert (found[SIZE // 2:] == number).all()


def test_handover_names_the_buffers_and_the_families(
    device: xsem.Device, commands: xsem.CommandList, monkeypatch: pytest.MonkeyPatch
) -> None:
    # SwiftShader shares memory without any handover, so the test checks the recorded commands.
    gpu = driver_of(device)._gpu
    semaphore = device.create_semaphore(BINARY)
    memories = [device.create_memory(MEMORY, SIZE) for _ in range(2)]
    seen: list[tuple[int, ...]] = []
    real = gpu.vk.vkCmdPipelineBarrier

    def barrier(*arguments: Any) -> None:
        for index in range(arguments[6]):
            each = arguments[7][index]
            seen.append((each.sType, each.buffer, each.srcQueueFamilyIndex, each.dstQueueFamilyIndex,
                         bool(each.srcAccessMask), bool(each.dstAccessMask), each.offset, each.size))
        real(*arguments)

    monkeypatch.setattr(gpu.vk, "vkCmdPipelineBarrier", barrier)
    commands.append_signal(semaphore, release=memories)
    commands.append_wait(semaphore, acquire=memories[1:])
    commands.synchronize(timeout_s=20)
    first, second = (memory._memory.buffer for memory in memories)
    ours, theirs, whole = gpu.family, vk.VK_QUEUE_FAMILY_EXTERNAL, vk.VK_WHOLE_SIZE
    kind = vk.VK_STRUCTURE_TYPE_BUFFER_MEMORY_BARRIER
    assert seen == [
        (kind, first, ours, theirs, True, False, 0, whole), (kind, second, ours, theirs, True, False, 0, whole),
        (kind, second, theirs, ours, False, True, 0, whole),
    ]


# ---- points
def test_every_append_waits_for_its_events(
    device: xsem.Device, commands: xsem.CommandList, shared: xsem.Buffer, other: Peer
) -> None:
    # On one queue all work is behind the first list's wait in any case, so the test checks the submissions.
    held, free = device.create_semaphore(BINARY), device.create_semaphore(BINARY)
    theirs = give(held, other)
    reached = device.create_event()
    commands.append_wait(held, signal_event=reached)
    timeline = (list_of(commands)._timeline.handle, 1)
    second = device.create_command_list()
    info, values = list_of(second)._submission._info, list_of(second)._submission._values

    def waited_for() -> list[tuple[int, int]]:
        return [(info.pWaitSemaphores[index], values.pWaitSemaphoreValues[index])
                for index in range(info.waitSemaphoreCount)]

    second.append_signal(free, wait_events=[reached])
    assert waited_for() == [timeline]
    second.append_wait(free, wait_events=[reached])
    assert waited_for() == [timeline, (free.native_handle, 0)]
    second.append_fill(shared, b"\1", wait_events=[reached])
    assert waited_for() == [timeline]
    second.append_copy(device.host_buffer(SIZE), shared, wait_events=[reached])
    assert waited_for() == [timeline]
    second.append_barrier(wait_events=[reached])
    assert waited_for() == [timeline]
    other.submit(signal=theirs)
    second.synchronize(timeout_s=20)


def test_events_order_two_lists(device: xsem.Device, commands: xsem.CommandList, shared: xsem.Buffer) -> None:
    second = device.create_command_list()
    host = device.host_buffer(SIZE)
    filled = copied = device.create_event()
    for number in range(1, 40):
        filled, copied = device.create_event(), device.create_event()
        commands.append_fill(shared, bytes([number]), signal_event=filled)
        second.append_copy(host, shared, wait_events=[filled], signal_event=copied)
        commands.append_barrier(wait_events=[copied])
    second.synchronize(timeout_s=20)
    assert (host.numpy() == 39).all()
    assert filled.query()
    copied.wait(timeout_s=20)


def test_event_is_pending_until_the_wait_is_met(commands: xsem.CommandList, other: Peer) -> None:
    semaphore = commands.device.create_semaphore(BINARY)
    theirs = give(semaphore, other)
    done = commands.device.create_event()
    commands.append_wait(semaphore, signal_event=done)
    assert not done.query()
    with pytest.raises(xsem.WaitTimeoutError):
        done.wait(timeout_s=0.02)
    other.submit(signal=theirs)
    done.wait(timeout_s=20)
    assert done.query()


def test_event_outlives_its_list(device: xsem.Device, commands: xsem.CommandList) -> None:
    done = device.create_event()
    commands.append_barrier(signal_event=done)
    commands.synchronize(timeout_s=20)
    closed = commands._queue.driver
    commands.release()
    until(lambda: closed not in driver_of(device)._lists)
    assert done.query()
    second = device.create_command_list()
    second.append_barrier(wait_events=[done])
    second.synchronize(timeout_s=20)


def test_reached_point_is_not_waited_for(device: xsem.Device, commands: xsem.CommandList) -> None:
    done = device.create_event()
    commands.append_barrier(signal_event=done)
    commands.synchronize(timeout_s=20)
    mine = list_of(commands)
    commands.append_barrier(wait_events=[done])
    assert mine._submission._info.waitSemaphoreCount == 0


def test_timeline_lives_as_long_as_its_last_point(device: xsem.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = driver_of(device)
    made = driver.create_command_list()
    point = made.append_barrier((), True)
    assert driver.wait(point, 10**10)
    destroyed = []
    destroy = driver._gpu.vk.vkDestroySemaphore

    def seen(*arguments: Any) -> None:
        destroyed.append(arguments[1])
        destroy(*arguments)

    monkeypatch.setattr(driver._gpu.vk, "vkDestroySemaphore", seen)
    made.close()
    assert destroyed == []
    assert driver.done(point)
    driver.release_point(point)
    assert destroyed == [point.timeline.handle]


# ---- number of lists
def test_one_list_more_than_queues_and_no_further(device: xsem.Device) -> None:
    first, second = device.create_command_list(), device.create_command_list()
    with pytest.raises(BusyError) as raised:
        device.create_command_list()
    assert raised.value.reason == "too_many_lists"
    assert first.native_handle != second.native_handle
    for each in (first, second):
        each.append_barrier()
        each.synchronize(timeout_s=20)
    second.release()
    until(lambda: len(driver_of(device)._lists) == 1)
    third = device.create_command_list()
    third.append_barrier()
    third.synchronize(timeout_s=20)


def test_two_threads_share_the_one_queue(device: xsem.Device) -> None:
    lists = [device.create_command_list() for _ in range(2)]
    buffers = [device.create_memory(MEMORY, SIZE).map_buffer() for _ in range(2)]
    failures = []

    def work(index: int) -> None:
        try:
            for number in range(150):
                lists[index].append_fill(buffers[index], bytes([number + index]))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []
    for index in range(2):
        assert (contents(lists[index], buffers[index]) == 149 + index).all()


def test_own_work_has_the_queue_to_itself(commands: xsem.CommandList, shared: xsem.Buffer) -> None:
    mine = list_of(commands)
    free: list[bool] = []

    def work() -> None:
        asking = threading.Thread(target=lambda: free.append(mine.queue.lock.acquire(blocking=False)))
        asking.start()
        asking.join(10)
        commands.append_fill(shared, b"\3")   # this thread can still append

    commands.append_work(work)
    assert free == [False]
    assert (contents(commands, shared) == 3).all()


def test_release_with_a_pending_wait_returns_at_once(
    monkeypatch: pytest.MonkeyPatch, device: xsem.Device, other: Peer
) -> None:
    with xsem.open_device("vulkan:0") as second:
        semaphore = second.create_semaphore(BINARY)
        theirs = give(semaphore, other)
        commands = second.create_command_list()
        memory = second.create_memory(MEMORY, SIZE)
        host = second.host_buffer(SIZE)
        commands.append_wait(semaphore, acquire=[memory])
        commands.append_copy(host, memory.map_buffer())
        closed: list[bool] = []
        gpu = driver_of(second)._gpu
        close = gpu.close

        def seen() -> None:
            close()
            closed.append(True)

        monkeypatch.setattr(gpu, "close", seen)
    assert closed == []
    other.submit(signal=theirs)
    until(lambda: closed)
    assert not gpu.stuck


# ---- errors
def failing(device: xsem.Device, monkeypatch: pytest.MonkeyPatch, function: str, code: int) -> list[int]:
    """Have a function fail as often as the returned list has elements."""
    functions = driver_of(device)._gpu.vk
    real = getattr(functions, function)
    left: list[int] = []

    def call(*arguments: Any) -> Any:
        if left:
            left.pop()
            return code
        return real(*arguments)

    monkeypatch.setattr(functions, function, call)
    return left


@pytest.mark.parametrize("function", [
    "vkQueueSubmit", "vkBeginCommandBuffer", "vkEndCommandBuffer", "vkAllocateCommandBuffers", "vkAllocateMemory",
    "vkCreateBuffer", "vkBindBufferMemory", "vkMapMemory",
])
def test_append_that_fails_has_no_effect_and_the_next_works(
    device: xsem.Device, shared: xsem.Buffer, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    fail = failing(device, monkeypatch, function, vk.VK_ERROR_OUT_OF_DEVICE_MEMORY)
    commands = device.create_command_list()
    commands.append_fill(shared, b"\1")
    commands.synchronize(timeout_s=20)
    mine = list_of(commands)
    mine._recycle()
    mine._commands._free.clear()   # so that the append allocates one
    appended = mine._timeline.appended
    alive = count(device, monkeypatch, ("vkCreateBuffer", "vkDestroyBuffer"), ("vkAllocateMemory", "vkFreeMemory"))
    fail.append(1)
    with pytest.raises(OutOfMemoryError) as raised:
        commands.append_fill(shared.view((9,), "uint8"), b"abc")   # uses scratch memory
    assert raised.value.call == function
    assert fail == []
    assert set(alive.values()) == {0}
    assert len(mine._commands._free) == (function in ("vkQueueSubmit", "vkBeginCommandBuffer", "vkEndCommandBuffer"))
    assert mine._timeline.appended == appended
    assert (contents(commands, shared) == 1).all()
    commands.append_fill(shared.view((9,), "uint8"), b"abc")
    assert contents(commands, shared)[:10].tobytes() == b"abcabcabc\1"


def count(device: xsem.Device, monkeypatch: pytest.MonkeyPatch, *pairs: tuple[str, str]) -> dict[str, int]:
    """Count the objects of each creating function that its destroying function has not destroyed."""
    functions = driver_of(device)._gpu.vk
    alive = dict.fromkeys((create for create, _ in pairs), 0)

    def watch(name: str, real: Any, step: int) -> Any:
        def call(*arguments: Any) -> Any:
            code = real(*arguments)
            alive[name] += step if not code else 0
            return code
        return call

    for create, destroy in pairs:
        monkeypatch.setattr(functions, create, watch(create, getattr(functions, create), 1))
        monkeypatch.setattr(functions, destroy, watch(create, getattr(functions, destroy), -1))
    return alive


@pytest.mark.parametrize("function", ["vkCreateSemaphore", "vkCreateCommandPool", "vkAllocateCommandBuffers"])
def test_list_that_cannot_be_made_leaves_nothing(
    device: xsem.Device, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    fail = failing(device, monkeypatch, function, vk.VK_ERROR_OUT_OF_HOST_MEMORY)
    alive = count(device, monkeypatch, ("vkCreateSemaphore", "vkDestroySemaphore"),
                  ("vkCreateCommandPool", "vkDestroyCommandPool"))
    fail.append(1)
    with pytest.raises(OutOfMemoryError):
        device.create_command_list()
    assert set(alive.values()) == {0}
    kept = [device.create_command_list() for _ in range(2)]
    assert set(alive.values()) == {len(kept)}


@pytest.mark.parametrize("function", ["vkCreateBuffer", "vkAllocateMemory", "vkBindBufferMemory"])
def test_memory_that_cannot_be_made_leaves_nothing(
    device: xsem.Device, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    fail = failing(device, monkeypatch, function, vk.VK_ERROR_OUT_OF_DEVICE_MEMORY)
    alive = count(device, monkeypatch, ("vkCreateBuffer", "vkDestroyBuffer"), ("vkAllocateMemory", "vkFreeMemory"))
    for make in (lambda: device.create_memory(MEMORY, SIZE), lambda: device.host_buffer(SIZE)):
        fail.append(1)
        with pytest.raises(OutOfMemoryError) as raised:
            make()
        assert raised.value.call == function
    assert set(alive.values()) == {0}


def test_lost_device_fails_the_list_and_is_still_released(
    monkeypatch: pytest.MonkeyPatch, device: xsem.Device
) -> None:
    with xsem.open_device("vulkan:0") as lost:
        fail = failing(lost, monkeypatch, "vkQueueSubmit", vk.VK_ERROR_DEVICE_LOST)
        commands = lost.create_command_list()
        commands.append_barrier()
        commands.synchronize(timeout_s=20)
        fail.append(1)
        with pytest.raises(DeviceLostError) as raised:
            commands.append_barrier()
        assert raised.value.code_name == "VK_ERROR_DEVICE_LOST"
        monkeypatch.setattr(driver_of(lost)._gpu.vk, "vkGetSemaphoreCounterValue",
                            lambda *_: vk.VK_ERROR_DEVICE_LOST)
        gpu = driver_of(lost)._gpu
    assert not gpu.stuck


def test_counter_of_a_lost_device_is_not_taken_for_progress(
    device: xsem.Device, commands: xsem.CommandList, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_device: Any, _semaphore: Any, value: Any) -> int:
        value[0] = 2**64 - 1
        return 0

    driver = driver_of(device)
    point = commands._queue.driver.append_barrier((), True)
    with monkeypatch.context() as patch:
        patch.setattr(driver._gpu.vk, "vkGetSemaphoreCounterValue", lost)
        with pytest.raises(DeviceLostError):
            driver.done(point)
    assert driver.wait(point, 10**10)
    driver.release_point(point)


def test_device_is_not_destroyed_when_its_work_cannot_be_queried(
    monkeypatch: pytest.MonkeyPatch, device: xsem.Device, other: Peer
) -> None:
    # The driver fails without a lost device: pending operations may still use all objects.
    driver = driver_of(device)
    token = driver.create_semaphore(BINARY, 0)
    handle = driver.export_semaphore(token)
    theirs = other.import_semaphore(handle.detach())
    made = driver.create_command_list()
    made.append_wait([token], [xsem.WaitParams()], [], [], False)
    with monkeypatch.context() as patch:
        patch.setattr(driver._gpu.vk, "vkGetSemaphoreCounterValue", lambda *_: vk.VK_ERROR_UNKNOWN)
        with pytest.raises(DriverError):
            made._timeline.reached(1)
        made.close()
    assert driver._gpu.stuck
    driver.close()   # does nothing: the device ends with the process
    assert not made._timeline.reached(1)
    # The test frees the rest itself.
    other.submit(signal=theirs)
    assert made._timeline.wait(1, 10**10)
    driver._gpu.stuck = False
    made._commands.close()
    driver._gpu.vk.vkDestroySemaphore(driver._gpu.handle, made._timeline.handle, driver._gpu.library.null)
    driver.release_semaphore(token)


# ---- addresses
def test_addresses_find_their_buffers_and_refuse_the_rest() -> None:
    space = AddressSpace()
    first, second = space.add_memory(1, 100), space.add_memory(2, 200)
    space.add_host(5000, 50, 3)
    space.add_host(6000, 50, 4)
    assert space.find(first + 7, 93) == (1, 7)
    assert space.find(second, 200) == (2, 0)
    assert space.find(5049, 1) == (3, 49)
    assert space.find(6000, 50) == (4, 0)
    for address, size in ((first + 1, 100), (second - 1, 1), (4999, 1), (5050, 1), (6049, 2), (0, 1), (1 << 63, 1)):
        with pytest.raises(BadArgumentError) as raised:
            space.find(address, size)
        assert raised.value.reason == "out_of_range"
    space.remove_memory(first)
    space.remove_host(5000)
    for address in (first, 5000):
        with pytest.raises(BadArgumentError):
            space.find(address, 1)
    assert space.add_memory(5, 10) == first


# ---- end of the process
ENDS = {
    "open": "",
    "pending": "commands.append_wait(semaphore); commands.append_copy(host, memory.map_buffer())",
    "forked": "import os; pid = os.fork()\nif pid == 0: raise SystemExit(0)\nassert os.waitpid(pid, 0)[1] == 0",
}


@pytest.mark.parametrize("left", ENDS)
def test_process_ends_with_everything_open(left: str) -> None:
    # SwiftShader's vkDestroyDevice waits for pending work without a limit: the end of the process may destroy nothing.
    program = f"""
import warnings, xsem
warnings.simplefilter("ignore")
device = xsem.open_device("vulkan:0")
semaphore = device.create_semaphore(xsem.SemaphoreHandleType.OPAQUE_FD)
memory, host = device.create_memory(xsem.MemoryHandleType.OPAQUE_FD, 4096), device.host_buffer(4096)
commands = device.create_command_list()
commands.append_barrier()
commands.synchronize(timeout_s=20)
{ENDS[left]}
print("end")
"""
    done = subprocess.run([sys.executable, "-c", program], env=environment(), text=True, timeout=50, check=False,
                          capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("end\n")
    assert done.stderr == ""
