"""Which files a driver or the kernel can have exported, where that is known.

Measured on an H200 (driver 580.159.04): after NVIDIA's driver has refused one fd, calls that have nothing to do with it
fail for the rest of the process, on its other devices, too: after a semaphore's vkCreateSemaphore and
vkImportSemaphoreFdKHR with VK_ERROR_INITIALIZATION_FAILED, or vkAllocateMemory with VK_ERROR_OUT_OF_DEVICE_MEMORY;
after memory's the last. All that it exports is open on /dev/nvidiactl, so what is not never reaches it. A semaphore's
fd that is given as memory still does: no one can tell them apart.
"""

from __future__ import annotations

import os
import sys
from typing import Final

from xsem.errors import BadHandleError

__all__ = ["check_node", "check_sync_file", "opaque_node"]

_NVIDIA: Final = 4   # VK_DRIVER_ID_NVIDIA_PROPRIETARY
_CONTROL: Final = "/dev/nvidiactl"


def opaque_node(driver_id: int) -> int | None:
    """Number of the device file on which each opaque fd of that driver is open; None where that is not known."""
    if driver_id != _NVIDIA or sys.platform == "win32":
        return None
    try:
        return os.stat(_CONTROL).st_rdev
    except OSError:
        return None   # WSL has none


def check_node(fd: int, node: int | None) -> None:
    """Refuse an fd that is open on anything else.

    Raises
    ------
    BadHandleError
        ``refused_by_driver``.
    """
    if node is None or sys.platform == "win32":
        return
    try:
        same = os.fstat(fd).st_rdev == node
    except OSError:
        same = False
    if not same:
        raise BadHandleError(f"file descriptor {fd} is open on something else than what the driver exports",
                             reason="refused_by_driver", backend="vulkan",
                             likely_causes=("the wrong number was passed", "another vendor's driver exported it"))


def check_sync_file(fd: int) -> None:
    """Refuse an fd that is no sync file: lavapipe 26.2 imports /dev/null, and whatever else can be polled, for one.

    The kernel's sync files are anonymous inodes. So are eventfds, which that driver takes for one that somebody else
    signals: those may pass.

    Raises
    ------
    BadHandleError
        ``refused_by_driver``.
    """
    try:
        name = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return   # no /proc: nobody to ask
    if not name.startswith("anon_inode:"):
        raise BadHandleError(f"file descriptor {fd} is no sync file: {name}", reason="refused_by_driver",
                             backend="vulkan", likely_causes=("the wrong number was passed",))
