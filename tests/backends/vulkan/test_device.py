"""Test devices of the Vulkan backend on SwiftShader: declarations, refusals and exports."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import pytest
from support.open_files import few_more_files
from support.vulkan_sim import BINARY, MEMORY, TIMELINE, driver_of, environment

import xsem
from xsem.errors import (
    BackendUnavailableError,
    UnsupportedError,
)
from xsem.types import Feature, MemoryHandleType, SemaphoreHandleType
from xsem_vulkan import VulkanBackend, loader
from xsem_vulkan import constants as vk
from xsem_vulkan.instance import Instance, PhysicalDevice

_DEDICATED = vk.VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO


@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the state of a process that has not searched for the loader yet."""
    monkeypatch.setattr(loader, "_loaded", None)


# ---- devices
def test_device_is_listed_with_both_uuids_and_versions(swiftshader: None) -> None:
    [info] = xsem.devices("vulkan")
    assert (info.id, info.backend, info.index) == ("vulkan:0", "vulkan", 0)
    assert "SwiftShader" in info.name
    assert info.uuid is not None
    assert info.uuid.bytes.rstrip(b"\0") == b"SwiftShaderUUID"[:16] or info.uuid.int
    assert info.driver_uuid is not None
    assert re.search(r"\d+\.\d+", info.driver_version)
    assert info.luid is None


def test_device_declares_what_its_driver_says(device: xsem.Device) -> None:
    declared = device.capabilities
    timeline, memory = SemaphoreHandleType.HOST_TIMELINE_FD, MemoryHandleType.HOST_MEMORY_FD
    assert declared.semaphore_export == {BINARY, timeline}   # SwiftShader's features for its own timelines are 0
    assert declared.memory_export == {MEMORY, memory}
    assert declared.semaphore_import == {BINARY, timeline}
    assert declared.memory_import == {MEMORY, memory}
    assert declared.bridged == {timeline}
    assert declared.features == {Feature.NATIVE_CONTEXT, Feature.MIPMAPPED_ARRAY, Feature.IMAGE_COPY}
    assert declared.image_formats >= {"unorm8", "unorm16", "snorm8", "snorm16", "unorm_10_10_10_2", "bc1_unorm",
                                      "bc7_unorm", "nv12"}
    assert declared.image_flags == {"cubemap", "surface_load_store", "color_attachment", "texture_gather",
                                    "depth_texture"}
    assert declared.wait_before_signal == {timeline}
    assert declared.needs_handover
    assert declared.resets_on_wait
    assert declared.independent_lists == 1


def test_details_tell_versions_and_queues(swiftshader: None) -> None:
    details = VulkanBackend().details(0)
    assert details["kind"] == "CPU"
    assert details["queues"] == "1 of family 0"
    assert "VK_KHR_external_semaphore_fd" in details["extensions"]
    assert "libvulkan" in details["loader"]


def test_checks_are_well_where_everything_is_there(swiftshader: None) -> None:
    checks = VulkanBackend().checks()
    assert [check.name for check in checks] == ["Vulkan loader", "vulkan:0"]
    assert all(check.ok for check in checks)
    assert "semaphore opaque_fd" in checks[1].detail


