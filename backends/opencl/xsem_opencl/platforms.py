"""All devices of all platforms, in the loader's order."""

from __future__ import annotations

import sys
import uuid as _uuid
from typing import Final, NamedTuple

from xsem.errors import BackendUnavailableError, DeviceNotFoundError, XsemError
from xsem.types import DeviceInfo
from xsem_opencl import cl
from xsem_opencl.loader import Api, Library
from xsem_opencl.nvidia import setting

__all__ = ["Found", "all_devices", "device_info", "one_device", "optional_uuid"]

_ADVICE: Final = (
    "install the GPU vendor's driver, which registers itself for the loader" if sys.platform == "win32" else
    "install the GPU vendor's, and see that /etc/OpenCL/vendors has a file that names it (xsem doctor looks); on the "
    "CPU: pip install pocl-binary-distribution")


class Found(NamedTuple):
    """A device as the loader lists it: the functions of its platform, and its cl_device_id."""

    api: Api
    device: int


def all_devices(library: Library) -> list[Found]:
    """Return all devices of all platforms; the position of a device is its index."""
    setting()   # before the loader starts the drivers
    platforms = Api(library).platforms()
    if not platforms:
        raise BackendUnavailableError(
            f"the OpenCL loader finds no driver: {_ADVICE}", reason="no_driver", backend="opencl")
    found = []
    for platform in platforms:
        api = Api(library, platform)
        found += [Found(api, device) for device in api.devices()]
    return found


def one_device(library: Library, index: int) -> Found:
    """Return the device with that index."""
    found = all_devices(library)
    if not 0 <= index < len(found):
        raise DeviceNotFoundError(f"opencl:{index} does not exist; the loader lists {len(found)} devices",
                                  reason="no_such_device")
    return found[index]


def device_info(found: Found, index: int) -> DeviceInfo:
    """Return the public information about a device."""
    api, device = found
    luid: bytes | None = None
    if any(_optional(api, device, cl.DEVICE_LUID_VALID)):
        luid = _optional(api, device, cl.DEVICE_LUID) or None
    # driver_uuid is omitted, because descriptors of another driver are refused. It has not been verified that a
    # vendor's OpenCL and Vulkan drivers report the same UUID. `details` reports it.
    return DeviceInfo(
        id=f"opencl:{index}", backend="opencl", index=index, name=api.text("clGetDeviceInfo", device, cl.DEVICE_NAME),
        uuid=optional_uuid(api, device, cl.DEVICE_UUID), luid=luid,
        driver_version=api.text("clGetDeviceInfo", device, cl.DRIVER_VERSION),
    )


def optional_uuid(api: Api, device: int, key: int) -> _uuid.UUID | None:
    """A UUID of cl_khr_device_uuid; None if the driver does not report it."""
    data = _optional(api, device, key)
    return _uuid.UUID(bytes=data) if len(data) == _UUID_SIZE and any(data) else None


_UUID_SIZE = 16


def _optional(api: Api, device: int, key: int) -> bytes:
    try:
        return api.info("clGetDeviceInfo", device, key)
    except XsemError:
        return b""
