"""Whether Intel's driver compresses device memory by itself, according to its source code: no device was tried.

On GPUs of Xe2 and newer, except Lunar Lake, Intel's driver compresses device memory of more than 1 KiB, unless it was
allocated for export. An export of compressed memory succeeds, and importers see other bytes: up to 26.05 the driver
exports the compressed bytes, and from 26.09 on it decompresses them where the kernel can, and ignores a failure.
"""

from __future__ import annotations

from ctypes import addressof, byref
from typing import Final

from xsem_levelzero import ze
from xsem_levelzero.loader import Loader
from xsem_levelzero.results import SUCCESS

__all__ = ["compresses"]

_XE2: Final = 20
_LUNAR_LAKE: Final = (20, 4)


def compresses(loader: Loader, device: int) -> bool:
    """Whether memory of this device of Intel may be compressed. Also True if the driver tells no IP version."""
    version, properties = ze.DeviceIpVersion.made(), ze.DeviceProperties.made()
    properties.pNext = addressof(version)
    if loader.raw("zeDeviceGetProperties", device, byref(properties)) != SUCCESS or not version.ipVersion:
        return True
    # Intel's driver: revision in bits 0 to 5, release in bits 14 to 21, architecture from bit 22 on.
    architecture, release = version.ipVersion >> 22, version.ipVersion >> 14 & 0xFF
    return architecture >= _XE2 and (architecture, release) != _LUNAR_LAKE
