"""A VkInstance, and the properties of its physical devices."""

from __future__ import annotations

import uuid as _uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from xsem.errors import BackendUnavailableError, BusyError, UnsupportedError, XsemError
from xsem.types import DeviceInfo
from xsem_vulkan import constants as vk
from xsem_vulkan.loader import CData, Functions, Library, load
from xsem_vulkan.results import check

__all__ = ["Instance", "PhysicalDevice", "opened", "version_text"]

_GLOBAL: Final = ("vkEnumerateInstanceVersion", "vkCreateInstance")
_OF_INSTANCE: Final = (
    "vkDestroyInstance", "vkEnumeratePhysicalDevices", "vkGetPhysicalDeviceProperties",
    "vkGetPhysicalDeviceProperties2", "vkGetPhysicalDeviceFeatures2", "vkGetPhysicalDeviceMemoryProperties",
    "vkGetPhysicalDeviceQueueFamilyProperties", "vkEnumerateDeviceExtensionProperties",
    "vkGetPhysicalDeviceExternalSemaphoreProperties", "vkGetPhysicalDeviceExternalBufferProperties",
    "vkGetPhysicalDeviceFormatProperties2",
    "vkGetPhysicalDeviceImageFormatProperties2",
    "vkCreateDevice", "vkGetDeviceProcAddr",
)


class Instance:
    """A VkInstance, owned by xsem or borrowed from the application."""

    # `adopted` is the application's VkInstance, which must not be closed with `close`; 0 for a new instance.
    def __init__(self, adopted: int = 0) -> None:
        self.library: Library = load()
        library = self.library
        first = library.functions(library.null, _GLOBAL)
        self.version = _loader_version(library, first)
        self.handle: CData = library.ffi.cast("VkInstance", adopted) if adopted else self._create(first)
        self.functions: Functions = library.functions(self.handle, _OF_INSTANCE)

    def _create(self, first: Functions) -> CData:
        library = self.library
        application = library.new("VkApplicationInfo", apiVersion=vk.VK_API_VERSION_1_2)
        wanted = library.new("VkInstanceCreateInfo", pApplicationInfo=application)
        made = library.ffi.new("VkInstance *")
        try:
            first.do("vkCreateInstance", wanted, library.null, made)
        except XsemError as error:
            raise _unavailable(error) from error
        return made[0]

    def physical_devices(self) -> Sequence[PhysicalDevice]:
        """All physical devices, in the loader's order."""
        count = self.library.ffi.new("uint32_t *")
        enumerate_ = self.functions.vkEnumeratePhysicalDevices
        while True:
            try:
                check("vkEnumeratePhysicalDevices", enumerate_(self.handle, count, self.library.null))
                found = self.library.ffi.new("VkPhysicalDevice[]", count[0])
                code = check("vkEnumeratePhysicalDevices", enumerate_(self.handle, count, found))
            except XsemError as error:
                raise _unavailable(error) from error
            if code != vk.VK_INCOMPLETE:   # a device was added between the two calls
                return [PhysicalDevice(self, found[index]) for index in range(count[0])]

    def close(self) -> None:
        """Destroy the instance, after all objects created from it."""
        # The first instance is kept, so that the driver stays loaded.
        if _kept.setdefault(id(self.library), self) is not self:
            self.functions.vkDestroyInstance(self.handle, self.library.null)


# The loader unloads a driver with its last instance and loads it again with the next one. NVIDIA's driver supports 30
# of these cycles (measured, 580.159.04). Later vkCreateInstance calls return VK_ERROR_INCOMPATIBLE_DRIVER until the
# process ends.
_kept: dict[int, Instance] = {}


@contextmanager
def opened() -> Iterator[Instance]:
    """Create an instance for the duration of a ``with`` block."""
    instance = Instance()
    try:
        yield instance
    finally:
        instance.close()


def _loader_version(library: Library, first: Functions) -> int:
    version = library.ffi.new("uint32_t *", vk.VK_API_VERSION_1_1 - 1)
    if first.has("vkEnumerateInstanceVersion"):
        first.do("vkEnumerateInstanceVersion", version)
    if version[0] < vk.VK_API_VERSION_1_1:
        raise BackendUnavailableError("the Vulkan loader is older than Vulkan 1.1; install a newer one",
                                      reason="driver_too_old", backend="vulkan")
    return int(version[0])


def _unavailable(error: XsemError) -> XsemError:
    """Return the error of a failed query of instance or devices: unavailable, unless a resource is exhausted."""
    if isinstance(error, BackendUnavailableError | BusyError | MemoryError):
        return error
    return BackendUnavailableError(
        "a Vulkan driver is installed but does not start", reason="driver_failed", backend="vulkan",
        call=error.call, code=error.code, code_name=error.code_name,
        likely_causes=("the driver's library and its kernel module are of different releases",
                       "the user may not open the GPU's device nodes"))


@dataclass(frozen=True)
class Family:
    """A queue family."""

    index: int
    flags: int
    queues: int


