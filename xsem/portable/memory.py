"""Host memory that processes share (docs/host-objects.md)."""

from __future__ import annotations

import mmap
import sys

from xsem.data.handles import OwnedHandle
from xsem.data.locks import Lock
from xsem.errors import BadHandleError

if sys.platform == "win32":
    from xsem.portable.timeline import HEAD, TIMELINE_BYTES
    from xsem.portable.windows import (
        Pages,
        check_section,
        duplicate,
        map_private,
        map_shared,
        new_section,
        read_at_start,
    )
else:
    from xsem.portable.files import check_sealed_memfd, file_name
    from xsem.portable.linux import Pages, duplicate, map_private, map_shared, new_sealed_memfd
    from xsem.portable.linux_timeline import TIMELINE_NAME

__all__ = ["HostMapping", "Pages", "SharedMemory", "map_private", "new_memory", "open_memory", "open_whole_pages"]


class SharedMemory:
    """Memory that several processes can share: a sealed memfd, or a section on Windows."""

    def __init__(self, handle: OwnedHandle, size: int) -> None:
        self.size = size
        self._lock = Lock()
        self._pages: Pages | None = None   # mapped by the first use, unmapped by the last
        self._uses = 0
        # So import refuses a file that cannot be mapped, before the first buffer.
        map_shared(handle.fileno(), size).close()
        self._file = handle.take()   # last: after an error the caller still owns the file

    @property
    def fd(self) -> int:
        """The file descriptor. This object still owns it."""
        return self._file.fileno()

    def duplicate(self) -> OwnedHandle:
        """Return a duplicate of the file descriptor, owned by the caller."""
        return duplicate(self._file.fileno())

    def map(self, offset: int) -> HostMapping:
        """Return a use of the memory's one mapping, from `offset` on."""
        with self._lock:
            if self._pages is None:
                pages = map_shared(self._file.fileno(), self.size)
                try:
                    self._begin_access()
                except BaseException:
                    pages.close()
                    raise
                self._pages = pages
            self._uses += 1
            return HostMapping(self, self._pages.address + offset)

    def unmap(self) -> None:
        """Undo one `map`."""
        with self._lock:
            self._uses -= 1
            if self._pages is not None and not self._uses:
                pages, self._pages = self._pages, None
                try:
                    self._end_access()
                finally:
                    pages.close()

    def close(self) -> None:
        """Close the file. An existing mapping lives until its last `unmap`."""
        self._file.close()

    def _begin_access(self) -> None:
        """Do nothing: only a dma-buf has devices whose accesses must be ordered with those of the CPU."""

    def _end_access(self) -> None:
        """Do nothing, as `_begin_access`."""


class HostMapping:
    """One use of a mapped memory."""

    __slots__ = ("address", "memory")

    def __init__(self, memory: SharedMemory, address: int) -> None:
        self.memory = memory
        self.address = address


def new_memory(size: int) -> SharedMemory:
    """Create zeroed memory of `size` bytes, rounded up to whole pages."""
    whole = _whole(size)
    with _new_object(whole) as handle:
        return SharedMemory(handle, whole)


def _whole(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def open_memory(handle: OwnedHandle, size: int) -> SharedMemory:
    """Check that the file or section is memory of at least `size` bytes, and take ownership of it."""
    if _is_timeline(handle.fileno(), size):
        raise BadHandleError("the handle is one of a timeline, not of memory: import it as a semaphore",
                             reason="wrong_kind")
    return SharedMemory(handle, size)


def open_whole_pages(handle: OwnedHandle, size: int) -> SharedMemory:
    """Open memory of HOST_MEMORY_FD or HOST_MEMORY_WIN32: the whole pages of the first `size` bytes."""
    return open_memory(handle, _whole(size))


# Memory has no header, because its contents are the user's.
if sys.platform == "win32":

    def _new_object(size: int) -> OwnedHandle:
        return new_section(size)

    def _is_timeline(handle: int, size: int) -> bool:
        whole = check_section(handle, "memory", size)
        # The size of a section is a number of whole pages.
        return whole == TIMELINE_BYTES and read_at_start(handle, len(HEAD)) == HEAD

else:

    def _new_object(size: int) -> OwnedHandle:
        return new_sealed_memfd("xsem-memory", size)

    def _is_timeline(fd: int, size: int) -> bool:
        check_sealed_memfd(fd, "memory", size)
        # The name protects timelines from import as memory.
        return file_name(fd) == f"/memfd:{TIMELINE_NAME} (deleted)"
