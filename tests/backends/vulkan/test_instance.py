"""Test instances and physical devices with answers of the driver that SwiftShader does not give."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.vulkan_sim import use_swiftshader

from xsem.errors import BackendUnavailableError, OutOfMemoryError, UnsupportedError, XsemError
from xsem_vulkan import VulkanBackend, instance
from xsem_vulkan import constants as vk
from xsem_vulkan.instance import Instance, PhysicalDevice, opened, version_text
from xsem_vulkan.loader import Functions, load


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    use_swiftshader(monkeypatch)
    with opened() as one:
        yield one


def answering(*answers: tuple[int, int]) -> Callable[..., int]:
    """Make a listing function: each call sets the count and returns the code of one answer."""
    left = list(answers)

    def call(*arguments: Any) -> int:
        code, number = left.pop(0)
        arguments[-2][0] = number
        return code

    return call


def test_structs_of_a_chain_live_as_long_as_its_first(made: Instance) -> None:
    first = made.library.new("VkMemoryAllocateInfo")
    linked = [weakref.ref(made.library.linked(name, first)) for name in ("VkExportMemoryAllocateInfo",
                                                                         "VkImportMemoryFdInfoKHR")]
    assert None not in [each() for each in linked]
    del first
    assert [each() for each in linked] == [None, None]


@pytest.mark.parametrize(("code", "cls", "reason"), [
    (vk.VK_ERROR_INITIALIZATION_FAILED, BackendUnavailableError, "driver_failed"),
    (-1000999000, BackendUnavailableError, "driver_failed"),
    (vk.VK_ERROR_OUT_OF_HOST_MEMORY, OutOfMemoryError, "out_of_memory"),
])
def test_driver_that_does_not_start_is_unavailable(
    made: Instance, monkeypatch: pytest.MonkeyPatch, code: int, cls: type[XsemError], reason: str
) -> None:
    monkeypatch.setattr(made.functions, "vkEnumeratePhysicalDevices", answering((code, 0)))
    with pytest.raises(cls) as raised:
        made.physical_devices()
    assert (raised.value.reason, raised.value.code) == (reason, code)


def test_driver_without_devices_is_unavailable(made: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Instance, "physical_devices", lambda _self: [])
    for call in (VulkanBackend().devices, lambda: VulkanBackend().open(0), lambda: VulkanBackend().details(0)):
        with pytest.raises(BackendUnavailableError) as raised:
            call()
        assert raised.value.reason == "no_device"
    assert [check.ok for check in VulkanBackend().checks()] == [True, False]


def test_device_that_comes_while_they_are_listed_is_listed(made: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "PhysicalDevice", lambda _instance, handle: handle)
    monkeypatch.setattr(made.functions, "vkEnumeratePhysicalDevices", answering(
        (0, 1), (vk.VK_INCOMPLETE, 1), (0, 2), (0, 2)))
    assert len(made.physical_devices()) == 2


def test_loader_older_than_vulkan_1_1_is_unavailable(made: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    library = load()
    without = Functions(library, lambda _name: library.null, ["vkEnumerateInstanceVersion"])
    with pytest.raises(BackendUnavailableError) as raised:
        instance._loader_version(library, without)
    assert raised.value.reason == "driver_too_old"


def test_function_that_a_driver_lacks_is_named(made: Instance) -> None:
    library = load()
    functions = Functions(library, lambda _name: library.null, ["vkGetMemoryFdKHR"])
    assert not functions.has("vkGetMemoryFdKHR")
    with pytest.raises(UnsupportedError, match="vkGetMemoryFdKHR") as raised:
        functions.do("vkGetMemoryFdKHR")
    assert (raised.value.reason, raised.value.capability) == ("driver_too_old", "vkGetMemoryFdKHR")


def test_old_device_is_listed_without_uuids_and_luid(
    made: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    [physical] = made.physical_devices()
    physical.version = vk.VK_API_VERSION_1_1 - 1
    monkeypatch.setattr(made.functions, "vkGetPhysicalDeviceProperties2", None)
    info = physical.info(3)
    assert (info.id, info.uuid, info.driver_uuid, info.luid) == ("vulkan:3", None, None, None)
    assert info.driver_version


def test_device_that_cannot_be_opened_lists_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    use_swiftshader(monkeypatch)
    monkeypatch.setattr(PhysicalDevice, "has_timelines", lambda _self: False)
    backend = VulkanBackend()
    assert len(backend.devices()) == 1
    assert "timeline" in backend.details(0)["unusable"]
    assert [check.ok for check in backend.checks()] == [True, False]
    with pytest.raises(UnsupportedError) as raised:
        backend.open(0)
    assert raised.value.reason == "driver_too_old"


def test_device_that_cannot_be_made_leaves_no_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    use_swiftshader(monkeypatch)
    alive: list[Instance] = []
    start, close = Instance.__init__, Instance.close

    def started(self: Instance) -> None:
        start(self)
        alive.append(self)
        monkeypatch.setattr(self.functions, "vkCreateDevice", lambda *_: vk.VK_ERROR_TOO_MANY_OBJECTS)

    def closed(self: Instance) -> None:
        alive.remove(self)
        close(self)

    monkeypatch.setattr(Instance, "__init__", started)
    monkeypatch.setattr(Instance, "close", closed)
    with pytest.raises(XsemError) as raised:
        VulkanBackend().open(0)
    assert raised.value.call == "vkCreateDevice"
    assert alive == []


def test_luid_is_told_where_it_is_valid(made: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    [physical] = made.physical_devices()
    real = made.functions.vkGetPhysicalDeviceProperties2

    def properties(handle: Any, wanted: Any) -> None:
        real(handle, wanted)
        if wanted.pNext:
            identity: Any = load().ffi.cast("VkPhysicalDeviceIDProperties *", wanted.pNext)
            if identity.sType == vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES:
                identity.deviceLUIDValid = 1
                identity.deviceLUID = bytes(range(8))

    monkeypatch.setattr(made.functions, "vkGetPhysicalDeviceProperties2", properties)
    assert physical.info(0).luid == bytes(range(8))


def test_version_is_read_as_vulkan_packs_it() -> None:
    assert version_text(1 << 22 | 3 << 12 | 280) == "1.3.280"