@pytest.mark.parametrize(("place", "function", "name"), [
    (PhysicalDevice, "has_timelines", "vulkan:0"), (Instance, "physical_devices", "Vulkan driver"),
])
def test_checks_report_a_defect_and_do_not_raise(
    swiftshader: None, monkeypatch: pytest.MonkeyPatch, place: type, function: str, name: str
) -> None:
    def fail(_self: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(place, function, fail)
    checks = VulkanBackend().checks()
    assert [check.ok for check in checks] == [True, False]
    assert (checks[1].name, checks[1].detail) == (name, "RuntimeError: a defect")


def test_checks_report_a_loader_that_cannot_be_used(unloaded: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(loader, "_load", fail)
    [check] = VulkanBackend().checks()
    assert (check.name, check.ok, check.detail) == ("Vulkan loader", False, "RuntimeError: a defect")


# ---- missing parts
def test_package_that_is_missing_is_named(unloaded: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cffi", None)
    with pytest.raises(BackendUnavailableError, match=r"xsem\[vulkan\]") as raised:
        VulkanBackend().devices()
    assert raised.value.reason == "cffi_missing"
    [check] = VulkanBackend().checks()
    assert not check.ok
    assert "pip install" in check.remedy


def test_loader_that_is_missing_is_named(unloaded: None, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cffi")
    monkeypatch.setattr(loader, "_FILES", {sys.platform: ("libvulkan-nowhere.so.1",)})
    with pytest.raises(BackendUnavailableError, match="libvulkan1") as raised:
        VulkanBackend().devices()
    assert raised.value.reason == "vulkan_loader_missing"
    assert "libvulkan-nowhere" in str(raised.value)
    [check] = VulkanBackend().checks()
    assert not check.ok
    assert check.remedy


def test_loader_without_a_driver_is_unavailable(swiftshader: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        monkeypatch.setenv(name, "/nonexistent/icd.json")
    with pytest.raises(BackendUnavailableError) as raised:
        VulkanBackend().devices()
    assert raised.value.reason == "no_driver"
    assert raised.value.code_name == "VK_ERROR_INCOMPATIBLE_DRIVER"
    checks = VulkanBackend().checks()
    assert [check.ok for check in checks] == [True, False]


def run_xsem(*arguments: str, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "xsem", *arguments], capture_output=True, text=True, check=False,
                          timeout=50, env={**variables, "NO_COLOR": "1"}, stdin=subprocess.DEVNULL)


@pytest.mark.slow
def test_command_line_lists_a_missing_vulkan_with_the_reason() -> None:
    nowhere = {**os.environ, "VK_DRIVER_FILES": "/nonexistent/icd.json", "VK_ICD_FILENAMES": "/nonexistent/icd.json"}
    done = run_xsem("devices", "--json", variables=nowhere)
    assert done.returncode == 0, done.stderr
    listed = json.loads(done.stdout)
    [vulkan] = [each for each in listed["backends"] if each["name"] == "vulkan"]
    assert vulkan["unavailable"]
    assert not any(each["backend"] == "vulkan" for each in listed["devices"])
    told = json.loads(run_xsem("doctor", "--json", variables=nowhere).stdout)
    [section] = [each for each in told["backends"] if each["name"] == "vulkan"]
    assert not section["works"]
    assert any(not check["ok"] and check["remedy"] for check in section["checks"])


def test_command_line_lists_the_device_and_doctor_finds_it_well() -> None:
    there = environment(XSEM_BACKENDS="vulkan")
    [row] = json.loads(run_xsem("devices", "--json", variables=there).stdout)["devices"]
    assert row["id"] == "vulkan:0"
    assert row["problem"] is None
    assert row["capabilities"]["semaphore_export"] == ["host_timeline_fd", "opaque_fd"]
    assert row["details"]["kind"] == "CPU"
    assert run_xsem("doctor", variables=there).returncode == 0


# ---- export
def test_descriptor_that_a_driver_made_inheritable_is_not(
    device: xsem.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The descriptors of lavapipe are inheritable. No available driver does this, so the test replaces the function.
    memory = device.create_memory(MEMORY, 64)
    gpu = driver_of(device)._gpu
    read, write = os.pipe()
    os.set_inheritable(read, True)

    def give(_device: Any, _wanted: Any, fd: Any) -> int:
        fd[0] = read
        return 0

    monkeypatch.setattr(gpu.vk, "vkGetMemoryFdKHR", give)
    with memory.export() as desc:
        assert _fd(desc) == read
        assert not os.get_inheritable(read)
    os.close(write)


def _fd(desc: xsem.SemaphoreDesc | xsem.MemoryDesc) -> int:
    assert isinstance(desc.handle, xsem.OwnedHandle)
    return desc.handle.fileno()


def test_memory_of_a_driver_that_rounds_up_can_be_mapped_whole(
    device: xsem.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = driver_of(device)._gpu
    real = gpu.vk.vkCreateBuffer
    sizes: list[int] = []

    def needs(_device: Any, _wanted: Any, answer: Any) -> None:
        answer.memoryRequirements = {"size": -(-sizes[-1] // 4096) * 4096, "alignment": 4096, "memoryTypeBits": 1}

    def create(gpu: Any, wanted: Any, allocator: Any, made: Any) -> Any:
        sizes.append(wanted.size)
        return real(gpu, wanted, allocator, made)

    monkeypatch.setattr(gpu.vk, "vkGetBufferMemoryRequirements2", needs)
    monkeypatch.setattr(gpu.vk, "vkCreateBuffer", create)
    memory = device.create_memory(MEMORY, 5000)
    assert memory.allocation_size == 8192
    assert sizes == [5000, 8192]


def test_memory_that_must_be_dedicated_is_refused_otherwise(
    device: xsem.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = driver_of(device)._gpu
    real = gpu.vk.vkGetBufferMemoryRequirements2
    monkeypatch.setattr(gpu, "answers", replace(gpu.answers, dedicated_only=frozenset({MEMORY})))
    with pytest.raises(UnsupportedError, match="dedicated=True"):
        device.create_memory(MEMORY, 64)
    device.create_memory(MEMORY, 64, dedicated=True)

    def needs(gpu_: Any, wanted: Any, answer: Any) -> None:
        real(gpu_, wanted, answer)
        gpu.library.ffi.cast("VkMemoryDedicatedRequirements *", answer.pNext).requiresDedicatedAllocation = 1

    monkeypatch.setattr(gpu, "answers", replace(gpu.answers, dedicated_only=frozenset()))
    device.create_memory(MEMORY, 64)
    monkeypatch.setattr(gpu.vk, "vkGetBufferMemoryRequirements2", needs)
    with pytest.raises(UnsupportedError, match="dedicated=True"):
        device.create_memory(MEMORY, 64)


def test_dedicated_memory_is_allocated_for_its_buffer(device: xsem.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = driver_of(device)._gpu
    real = gpu.vk.vkAllocateMemory
    chains: list[list[tuple[int, int]]] = []

    def allocate(gpu_: Any, wanted: Any, allocator: Any, made: Any) -> Any:
        chain: list[tuple[int, int]] = []
        ffi = gpu.library.ffi
        each = ffi.cast("VkMemoryDedicatedAllocateInfo *", wanted.pNext)
        while each:
            chain.append((each.sType, each.buffer if each.sType == _DEDICATED else 0))
            each = ffi.cast("VkMemoryDedicatedAllocateInfo *", each.pNext)
        chains.append(chain)
        return real(gpu_, wanted, allocator, made)

    monkeypatch.setattr(gpu.vk, "vkAllocateMemory", allocate)
    ordinary, dedicated = device.create_memory(MEMORY, 64), device.create_memory(MEMORY, 64, dedicated=True)
    assert ordinary.allocation_size == dedicated.allocation_size
    export = (vk.VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO, 0)
    assert chains == [[export], [(_DEDICATED, dedicated._memory.buffer), export]]


def test_dedicated_memory_says_so(device: xsem.Device) -> None:
    with device.create_memory(MEMORY, 4096, dedicated=True).export() as desc:
        assert desc.dedicated


def test_host_functions_are_refused_for_binary_semaphores(device: xsem.Device) -> None:
    semaphore = device.create_semaphore(BINARY)
    for call in (semaphore.host_signal, semaphore.host_wait):
        with pytest.raises(UnsupportedError):
            call()
    driver, token = driver_of(device), semaphore._state.token
    for function, arguments in (("host_signal", (None,)), ("host_wait", (None, 0)), ("semaphore_value", ())):
        with pytest.raises(UnsupportedError, match="binary"):
            getattr(driver, function)(token, *arguments)


def test_native_handles_are_vulkans(device: xsem.Device) -> None:
    semaphore, memory = device.create_semaphore(BINARY), device.create_memory(MEMORY, 64)
    driver = driver_of(device)
    commands, buffer = device.create_command_list(), memory.map_buffer()
    assert device.native_handle == driver.native_handle(None) != 0
    assert semaphore.native_handle == semaphore._state.token.handle
    assert memory.native_handle == memory._memory.memory
    assert buffer.native_handle == memory._memory.buffer
    assert device.host_buffer(8).native_handle
    assert commands.native_handle == driver._gpu.queues[0].address


# ---- timelines: SwiftShader has them only within a process
def test_timeline_counts_on_the_host(device: xsem.Device) -> None:
    from xsem_vulkan.semaphores import create_semaphore

    driver = driver_of(device)
    token = create_semaphore(driver._gpu, timeline=True, initial_value=5)
    try:
        assert driver.semaphore_value(token) == 5
        assert driver.host_wait(token, 5, 0)
        assert not driver.host_wait(token, 6, 1_000_000)
        driver.host_signal(token, 2**63)
        assert driver.semaphore_value(token) == 2**63
        assert driver.host_wait(token, 2**63, 0)
        assert not driver.host_wait(token, 2**64 - 2, 0)
    finally:
        driver.release_semaphore(token)


def test_long_wait_of_a_timeline_consists_of_short_ones(device: xsem.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    # NVIDIA's driver looks for a signal of CUDA every 10 ms, and at the end of a wait's timeout.
    from xsem_vulkan.semaphores import create_semaphore

    driver = driver_of(device)
    gpu = driver._gpu
    slices: list[tuple[Any, int]] = []
    do, began = gpu.vk.do, 0

    def recorded(function: str, *arguments: object) -> object:
        if function == "vkWaitSemaphores":
            slices.append((arguments[-1], time.monotonic_ns() - began))
        return do(function, *arguments)

    monkeypatch.setattr(gpu.vk, "do", recorded)
    token = create_semaphore(gpu, timeline=True)
    try:
        began = time.monotonic_ns()
        assert not driver.host_wait(token, 1, 20_000_000)
        waited = time.monotonic_ns() - began
        assert slices
        assert all(0 < each <= max(500_000, at // 8) for each, at in slices)
        assert waited >= 20_000_000
    finally:
        driver.release_semaphore(token)


def test_timeline_is_exported_by_an_opaque_fd(device: xsem.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    # Simulate a driver that exports timelines: the test checks the structs and does not call the driver.
    driver = driver_of(device)
    gpu = driver._gpu
    answers = replace(gpu.answers, semaphore_export=frozenset({BINARY, TIMELINE}))
    declared = answers.capabilities
    assert declared.features >= {Feature.HOST_SIGNAL, Feature.HOST_WAIT, Feature.READ_VALUE}
    assert declared.wait_before_signal == {TIMELINE, SemaphoreHandleType.HOST_TIMELINE_FD}
    monkeypatch.setattr(driver, "_capabilities", declared)
    seen = []

    def create(_device: Any, wanted: Any, _allocator: Any, made: Any) -> int:
        ffi = gpu.library.ffi
        export = ffi.cast("VkExportSemaphoreCreateInfo *", wanted.pNext)
        kind = ffi.cast("VkSemaphoreTypeCreateInfo *", export.pNext)
        seen.append((export.sType, export.handleTypes, kind.sType, kind.semaphoreType, kind.initialValue, kind.pNext))
        made[0] = 0x77
        return 0

    monkeypatch.setattr(gpu.vk, "vkCreateSemaphore", create)
    token = driver.create_semaphore(TIMELINE, 3)
    assert (token.handle, token.timeline) == (0x77, True)
    assert seen == [(vk.VK_STRUCTURE_TYPE_EXPORT_SEMAPHORE_CREATE_INFO, 1,
                     vk.VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO, vk.VK_SEMAPHORE_TYPE_TIMELINE, 3,
                     gpu.library.null)]


# ---- a full table of file descriptors
def test_each_call_that_opens_a_file_names_the_limit(device: xsem.Device) -> None:
    semaphore = device.create_semaphore(xsem.SemaphoreHandleType.OPAQUE_FD)
    for act in (lambda: xsem.devices("vulkan"), lambda: xsem.open_device("vulkan:0"), semaphore.export,
                lambda: device.create_memory(xsem.MemoryHandleType.OPAQUE_FD, 4096)):
        with few_more_files(0), pytest.raises(xsem.BusyError) as caught:
            act()
        assert (caught.value.reason, caught.value.backend) == ("fd_limit", "vulkan")
