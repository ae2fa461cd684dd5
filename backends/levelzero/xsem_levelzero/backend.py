"""The backend: the devices, their capabilities, and how a device is opened."""

from __future__ import annotations

import os
import sys
import uuid as _uuid
from collections.abc import Mapping, Sequence
from ctypes import addressof, byref, c_uint32
from pathlib import Path
from typing import ClassVar, Final, NamedTuple, cast

from xsem.errors import BackendUnavailableError, BadArgumentError, DeviceNotFoundError
from xsem.spi import Backend, DeviceDriver, SuiteHooks, failed_check, loaded_library
from xsem.types import Capabilities, DeviceInfo, HealthCheck, SemaphoreHandleType
from xsem_levelzero import ze
from xsem_levelzero.capabilities import WIN32_SEMAPHORES, capabilities_of, memory_types
from xsem_levelzero.core import Core, create_context, queues_of
from xsem_levelzero.device import LevelZeroDevice
from xsem_levelzero.functions import LOADER_ROUTE, Extension, find_extension
from xsem_levelzero.loader import INSTALL, Loader, filled, load
from xsem_levelzero.native import Native
from xsem_levelzero.probe import Behaviour, probe
from xsem_levelzero.releases import INTEL, build_of, flaw_of, version_text
from xsem_levelzero.results import SUCCESS

__all__ = ["LevelZeroBackend"]

_MISSING: Final = "the four functions of the extension are neither in the loader nor in the driver"


class _Gpu(NamedTuple):
    """A device as the loader lists it."""

    driver: int
    device: int
    driver_properties: ze.DriverProperties
    properties: ze.DeviceProperties

    @property
    def build(self) -> int | None:
        return build_of(self.properties.vendorId, self.driver_properties.driverVersion)


class _Known(NamedTuple):
    """The properties of a device, determined once in a process."""

    extension: Extension
    listed: bool
    behaviour: Behaviour
    reasons: dict[SemaphoreHandleType | None, str]
    semaphores: frozenset[SemaphoreHandleType]
    wears_out: bool


