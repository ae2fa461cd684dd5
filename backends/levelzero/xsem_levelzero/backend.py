"""The backend: the devices, their capabilities, and how a device is opened."""

from __future__ import annotations

import os
import sys
import uuid as _uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from ctypes import addressof, byref, c_uint32
from pathlib import Path
from typing import ClassVar, Final, NamedTuple, cast

from xsem.errors import BackendUnavailableError, BadArgumentError, DeviceNotFoundError, XsemError
from xsem.spi import Backend, DeviceDriver, SuiteHooks, failed_check, loaded_library
from xsem.types import Capabilities, DeviceInfo, HealthCheck, MemoryHandleType, SemaphoreHandleType
from xsem_levelzero import ze
from xsem_levelzero.capabilities import WIN32_SEMAPHORES, capabilities_of, memory_types
from xsem_levelzero.core import Core, create_context, queues_of
from xsem_levelzero.device import LevelZeroDevice
from xsem_levelzero.exports import Exports, probe_exports
from xsem_levelzero.functions import LOADER_ROUTE, Extension, find_extensions, is_loaded
from xsem_levelzero.loader import INSTALL, Loader, filled, load
from xsem_levelzero.native import Native
from xsem_levelzero.probe import Behaviour, probe
from xsem_levelzero.releases import INTEL, build_of, flaw_of, signal_blocks, version_text
from xsem_levelzero.results import INVALID, SUCCESS, UNINITIALIZED, UNSUPPORTED_FEATURE, UNSUPPORTED_VERSION
from xsem_levelzero.sycl import list_of_sycl, sycl_address
from xsem_levelzero.unmet_waits import UnmetWaits, unmet_waits_of

__all__ = ["LevelZeroBackend"]

_MISSING: Final = "the four functions of the extension are neither in the loader nor in the driver"

_NO_FRAME_LOOP: Final = "a signal behind an unmet wait is refused (signal_behind_wait): a frame loop needs driver 26.22"

