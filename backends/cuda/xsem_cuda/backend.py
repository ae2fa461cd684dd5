"""The backend ``cuda``: it lists devices, opens them and checks the machine."""

from __future__ import annotations

import os
import sys
import uuid as _uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, cast

from xsem.errors import BackendUnavailableError, BadArgumentError, DriverError, UnsupportedError, XsemError
from xsem.spi import Backend, DeviceDriver, SuiteHooks, failed_check, loaded_library
from xsem.types import DeviceInfo, HealthCheck
from xsem_cuda import connections, lazy_loading, words
from xsem_cuda.allocations import exports_dmabuf
from xsem_cuda.capabilities import Attributes, capabilities_of, version_text
from xsem_cuda.codes import CONTEXT_IS_DESTROYED, INVALID_CONTEXT, INVALID_VALUE
from xsem_cuda.context import Context
from xsem_cuda.device import CudaDevice
from xsem_cuda.direct import address_of, luid_of
from xsem_cuda.images import known_formats
from xsem_cuda.loader import (
    bindings,
    bindings_version,
    kernel_driver,
    library_name,
    old_driver_remedy,
    started,
)
from xsem_cuda.recording import OLDEST_DRIVER
from xsem_cuda.results import call
from xsem_cuda.starting import begin, denied_nodes, remedy
from xsem_cuda.undeclared import undeclared_causes

__all__ = ["CudaBackend"]


class CudaBackend(Backend):
    """The backend ``cuda``: CUDA devices through cuda-python."""

    name: ClassVar[str] = "cuda"
    spi_version: ClassVar[int] = 2

    def __init__(self, platform: str = sys.platform) -> None:
        # The platform selects the declared handle types. Tests pass another one than the machine's, to check the
        # structs of its types against a driver that only reads them.
        self._platform = platform

    def devices(self) -> Sequence[DeviceInfo]:
        """Return the devices that CUDA_VISIBLE_DEVICES permits, in the driver's order."""
        driver = started()
        try:
            count = begin(driver.cuDeviceGetCount)
            return tuple(self._info(driver, begin(driver.cuDeviceGet, index), index) for index in range(count))
        except UnsupportedError as error:
            raise BackendUnavailableError(
                f"the CUDA driver is too old: it does not have {error.capability}", reason="driver_too_old",
                call=error.call,
            ) from error

    def open(self, index: int) -> CudaDevice:
        """Open a device in its primary context, which torch, CuPy and the CUDA runtime also use."""
        driver = started()
        device = begin(driver.cuDeviceGet, index)
        attributes = _attributes(driver, device)
        context = begin(driver.cuDevicePrimaryCtxRetain, device)

        def close() -> None:
            call(driver.cuDevicePrimaryCtxRelease, device)

        try:
            return self._opened(driver, device, index, attributes, context, close)
        except BaseException:
            close()
            raise

    def suite_hooks(self, driver: DeviceDriver) -> SuiteHooks:
        """Return native streams and events, and a failing kernel, for the conformance suite."""
        from xsem_cuda.suite_hooks import CudaHooks

        made = cast("CudaDevice", driver)
        return CudaHooks(made._driver, made._context, made._device)

    def borrow(self, native: object) -> tuple[DeviceInfo, CudaDevice]:
        """Open a device in a context of the application, which must outlive the device."""
        driver = started()
        if isinstance(native, int) and not isinstance(native, bool) and native > 0:
            context = driver.CUcontext(native)
        elif isinstance(native, driver.CUcontext) and int(native):
            context = native
        else:
            raise BadArgumentError(
                f"native= of the cuda backend must be a CUcontext or its address as an int, not {native!r}",
                reason="bad_native",
            )
        try:
            with Context(driver, context):
                device = begin(driver.cuCtxGetDevice)
        except DriverError as error:
            if error.code not in _NO_CONTEXT:
                raise
            raise BadArgumentError(
                "the context of native= was destroyed, or the address is not that of a context: pass a CUcontext that "
                "lives until the device is released", reason="bad_native", call=error.call, code=error.code,
                code_name=error.code_name) from error
        index, attributes = int(device), _attributes(driver, device)
        return self._info(driver, device, index), self._opened(
            driver, device, index, attributes, context, lambda: None)   # the context stays the application's

    def details(self, index: int) -> Mapping[str, str]:
        """Return versions and attributes for ``xsem devices --json``."""
        driver = started()
        device = begin(driver.cuDeviceGet, index)
        attributes = _attributes(driver, device)
        found = self._luid(driver, device)
        return {
            "cuda_bindings": bindings_version(),
            "cuda_driver_api": _version(driver),
            "kernel_driver": kernel_driver(),
            "library": library_name(),
            "compute_capability": ".".join(map(str, attributes.compute_capability)),
            "timeline_semaphores": str(attributes.timeline).lower(),
            "integrated": str(attributes.integrated).lower(),
            **({} if found is None else {"luid_node_mask": f"{found[1]:#x}"}),
        }

    def libraries(self, index: int) -> Sequence[Path | str]:
        """Return the driver library, the bindings, and the kernel module if its release is known."""
        kernel = kernel_driver()
        return [loaded_library(library_name()), f"cuda-bindings {bindings_version()}",
                *([f"kernel module {kernel}"] if kernel else [])]

    def checks(self) -> Sequence[HealthCheck]:
        """Check the package, the library, permissions and the loading of kernels, until one fails. Never raises."""
        checks: list[HealthCheck] = []
        try:
            bindings()
        except BackendUnavailableError as error:
            return (failed_check("cuda-python", error, "pip install 'xsem[cuda13]'"),)
        checks.append(HealthCheck(name="cuda-python", ok=True, detail=f"cuda-bindings {bindings_version()}"))
        denied = denied_nodes()
        if sys.platform != "win32":
            checks.append(HealthCheck(
                name="device nodes", ok=not denied, detail=", ".join(denied) or "no access denied",
                remedy="add the user to the group that owns them" if denied else ""))
        try:
            driver = started()
            self.devices()
        except Exception as error:  # a check never raises, whatever the driver does
            checks.append(failed_check(library_name(), error, _remedy(error)))
            return tuple(checks)
        checks.append(HealthCheck(name=library_name(), ok=True,
                                  detail=f"CUDA {_version(driver)} {kernel_driver()}".strip()))
        checks.append(connections.check())
        if lazy_loading.is_lazy(driver):
            checks.append(HealthCheck(
                name="module loading", ok=True,
                detail="lazy: a kernel's first launch behind a pending wait blocks its thread until the wait is met; "
                       f"{lazy_loading.ADVICE}"))
        if os.environ.get("CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM", "0") not in ("", "0"):
            checks.append(HealthCheck(
                name="default stream", ok=True,
                detail="cuda-python uses per-thread default streams; xsem names the legacy one itself"))
        return tuple(checks)

    def _info(self, driver: Any, device: Any, index: int) -> DeviceInfo:
        name, luid = begin(driver.cuDeviceGetName, 256, device), self._luid(driver, device)
        return DeviceInfo(
            id=f"cuda:{index}", backend="cuda", index=index, name=name.split(b"\0")[0].decode("utf-8", "replace"),
            uuid=_device_uuid(driver, device), luid=luid and luid[0], driver_version=_version(driver),
        )

    def _opened(
        self, driver: Any, device: Any, index: int, attributes: Attributes, context: Any, close: Callable[[], None]
    ) -> CudaDevice:
        if self._platform == "linux" and attributes.exports_fd and attributes.exports_dmabuf:
            current = Context(driver, context)
            with current, current.quiet:
                attributes = attributes._replace(exports_dmabuf=exports_dmabuf(driver, int(device)))
        capabilities = capabilities_of(self._platform, attributes)
        return CudaDevice(driver, device, index, context, capabilities, close,
                          (*lazy_loading.timeout_causes(driver), *connections.timeout_causes()),
                          undeclared_causes(self._platform, attributes, capabilities))

    def _luid(self, driver: Any, device: Any) -> tuple[bytes, int] | None:
        return luid_of(driver, device) if self._platform == "win32" else None


