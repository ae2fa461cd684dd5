"""dma-bufs whose exporter lets the CPU map them: frames of V4L2 and PipeWire, dma-heaps, udmabuf."""

from __future__ import annotations

import errno
import os
import platform
import struct
import sys
from typing import Final

from xsem.errors import BadHandleError, DriverError
from xsem.portable.files import file_name
from xsem.portable.memory import SharedMemory
from xsem.types import OwnedHandle

__all__ = ["begin_access", "end_access", "is_dmabuf", "open_dmabuf"]

# linux/dma-buf.h. powerpc has another encoding of _IOW.
_DMA_BUF_IOCTL_SYNC: Final = 0x80086200 if platform.machine().startswith("ppc") else 0x40086200
_SYNC_RW: Final = 3
_SYNC_END: Final = 4


def is_dmabuf(fd: int) -> bool:
    """Return whether the file is a dma-buf."""
    return file_name(fd).startswith(("/dmabuf:", "anon_inode:dmabuf"))


def _check_size(fd: int, size: int) -> None:
    """Refuse a dma-buf that is smaller."""
    # The kernel refuses a mapping beyond the end of a dma-buf, and a dma-buf never shrinks.
    found = os.lseek(fd, 0, os.SEEK_END)   # the answer of a dma-buf; it has no position that this could move
    if found < size:
        raise BadHandleError(f"the dma-buf has {found} bytes; at least {size} are needed", reason="short_page")


def begin_access(fd: int) -> None:
    """Let the CPU read and write: wait for the writes of devices, and make them visible to the CPU."""
    _sync(fd, _SYNC_RW)


def end_access(fd: int) -> None:
    """Make the writes of the CPU visible to devices."""
    _sync(fd, _SYNC_RW | _SYNC_END)


def _sync(fd: int, flags: int) -> None:
    if sys.platform != "linux":
        raise NotImplementedError
    import fcntl

    while True:
        try:
            fcntl.ioctl(fd, _DMA_BUF_IOCTL_SYNC, struct.pack("=Q", flags))
            return
        except (InterruptedError, BlockingIOError):   # linux/dma-buf.h: repeat the call
            continue
        except OSError as error:
            raise DriverError(f"the exporter of the dma-buf refused the access of the CPU: {error.strerror}",
                              reason="system_call_failed", call="DMA_BUF_IOCTL_SYNC", code=error.errno,
                              code_name=errno.errorcode.get(error.errno or 0)) from error


class _DmabufMemory(SharedMemory):
    """A dma-buf. The CPU's access begins with the first use of the mapping and ends with the last."""

    def _begin_access(self) -> None:
        begin_access(self._file.fileno())

    def _end_access(self) -> None:
        if not self._file.closed:
            end_access(self._file.fileno())


def open_dmabuf(handle: OwnedHandle, size: int) -> SharedMemory:
    """Check that the dma-buf has `size` bytes and can be mapped, and take ownership of it."""
    _check_size(handle.fileno(), size)
    try:
        return _DmabufMemory(handle, size)
    except DriverError as error:
        raise BadHandleError("the exporter of this dma-buf does not let the CPU map it: import it on a device, "
                             "or ask the exporter for memory of the host",
                             reason="not_mappable", call=error.call, code=error.code,
                             code_name=error.code_name) from error
