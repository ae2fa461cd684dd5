"""A refused import of the Vulkan backend leaves the caller's file and nothing else, on SwiftShader."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.open_files import is_open, untouched
from support.vulkan_imports import SIZE, declares, given_back
from support.vulkan_sim import BINARY, MEMORY, TIMELINE, driver_of

import xsem
from xsem.errors import BadHandleError, DeviceLostError, OutOfMemoryError, UnsupportedError
from xsem.spi import ImportFailure
from xsem.types import MemoryDesc, MemoryHandleType, OwnedHandle, SemaphoreDesc, SemaphoreHandleType
from xsem_vulkan import constants as vk
from xsem_vulkan.nodes import check_node


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
        assert raised.value.handle == "unknown"   # SwiftShader closes it, contrary to the specification
        if is_open(number):
            own.close()
        else:
            own.detach()


def test_memory_fd_of_another_node_never_reaches_the_driver(
    device: xsem.Device, gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "answers", replace(gpu.answers, node=os.stat("/dev/zero").st_rdev))
    monkeypatch.setattr(gpu.vk, "vkAllocateMemory", pytest.fail)
    with OwnedHandle(os.open("/dev/null", os.O_RDWR)) as handle:
        with pytest.raises(ImportFailure) as raised:
            driver_of(device).import_memory(
                MemoryDesc.opaque_fd(handle, allocation_size=SIZE, device_uuid=device.info.uuid), handle)
        assert raised.value.handle == "left"
        assert isinstance(raised.value.error, BadHandleError)


@pytest.mark.parametrize("type", [BINARY, TIMELINE])
def test_semaphore_fd_of_another_node_never_reaches_the_driver(
    device: xsem.Device, gpu: Any, monkeypatch: pytest.MonkeyPatch, type: SemaphoreHandleType
) -> None:
    driver = declares(monkeypatch, device, semaphore_import=frozenset({BINARY, TIMELINE}))
    monkeypatch.setattr(gpu, "answers", replace(gpu.answers, node=os.stat("/dev/zero").st_rdev))
    asked: list[int] = []

    def take(_gpu: Any, wanted: Any) -> int:
        asked.append(int(wanted.fd))
        return vk.VK_ERROR_INITIALIZATION_FAILED

    monkeypatch.setattr(gpu.vk, "vkImportSemaphoreFdKHR", take)
    monkeypatch.setattr(gpu.vk, "vkCreateSemaphore", lambda *_: 0)
    monkeypatch.setattr(gpu.vk, "vkDestroySemaphore", lambda *_: None)
    for path, state, reaches in (("/dev/null", "left", False), ("/dev/zero", "unknown", True)):
        with OwnedHandle(os.open(path, os.O_RDWR)) as handle:
            desc = SemaphoreDesc(type=type, handle=handle, device_uuid=device.info.uuid)
            with pytest.raises(ImportFailure) as raised:
                driver.import_semaphore(desc, handle)
            assert (raised.value.handle, asked == [handle.fileno()]) == (state, reaches)
            assert isinstance(raised.value.error, BadHandleError)
            assert raised.value.error.reason == "refused_by_driver"


def test_handle_that_is_missing_is_refused(device: xsem.Device) -> None:
    driver = driver_of(device)
    desc = SemaphoreDesc.opaque_fd(0, device_uuid=None)
    with pytest.raises(ImportFailure) as raised:
        driver.import_semaphore(desc, None)
    assert (raised.value.error.reason, raised.value.handle) == ("no_handle", "left")  # type: ignore[attr-defined]


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


def test_file_is_the_drivers_when_a_call_after_the_import_fails(
    exporter: xsem.Device, device: xsem.Device, gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu.vk, "vkBindBufferMemory", lambda *_arguments: vk.VK_ERROR_OUT_OF_DEVICE_MEMORY)
    with exporter.create_memory(MEMORY, SIZE).export() as desc:
        own = given_back(desc)
        with pytest.raises(ImportFailure) as raised:
            driver_of(device).import_memory(desc, own)
        assert raised.value.handle == "taken"
        assert isinstance(raised.value.error, OutOfMemoryError)
        assert not is_open(own.detach())   # closed with the freed memory


def test_lost_device_is_not_reported_as_bad_handle(
    device: xsem.Device, gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu.vk, "vkImportSemaphoreFdKHR", lambda *_arguments: vk.VK_ERROR_DEVICE_LOST)
    with (xsem.open_device("vulkan:0") as other, other.create_semaphore(BINARY).export() as desc,
          pytest.raises(DeviceLostError)):
        device.import_semaphore(desc)


# ---- objects of the host device
def test_refused_object_of_the_host_device_names_the_remedy(device: xsem.Device) -> None:
    with (xsem.open_device("host") as host, host.create_binary().export() as desc,
          pytest.raises(BadHandleError) as raised):
        device.import_semaphore(desc)
    assert "anon_inode:[eventfd], an object of the host device" in raised.value.likely_causes[0]
    assert "create the object on this device" in raised.value.likely_causes[0]


def test_refusal_does_not_count_as_a_use_of_the_handle_by_the_application(device: xsem.Device) -> None:
    with xsem.open_device("host") as host:
        sem = host.create_binary()
        with sem.export() as desc, pytest.raises(BadHandleError):
            device.import_semaphore(desc)
        assert not sem._state.signallers._unseen   # else the end of its importers would no longer end a wait


def test_file_that_is_not_the_drivers_names_what_it_is(tmp_path: Path) -> None:
    with xsem.open_device("host") as host, host.create_memory(MEMORY, SIZE).export() as desc:
        assert isinstance(desc.handle, OwnedHandle)
        with pytest.raises(BadHandleError) as raised:
            check_node(desc.handle.fileno(), 1)
    assert "/memfd:xsem" in raised.value.likely_causes[0]
    assert "create the object on this device" in raised.value.likely_causes[0]
    with open(tmp_path / "file", "w") as file, pytest.raises(BadHandleError) as raised:
        check_node(file.fileno(), 1)
    assert raised.value.likely_causes[0] == "the wrong number was passed"


def test_undeclared_type_names_the_query_and_the_remedy(device: xsem.Device) -> None:
    with (xsem.open_device("host") as host, host.create_timeline().export() as desc,
          pytest.raises(UnsupportedError) as raised):
        device.import_semaphore(desc)
    assert "vkGetPhysicalDeviceExternalSemaphoreProperties" in raised.value.likely_causes[0]
    assert "create the object on this device" in raised.value.likely_causes[1]
    for kind, cause in ((SemaphoreHandleType.D3D12_FENCE, "only as file descriptors"),
                        (TIMELINE, "reports that it does not support")):
        with pytest.raises(UnsupportedError) as raised:
            device.create_semaphore(kind)
        assert cause in raised.value.likely_causes[0]
    named = {each for each in driver_of(device).undeclared_causes if each.startswith("memory.import.")}
    declared = device.capabilities.memory_import
    assert named == {f"memory.import.{each.value}" for each in MemoryHandleType if each not in declared}