class LevelZeroBackend(Backend):
    """GPUs through the Level Zero loader.

    Parameters
    ----------
    platform : str
        A value of `sys.platform`. It selects the handle types that are declared. A value other than this machine's
        allows tests of the structs against a driver that only reads them.

    Examples
    --------
    >>> device = xsem.open_device("levelzero:0")  # doctest: +SKIP
    """

    name: ClassVar[str] = "levelzero"
    spi_version: ClassVar[int] = 2

    def __init__(self, platform: str = sys.platform) -> None:
        self._platform = platform
        self._known: dict[tuple[int, int, int], _Known] = {}

    def devices(self) -> Sequence[DeviceInfo]:
        """List the GPUs of all drivers, in the loader's order.

        Returns
        -------
        sequence of DeviceInfo

        Raises
        ------
        BackendUnavailableError
            ``levelzero_loader_missing``, ``no_driver``, ``driver_failed``.
        """
        loader = load()
        return tuple(self._info(loader, gpu, index) for index, gpu in enumerate(_gpus(loader)))

    def open(self, index: int) -> LevelZeroDevice:
        """Open a device in a new context.

        The device owns the context and destroys it when the device is closed. If opening fails, the context is
        destroyed.

        Raises
        ------
        BackendUnavailableError
            ``levelzero_loader_missing``, ``no_driver``, ``driver_failed``.
        DeviceNotFoundError
            ``no_such_device``.
        """
        loader = load()
        gpu = _gpu(loader, index)
        known = self._look(loader, gpu)
        context = create_context(loader, gpu.driver)

        def close() -> None:
            loader.do("zeContextDestroy", context)

        try:
            core = Core(loader, known.extension, gpu.driver, gpu.device, context)
            return LevelZeroDevice(core, index, self._capabilities(loader, gpu, known), wears_out=known.wears_out,
                                   close_context=close)
        except BaseException:
            close()
            raise

    def suite_hooks(self, driver: DeviceDriver) -> SuiteHooks:
        """Return native lists and events for the conformance suite."""
        from xsem_levelzero.suite_hooks import LevelZeroHooks

        return LevelZeroHooks(cast("LevelZeroDevice", driver)._core)

    def borrow(self, native: object) -> tuple[DeviceInfo, LevelZeroDevice]:
        """Open a device on the application's driver, context and device.

        The objects are borrowed. They stay the application's on success and on failure.

        Parameters
        ----------
        native : Native

        Raises
        ------
        BadArgumentError
            ``bad_native``: `native` is not a `Native`, the loader does not list its driver and device, or its context
            is null.
        BackendUnavailableError
            ``levelzero_loader_missing``, ``no_driver``, ``driver_failed``.
        """
        loader = load()
        if not isinstance(native, Native):
            raise BadArgumentError(
                "the levelzero backend takes xsem_levelzero.Native(driver, context, device) as native=, not "
                f"{native!r}", reason="bad_native",
            )
        index, gpu = next(((index, gpu) for index, gpu in enumerate(_gpus(loader))
                           if gpu.driver == native.driver and gpu.device == native.device), (-1, None))
        if gpu is None:
            raise BadArgumentError("native= names a driver and a device that the Level Zero loader does not list: pass "
                                   "its own handles, of a whole GPU", reason="bad_native")
        if not native.context:
            raise BadArgumentError("native= has a null context", reason="bad_native")
        known = self._look(loader, gpu)
        core = Core(loader, known.extension, gpu.driver, gpu.device, native.context)
        return self._info(loader, gpu, index), LevelZeroDevice(
            core, index, self._capabilities(loader, gpu, known), wears_out=known.wears_out, close_context=_nothing)

    def details(self, index: int) -> Mapping[str, str]:
        """Report the route to the functions, versions, and the driver's behaviour with real semaphores."""
        loader = load()
        _, started_by = loader.drivers()
        gpu = _gpu(loader, index)
        known = self._look(loader, gpu)
        api = c_uint32()
        loader.do("zeDriverGetApiVersion", gpu.driver, byref(api))
        return {
            "library": loader.file,
            "loader_version": loader.version(),
            "started_by": started_by,
            "level_zero_api": f"{api.value >> 16}.{api.value & 0xFFFF}",
            "intel_build": "" if gpu.build is None else str(gpu.build),
            "extension_listed": str(known.listed).lower(),
            "functions": known.extension.route,
            "validation_layer": _validation(known.extension.route),
            "wrapped_handles": str(known.extension.wrapped).lower(),
            "queues": str(queues_of(loader, gpu.device).number),
            "seen_with": known.behaviour.found_by,
            "fresh_import_per_wait": str(known.wears_out).lower(),
            "refused": _refused(known),
        }

    def libraries(self, index: int) -> Sequence[Path | str]:
        """Return the loader, and the driver by its version."""
        loader = load()
        version = version_text(_gpu(loader, index).driver_properties.driverVersion)
        return loaded_library(loader.file), f"Level Zero driver {version}"

    def checks(self) -> Sequence[HealthCheck]:
        """Check the loader, the driver, the functions and the semaphores for ``xsem doctor``. It never raises."""
        try:
            loader = load()
        except BackendUnavailableError as error:
            return (failed_check("loader", error, INSTALL),)
        checks = [HealthCheck(name="loader", ok=True, detail=loader.file)]
        try:
            gpus = _gpus(loader)
            # The loader reports its version after initialisation.
            checks = [HealthCheck(name="loader", ok=True, detail=f"{loader.file} {loader.version()}".strip())]
            for index, gpu in enumerate(gpus):
                known = self._look(loader, gpu)
                layer, refused = _validation(known.extension.route), _refused(known)
                checks.append(HealthCheck(
                    name=f"levelzero:{index}", ok=bool(known.semaphores),
                    detail=known.reasons.get(None) or
                           f"functions from {known.extension.route}; imports "
                           f"{', '.join(sorted(each.value for each in known.semaphores)) or 'no semaphore'}"
                           + (f"; refused {refused}" if refused else "")
                           + (f"; validation layer {layer}" if layer else ""),
                    remedy="" if known.semaphores else "update Intel's GPU driver (25.27 or newer) and the loader",
                ))
        except Exception as error:  # `xsem doctor` reports a driver's failure as a check
            checks.append(failed_check(
                "driver", error, "install Intel's GPU driver, the loader and its layers from one release, and allow "
                                 "this user to open /dev/dri/renderD*"))
        return tuple(checks)

    # ---- inside
    def _look(self, loader: Loader, gpu: _Gpu) -> _Known:
        key = (os.getpid(), gpu.driver, gpu.device)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._find_out(loader, gpu)
        return known

    def _find_out(self, loader: Loader, gpu: _Gpu) -> _Known:
        extension = find_extension(loader, gpu.driver)
        listed = any(each.name == ze.EXTENSION.encode() for each in loader.structs(
            ze.DriverExtension, "zeDriverGetExtensionProperties", gpu.driver))
        reasons: dict[SemaphoreHandleType | None, str] = {}
        behaviour = Behaviour()
        semaphores: frozenset[SemaphoreHandleType] = frozenset()
        flaw = flaw_of(gpu.build) if self._platform == "linux" else None
        if flaw is not None:
            reasons[None] = flaw
        if not extension.found:
            reasons.setdefault(None, _MISSING)
        elif self._platform == "win32":
            # On Windows xsem cannot create an object for a test import. The list of extensions is the only source.
            semaphores = WIN32_SEMAPHORES if listed else frozenset()
        elif self._platform == "linux":
            context = create_context(loader, gpu.driver)
            try:
                behaviour = probe(Core(loader, extension, gpu.driver, gpu.device, context))
            finally:
                if not behaviour.stuck:
                    loader.do("zeContextDestroy", context)
            semaphores = frozenset() if flaw else behaviour.types
            reasons.update((type, why) for type, why in behaviour.refusals.items())
        wears_out = (self._platform == "linux" and gpu.properties.vendorId == INTEL and not behaviour.resets)
        return _Known(extension, listed, behaviour, reasons, semaphores, wears_out and bool(semaphores))

    def _capabilities(self, loader: Loader, gpu: _Gpu, known: _Known) -> Capabilities:
        external = filled(ze.DeviceExternalMemory, loader, "zeDeviceGetExternalMemoryProperties", gpu.device)
        memories = memory_types(self._platform, external.memoryAllocationImportTypes)
        return capabilities_of(
            known.semaphores, memories, known.behaviour, lists=queues_of(loader, gpu.device).number,
            # Intel's driver for Linux reports no image imports. It does import images, and may crash where an import
            # fails.
            images=bool(memory_types(self._platform, external.imageImportTypes)), trusted=gpu.build is None,
        )

    def _info(self, loader: Loader, gpu: _Gpu, index: int) -> DeviceInfo:
        uuid = bytes(gpu.properties.uuid)
        return DeviceInfo(
            id=f"levelzero:{index}", backend="levelzero", index=index,
            name=gpu.properties.name.decode("utf-8", "replace"), uuid=_uuid.UUID(bytes=uuid) if any(uuid) else None,
            luid=self._luid(loader, gpu.device), driver_version=version_text(gpu.driver_properties.driverVersion),
        )

    def _luid(self, loader: Loader, device: int) -> bytes | None:
        if self._platform != "win32":
            return None
        luid = ze.DeviceLuid.made()
        properties = ze.DeviceProperties.made()
        properties.pNext = addressof(luid)
        if loader.raw("zeDeviceGetProperties", device, byref(properties)) != SUCCESS:
            return None
        found = bytes(luid.luid)
        return found if any(found) else None


