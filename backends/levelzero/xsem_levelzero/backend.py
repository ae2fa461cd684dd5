"""The backend: the devices, their capabilities, and how a device is opened."""

from __future__ import annotations

import os
import sys
import uuid as _uuid
from collections.abc import Mapping, Sequence
from ctypes import addressof, byref, c_uint32
from pathlib import Path
from typing import ClassVar, cast

from xsem.errors import BackendUnavailableError, BadArgumentError, XsemError
from xsem.spi import Backend, DeviceDriver, SuiteHooks, failed_check, loaded_library
from xsem.types import Capabilities, DeviceInfo, HealthCheck, MemoryHandleType
from xsem_levelzero import ze
from xsem_levelzero.capabilities import capabilities_of, memory_types
from xsem_levelzero.core import Core, context_of_probe, create_context, queues_of
from xsem_levelzero.device import LevelZeroDevice
from xsem_levelzero.exports import Exports
from xsem_levelzero.gpus import Gpu, find_gpu, gpu_at, list_gpus, native_of
from xsem_levelzero.image_probe import probe_images
from xsem_levelzero.intel.compression import compresses
from xsem_levelzero.intel.devices import device_class
from xsem_levelzero.intel.releases import limit_of, never_blocks, signal_blocks, version_text
from xsem_levelzero.intel.windows import LIMIT, WindowsDevice
from xsem_levelzero.known import Known, find_out, probed_exports
from xsem_levelzero.loader import INSTALL, Loader, filled, load
from xsem_levelzero.native import Native
from xsem_levelzero.reports import (
    REINSTALL,
    closer_of,
    refused_exports,
    refused_types,
    remedy_of,
    undeclared_causes,
    validation_layer,
)
from xsem_levelzero.results import SUCCESS
from xsem_levelzero.sycl import list_of_sycl, sycl_address
from xsem_levelzero.trial import Seen

__all__ = ["LevelZeroBackend"]


