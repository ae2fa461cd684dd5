"""A backend that declares something must implement it: seen when the device is opened, not at the first use."""

from __future__ import annotations

from collections.abc import Iterable

from xsem.errors import BackendUnavailableError
from xsem.spi import Backend, CommandListDriver, DeviceDriver
from xsem.types import Capabilities, DeviceInfo, Feature

__all__ = ["check_device_promises", "check_list_promises", "check_native_promise"]

_IMAGES = ("map_mipmapped_array", "mipmap_level", "release_array", "host_buffer", "release_host_buffer")
_BY_FEATURE = {
    Feature.HOST_SIGNAL: ("host_signal",),
    Feature.HOST_WAIT: ("host_wait",),
    Feature.READ_VALUE: ("semaphore_value",),
    Feature.MIPMAPPED_ARRAY: _IMAGES,
    Feature.IMAGE: _IMAGES,
    Feature.NATIVE_EVENTS: ("open_event",),
}


def check_device_promises(info: DeviceInfo, driver: DeviceDriver) -> None:
    """Refuse a driver that declares what it does not override.

    Raises
    ------
    BackendUnavailableError
        ``broken_promise``.
    """
    capabilities = driver.capabilities
    needed: list[str] = []
    if capabilities.semaphore_import:
        needed += ["import_semaphore", "release_semaphore"]
    if capabilities.semaphore_export:
        needed += ["create_semaphore", "export_semaphore", "release_semaphore"]
    if capabilities.memory_import:
        needed += ["import_memory", "map_buffer", "unmap_buffer", "release_memory"]
    if capabilities.memory_export:
        needed += ["create_memory", "export_memory", "map_buffer", "unmap_buffer", "release_memory"]
    for feature in capabilities.features:
        needed += _BY_FEATURE.get(feature, ())
    _check(info, driver, DeviceDriver, needed)


def check_list_promises(info: DeviceInfo, capabilities: Capabilities, driver: CommandListDriver) -> None:
    """The same for its lists."""
    needed: list[str] = []
    if capabilities.semaphore_import or capabilities.semaphore_export:
        needed += ["append_wait", "append_signal"]
    if Feature.RECORDING in capabilities.features:
        needed += ["begin_recording", "end_recording", "replay", "release_recording"]
    if capabilities.features & {Feature.MIPMAPPED_ARRAY, Feature.IMAGE}:
        needed.append("append_level_copy")
    _check(info, driver, CommandListDriver, needed)


def check_native_promise(info: DeviceInfo, backend: Backend, capabilities: Capabilities) -> None:
    """The same for the backend itself, which adopts native contexts."""
    needed = ["adopt"] if Feature.NATIVE_CONTEXT in capabilities.features else []
    _check(info, backend, Backend, needed)


def _check(info: DeviceInfo, driver: object, base: type, needed: Iterable[str]) -> None:
    missing = [name for name in dict.fromkeys(needed) if getattr(type(driver), name) is getattr(base, name)]
    if missing:
        raise BackendUnavailableError(
            f"the backend {info.backend!r} declares capabilities of {info.id} that it does not implement: "
            + ", ".join(missing),
            reason="broken_promise",
            backend=info.backend,
        )
