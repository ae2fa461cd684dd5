"""Objects that xsem creates and reads without another API: DRM syncobjs, and the objects of docs/host-objects.md.

Intel's driver for Linux imports syncobjs, and Mesa exports them. The simulated driver imports the objects of the host.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import os
import struct
import sys
from typing import Final, Protocol

from xsem.types import OwnedHandle

__all__ = ["Counter", "Syncobj", "counter_of", "eventfd", "met_object", "timeline_page"]

# From linux/fcntl.h: Python defines the names only if it was built against recent headers.
_F_ADD_SEALS: Final = 1033
_SEAL_SHRINK_GROW_SEAL: Final = 1 | 2 | 4
_HEAD: Final = struct.pack("=QII", 0x314E4C544D455358, 2, 2)   # magic, version, kind; the value follows


class Counter(Protocol):
    """The value of a timeline."""

    def value(self) -> int:
        """Return the last value that was signalled, or 0."""

    def close(self) -> None:
        """Give the object back."""


# ---- DRM syncobjs
def _ioctl(number: int, size: int) -> int:
    read_and_write = 3
    return read_and_write << 30 | size << 16 | ord("d") << 8 | number


# drm.h: DRM_IOCTL_SYNCOBJ_CREATE, …_DESTROY, …_HANDLE_TO_FD, …_FD_TO_HANDLE, …_QUERY, …_TIMELINE_SIGNAL
CREATE: Final = _ioctl(0xBF, 8)
DESTROY: Final = _ioctl(0xC0, 8)
HANDLE_TO_FD: Final = _ioctl(0xC1, 16)
FD_TO_HANDLE: Final = _ioctl(0xC2, 16)
QUERY: Final = _ioctl(0xCB, 24)
TIMELINE_SIGNAL: Final = _ioctl(0xCD, 24)
_CREATE_SIGNALED: Final = 1
_NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Syncobj:
    """A handle of this process to a DRM syncobj. The object belongs to no particular device."""

    def __init__(self, card: OwnedHandle, handle: int) -> None:
        self._card = card   # owned: a render node
        self._handle = handle

    @staticmethod
    def create(*, signalled: bool = False) -> Syncobj | None:
        """Create a syncobj on any render node that makes one."""
        return _on_a_node(CREATE, struct.pack("=II", 0, _CREATE_SIGNALED if signalled else 0))

    @staticmethod
    def opened(fd: int) -> Syncobj | None:
        """Open the syncobj of an fd. None: it is something else, or no render node takes it."""
        return _on_a_node(FD_TO_HANDLE, struct.pack("=IIiI", 0, 0, fd, 0))

    def export(self) -> OwnedHandle:
        """Return a new fd."""
        answer = self._call(HANDLE_TO_FD, struct.pack("=IIiI", self._handle, 0, -1, 0))
        return OwnedHandle(struct.unpack("=IIiI", answer)[2])

    def value(self) -> int:
        """Return the last value that was signalled, or 0."""
        point = ctypes.c_uint64()
        self._of_timeline(QUERY, point)
        return point.value

    def signal(self, value: int) -> None:
        """Signal a value on the host."""
        self._of_timeline(TIMELINE_SIGNAL, ctypes.c_uint64(value))

    def close(self) -> None:
        """Destroy the handle of this process."""
        with self._card:
            self._call(DESTROY, struct.pack("=II", self._handle, 0))

    def _of_timeline(self, number: int, point: ctypes.c_uint64) -> None:
        handle = ctypes.c_uint32(self._handle)
        self._call(number, struct.pack("=QQII", ctypes.addressof(handle), ctypes.addressof(point), 1, 0))

    def _call(self, number: int, data: bytes) -> bytes:
        return _call(self._card.fileno(), number, data)


def _call(card: int, number: int, data: bytes) -> bytes:
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, "no syncobjs")
    import fcntl

    return fcntl.ioctl(card, number, data)


def _on_a_node(number: int, data: bytes) -> Syncobj | None:
    """Make the call on the render nodes in turn. Its answer begins with the handle."""
    if sys.platform != "linux":
        return None
    for node in sorted(glob.glob("/dev/dri/renderD*")):
        try:
            card = OwnedHandle(os.open(node, os.O_RDWR | os.O_CLOEXEC))
            try:
                return Syncobj(card, struct.unpack_from("=I", _call(card.fileno(), number, data))[0])
            except BaseException:
                card.close()
                raise
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise
    return None


# ---- objects of the host
def eventfd() -> OwnedHandle | None:
    """Create an eventfd."""
    if sys.platform != "linux":
        return None
    return OwnedHandle(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))


def timeline_page(value: int = 0) -> OwnedHandle | None:
    """Create a timeline of docs/host-objects.md: {magic, version, kind, value, sequence} in a sealed memfd."""
    if sys.platform != "linux":
        return None
    import fcntl

    page = OwnedHandle(os.memfd_create("xsem-timeline", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
    os.write(page.fileno(), (_HEAD + struct.pack("=QI", value, 0)).ljust(4096, b"\0"))
    fcntl.fcntl(page.fileno(), _F_ADD_SEALS, _SEAL_SHRINK_GROW_SEAL)
    return page


def _read(fd: int, size: int, offset: int) -> bytes:
    if sys.platform == "win32":
        return b""
    return os.pread(fd, size, offset)


class _Page:
    """The value in a timeline's page, whose fd must stay open meanwhile."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def value(self) -> int:
        return int.from_bytes(_read(self._fd, 8, len(_HEAD)), sys.byteorder)

    def close(self) -> None:
        pass


# ---- either
def counter_of(fd: int) -> Counter | None:
    """Return what reads the value of a timeline's fd, which stays open meanwhile. None: it cannot be read."""
    try:
        if _read(fd, len(_HEAD), 0) == _HEAD:
            return _Page(fd)
    except OSError:
        pass   # a syncobj has no bytes
    try:
        syncobj = Syncobj.opened(fd)
        if syncobj is not None:
            syncobj.value()   # kernels before 5.2 have no timelines
    except OSError:
        return None
    return syncobj


def met_object() -> tuple[bool, OwnedHandle] | None:
    """Create an object whose waits for 1 are always met. True: a signalled binary syncobj. False: a timeline page."""
    syncobj = Syncobj.create(signalled=True)
    if syncobj is not None:
        try:
            return True, syncobj.export()
        finally:
            syncobj.close()
    page = timeline_page(1)   # no driver need meet a wait for 0: see `ImmediateList.append_wait`
    return None if page is None else (False, page)
