"""The GPUs that the loader lists."""

from __future__ import annotations

from contextlib import suppress
from typing import Final, NamedTuple

from xsem.errors import DeviceNotFoundError, XsemError
from xsem_levelzero import ze
from xsem_levelzero.intel.releases import build_of
from xsem_levelzero.loader import Loader, filled
from xsem_levelzero.native import Native

__all__ = ["Gpu", "find_gpu", "gpu_at", "list_gpus", "native_of"]

_INTEL: Final = 0x8086


class Gpu(NamedTuple):
    """A device as the loader lists it."""

    driver: int
    device: int
    driver_properties: ze.DriverProperties
    properties: ze.DeviceProperties

    @property
    def is_intel(self) -> bool:
        """Whether Intel made the device."""
        return bool(self.properties.vendorId == _INTEL)

    @property
    def build(self) -> int | None:
        """The build of Intel's driver: `build_of`."""
        return build_of(self.properties.vendorId, self.driver_properties.driverVersion)


def list_gpus(loader: Loader, failures: list[XsemError] | None = None) -> list[Gpu]:
    """Return the GPUs of the drivers that answer. `failures` collects the failures of other drivers and devices."""
    drivers, _ = loader.drivers()
    failures = [] if failures is None else failures
    found: list[Gpu] = []
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
                    found.append(Gpu(driver, device, driver_properties, properties))
    if failures and not found:
        raise failures[0]
    return found


def gpu_at(loader: Loader, index: int) -> Gpu:
    """Return the GPU at an index of the loader's list."""
    gpus = list_gpus(loader)
    if not 0 <= index < len(gpus):
        raise DeviceNotFoundError(f"levelzero:{index} does not exist; the loader lists {len(gpus)} devices",
                                  reason="no_such_device")
    return gpus[index]


def find_gpu(loader: Loader, device: int) -> tuple[int, Gpu] | None:
    """Find a GPU, or a tile of a GPU (a sub-device), by its handle. Return it with the index of the GPU."""
    gpus = list_gpus(loader)
    for index, gpu in enumerate(gpus):
        if gpu.device == device:
            return index, gpu
    for index, gpu in enumerate(gpus):
        with suppress(XsemError):   # another GPU fails
            if device in loader.handles("zeDeviceGetSubDevices", gpu.device):
                properties = filled(ze.DeviceProperties, loader, "zeDeviceGetProperties", device)
                return index, gpu._replace(device=device, properties=properties)
    return None


def native_of(loader: Loader, commands: int) -> Native:
    """Return the driver, context and device of a command list."""
    context = loader.make("zeCommandListGetContextHandle", commands)
    device = loader.make("zeCommandListGetDeviceHandle", commands)
    found = find_gpu(loader, device)
    return Native(found[1].driver if found else 0, context, device)   # `borrow` refuses 0
