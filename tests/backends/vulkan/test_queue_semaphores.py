"""A command list of the Vulkan backend waits for another device and signals it, on SwiftShader."""

from __future__ import annotations

from typing import Any

import pytest
from support.vulkan_lists import SIZE, contents, give
from support.vulkan_sim import BINARY, MEMORY, Peer, driver_of

import xsem
from xsem_vulkan import constants as vk
from xsem_vulkan.memory import Place


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