class LevelZeroBackend(Backend):
    """GPUs through the Level Zero loader."""

    name: ClassVar[str] = "levelzero"
    spi_version: ClassVar[int] = 2

    def __init__(self, platform: str = sys.platform) -> None:
        # Selects the handle types that are declared. A value other than this machine's allows tests of the structs
        # against a driver that only reads them.
        self._platform = platform
        self._known: dict[tuple[int, int, int], Known] = {}
        self._exports: dict[tuple[int, int, int], Exports] = {}
        self._images: dict[tuple[int, int, int], bool] = {}

    def devices(self) -> Sequence[DeviceInfo]:
        """List the GPUs of all drivers, in the loader's order."""
        loader = load()
        return tuple(self._info(loader, gpu, index) for index, gpu in enumerate(list_gpus(loader)))

    def open(self, index: int) -> LevelZeroDevice:
        """Open a device in a new context, which the device owns."""
        loader = load()
        gpu = gpu_at(loader, index)
        known = self._look(loader, gpu)
        context = create_context(loader, gpu.driver)
        try:
            return self._device(loader, gpu, index, known, context, own=True)
        except BaseException:
            loader.end("zeContextDestroy", context)
            raise

    def suite_hooks(self, driver: DeviceDriver) -> SuiteHooks:
        """Return native lists and events for the conformance suite."""
        from xsem_levelzero.suite_hooks import LevelZeroHooks

        return LevelZeroHooks(cast("LevelZeroDevice", driver)._core)

    def borrow(self, native: object) -> tuple[DeviceInfo, LevelZeroDevice]:
        """Open a device on the application's driver, context and device, which stay the application's."""
        loader = load()
        address = sycl_address(native)
        if address is not None:
            # The loader (1.17) or the driver (specification 1.9) must identify the context of the list.
            native = native_of(loader, list_of_sycl(address))
        if not isinstance(native, Native):
            raise BadArgumentError(
                "the levelzero backend takes xsem_levelzero.Native(driver, context, device), or a stream of "
                f"torch.xpu or dpctl, as native=, not {native!r}", reason="bad_native",
            )
        found = find_gpu(loader, native.device)
        if found is None or found[1].driver != native.driver:
            raise BadArgumentError("native= names a driver and a device that the Level Zero loader does not list: pass "
                                   "its own handles, of a GPU or a tile of it", reason="bad_native")
        index, gpu = found
        if not native.context:
            raise BadArgumentError("native= has a null context", reason="bad_native")
        known = self._look(loader, gpu)
        return self._info(loader, gpu, index), self._device(loader, gpu, index, known, native.context, own=False)

    def details(self, index: int) -> Mapping[str, str]:
        """Report the route to the functions, versions, and the driver's behaviour with real semaphores."""
        loader = load()
        _, started_by = loader.drivers()
        gpu = gpu_at(loader, index)
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
            "validation_layer": validation_layer(known.extension.route),
            "wrapped_handles": str(known.extension.wrapped).lower(),
            "queues": str(queues_of(loader, gpu.device).number),
            "seen_with": known.behaviour.found_by,
            "seen": str(known.behaviour.seen),
            "fresh_import_per_wait": str(known.late or self._is_intel_on_windows(gpu)).lower(),
            "refused": refused_types(known),
            "exports_closed_by": closer_of(self._exports_of(loader, gpu)),
            "refused_exports": refused_exports(self._exports_of(loader, gpu)),
            "signal_behind_wait": "refused" if self._is_intel_on_windows(gpu) or (
                signal_blocks(gpu.build) and not known.host_functions) else "appended",
        }

    def libraries(self, index: int) -> Sequence[Path | str]:
        """Return the loader, and the driver by its version and what was seen of it."""
        loader = load()
        gpu = gpu_at(loader, index)
        seen = str(self._look(loader, gpu).behaviour.seen)
        return (loaded_library(loader.file),
                f"Level Zero driver {version_text(gpu.driver_properties.driverVersion)}{f' ({seen})' if seen else ''}")

    def checks(self) -> Sequence[HealthCheck]:
        """Check the loader, the driver, the functions and the semaphores for ``xsem doctor``. It never raises."""
        try:
            loader = load()
        except BackendUnavailableError as error:
            return (failed_check("loader", error, INSTALL),)
        checks = [HealthCheck(name="loader", ok=True, detail=loader.file)]
        try:
            failures: list[XsemError] = []
            gpus = list_gpus(loader, failures)
            # The loader reports its version after initialisation.
            checks = [HealthCheck(name="loader", ok=True, detail=f"{loader.file} {loader.version()}".strip())]
            checks += [failed_check("driver", error, REINSTALL) for error in failures if gpus]
            checks += [self._check(loader, gpu, index) for index, gpu in enumerate(gpus)]
        except Exception as error:  # `xsem doctor` reports a driver's failure as a check
            checks.append(failed_check("driver", error, REINSTALL))
        return tuple(checks)

    # ---- inside
    def _check(self, loader: Loader, gpu: Gpu, index: int) -> HealthCheck:
        try:
            known = self._look(loader, gpu)
        except Exception as error:  # other devices may be healthy
            return failed_check(f"levelzero:{index}", error, REINSTALL)
        layer, refused = validation_layer(known.extension.route), refused_types(known)
        remedy = "" if known.semaphores else remedy_of(loader, gpu, known)
        limit = LIMIT if self._is_intel_on_windows(gpu) else limit_of(gpu.build)
        return HealthCheck(
            name=f"levelzero:{index}", ok=bool(known.semaphores),
            detail=(f"{known.reasons[None]}; " if None in known.reasons else "") +
                   f"functions from {known.extension.route}; imports "
                   f"{', '.join(sorted(each.value for each in known.semaphores)) or 'no semaphore'}"
                   + (f"; refused {refused}" if refused else "")
                   + (f"; seen: {known.behaviour.seen}" if known.behaviour.seen != Seen() else "")
                   + (f"; {limit}" if known.semaphores and limit else "")
                   + (f"; validation layer {layer}" if layer else ""),
            remedy=remedy,
        )

    def _device(
        self, loader: Loader, gpu: Gpu, index: int, known: Known, context: int, *, own: bool
    ) -> LevelZeroDevice:
        exports = self._exports_of(loader, gpu)
        core = Core(loader, known.extension, gpu.driver, gpu.device, context)
        kind = (WindowsDevice if self._is_intel_on_windows(gpu) else
                device_class(blocks=signal_blocks(gpu.build), late=known.late, host_functions=known.host_functions))
        capabilities = self._capabilities(loader, gpu, known, exports, kind.own_queues(core))
        compressed = bool(exports.types) and gpu.is_intel and compresses(loader, gpu.device)
        return kind(core, index, capabilities, driver_closes_exports=exports.driver_closes, compresses=compressed,
                    own_context=own, causes=undeclared_causes(known))

    def _is_intel_on_windows(self, gpu: Gpu) -> bool:
        return self._platform == "win32" and gpu.is_intel

    def _exports_of(self, loader: Loader, gpu: Gpu) -> Exports:
        """Return the result of the probe of exports. A probe without an answer is not remembered."""
        key = (os.getpid(), gpu.driver, gpu.device)
        known = self._exports.get(key)
        if known is None:
            external = filled(ze.DeviceExternalMemory, loader, "zeDeviceGetExternalMemoryProperties", gpu.device)
            # Exports on Windows have not run anywhere.
            types = memory_types("linux", external.memoryAllocationExportTypes) if self._platform == "linux" else ()
            known = probed_exports(loader, gpu, self._look(loader, gpu).extension, types)
            if known.answered:
                self._exports[key] = known
        return known

    def _look(self, loader: Loader, gpu: Gpu) -> Known:
        key = (os.getpid(), gpu.driver, gpu.device)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = find_out(loader, gpu, self._platform)
        return known

    def _capabilities(
        self, loader: Loader, gpu: Gpu, known: Known, exports: Exports, lists: int
    ) -> Capabilities:
        external = filled(ze.DeviceExternalMemory, loader, "zeDeviceGetExternalMemoryProperties", gpu.device)
        memories = memory_types(self._platform, external.memoryAllocationImportTypes)
        return capabilities_of(
            known.semaphores, memories, known.behaviour, exported=exports.types, lists=lists,
            images=self._has_images(loader, gpu, known, exports, external),
            never_blocks=never_blocks(gpu.build) and not self._is_intel_on_windows(gpu),
            platform=self._platform, host_memory=known.host_memory,
        )

    def _has_images(
        self, loader: Loader, gpu: Gpu, known: Known, exports: Exports, external: ze.DeviceExternalMemory
    ) -> bool:
        """Whether images are made of imported memory. A probe without an answer is not remembered."""
        if self._platform != "linux":
            return False   # an image is made of a second handle of its memory, and xsem keeps only fds for that
        if memory_types("linux", external.imageImportTypes):
            return True
        # Intel's driver for Linux reports none, and has them. Images of a dma-buf would need its layout.
        opaque = MemoryHandleType.OPAQUE_FD
        types = memory_types("linux", external.memoryAllocationImportTypes)
        if not gpu.is_intel or opaque not in exports.types & types:
            return False
        key = (os.getpid(), gpu.driver, gpu.device)
        if key not in self._images:
            with context_of_probe(loader, known.extension, gpu.driver, gpu.device) as core:
                found = probe_images(core, opaque, driver_closes=exports.driver_closes)
            if found is None:
                return False
            self._images[key] = found
        return self._images[key]

    def _info(self, loader: Loader, gpu: Gpu, index: int) -> DeviceInfo:
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