_LAYER: Final = "libze_validation_layer.so.1"
_LAYERS: Final = {"win32": "ze_validation_layer.dll"}
_REINSTALL: Final = "install Intel's GPU driver, the loader and its layers from one release" + (
    "" if sys.platform == "win32" else ", and allow this user to open /dev/dri/renderD*")


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
        self._exports: dict[tuple[int, int, int], Exports] = {}

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
            return self._device(loader, gpu, index, known, context, close)
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
        native : Native, or stream of torch.xpu or dpctl
            For a stream: the driver, context and device of its SYCL queue.

        Raises
        ------
        BadArgumentError
            ``bad_native``: `native` is not a `Native`, the loader does not list its driver and device, or its context
            is null. ``null_stream``, ``not_a_stream``, ``out_of_order``, ``not_immediate``: as for `command_list`.
        UnsupportedError
            ``sycl_runtime``; ``driver_too_old``: the loader (1.17 or newer) or the driver (specification 1.9) does not
            identify the context of a list.
        BackendUnavailableError
            ``levelzero_loader_missing``, ``no_driver``, ``driver_failed``.
        """
        loader = load()
        address = sycl_address(native)
        if address is not None:
            native = _native_of(loader, list_of_sycl(address))
        if not isinstance(native, Native):
            raise BadArgumentError(
                "the levelzero backend takes xsem_levelzero.Native(driver, context, device), or a stream of "
                f"torch.xpu or dpctl, as native=, not {native!r}", reason="bad_native",
            )
        index, gpu = next(((index, gpu) for index, gpu in enumerate(_gpus(loader))
                           if gpu.driver == native.driver and gpu.device == native.device), (-1, None))
        if gpu is None:
            raise BadArgumentError("native= names a driver and a device that the Level Zero loader does not list: pass "
                                   "its own handles, of a whole GPU", reason="bad_native")
        if not native.context:
            raise BadArgumentError("native= has a null context", reason="bad_native")
        known = self._look(loader, gpu)
        return self._info(loader, gpu, index), self._device(loader, gpu, index, known, native.context, _nothing)

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
            "exports_closed_by": _closer(self._exports_of(loader, gpu)),
            "refused_exports": _refused_exports(self._exports_of(loader, gpu)),
            "signal_behind_wait": "refused" if signal_blocks(gpu.build) else "appended",
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
            failures: list[XsemError] = []
            gpus = _gpus(loader, failures)
            # The loader reports its version after initialisation.
            checks = [HealthCheck(name="loader", ok=True, detail=f"{loader.file} {loader.version()}".strip())]
            checks += [failed_check("driver", error, _REINSTALL) for error in failures if gpus]
            checks += [self._check(loader, gpu, index) for index, gpu in enumerate(gpus)]
        except Exception as error:  # `xsem doctor` reports a driver's failure as a check
            checks.append(failed_check("driver", error, _REINSTALL))
        return tuple(checks)

    # ---- inside
    def _check(self, loader: Loader, gpu: _Gpu, index: int) -> HealthCheck:
        try:
            known = self._look(loader, gpu)
        except Exception as error:  # other devices may be healthy
            return failed_check(f"levelzero:{index}", error, _REINSTALL)
        layer, refused = _validation(known.extension.route), _refused(known)
        remedy = "" if known.semaphores else _remedy(loader, gpu, known)
        return HealthCheck(
            name=f"levelzero:{index}", ok=bool(known.semaphores),
            detail=(f"{known.reasons[None]}; " if None in known.reasons else "") +
                   f"functions from {known.extension.route}; imports "
                   f"{', '.join(sorted(each.value for each in known.semaphores)) or 'no semaphore'}"
                   + (f"; refused {refused}" if refused else "")
                   + (f"; {_NO_FRAME_LOOP}" if known.semaphores and signal_blocks(gpu.build) else "")
                   + (f"; validation layer {layer}" if layer else ""),
            remedy=remedy,
        )

    def _device(
        self, loader: Loader, gpu: _Gpu, index: int, known: _Known, context: int, close: Callable[[], None]
    ) -> LevelZeroDevice:
        """Open a device in a context. `close` ends the context."""
        exports = self._exports_of(loader, gpu)
        return LevelZeroDevice(
            Core(loader, known.extension, gpu.driver, gpu.device, context), index,
            self._capabilities(loader, gpu, known, exports), wears_out=known.wears_out,
            driver_closes_exports=exports.driver_closes, close_context=close, unmet=_unmet(gpu), causes=_causes(known))

    def _exports_of(self, loader: Loader, gpu: _Gpu) -> Exports:
        """Return the result of the probe of exports. A probe without an answer is not remembered."""
        key = (os.getpid(), gpu.driver, gpu.device)
        known = self._exports.get(key)
        if known is None:
            external = filled(ze.DeviceExternalMemory, loader, "zeDeviceGetExternalMemoryProperties", gpu.device)
            # Exports on Windows have not run anywhere.
            types = memory_types("linux", external.memoryAllocationExportTypes) if self._platform == "linux" else ()
            known = _probed_exports(loader, gpu, self._look(loader, gpu).extension, types)
            if known.answered:
                self._exports[key] = known
        return known

    def _look(self, loader: Loader, gpu: _Gpu) -> _Known:
        key = (os.getpid(), gpu.driver, gpu.device)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._find_out(loader, gpu)
        return known

    def _find_out(self, loader: Loader, gpu: _Gpu) -> _Known:
        extensions = find_extensions(loader, gpu.driver)
        extension = next(extensions)
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
            behaviour = _probed(loader, gpu, extension)
            for other in extensions if _without_functions(behaviour) else ():
                found = _probed(loader, gpu, other)
                if found.types:
                    extension, behaviour = other, found
                    break
            semaphores = frozenset() if flaw else behaviour.types
            reasons.update((type, why) for type, why in behaviour.refusals.items())
        wears_out = (self._platform == "linux" and gpu.properties.vendorId == INTEL and not behaviour.resets)
        return _Known(extension, listed, behaviour, reasons, semaphores, wears_out and bool(semaphores))

    def _capabilities(self, loader: Loader, gpu: _Gpu, known: _Known, exports: Exports) -> Capabilities:
        external = filled(ze.DeviceExternalMemory, loader, "zeDeviceGetExternalMemoryProperties", gpu.device)
        memories = memory_types(self._platform, external.memoryAllocationImportTypes)
        return capabilities_of(
            known.semaphores, memories, known.behaviour, exported=exports.types,
            lists=queues_of(loader, gpu.device).number,
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


def _causes(known: _Known) -> tuple[str, ...]:
    """Return the reasons for undeclared handle types, one sentence each."""
    return tuple(f"{each.value}: {why}" if each else why for each, why in known.reasons.items())


def _refused(known: _Known) -> str:
    """Return the undeclared handle types, each with its reason. "all" stands for all types."""
    return "; ".join(f"{each.value if each else 'all'}: {why}" for each, why in known.reasons.items())


def _probed(loader: Loader, gpu: _Gpu, extension: Extension) -> Behaviour:
    """Probe the functions of one source in a context of their own."""
    context = create_context(loader, gpu.driver)
    behaviour = Behaviour()
    try:
        behaviour = probe(Core(loader, extension, gpu.driver, gpu.device, context))
    finally:
        if not behaviour.stuck:
            loader.do("zeContextDestroy", context)
    return behaviour


def _probed_exports(
    loader: Loader, gpu: _Gpu, extension: Extension, types: Collection[MemoryHandleType]
) -> Exports:
    """Probe the exports of memory in a context of their own."""
    if not types:
        return Exports()
    context = create_context(loader, gpu.driver)
    try:
        return probe_exports(Core(loader, extension, gpu.driver, gpu.device, context), types)
    finally:
        loader.do("zeContextDestroy", context)


def _refused_exports(exports: Exports) -> str:
    """Return the types whose export was refused, each with its reason."""
    return "; ".join(f"{type.value}: {why}" for type, why in exports.refusals.items())


def _closer(exports: Exports) -> str:
    """Return who closes the fd of an export: the driver, or the caller."""
    return "" if not exports.types else "driver" if exports.driver_closes else "caller"


def _without_functions(behaviour: Behaviour) -> bool:
    """Whether the answers are those of a loader whose driver did not give it the functions."""
    return not behaviour.types and bool(behaviour.codes) and behaviour.codes <= {UNSUPPORTED_FEATURE, UNINITIALIZED}


def _remedy(loader: Loader, gpu: _Gpu, known: _Known) -> str:
    """Return the remedy for a device that imports no semaphore, from the cause as far as it is known."""
    layer = bool(_validation(known.extension.route)) and is_loaded(_LAYERS.get(sys.platform, _LAYER))
    if layer and os.environ.get("ZE_ENABLE_HANDLE_LIFETIME") == "1":
        return ("unset ZE_ENABLE_HANDLE_LIFETIME: the layer's checker of handle lifetimes refuses correct programs up "
                "to loader 1.32")
    if layer and known.behaviour.codes & INVALID and os.environ.get("ZE_ENABLE_PARAMETER_VALIDATION") == "1":
        return ("update the loader to 1.21.2, or unset ZE_ENABLE_PARAMETER_VALIDATION: the layer of 1.20.2 to 1.21.1 "
                f"refuses every import (this loader is {loader.version() or 'of unknown version'})")
    if layer and UNSUPPORTED_VERSION in known.behaviour.codes:
        return "unset ZEL_ENABLE_CERTIFICATION_CHECKER, or declare version 1.12 for it"
    if not known.extension.found:
        return "update Intel's GPU driver to 25.27 or newer: neither the loader nor the driver has the functions"
    if flaw_of(gpu.build) is not None:
        return "update Intel's GPU driver to 25.27 or newer, for frame loops to 26.22 or newer"
    if known.extension.route == LOADER_ROUTE and UNINITIALIZED in known.behaviour.codes:
        return "update the loader and Intel's GPU driver: the loader has no functions of this driver"
    if not known.behaviour.codes and sys.platform != "win32":
        return "allow this user to open /dev/dri/renderD*: without a DRM syncobj no import can be tried"
    return "update Intel's GPU driver to 25.27 or newer"


def _validation(route: str) -> str:
    """Tell whether the loader's validation layer, if enabled, sees the extension's four functions."""
    if os.environ.get("ZE_ENABLE_VALIDATION_LAYER") != "1":   # the loader ignores every other value
        return ""
    if not is_loaded(_LAYERS.get(sys.platform, _LAYER)):
        return "requested but not loaded: the loader finds no validation layer of its release"
    if route == LOADER_ROUTE:
        return "in the path of the semaphore functions"
    return "not in the path of the semaphore functions, which come from the driver past the loader's layers"


def _gpus(loader: Loader, failures: list[XsemError] | None = None) -> list[_Gpu]:
    """Return the GPUs of the drivers that answer. `failures` collects the failures of other drivers and devices.

    Raises
    ------
    XsemError
        No GPU was found, and this is the first failure.
    """
    drivers, _ = loader.drivers()
    failures = [] if failures is None else failures
    found: list[_Gpu] = []
    for driver in drivers:
        try:
            driver_properties = filled(ze.DriverProperties, loader, "zeDriverGetProperties", driver)
            devices = loader.handles("zeDeviceGet", driver)
        except XsemError as error:
            failures.append(error)
            continue
        for device in devices:
            try:
                properties = filled(ze.DeviceProperties, loader, "zeDeviceGetProperties", device)
            except XsemError as error:
                failures.append(error)
            else:
                if properties.type == ze.DEVICE_TYPE_GPU:
                    found.append(_Gpu(driver, device, driver_properties, properties))
    if failures and not found:
        raise failures[0]
    return found


def _gpu(loader: Loader, index: int) -> _Gpu:
    gpus = _gpus(loader)
    if not 0 <= index < len(gpus):
        raise DeviceNotFoundError(f"levelzero:{index} does not exist; the loader lists {len(gpus)} devices",
                                  reason="no_such_device")
    return gpus[index]


def _native_of(loader: Loader, commands: int) -> Native:
    """Return the driver, context and device of a command list."""
    context = loader.make("zeCommandListGetContextHandle", commands)
    device = loader.make("zeCommandListGetDeviceHandle", commands)
    driver = next((gpu.driver for gpu in _gpus(loader) if gpu.device == device), 0)   # `borrow` refuses 0
    return Native(driver, context, device)


def _unmet(gpu: _Gpu) -> UnmetWaits | None:
    """Return the record of unmet waits if the driver needs one."""
    return unmet_waits_of(gpu.driver) if signal_blocks(gpu.build) else None


def _nothing() -> None:
    """Do nothing: a borrowed context stays the application's."""
