"""Checks of file descriptors against docs/host-objects.md."""

from __future__ import annotations

import os
import sys
from typing import Final

from xsem.data.handles import OwnedHandle, own
from xsem.errors import BadHandleError
from xsem.portable.linux import SEALS, calling, elsewhere, has_huge_pages, seals

__all__ = ["check_sealed_memfd", "file_name", "is_read_only", "page_name", "reopen"]


_INSTEAD: Final = {
    "memory": "share memory of create_memory() in its place, which each process maps as an array, or copy the data "
              "into such memory. The device host also takes a dma-buf, as OPAQUE_FD",
    "timeline": "share a timeline that a device creates (Device.create_timeline)",
}


def file_name(fd: int) -> str:
    """Return the kernel's name of the file."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError as error:
        raise BadHandleError(f"the type of fd {fd} is unknown: /proc cannot be read ({error.strerror}); mount it",
                             reason="no_proc") from error


def page_name(fd: int) -> str:
    """Return a name of the file that is the same in all processes until the next boot."""
    found = os.fstat(fd)
    return f"page:{found.st_dev}:{found.st_ino}"


def is_read_only(fd: int) -> bool:
    """Return whether `fd` is open only for reading."""
    if sys.platform != "linux":
        raise elsewhere()
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY


def reopen(fd: int, mode: int) -> OwnedHandle:
    """Open the file of `fd` again (O_RDONLY or O_RDWR): the result is a file description of its own."""
    if sys.platform != "linux":
        raise elsewhere()
    file_name(fd)
    with calling("open"):
        return own(os.open, f"/proc/self/fd/{fd}", mode | os.O_CLOEXEC)


def check_sealed_memfd(fd: int, what: str, size: int) -> None:
    """Check that `fd` is a memfd of ordinary pages, sealed against resizing, with at least `size` bytes."""
    present = seals(fd)
    if present is None:
        raise BadHandleError(f"the {what} must be a sealed memfd, and this file is not one: {_INSTEAD[what]}",
                             reason="not_a_memfd")
    if has_huge_pages(fd):
        # The kernel fills a punched hole from a pool of huge pages. An empty pool means SIGBUS, with all seals set.
        raise BadHandleError(f"the {what} must be a memfd without MFD_HUGETLB", reason="not_a_memfd")
    if present & SEALS != SEALS:
        # Files of /dev/shm have F_SEAL_SEAL from the start.
        remedy = (f"fcntl.fcntl(fd, fcntl.F_ADD_SEALS, {SEALS}) by its owner adds them"
                  if file_name(fd).startswith("/memfd:") else
                  f"a file of /dev/shm, such as multiprocessing.SharedMemory, cannot get them: {_INSTEAD[what]}")
        raise BadHandleError(
            f"the {what}'s file lacks the seals SEAL, SHRINK and GROW, so a process that can write it could shrink it "
            f"and kill this process: {remedy}", reason="unsealed")
    if os.fstat(fd).st_size < size:
        raise BadHandleError(f"the {what}'s memfd has {os.fstat(fd).st_size} bytes; at least {size} are needed",
                             reason="short_page")
