"""The Vulkan backend imports dma-bufs and sync files. SwiftShader lacks both, so the tests replace its functions."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
from support.open_files import is_open
from support.vulkan_imports import SIZE, declares, given_back
from support.vulkan_sim import BINARY, MEMORY, TIMELINE

import xsem
from xsem.errors import BadHandleError
from xsem.spi import ImportFailure
from xsem.types import MemoryDesc, MemoryHandleType, OwnedHandle, SemaphoreDesc, SemaphoreHandleType, WaitParams
from xsem_vulkan import constants as vk
from xsem_vulkan.nodes import check_sync_file

DMABUF = MemoryHandleType.DMABUF_FD
SYNC = SemaphoreHandleType.SYNC_FD


@pytest.mark.parametrize(("bits", "index"), [(0b110, 2), (0b010, 1), (0b001, 0)])
def test_dmabuf_uses_a_memory_type_of_both_file_and_buffer(
    exporter: xsem.Device, device: xsem.Device, gpu: Any, monkeypatch: pytest.MonkeyPatch, bits: int, index: int
) -> None:
    asked: list[tuple[int, int]] = []

    def properties(_gpu: Any, handle_type: int, fd: int, answer: Any) -> int:
        asked.append((handle_type, fd))
        answer.memoryTypeBits = bits
        return 0

    allocated = []

    def allocate(_gpu: Any, wanted: Any, _allocator: Any, _made: Any) -> int:
        given = gpu.library.ffi.cast("VkImportMemoryFdInfoKHR *", wanted.pNext)
        allocated.append((wanted.memoryTypeIndex, given.handleType, given.fd))
        return vk.VK_ERROR_OUT_OF_DEVICE_MEMORY

    def needs(_gpu: Any, _wanted: Any, answer: Any) -> None:
        answer.memoryRequirements = {"size": SIZE, "alignment": 16, "memoryTypeBits": 0b111}

    local = vk.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
    monkeypatch.setattr(gpu, "answers", replace(
        gpu.answers, memory_types=replace(gpu.answers.memory_types, flags=(0, 0, local))))
    for name, function in (("vkGetMemoryFdPropertiesKHR", properties), ("vkAllocateMemory", allocate),
                           ("vkGetBufferMemoryRequirements2", needs)):
        monkeypatch.setattr(gpu.vk, name, function)
    driver = declares(monkeypatch, device, memory_import=frozenset({DMABUF}))
    with exporter.create_memory(MEMORY, SIZE).export() as desc, given_back(desc) as own:
        with pytest.raises(ImportFailure):
            driver.import_memory(MemoryDesc.dmabuf_fd(own, allocation_size=SIZE), own)
        assert asked == [(0x200, own.fileno())]
        assert allocated == [(index, 0x200, own.fileno())]


@pytest.mark.parametrize(("code", "bits"), [(vk.VK_ERROR_INVALID_EXTERNAL_HANDLE, 0), (0, 0)])
def test_non_dmabuf_file_is_refused_and_left(
    exporter: xsem.Device, device: xsem.Device, gpu: Any, monkeypatch: pytest.MonkeyPatch, code: int, bits: int
) -> None:
    monkeypatch.setattr(gpu.vk, "vkGetMemoryFdPropertiesKHR", lambda *_arguments: code)
    monkeypatch.setattr(gpu.vk, "vkAllocateMemory", None)
    driver = declares(monkeypatch, device, memory_import=frozenset({DMABUF}))
    with exporter.create_memory(MEMORY, SIZE).export() as desc, given_back(desc) as own:
        with pytest.raises(ImportFailure) as raised:
            driver.import_memory(MemoryDesc.dmabuf_fd(own, allocation_size=SIZE), own)
        assert raised.value.handle == "left"
        assert isinstance(raised.value.error, BadHandleError)
        assert is_open(own.fileno())


@pytest.mark.parametrize("signalled", [True, False])
def test_sync_file_is_imported_for_one_wait(
    exporter: xsem.Device, device: xsem.Device, gpu: Any, monkeypatch: pytest.MonkeyPatch, signalled: bool
) -> None:
    seen: list[tuple[int, int, int]] = []

    def take(_gpu: Any, wanted: Any) -> int:
        seen.append((wanted.flags, wanted.handleType, wanted.fd))
        return 0

    monkeypatch.setattr(gpu.vk, "vkImportSemaphoreFdKHR", take)
    driver = declares(monkeypatch, device, semaphore_import=frozenset({SYNC}))
    if signalled:
        driver.release_semaphore(driver.import_semaphore(SemaphoreDesc.sync_fd(-1), None).token)
        assert seen == [(vk.VK_SEMAPHORE_IMPORT_TEMPORARY_BIT, 0x10, -1)]
        return
    own = OwnedHandle(os.eventfd(0))   # an anonymous inode, like the kernel's sync files
    number = own.fileno()
    imported = driver.import_semaphore(SemaphoreDesc.sync_fd(own), own)
    assert imported.handle == "taken"
    assert is_open(own.fileno())
    own.close()   # in place of the driver
    driver.release_semaphore(imported.token)
    assert seen == [(vk.VK_SEMAPHORE_IMPORT_TEMPORARY_BIT, 0x10, number)]


def test_other_file_is_refused_as_sync_file_and_left(
    exporter: xsem.Device, device: xsem.Device, gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu.vk, "vkImportSemaphoreFdKHR", None)   # lavapipe accepts both
    driver = declares(monkeypatch, device, semaphore_import=frozenset({SYNC}))
    with exporter.create_semaphore(BINARY).export() as desc, given_back(desc) as semaphore:
        for own in (semaphore, OwnedHandle(os.open("/dev/null", os.O_RDONLY))):
            with own, pytest.raises(ImportFailure) as raised:
                driver.import_semaphore(SemaphoreDesc.sync_fd(own), own)
            assert raised.value.handle == "left"
            assert isinstance(raised.value.error, BadHandleError)
            assert raised.value.error.reason == "refused_by_driver"


def test_driver_is_asked_when_the_kind_of_file_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    with OwnedHandle(os.open("/dev/null", os.O_RDONLY)) as own:
        with pytest.raises(BadHandleError, match="/dev/null"):
            check_sync_file(own.fileno())
        monkeypatch.setattr(os, "readlink", _no_proc)
        check_sync_file(own.fileno())


def _no_proc(path: str) -> str:
    raise FileNotFoundError(path)


@pytest.mark.parametrize("done", [True, False])
def test_sync_file_is_exported_as_fd_or_as_minus_one_when_done(
    device: xsem.Device, gpu: Any, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    asked: list[tuple[int, int]] = []
    given = -1 if done else os.eventfd(0, 0)   # inheritable, like those of lavapipe

    def export(_gpu: Any, wanted: Any, fd: Any) -> int:
        asked.append((wanted.handleType, int(gpu.library.ffi.cast("uint64_t", wanted.semaphore))))
        fd[0] = given
        return 0

    monkeypatch.setattr(gpu.vk, "vkGetSemaphoreFdKHR", export)
    declares(monkeypatch, device, semaphore_export=frozenset({SYNC}))
    created: list[int] = []
    real = gpu.vk.vkCreateSemaphore

    def create(gpu_: Any, wanted: Any, allocator: Any, made: Any) -> Any:
        for_export = gpu.library.ffi.cast("VkExportSemaphoreCreateInfo *", wanted.pNext)
        created.append(for_export.handleTypes)
        for_export.handleTypes = 1   # SwiftShader has only this type
        return real(gpu_, wanted, allocator, made)

    commands = device.create_command_list()
    with monkeypatch.context() as patch:
        patch.setattr(gpu.vk, "vkCreateSemaphore", create)
        drawn = device.create_semaphore(SYNC)
    commands.append_signal(drawn)
    with drawn.export() as desc:
        if done:
            assert desc.handle == -1
        else:
            assert isinstance(desc.handle, OwnedHandle)
            assert desc.handle.fileno() == given
            assert not os.get_inheritable(given)
    assert (created, [each[0] for each in asked]) == ([0x10], [0x10])
    commands.synchronize(timeout_s=20)
    drawn.release()


def test_timeline_is_imported_for_good_by_an_opaque_fd(
    exporter: xsem.Device, device: xsem.Device, gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    real = gpu.vk.vkCreateSemaphore
    kinds: list[int] = []

    def create(gpu_: Any, wanted: Any, allocator: Any, made: Any) -> Any:
        typed = gpu.library.ffi.cast("VkSemaphoreTypeCreateInfo *", wanted.pNext)
        kinds.append(typed.semaphoreType)
        return real(gpu_, wanted, allocator, made)

    def take(_gpu: Any, wanted: Any) -> int:
        seen.append((wanted.flags, wanted.handleType))
        return 0

    monkeypatch.setattr(gpu.vk, "vkCreateSemaphore", create)
    monkeypatch.setattr(gpu.vk, "vkImportSemaphoreFdKHR", take)
    driver = declares(monkeypatch, device, semaphore_import=frozenset({TIMELINE}))
    with exporter.create_semaphore(BINARY).export() as desc, given_back(desc) as own:
        token = driver.import_semaphore(SemaphoreDesc.timeline_fd(own, device_uuid=None), own).token
        # `own` is closed here in place of the driver.
    assert (seen, kinds) == ([(0, 1)], [vk.VK_SEMAPHORE_TYPE_TIMELINE])
    driver.host_signal(token, 5)   # it works as a timeline: values, waits before signals
    commands = driver.create_queue()
    fence = commands.append_wait([token], [WaitParams(value=7)], (), (), True)
    assert not driver.query_fence(fence)
    driver.host_signal(token, 7)
    assert driver.wait_fence(fence, 20 * 10**9)
    assert driver.semaphore_value(token) == 7
    driver.release_fence(fence)
    commands.close()
    driver.release_semaphore(token)