def _refused(known: _Known) -> str:
    """Return the undeclared handle types, each with its reason. "all" stands for all types."""
    return "; ".join(f"{each.value if each else 'all'}: {why}" for each, why in known.reasons.items())


def _validation(route: str) -> str:
    """Tell whether the loader's validation layer, if enabled, sees the extension's four functions."""
    if os.environ.get("ZE_ENABLE_VALIDATION_LAYER", "0") in ("", "0"):
        return ""
    if route == LOADER_ROUTE:
        return "in the path of the semaphore functions"
    return "not in the path of the semaphore functions, which come from the driver past the loader's layers"


def _gpus(loader: Loader) -> list[_Gpu]:
    drivers, _ = loader.drivers()
    found = []
    for driver in drivers:
        driver_properties = filled(ze.DriverProperties, loader, "zeDriverGetProperties", driver)
        for device in loader.handles("zeDeviceGet", driver):
            properties = filled(ze.DeviceProperties, loader, "zeDeviceGetProperties", device)
            if properties.type == ze.DEVICE_TYPE_GPU:
                found.append(_Gpu(driver, device, driver_properties, properties))
    return found


def _gpu(loader: Loader, index: int) -> _Gpu:
    gpus = _gpus(loader)
    if not 0 <= index < len(gpus):
        raise DeviceNotFoundError(f"levelzero:{index} does not exist; the loader lists {len(gpus)} devices",
                                  reason="no_such_device")
    return gpus[index]


def _nothing() -> None:
    """Do nothing: a borrowed context stays the application's."""
