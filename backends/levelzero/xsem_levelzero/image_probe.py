"""Whether a device imports images although it does not report them, as Intel's driver for Linux does.

According to its source code (up to August 2026), Intel's driver ends the process if it cannot import the fd of an
image, but it imports every fd for an image that it imports as memory. So the probe takes memory of the device itself,
which is imported as memory first. GPUs without images return an error before the import.
"""

from __future__ import annotations

from xsem.errors import BusyError, OutOfMemoryError, XsemError
from xsem.spi import DriverFd, duplicate_fd
from xsem.types import MemoryDesc, MemoryHandleType, MipmapDesc, OwnedHandle
from xsem_levelzero.core import Core
from xsem_levelzero.exports import create_allocation
from xsem_levelzero.images import make_image
from xsem_levelzero.memory import Memory, import_memory

__all__ = ["probe_images"]

_IMAGE = MipmapDesc(extent=(64, 64, 0), format="uint8", channels=4)
_BYTES = 1 << 16   # more than the image needs in any layout


def probe_images(core: Core, type: MemoryHandleType, *, driver_closes: bool) -> bool | None:
    """Create an image in exported memory. None: no memory or no fd was left, so another probe can succeed."""
    try:
        made = create_allocation(core, type, _BYTES, driver_closes=driver_closes)
        try:
            with made.export(core) as kept:
                memory = _imported(core, type, kept)
                try:
                    make_image(core, memory, _IMAGE).destroy(core)
                finally:
                    memory.release(core)
        finally:
            made.release(core)
    except (BusyError, OutOfMemoryError):
        return None
    except XsemError:
        return False
    return True


def _imported(core: Core, type: MemoryHandleType, kept: OwnedHandle) -> Memory:
    given = duplicate_fd(kept.fileno())
    fd = DriverFd(given, kept)
    try:
        return import_memory(core, MemoryDesc(type=type, handle=fd.number, allocation_size=_BYTES), given, keep=True)
    finally:
        fd.settle()
