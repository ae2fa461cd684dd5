"""Timelines and memory of the host on a Vulkan device."""

from __future__ import annotations

from typing import Any

import pytest
from support.fake_backend import until
from support.vulkan_sim import driver_of, list_of

import xsem
from xsem.errors import UnsupportedError
from xsem.types import MemoryHandleType, MipmapDesc, SemaphoreHandleType

TIMELINE = SemaphoreHandleType.HOST_TIMELINE_FD
MEMORY = MemoryHandleType.HOST_MEMORY_FD


def test_barriers_include_the_host_while_memory_is_shared(
    device: xsem.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands, frames = device.create_command_list(), device.create_semaphore(TIMELINE)
    queue = list_of(commands)
    submitted: list[Any] = []
    submit = queue._submission.submit

    def seen(to: Any, waits: Any, buffer: Any, signals: Any) -> None:
        submitted.append(buffer)
        submit(to, waits, buffer, signals)

    monkeypatch.setattr(queue._submission, "submit", seen)
    commands.append_signal(frames, 1)
    memory = device.create_memory(MEMORY, 4096)
    commands.append_signal(frames, 2)
    memory.release()
    until(lambda: not driver_of(device)._gpu.shared_with_host)
    commands.append_signal(frames, 3)
    kept = queue._commands
    assert submitted == [kept.barrier, kept.host_barrier, kept.barrier]


def test_handover_transfers_no_ownership_of_the_hosts_pages(
    device: xsem.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands, frames = device.create_command_list(), device.create_semaphore(TIMELINE)
    memory = device.create_memory(MEMORY, 4096)
    vk, seen = driver_of(device)._gpu.vk, []
    real = vk.vkCmdPipelineBarrier

    def barrier(*arguments: Any) -> None:
        seen.append((arguments[1], arguments[2], arguments[6]))   # stages, and the number of transfers
        real(*arguments)

    monkeypatch.setattr(vk, "vkCmdPipelineBarrier", barrier)
    commands.append_signal(frames, 1, release=[memory])
    commands.append_wait(frames, 1, acquire=[memory])
    with_host = 0x10000 | 0x4000
    assert seen == [(with_host, with_host, 0)] * 2


def test_host_fences_serve_again(device: xsem.Device) -> None:
    commands, frames = device.create_command_list(), device.create_semaphore(TIMELINE)
    for frame in range(1, 21):
        commands.append_wait(frames, frame)
        frames.host_signal(frame)
        commands.synchronize(timeout_s=20)
        device.create_event().release()   # releases the fences of finished operations
    assert 1 <= len(driver_of(device)._host_fences._unused) <= 3


def test_no_image_is_mapped_onto_the_hosts_pages(device: xsem.Device) -> None:
    memory = device.create_memory(MEMORY, 65536)
    with pytest.raises(UnsupportedError) as refused:
        memory.map_mipmapped_array(MipmapDesc(extent=(16, 16, 0), format="uint8", channels=4))
    assert refused.value.capability == "mipmapped_array.host_memory"


@pytest.mark.parametrize("call", ["vkCreateBuffer", "vkGetMemoryHostPointerPropertiesEXT", "vkAllocateMemory",
                                  "vkBindBufferMemory"])
def test_import_that_fails_anywhere_unmaps_the_pages(
    device: xsem.Device, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    vk = driver_of(device)._gpu.vk
    do = vk.do

    def failing(name: str, *arguments: Any) -> Any:
        if name == call:
            raise xsem.DriverError("no", reason="refused", call=name)
        return do(name, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(vk, "do", failing)
        with pytest.raises(xsem.DriverError):
            device.create_memory(MEMORY, 4096)
    assert driver_of(device)._gpu.shared_with_host == 0
    device.create_memory(MEMORY, 4096).release()


def test_memory_type_must_be_coherent(device: xsem.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(_self: object, types: int, wanted: int, preferred: int = 0) -> int | None:
        assert wanted == 0x4
        return None

    with monkeypatch.context() as patch:
        patch.setattr(type(driver_of(device)._gpu.answers.memory_types), "choose", choose)
        with pytest.raises(UnsupportedError) as refused:
            device.create_memory(MEMORY, 4096)
    assert refused.value.reason == "not_coherent"