@dataclass(frozen=True)
class MemoryTypes:
    """Property flags of every memory type."""

    flags: tuple[int, ...]   # in the driver's order, in which the better type comes first

    def choose(self, allowed: int, wanted: int, preferred: int = 0) -> int | None:
        """Return the first type of `allowed` with all `wanted` flags, if possible also with all `preferred` flags."""
        fitting = [index for index, flags in enumerate(self.flags)
                   if allowed >> index & 1 and flags & wanted == wanted
                   and not flags & vk.VK_MEMORY_PROPERTY_PROTECTED_BIT]
        best = [index for index in fitting if self.flags[index] & preferred == preferred]
        return next(iter(best or fitting), None)


class ImageLimits(NamedTuple):
    """Limits of one kind of image, and VkExternalMemoryFeatureFlags of its memory."""

    extent: tuple[int, int, int]
    levels: int
    layers: int
    features: int


class PhysicalDevice:
    """One VkPhysicalDevice, whose methods query the driver."""

    def __init__(self, instance: Instance, handle: CData) -> None:
        self.instance = instance
        self.library = instance.library
        self.functions = instance.functions
        self.handle = handle
        properties: CData = self.library.ffi.new("VkPhysicalDeviceProperties *")
        self.functions.vkGetPhysicalDeviceProperties(handle, properties)
        self.version = int(properties.apiVersion)
        self.name = self.library.text(properties.deviceName)
        self.cpu = properties.deviceType == vk.VK_PHYSICAL_DEVICE_TYPE_CPU
        self._driver_version = int(properties.driverVersion)

    def info(self, index: int) -> DeviceInfo:
        """Return the public information about the device."""
        if self.version < vk.VK_API_VERSION_1_1:   # Vulkan 1.0 lacks the functions for the other fields
            return DeviceInfo(id=f"vulkan:{index}", backend="vulkan", index=index, name=self.name,
                              driver_version=version_text(self._driver_version))
        identity = self._properties("VkPhysicalDeviceIDProperties")
        return DeviceInfo(
            id=f"vulkan:{index}", backend="vulkan", index=index, name=self.name,
            uuid=_uuid.UUID(bytes=bytes(identity.deviceUUID)),
            luid=bytes(identity.deviceLUID) if identity.deviceLUIDValid else None,
            driver_uuid=_uuid.UUID(bytes=bytes(identity.driverUUID)), driver_version=self.driver(),
        )

    def driver(self) -> str:
        """Name and version of the driver, in the driver's own words if available."""
        if self.version < vk.VK_API_VERSION_1_2:
            return version_text(self._driver_version)
        driver = self._properties("VkPhysicalDeviceDriverProperties")
        version = self.library.text(driver.driverInfo) or version_text(self._driver_version)
        return f"{self.library.text(driver.driverName)} {version}".strip()

    def driver_id(self) -> int:
        """The driver's VkDriverId."""
        return int(self._properties("VkPhysicalDeviceDriverProperties").driverID)

    def _properties(self, struct: str) -> CData:
        wanted = self.library.new("VkPhysicalDeviceProperties2")
        answer = self.library.linked(struct, wanted)
        self.functions.vkGetPhysicalDeviceProperties2(self.handle, wanted)
        return answer

    def largest_allocation(self) -> int:
        """Size of the largest allocation, in bytes."""
        return int(self._properties("VkPhysicalDeviceMaintenance3Properties").maxMemoryAllocationSize)

    def host_pointer_alignment(self) -> int:
        """Alignment of host memory that can be imported, if the device has VK_EXT_external_memory_host."""
        answer = self._properties("VkPhysicalDeviceExternalMemoryHostPropertiesEXT")
        return int(answer.minImportedHostPointerAlignment)

    def largest_value_difference(self) -> int:
        """Largest difference between a timeline's values."""
        answer = self._properties("VkPhysicalDeviceTimelineSemaphoreProperties")
        return int(answer.maxTimelineSemaphoreValueDifference)

    def has_timelines(self) -> bool:
        """Whether timeline semaphores can be enabled."""
        wanted = self.library.new("VkPhysicalDeviceFeatures2")
        answer = self.library.linked("VkPhysicalDeviceTimelineSemaphoreFeatures", wanted)
        self.functions.vkGetPhysicalDeviceFeatures2(self.handle, wanted)
        return bool(answer.timelineSemaphore)

    def extensions(self) -> frozenset[str]:
        """Names of the device extensions."""
        count = self.library.ffi.new("uint32_t *")
        null, ask = self.library.null, self.functions.do
        while True:
            ask("vkEnumerateDeviceExtensionProperties", self.handle, null, count, null)
            found = self.library.ffi.new("VkExtensionProperties[]", count[0])
            if ask("vkEnumerateDeviceExtensionProperties", self.handle, null, count, found) != vk.VK_INCOMPLETE:
                return frozenset(self.library.text(found[index].extensionName) for index in range(count[0]))

    def families(self) -> Sequence[Family]:
        """The queue families."""
        count = self.library.ffi.new("uint32_t *")
        self.functions.vkGetPhysicalDeviceQueueFamilyProperties(self.handle, count, self.library.null)
        found = self.library.ffi.new("VkQueueFamilyProperties[]", count[0])
        self.functions.vkGetPhysicalDeviceQueueFamilyProperties(self.handle, count, found)
        return [Family(index, found[index].queueFlags, found[index].queueCount) for index in range(count[0])]

    def memory_types(self) -> MemoryTypes:
        """The memory types."""
        answer: CData = self.library.ffi.new("VkPhysicalDeviceMemoryProperties *")
        self.functions.vkGetPhysicalDeviceMemoryProperties(self.handle, answer)
        return MemoryTypes(tuple(answer.memoryTypes[index].propertyFlags for index in range(answer.memoryTypeCount)))

    def semaphore_features(self, handle_type: int, *, timeline: bool) -> int:
        """VkExternalSemaphoreFeatureFlags of a handle type, for binary semaphores or for timelines."""
        kind = vk.VK_SEMAPHORE_TYPE_TIMELINE if timeline else vk.VK_SEMAPHORE_TYPE_BINARY
        wanted = self.library.new("VkPhysicalDeviceExternalSemaphoreInfo", handleType=handle_type)
        self.library.linked("VkSemaphoreTypeCreateInfo", wanted, semaphoreType=kind)
        answer = self.library.new("VkExternalSemaphoreProperties")
        self.functions.vkGetPhysicalDeviceExternalSemaphoreProperties(self.handle, wanted, answer)
        return int(answer.externalSemaphoreFeatures)

    def buffer_features(self, handle_type: int, usage: int) -> int:
        """VkExternalMemoryFeatureFlags of a handle type, for buffers of that usage."""
        wanted = self.library.new("VkPhysicalDeviceExternalBufferInfo", usage=usage, handleType=handle_type)
        answer = self.library.new("VkExternalBufferProperties")
        self.functions.vkGetPhysicalDeviceExternalBufferProperties(self.handle, wanted, answer)
        return int(answer.externalMemoryProperties.externalMemoryFeatures)

    def modifiers(self, pixels: int) -> dict[int, int]:
        """Numbers of memory planes of a format, by DRM format modifier (VK_EXT_image_drm_format_modifier)."""
        answer = self.library.new("VkFormatProperties2")
        listed = self.library.linked("VkDrmFormatModifierPropertiesListEXT", answer)
        self.functions.vkGetPhysicalDeviceFormatProperties2(self.handle, pixels, answer)
        found = self.library.ffi.new("VkDrmFormatModifierPropertiesEXT[]", max(1, int(listed.drmFormatModifierCount)))
        listed.pDrmFormatModifierProperties = found
        self.functions.vkGetPhysicalDeviceFormatProperties2(self.handle, pixels, answer)
        return {int(each.drmFormatModifier): int(each.drmFormatModifierPlaneCount)
                for each in found[0:int(listed.drmFormatModifierCount)]}

    def image_limits(
        self, pixels: int, type: int, usage: int, flags: int, handle_type: int, modifier: int | None = None
    ) -> ImageLimits | None:
        """Limits of such images in memory of a handle type; None if they are unsupported."""
        tiling = vk.VK_IMAGE_TILING_OPTIMAL if modifier is None else vk.VK_IMAGE_TILING_DRM_FORMAT_MODIFIER_EXT
        wanted = self.library.new("VkPhysicalDeviceImageFormatInfo2", format=pixels, type=type, usage=usage,
                                  flags=flags, tiling=tiling)
        if modifier is not None:
            self.library.linked("VkPhysicalDeviceImageDrmFormatModifierInfoEXT", wanted, drmFormatModifier=modifier,
                                sharingMode=vk.VK_SHARING_MODE_EXCLUSIVE)
        self.library.linked("VkPhysicalDeviceExternalImageFormatInfo", wanted, handleType=handle_type)
        answer = self.library.new("VkImageFormatProperties2")
        memory = self.library.linked("VkExternalImageFormatProperties", answer)
        try:
            self.functions.do("vkGetPhysicalDeviceImageFormatProperties2", self.handle, wanted, answer)
        except UnsupportedError:   # VK_ERROR_FORMAT_NOT_SUPPORTED: of the format, or of the handle type
            return None
        limits = answer.imageFormatProperties
        most = limits.maxExtent
        return ImageLimits((int(most.width), int(most.height), int(most.depth)), int(limits.maxMipLevels),
                           int(limits.maxArrayLayers), int(memory.externalMemoryProperties.externalMemoryFeatures))


def version_text(version: int) -> str:
    """Format a version that is packed as Vulkan's own versions."""
    # Vendors may pack driver versions differently.
    return f"{version >> 22 & 127}.{version >> 12 & 1023}.{version & 4095}"
