"""Checks of files before an import, where it is known which files a driver or the kernel exports."""

from __future__ import annotations

import os
import sys
from typing import Final

from xsem.errors import BadHandleError

__all__ = ["HERE", "causes_of_file", "check_node", "check_sync_file", "opaque_node"]

# Measured on an H200 (driver 580.159.04): after NVIDIA's driver has refused one fd, unrelated calls fail for the rest
# of the process, also on the driver's other devices. After a refused semaphore, vkCreateSemaphore and
# vkImportSemaphoreFdKHR fail with VK_ERROR_INITIALIZATION_FAILED, or vkAllocateMemory fails with
# VK_ERROR_OUT_OF_DEVICE_MEMORY. After refused memory, vkAllocateMemory fails in that way. All files that the driver
# exports are open on /dev/nvidiactl, so xsem passes only such files to it. A semaphore's fd passed as memory still
# reaches the driver, because the two are indistinguishable.
_NVIDIA: Final = 4   # VK_DRIVER_ID_NVIDIA_PROPRIETARY
_CONTROL: Final = "/dev/nvidiactl"
_OF_HOST: Final = ("/memfd:xsem", "anon_inode:[eventfd]")

# The remedy for objects that another device or the host made
HERE: Final = ("create the object on this device and export it to the other side: its timelines have host_signal and "
               "host_wait, and its host_buffer() is memory of the host")


def opaque_node(driver_id: int) -> int | None:
    """Number of the device file on which every opaque fd of that driver is open; None if unknown."""
    if driver_id != _NVIDIA or sys.platform == "win32":
        return None
    try:
        return os.stat(_CONTROL).st_rdev
    except OSError:
        return None   # WSL lacks this file


def check_node(fd: int, node: int | None) -> None:
    """Refuse an fd that is open on another file."""
    if node is None or sys.platform == "win32":
        return
    try:
        same = os.fstat(fd).st_rdev == node
    except OSError:
        same = False
    if not same:
        raise BadHandleError(f"file descriptor {fd} is open on a file that the driver does not export",
                             reason="refused_by_driver", backend="vulkan", likely_causes=causes_of_file(fd))


def causes_of_file(fd: int) -> tuple[str, ...]:
    """Return the likely causes of a refused fd, from the kernel's name of its file."""
    try:
        name = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        name = ""
    if name.startswith(_OF_HOST):
        kind = name.partition(" ")[0]
        return (f"it is {kind}, an object of the host device or of the kernel, which no GPU driver imports; {HERE}",)
    return "the wrong number was passed", "another vendor's driver exported it"


def check_sync_file(fd: int) -> None:
    """Refuse an fd that is not a sync file."""
    # lavapipe 26.2 imports /dev/null and every other pollable file as a sync file. The kernel's sync files are
    # anonymous inodes. Eventfds are, too. They pass, because lavapipe imports one as a sync file that another party
    # signals.
    try:
        name = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return   # without /proc the file is unknown
    if not name.startswith("anon_inode:"):
        raise BadHandleError(f"file descriptor {fd} is not a sync file: {name}", reason="refused_by_driver",
                             backend="vulkan", likely_causes=("the wrong number was passed",))