_NO_CONTEXT: Final = frozenset({INVALID_VALUE, INVALID_CONTEXT, CONTEXT_IS_DESTROYED})
_CONTAINER: Final = "" if sys.platform == "win32" else "; for a container: start it with the GPU"


def _remedy(error: Exception) -> str:
    reason = error.reason if isinstance(error, XsemError) else ""
    if reason == "driver_too_old":
        return old_driver_remedy()
    return f"install the NVIDIA driver{_CONTAINER}" if reason == "libcuda_missing" else remedy(error)


def _device_uuid(driver: Any, device: Any) -> _uuid.UUID | None:
    # cuDeviceGetUuid, the first version, returns the whole GPU's UUID for a part of a GPU (MIG).
    for name in ("cuDeviceGetUuid_v2", "cuDeviceGetUuid"):
        function = getattr(driver, name, None)
        if function is None:
            continue
        try:
            return _uuid.UUID(bytes=bytes(begin(function, device).bytes))
        except UnsupportedError:  # an older driver
            continue
    return None


def _attributes(driver: Any, device: Any) -> Attributes:
    enumeration = driver.CUdevice_attribute

    def ask(name: str) -> int:
        attribute = getattr(enumeration, "CU_DEVICE_ATTRIBUTE_" + name, None)
        if attribute is None:
            return 0
        try:
            return int(call(driver.cuDeviceGetAttribute, attribute, device))
        except XsemError:  # an older driver: INVALID_VALUE for an unknown attribute
            return 0

    version = int(begin(driver.cuDriverGetVersion))
    return Attributes(
        timeline=bool(ask("TIMELINE_SEMAPHORE_INTEROP_SUPPORTED")),
        integrated=bool(ask("INTEGRATED")),
        tcc=bool(ask("TCC_DRIVER")),
        compute_capability=(ask("COMPUTE_CAPABILITY_MAJOR"), ask("COMPUTE_CAPABILITY_MINOR")),
        dmabuf_type=hasattr(driver.CUexternalMemoryHandleType, "CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD"),
        recording=version >= OLDEST_DRIVER,
        driver_version=version,
        connections=connections.connections(connections.setting()),
        exports_fd=bool(ask("VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED")
                        and ask("HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED")),
        exports_dmabuf=bool(ask("DMA_BUF_SUPPORTED")),
        registers=bool(ask("HOST_REGISTER_SUPPORTED")),
        words=bool(ask("CAN_USE_64_BIT_STREAM_MEM_OPS") and address_of(driver, words.FUNCTION, words.SINCE)),
        formats=known_formats(driver, version),
    )


def _version(driver: Any) -> str:
    return version_text(int(begin(driver.cuDriverGetVersion)))
