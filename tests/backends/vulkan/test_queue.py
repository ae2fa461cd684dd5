"""A command list of the Vulkan backend copies, fills and reaches its fences in order, on SwiftShader."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from support.fake_backend import until
from support.vulkan_lists import SIZE, contents, give
from support.vulkan_sim import BINARY, MEMORY, Peer, driver_of, environment, list_of

import xsem
from xsem.errors import BusyError
from xsem_vulkan import constants as vk


# ---- copies and fills
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


def test_command_buffers_and_scratch_are_used_again(
    commands: xsem.CommandList, shared: xsem.Buffer
) -> None:
    mine = list_of(commands)._commands
    for _ in range(50):
        commands.append_fill(shared.view((9,), "uint8"), b"abc")
        commands.synchronize(timeout_s=20)
    assert len(mine._free) + len(mine._busy) == 1


# ---- fences
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


def test_event_outlives_its_list(device: xsem.Device, commands: xsem.CommandList) -> None:
    done = device.create_event()
    commands.append_barrier(signal_event=done)
    commands.synchronize(timeout_s=20)
    closed = commands._queue.driver
    commands.release()
    until(lambda: closed not in driver_of(device)._queues)
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
    made = driver.create_queue()
    fence = made.append_barrier((), True)
    assert driver.wait_fence(fence, 10**10)
    destroyed = []
    destroy = driver._gpu.vk.vkDestroySemaphore

    def seen(*arguments: Any) -> None:
        destroyed.append(arguments[1])
        destroy(*arguments)

    monkeypatch.setattr(driver._gpu.vk, "vkDestroySemaphore", seen)
    made.close()
    assert destroyed == []
    assert driver.query_fence(fence)
    driver.release_fence(fence)
    assert destroyed == [fence.timeline.handle]


# ---- semaphores
def test_wait_before_the_signal_of_a_semaphore_that_only_this_process_has_is_refused(
    commands: xsem.CommandList
) -> None:
    semaphore = commands.device.create_semaphore(BINARY)
    for _ in range(2):
        with pytest.raises(xsem.BusyError) as caught:
            commands.append_wait(semaphore)
        assert caught.value.reason == "nothing_signalled"
        commands.append_signal(semaphore)
        commands.append_wait(semaphore)
        commands.synchronize(timeout_s=20)


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


# ---- number of lists
def test_one_list_more_than_queues_and_no_further(device: xsem.Device) -> None:
    first, second = device.create_command_list(), device.create_command_list()
    with pytest.raises(BusyError) as raised:
        device.create_command_list()
    assert raised.value.reason == "too_many_lists"
    assert first.native_handle == second.native_handle != 0   # the device has one VkQueue
    assert list_of(first).identity != list_of(second).identity
    for each in (first, second):
        each.append_barrier()
        each.synchronize(timeout_s=20)
    second.release()
    until(lambda: len(driver_of(device)._queues) == 1)
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


# ---- end of the process
ENDS = {
    "open": "",
    "pending": ("semaphore.export().close(); commands.append_wait(semaphore); "
                "commands.append_copy(host, memory.map_buffer())"),
    "forked": "import os; pid = os.fork()\nif pid == 0: raise SystemExit(0)\nassert os.waitpid(pid, 0)[1] == 0",
}


@pytest.mark.variants
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
