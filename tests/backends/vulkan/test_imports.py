"""The Vulkan backend imports semaphores and memory of its own exporter, on SwiftShader."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.open_files import untouched
from support.vulkan_imports import SIZE, given_back
from support.vulkan_sim import MEMORY, driver_of

import xsem
from xsem.errors import BadArgumentError
from xsem.spi import ImportFailure
from xsem_vulkan import constants as vk


# ---- memory
def _chains(monkeypatch: pytest.MonkeyPatch, gpu: Any) -> list[dict[int, Any]]:
    """Note of every vkAllocateMemory the struct under 0, and its chained structs by sType."""
    real, chains = gpu.vk.vkAllocateMemory, []
    structs = {
        vk.VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR: ("VkImportMemoryFdInfoKHR", ("handleType", "fd")),
        vk.VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO: ("VkMemoryDedicatedAllocateInfo", ("image", "buffer")),
    }

    def allocate(gpu_: Any, wanted: Any, allocator: Any, made: Any) -> Any:
        ffi = gpu.library.ffi
        chain: dict[int, Any] = {0: (wanted.allocationSize, wanted.memoryTypeIndex)}
        each = ffi.cast("VkBaseOutStructure *", wanted.pNext)
        while each:
            name, fields = structs[each.sType]
            chain[each.sType] = tuple(getattr(ffi.cast(f"{name} *", each), field) for field in fields)
            each = ffi.cast("VkBaseOutStructure *", each.pNext)
        chains.append(chain)
        return real(gpu_, wanted, allocator, made)

    monkeypatch.setattr(gpu.vk, "vkAllocateMemory", allocate)
    return chains


@pytest.mark.parametrize("why", ["descriptor", "handle type", "buffer"])
def test_dedicated_memory_is_imported_for_its_buffer(
    exporter: xsem.Device, device: xsem.Device, gpu: Any, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    chains = _chains(monkeypatch, gpu)
    real = gpu.vk.vkGetBufferMemoryRequirements2
    with exporter.create_memory(MEMORY, SIZE, dedicated=why == "descriptor").export() as desc:
        if why == "handle type":
            monkeypatch.setattr(gpu, "answers", replace(gpu.answers, dedicated_only=frozenset({MEMORY})))
        elif why == "buffer":
            def needs(gpu_: Any, wanted: Any, answer: Any) -> None:
                real(gpu_, wanted, answer)
                gpu.library.ffi.cast("VkMemoryDedicatedRequirements *", answer.pNext).requiresDedicatedAllocation = 1

            monkeypatch.setattr(gpu.vk, "vkGetBufferMemoryRequirements2", needs)
        memory = device.import_memory(desc)
    [chain] = chains
    assert chain[0] == (desc.allocation_size, 0)
    assert chain[vk.VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO] == (0, memory._memory.buffer)
    assert chain[vk.VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR][0] == 1


def test_memory_that_is_not_dedicated_does_not_say_so(
    exporter: xsem.Device, device: xsem.Device, gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    chains = _chains(monkeypatch, gpu)
    with exporter.create_memory(MEMORY, SIZE).export() as desc:
        device.import_memory(desc)
    assert vk.VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO not in chains[0]


def _rounding(monkeypatch: pytest.MonkeyPatch, gpu: Any, to: int) -> None:
    """Have the driver require sizes of buffers that are multiples of `to` bytes."""
    real_create, sizes = gpu.vk.vkCreateBuffer, {}

    def create(gpu_: Any, wanted: Any, allocator: Any, made: Any) -> Any:
        code = real_create(gpu_, wanted, allocator, made)
        sizes[made[0]] = wanted.size
        return code

    def needs(gpu_: Any, wanted: Any, answer: Any) -> None:
        answer.memoryRequirements = {"size": -(-sizes[wanted.buffer] // to) * to, "alignment": to, "memoryTypeBits": 1}

    monkeypatch.setattr(gpu.vk, "vkCreateBuffer", create)
    monkeypatch.setattr(gpu.vk, "vkGetBufferMemoryRequirements2", needs)


def test_bytes_that_no_buffer_reaches_are_refused_when_used(
    exporter: xsem.Device, device: xsem.Device, gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = exporter.create_memory(MEMORY, 6000)   # kept, because its release closes files at any later time
    with there.export() as desc:
        _rounding(monkeypatch, gpu, 4096)
        memory = device.import_memory(replace(desc, allocation_size=6000))
        assert memory._memory.size == 4096
        memory.map_buffer(0, 4096).copy_from_host(np.zeros(4096, np.uint8))
        with pytest.raises(BadArgumentError) as raised:
            memory.map_buffer(4096, 1904).copy_to_host()
        assert raised.value.reason == "out_of_range"
        with untouched(desc.handle.fileno()), pytest.raises(BadArgumentError) as raised:  # type: ignore[union-attr]
            device.import_memory(replace(desc, allocation_size=4000))
        assert raised.value.reason == "bad_size"


def test_memory_larger_than_any_is_refused(exporter: xsem.Device, device: xsem.Device) -> None:
    driver = driver_of(device)
    with exporter.create_memory(MEMORY, SIZE).export() as desc, given_back(desc) as own:
        with pytest.raises(ImportFailure) as raised:
            driver.import_memory(replace(desc, allocation_size=2**41), own)
        assert raised.value.handle == "left"
        assert isinstance(raised.value.error, BadArgumentError)
