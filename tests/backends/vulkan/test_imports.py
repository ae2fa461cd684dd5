"""Test imports of the Vulkan backend, on SwiftShader: objects of its own exporter, and wrong files."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.fake_backend import until
from support.open_files import is_open, numbers, untouched
from support.vulkan_sim import BINARY, MEMORY, TIMELINE, driver_of

import xsem
from xsem.errors import (
    BadArgumentError,
    BadHandleError,
    DeviceLostError,
    OutOfMemoryError,
    UnsupportedError,
)
from xsem.spi import ImportFailure
from xsem.types import (
    MemoryDesc,
    MemoryHandleType,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
    WaitParams,
)
from xsem_vulkan import constants as vk
from xsem_vulkan.nodes import check_sync_file

SIZE = 8192
DMABUF = MemoryHandleType.DMABUF_FD
SYNC = SemaphoreHandleType.SYNC_FD


def given_back(desc: SemaphoreDesc | MemoryDesc) -> OwnedHandle:
    """Return a duplicate for the driver."""
    assert isinstance(desc.handle, OwnedHandle)
    return OwnedHandle(os.dup(desc.handle.fileno()))


# ---- semaphores
def test_each_side_waits_for_the_others_signals(exporter: xsem.Device, device: xsem.Device) -> None:
    theirs = exporter.create_semaphore(BINARY)
    with theirs.export() as desc:
        ours = device.import_semaphore(desc)
    their_list, our_list = exporter.create_command_list(), device.create_command_list()
    for _ in range(5):
        their_list.append_signal(theirs)
        our_list.append_wait(ours)
        our_list.synchronize(timeout_s=20)
        our_list.append_signal(ours)
        their_list.append_wait(theirs)
        their_list.synchronize(timeout_s=20)


def test_wait_through_one_import_resets_the_other(exporter: xsem.Device, device: xsem.Device) -> None:
    theirs = exporter.create_semaphore(BINARY)
    with theirs.export() as desc:
        first, second = device.import_semaphore(desc), device.import_semaphore(desc)
    commands, signals = device.create_command_list(), exporter.create_command_list()
    signals.append_signal(theirs)
    commands.append_wait(first)
    commands.synchronize(timeout_s=20)
    commands.append_wait(second)   # SwiftShader accepts a wait before its signal
    assert not commands.query()
    signals.append_signal(theirs)
    commands.synchronize(timeout_s=20)


def test_import_outlives_the_exporters_semaphore(exporter: xsem.Device, device: xsem.Device) -> None:
    theirs = exporter.create_semaphore(BINARY)
    signals = exporter.create_command_list()
    signals.append_signal(theirs)
    with theirs.export() as desc:
        ours = device.import_semaphore(desc)
    theirs.release()
    signals.synchronize(timeout_s=20)
    commands = device.create_command_list()
    commands.append_wait(ours)
    commands.synchronize(timeout_s=20)


def test_imported_semaphore_cannot_be_exported(exporter: xsem.Device, device: xsem.Device) -> None:
    with exporter.create_semaphore(BINARY).export() as desc, pytest.raises(UnsupportedError):
        device.import_semaphore(desc).export()


# ---- memory
@pytest.mark.parametrize("dedicated", [False, True])
@pytest.mark.parametrize("size", [1, 100, 5001, SIZE])
def test_memory_is_the_same_on_both_sides(
    exporter: xsem.Device, device: xsem.Device, size: int, dedicated: bool
) -> None:
    theirs = exporter.create_memory(MEMORY, size, dedicated=dedicated)
    with theirs.export() as desc:
        ours = device.import_memory(desc)
    assert ours.allocation_size == theirs.allocation_size
    their_buffer, our_buffer = theirs.map_buffer(), ours.map_buffer()
    data = np.arange(their_buffer.size, dtype=np.uint8)
    their_buffer.copy_from_host(data)
    assert np.array_equal(our_buffer.copy_to_host(), data)
    our_buffer.copy_from_host(255 - data)
    assert np.array_equal(their_buffer.copy_to_host(), 255 - data)


def test_offset_is_counted_from_the_start_of_the_memory(exporter: xsem.Device, device: xsem.Device) -> None:
    theirs = exporter.create_memory(MEMORY, SIZE)
    theirs.map_buffer().copy_from_host(np.arange(SIZE, dtype=np.uint16).view(np.uint8)[:SIZE])
    with theirs.export() as desc:
        part = device.import_memory(desc).map_buffer(130, 64)
    assert np.array_equal(part.copy_to_host(), np.arange(SIZE, dtype=np.uint16).view(np.uint8)[130:194])


def test_imported_memory_outlives_the_exporters(exporter: xsem.Device, device: xsem.Device) -> None:
    theirs = exporter.create_memory(MEMORY, SIZE)
    buffer = theirs.map_buffer()
    buffer.copy_from_host(np.full(SIZE, 9, np.uint8))
    with theirs.export() as desc:
        ours = device.import_memory(desc)
    buffer.release()
    theirs.release()
    assert (ours.map_buffer().copy_to_host() == 9).all()


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
            monkeypatch.setattr(gpu, "abilities", replace(gpu.abilities, dedicated_only=frozenset({MEMORY})))
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


def test_memory_larger_than_any_address_range_is_refused(exporter: xsem.Device, device: xsem.Device) -> None:
    driver = driver_of(device)
    with exporter.create_memory(MEMORY, SIZE).export() as desc, given_back(desc) as own:
        with pytest.raises(ImportFailure) as raised:
            driver.import_memory(replace(desc, allocation_size=2**41), own)
        assert raised.value.fate == "left"
        assert isinstance(raised.value.error, BadArgumentError)


# ---- dma-bufs and sync files: SwiftShader lacks both, so the tests replace its functions
def _declares(monkeypatch: pytest.MonkeyPatch, device: xsem.Device, **more: Any) -> Any:
    driver = driver_of(device)
    for each in (driver, device, device._device_state):
        name = "_capabilities" if each is driver else "capabilities"
        monkeypatch.setattr(each, name, replace(device.capabilities, **more))
    return driver


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
    monkeypatch.setattr(gpu, "abilities", replace(
        gpu.abilities, memory_types=replace(gpu.abilities.memory_types, flags=(0, 0, local))))
    for name, function in (("vkGetMemoryFdPropertiesKHR", properties), ("vkAllocateMemory", allocate),
                           ("vkGetBufferMemoryRequirements2", needs)):
        monkeypatch.setattr(gpu.vk, name, function)
    driver = _declares(monkeypatch, device, memory_import=frozenset({DMABUF}))
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
    driver = _declares(monkeypatch, device, memory_import=frozenset({DMABUF}))
    with exporter.create_memory(MEMORY, SIZE).export() as desc, given_back(desc) as own:
        with pytest.raises(ImportFailure) as raised:
            driver.import_memory(MemoryDesc.dmabuf_fd(own, allocation_size=SIZE), own)
        assert raised.value.fate == "left"
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
    driver = _declares(monkeypatch, device, semaphore_import=frozenset({SYNC}))
    if signalled:
        driver.release_semaphore(driver.import_semaphore(SemaphoreDesc.sync_fd(-1), None))
        assert seen == [(vk.VK_SEMAPHORE_IMPORT_TEMPORARY_BIT, 0x10, -1)]
        return
    own = OwnedHandle(os.eventfd(0))   # an anonymous inode, like the kernel's sync files
    number = own.fileno()
    driver.release_semaphore(driver.import_semaphore(SemaphoreDesc.sync_fd(own), own))
    assert own.closed   # detached: the driver owns it
    os.close(number)
    assert seen == [(vk.VK_SEMAPHORE_IMPORT_TEMPORARY_BIT, 0x10, number)]


def test_other_file_is_refused_as_sync_file_and_left(
    exporter: xsem.Device, device: xsem.Device, gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu.vk, "vkImportSemaphoreFdKHR", None)   # lavapipe accepts both
    driver = _declares(monkeypatch, device, semaphore_import=frozenset({SYNC}))
    with exporter.create_semaphore(BINARY).export() as desc, given_back(desc) as semaphore:
        for own in (semaphore, OwnedHandle(os.open("/dev/null", os.O_RDONLY))):
            with own, pytest.raises(ImportFailure) as raised:
                driver.import_semaphore(SemaphoreDesc.sync_fd(own), own)
            assert raised.value.fate == "left"
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
    _declares(monkeypatch, device, semaphore_export=frozenset({SYNC}))
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
    driver = _declares(monkeypatch, device, semaphore_import=frozenset({TIMELINE}))
    with exporter.create_semaphore(BINARY).export() as desc:
        own = given_back(desc)
        number = own.fileno()
        token = driver.import_semaphore(SemaphoreDesc.timeline_fd(own, device_uuid=None), own)
        os.close(number)
    assert (seen, kinds) == ([(0, 1)], [vk.VK_SEMAPHORE_TYPE_TIMELINE])
    driver.host_signal(token, 5)   # it works as a timeline: values, waits before signals
    commands = driver.create_command_list()
    point = commands.append_wait([token], [WaitParams(value=7)], (), (), True)
    assert not driver.done(point)
    driver.host_signal(token, 7)
    assert driver.wait(point, 20 * 10**9)
    assert driver.semaphore_value(token) == 7
    driver.release_point(point)
    commands.close()
    driver.release_semaphore(token)


# ---- refusals, and the fate of the file
@pytest.mark.parametrize("kind", ["semaphore", "memory"])
def test_file_not_exported_by_vulkan_is_refused(device: xsem.Device, kind: str) -> None:
    uuid = device.info.uuid
    driver = driver_of(device)
    for path in ("/dev/null", "/"):
        own = OwnedHandle(os.open(path, os.O_RDONLY))
        number = own.fileno()
        with pytest.raises(ImportFailure) as raised:
            if kind == "semaphore":
                driver.import_semaphore(SemaphoreDesc.opaque_fd(own, device_uuid=uuid), own)
            else:
                driver.import_memory(MemoryDesc.opaque_fd(own, allocation_size=4096, device_uuid=uuid), own)
        error = raised.value.error
        assert isinstance(error, BadHandleError)
        assert error.reason == "refused_by_driver"
        assert error.call == ("vkImportSemaphoreFdKHR" if kind == "semaphore" else "vkAllocateMemory")
        assert error.code is not None
        assert error.code < 0
        assert raised.value.fate == "unknown"   # SwiftShader closes it, contrary to the specification
        if is_open(number):
            own.close()
        else:
            own.detach()


@pytest.mark.parametrize("kind", ["semaphore", "memory"])
def test_refused_import_leaves_the_callers_file_and_nothing_else(device: xsem.Device, kind: str) -> None:
    uuid = device.info.uuid
    read, write = os.pipe()
    os.write(write, b"x")
    file = os.memfd_create("not exported by Vulkan")
    os.write(file, b"\1" * 100)   # too short for a whole page of either object
    try:
        for number in (read, file):
            with untouched(number, write), pytest.raises((BadHandleError, BadArgumentError)):
                if kind == "semaphore" and number is read:
                    device.import_semaphore(SemaphoreDesc.opaque_fd(number, device_uuid=uuid))
                else:
                    device.import_memory(MemoryDesc.opaque_fd(number, allocation_size=4096, device_uuid=uuid))
    finally:
        for number in (read, write, file):
            os.close(number)


def test_memory_fd_of_another_node_never_reaches_the_driver(
    device: xsem.Device, gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "abilities", replace(gpu.abilities, node=os.stat("/dev/zero").st_rdev))
    monkeypatch.setattr(gpu.vk, "vkAllocateMemory", pytest.fail)
    with OwnedHandle(os.open("/dev/null", os.O_RDWR)) as handle:
        with pytest.raises(ImportFailure) as raised:
            driver_of(device).import_memory(
                MemoryDesc.opaque_fd(handle, allocation_size=SIZE, device_uuid=device.info.uuid), handle)
        assert raised.value.fate == "left"
        assert isinstance(raised.value.error, BadHandleError)


@pytest.mark.parametrize("type", [BINARY, TIMELINE])
def test_semaphore_fd_of_another_node_never_reaches_the_driver(
    device: xsem.Device, gpu: Any, monkeypatch: pytest.MonkeyPatch, type: SemaphoreHandleType
) -> None:
    driver = _declares(monkeypatch, device, semaphore_import=frozenset({BINARY, TIMELINE}))
    monkeypatch.setattr(gpu, "abilities", replace(gpu.abilities, node=os.stat("/dev/zero").st_rdev))
    asked: list[int] = []

    def take(_gpu: Any, wanted: Any) -> int:
        asked.append(int(wanted.fd))
        return vk.VK_ERROR_INITIALIZATION_FAILED

    monkeypatch.setattr(gpu.vk, "vkImportSemaphoreFdKHR", take)
    monkeypatch.setattr(gpu.vk, "vkCreateSemaphore", lambda *_: 0)
    monkeypatch.setattr(gpu.vk, "vkDestroySemaphore", lambda *_: None)
    for path, fate, reaches in (("/dev/null", "left", False), ("/dev/zero", "unknown", True)):
        with OwnedHandle(os.open(path, os.O_RDWR)) as handle:
            desc = SemaphoreDesc(type=type, handle=handle, device_uuid=device.info.uuid)
            with pytest.raises(ImportFailure) as raised:
                driver.import_semaphore(desc, handle)
            assert (raised.value.fate, asked == [handle.fileno()]) == (fate, reaches)
            assert isinstance(raised.value.error, BadHandleError)
            assert raised.value.error.reason == "refused_by_driver"


def test_handle_that_is_missing_is_refused(device: xsem.Device) -> None:
    driver = driver_of(device)
    desc = SemaphoreDesc.opaque_fd(0, device_uuid=None)
    with pytest.raises(ImportFailure) as raised:
        driver.import_semaphore(desc, None)
    assert (raised.value.error.reason, raised.value.fate) == ("no_handle", "left")  # type: ignore[attr-defined]


@pytest.mark.parametrize("type", [each for each in SemaphoreHandleType if each is not BINARY])
def test_undeclared_semaphore_type_never_reaches_the_driver(
    device: xsem.Device, gpu: Any, monkeypatch: pytest.MonkeyPatch, type: SemaphoreHandleType
) -> None:
    # SwiftShader would accept the fd of a timeline and end the process.
    desc = SemaphoreDesc(type=type, handle=4096, device_uuid=None)
    monkeypatch.setattr(gpu, "vk", None)
    try:
        for call in (lambda: device.import_semaphore(desc), lambda: driver_of(device).import_semaphore(desc, None)):
            with pytest.raises(UnsupportedError) as raised:
                call()
            assert type.value in raised.value.capability
    finally:
        monkeypatch.undo()


@pytest.mark.parametrize("type", [each for each in MemoryHandleType if each is not MEMORY])
def test_memory_type_that_is_not_declared_is_refused(device: xsem.Device, type: MemoryHandleType) -> None:
    desc = MemoryDesc(type=type, handle=4096, allocation_size=4096, device_uuid=None)
    for call in (lambda: device.import_memory(desc), lambda: driver_of(device).import_memory(desc, None)):
        with pytest.raises(UnsupportedError):
            call()


@pytest.mark.parametrize("fails", [
    ("vkCreateSemaphore", -1), ("vkImportSemaphoreFdKHR", -1000072003), ("vkCreateBuffer", -1),
    ("vkAllocateMemory", -2), ("vkBindBufferMemory", -2),
])
def test_import_that_fails_anywhere_leaves_nothing(
    exporter: xsem.Device, device: xsem.Device, gpu: Any, monkeypatch: pytest.MonkeyPatch, fails: tuple[str, int]
) -> None:
    name, code = fails
    semaphore = "Semaphore" in name
    made = exporter.create_semaphore(BINARY) if semaphore else exporter.create_memory(MEMORY, SIZE)
    alive: dict[str, int] = {}

    def count(call: str, by: int) -> None:
        real = getattr(gpu.vk, call)

        def counted(*arguments: Any) -> Any:
            answer = real(*arguments)
            alive[call.removeprefix("vkCreate").removeprefix("vkDestroy").removeprefix("vkAllocate")
                  .removeprefix("vkFree")] = alive.get(call, 0) + by
            return answer

        monkeypatch.setattr(gpu.vk, call, counted)

    count("vkFreeMemory", 1)
    count("vkDestroyBuffer", 1)
    count("vkDestroySemaphore", 1)
    monkeypatch.setattr(gpu.vk, name, lambda *_arguments: code)
    with made.export() as desc:
        assert isinstance(desc.handle, OwnedHandle)
        with untouched(desc.handle.fileno()), pytest.raises((BadHandleError, OutOfMemoryError)):
            if isinstance(desc, SemaphoreDesc):
                device.import_semaphore(desc)
            else:
                device.import_memory(desc)
    expected = {"vkCreateSemaphore": {}, "vkImportSemaphoreFdKHR": {"Semaphore": 1}, "vkCreateBuffer": {},
                "vkAllocateMemory": {"Buffer": 1}, "vkBindBufferMemory": {"Memory": 1, "Buffer": 1}}
    assert alive == expected[name]


def test_fifty_imports_leave_no_file_open(exporter: xsem.Device, device: xsem.Device) -> None:
    semaphore, memory = exporter.create_semaphore(BINARY), exporter.create_memory(MEMORY, SIZE)
    semaphore.export().close()   # SwiftShader makes the exported file at the first export
    before = numbers()
    for _ in range(50):
        with semaphore.export() as first, memory.export() as second:
            ours, shared = device.import_semaphore(first), device.import_memory(second)
            ours.release()
            shared.release()
    device.create_command_list().synchronize(timeout_s=20)
    until(lambda: numbers() == before)   # a thread of xsem makes the releases that may block


def test_lost_device_is_not_reported_as_bad_handle(
    device: xsem.Device, gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu.vk, "vkImportSemaphoreFdKHR", lambda *_arguments: vk.VK_ERROR_DEVICE_LOST)
    with (xsem.open_device("vulkan:0") as other, other.create_semaphore(BINARY).export() as desc,
          pytest.raises(DeviceLostError)):
        device.import_semaphore(desc)
