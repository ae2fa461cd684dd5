"""The backend ``opencl``: the devices of all platforms of pyopencl's loader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, cast

from xsem.errors import BackendUnavailableError, XsemError
from xsem.spi import Backend, DeviceDriver, SuiteHooks, failed_check, loaded_library
from xsem.types import Capabilities, DeviceInfo, HealthCheck
from xsem_opencl import cl
from xsem_opencl.capabilities import ask, capabilities_of, is_measured, timeout_causes, undeclared_causes
from xsem_opencl.core import Core, create_context
from xsem_opencl.device import OpenCLDevice
from xsem_opencl.loader import load
from xsem_opencl.native import adopted
from xsem_opencl.nvidia import nvidia_icd, sentence
from xsem_opencl.platforms import Found, all_devices, device_info, one_device, optional_uuid

__all__ = ["OpenCLBackend"]


class OpenCLBackend(Backend):
    """OpenCL devices, on pyopencl. See ``docs/opencl.md``."""

    name: ClassVar[str] = "opencl"
    spi_version: ClassVar[int] = 2

    def devices(self) -> Sequence[DeviceInfo]:
        """List the devices of all platforms, CPUs included."""
        return [device_info(found, index) for index, found in enumerate(all_devices(load()))]

    def open(self, index: int) -> OpenCLDevice:
        """Open a device in a new context, which the device owns."""
        found = one_device(load(), index)
        context = create_context(found.api, found.device)
        try:
            return OpenCLDevice(Core(found.api, found.device, context), index, *_declared(found))
        except BaseException:
            found.api.do("clReleaseContext", context)
            raise

    def suite_hooks(self, driver: DeviceDriver) -> SuiteHooks:
        """Return native queues and events for the conformance suite."""
        from xsem_opencl.suite_hooks import OpenCLHooks

        return OpenCLHooks(cast("OpenCLDevice", driver)._core)

    def borrow(self, native: object) -> tuple[DeviceInfo, OpenCLDevice]:
        """Open a device on the application's context, or on the context and device of its queue."""
        index, found, context = adopted(load(), native)
        info, declared = device_info(found, index), _declared(found)
        # The device holds a reference to the context of its own, and keeps `native` alive.
        found.api.do("clRetainContext", context)
        try:
            return info, OpenCLDevice(Core(found.api, found.device, context), index, *declared, lent=native)
        except BaseException:
            found.api.do("clReleaseContext", context)
            raise

    def details(self, index: int) -> Mapping[str, str]:
        """Report platform, versions, the route to the functions, and the driver's answers."""
        library = load()
        api, device = found = one_device(library, index)
        answers = ask(*found)
        driver_uuid = optional_uuid(api, device, cl.DRIVER_UUID)
        return {
            "pyopencl": str(library.pyopencl.VERSION_TEXT),
            "loader": library.file,
            "platform": api.text("clGetPlatformInfo", api.platform, cl.PLATFORM_NAME),
            "platform_version": api.text("clGetPlatformInfo", api.platform, cl.PLATFORM_VERSION),
            "opencl": api.text("clGetDeviceInfo", device, cl.DEVICE_VERSION),
            "vendor_id": f"{answers.vendor:#x}",
            "driver_uuid": str(driver_uuid or ""),
            "extensions": " ".join(each for each in _extensions(found)
                                   if each.startswith(("cl_khr_semaphore", "cl_khr_external", "cl_khr_device_uuid"))),
            "functions": "; ".join(
                f"{what}: {'clGetExtensionFunctionAddressForPlatform' if api.has(*names) else 'not there'}"
                for what, names in (("semaphores", cl.SEMAPHORE_FUNCTIONS), ("memory", cl.MEMORY_FUNCTIONS))),
            "semaphore_import": _numbers(answers.semaphore_import),
            "semaphore_export": _numbers(answers.semaphore_export),
            "memory_import": _numbers(answers.memory_import),
        }

    def libraries(self, index: int) -> Sequence[Path | str]:
        """Return pyopencl's module with its loader, and the driver of the device by its name and version."""
        library = load()
        api, device = one_device(library, index)
        name = api.text("clGetPlatformInfo", api.platform, cl.PLATFORM_NAME)
        return loaded_library(library.file), f"{name} {api.text('clGetDeviceInfo', device, cl.DRIVER_VERSION)}"

    def checks(self) -> Sequence[HealthCheck]:
        """Check package, loader, drivers and the imports of each device for ``xsem doctor``. It never raises."""
        try:
            library = load()
        except BackendUnavailableError as error:
            return (failed_check("pyopencl", error, "pip install 'xsem[opencl]'" if error.reason == "pyopencl_missing"
                                 else "pip install --force-reinstall pyopencl"),)
        checks = [HealthCheck(name="pyopencl", ok=True, detail=f"{library.pyopencl.VERSION_TEXT}, loader by way of "
                                                         f"{library.file}")]
        missing = nvidia_icd()
        if missing is not None:
            checks.append(missing)
        try:
            checks += [_look(found, index) for index, found in enumerate(all_devices(library))]
        except Exception as error:  # `xsem doctor` reports a driver's failure as a check
            checks.append(failed_check(
                "OpenCL driver", error, "install the GPU vendor's OpenCL driver; clinfo shows what the loader finds"))
        return tuple(checks)


def _declared(found: Found) -> tuple[Capabilities, tuple[str, ...], dict[str, Sequence[str]]]:
    """Return the capabilities of a device, the causes of its timeouts, and why it does not declare some types."""
    answers = ask(*found)
    return capabilities_of(answers), timeout_causes(answers), undeclared_causes()


def _extensions(found: Found) -> list[str]:
    return sorted(found.api.text("clGetDeviceInfo", found.device, cl.DEVICE_EXTENSIONS).split())


def _numbers(values: Sequence[int]) -> str:
    return " ".join(f"{each:#x}" for each in values)


def _look(found: Found, index: int) -> HealthCheck:
    name = f"opencl:{index}"
    try:
        answers = ask(*found)
        declared = capabilities_of(answers)
        text = found.api.text("clGetDeviceInfo", found.device, cl.DEVICE_NAME)
    except XsemError as error:
        return failed_check(name, error, "install a newer driver")
    imports = [f"semaphore {each.value}" for each in sorted(declared.semaphore_import)]
    imports += [f"memory {each.value}" for each in sorted(declared.memory_import)]
    # A driver without imports is not a fault of the machine: it lists devices and refuses imports.
    queues = f"; hardware queues: {sentence()}" if is_measured(answers) else ""
    return HealthCheck(name=name, ok=True, detail=f"{text}; imports {', '.join(imports) or 'nothing'}{queues}")
