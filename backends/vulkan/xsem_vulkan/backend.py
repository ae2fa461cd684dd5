"""The backend ``vulkan``: the devices that the Vulkan loader lists."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, cast

from xsem.errors import BackendUnavailableError, DeviceNotFoundError, XsemError
from xsem.spi import Backend, DeviceDriver, SuiteHooks, failed_check, loaded_library
from xsem.types import DeviceInfo, HealthCheck, MemoryHandleType, SemaphoreHandleType
from xsem_vulkan.answers import ask
from xsem_vulkan.device import VulkanDevice
from xsem_vulkan.gpu import open_gpu
from xsem_vulkan.instance import Instance, PhysicalDevice, opened, version_text
from xsem_vulkan.loader import load
from xsem_vulkan.native import borrowed

__all__ = ["VulkanBackend"]


class VulkanBackend(Backend):
    """Vulkan devices, through the Vulkan loader. See ``docs/vulkan.md``."""

    name: ClassVar[str] = "vulkan"
    spi_version: ClassVar[int] = 2

    def devices(self) -> Sequence[DeviceInfo]:
        """List all physical devices, CPUs included."""
        with opened() as instance:
            return [physical.info(index) for index, physical in enumerate(_physical_devices(instance))]

    def open(self, index: int) -> VulkanDevice:
        """Open a new VkDevice on a new VkInstance. The result owns both."""
        instance = Instance()
        try:
            physical = _one(instance, index)
            return VulkanDevice(open_gpu(physical, ask(physical)), index)
        except BaseException:
            instance.close()
            raise

    def suite_hooks(self, driver: DeviceDriver) -> SuiteHooks:
        """Return native queues for the conformance suite."""
        from xsem_vulkan.suite_hooks import VulkanHooks

        made = cast("VulkanDevice", driver)
        return VulkanHooks(made._gpu, lambda: self.open(made._index)._gpu)

    def borrow(self, native: object) -> tuple[DeviceInfo, VulkanDevice]:
        """Open a device on the application's VkDevice and queues, which stay the application's."""
        index, physical, gpu = borrowed(native)
        return physical.info(index), VulkanDevice(gpu, index)

    def details(self, index: int) -> Mapping[str, str]:
        """Report versions, the kind of device, and the queue family in use."""
        with opened() as instance:
            physical = _one(instance, index)
            found = {
                "loader": f"{instance.library.file}, Vulkan {version_text(instance.version)}",
                "vulkan": version_text(physical.version),
                "kind": "CPU" if physical.cpu else "GPU",
            }
            try:
                answers = ask(physical)
            except XsemError as error:
                return found | {"unusable": error.message}
            return found | {
                "queues": f"{answers.queues} of family {answers.family.index}",
                "extensions": " ".join(sorted(answers.extensions)),
            }

    def libraries(self, index: int) -> Sequence[Path | str]:
        """Return the loader, and the driver of the device by its name and version."""
        with opened() as instance:
            return loaded_library(instance.library.file), _one(instance, index).driver()

    def checks(self) -> Sequence[HealthCheck]:
        """Check package, loader and driver, and list the exports and imports of each device, for ``xsem doctor``."""
        try:
            library = load()
        except Exception as error:   # this method never raises
            cffi = isinstance(error, BackendUnavailableError) and error.reason == "cffi_missing"
            return (failed_check("cffi" if cffi else "Vulkan loader", error,
                                 "pip install 'xsem[vulkan]'" if cffi else _LOADER_REMEDY),)
        found = [HealthCheck(name="Vulkan loader", ok=True, detail=library.file)]
        try:
            with opened() as instance:
                for index, physical in enumerate(_physical_devices(instance)):
                    found.append(_look(index, physical))
        except Exception as error:
            found.append(failed_check(
                "Vulkan driver", error,
                "install the GPU vendor's Vulkan driver; VK_LOADER_DEBUG=all shows what the loader looks for"))
        return found


_LOADER_REMEDY = ("install the Vulkan loader (Debian, Ubuntu: libvulkan1; Fedora: vulkan-loader)"
                  if sys.platform.startswith("linux") else "install the GPU vendor's driver, or the Vulkan SDK")


def _physical_devices(instance: Instance) -> Sequence[PhysicalDevice]:
    found = instance.physical_devices()
    if not found:
        raise BackendUnavailableError("no Vulkan driver finds a device", reason="no_device", backend="vulkan")
    return found


def _one(instance: Instance, index: int) -> PhysicalDevice:
    found = _physical_devices(instance)
    if not 0 <= index < len(found):
        raise DeviceNotFoundError(f"the loader lists {len(found)} devices, from vulkan:0 on", reason="no_such_device",
                                  backend="vulkan")
    return found[index]


def _look(index: int, physical: PhysicalDevice) -> HealthCheck:
    name = f"vulkan:{index}"
    try:
        answers = ask(physical)
    except Exception as error:
        return failed_check(name, error, "install a newer driver")
    exported = _listed(answers.semaphore_export, answers.memory_export)
    imported = _listed(answers.semaphore_import, answers.memory_import)
    # A driver without exports is not a fault of the machine: it lists devices and refuses exports.
    return HealthCheck(name=name, ok=True, detail=f"{physical.name}, {physical.driver()}; exports {exported}; imports "
                                            f"{imported}")


def _listed(semaphores: frozenset[SemaphoreHandleType], memories: frozenset[MemoryHandleType]) -> str:
    named = [f"semaphore {each.value}" for each in sorted(semaphores)]
    named += [f"memory {each.value}" for each in sorted(memories)]
    return ", ".join(named) or "nothing"
