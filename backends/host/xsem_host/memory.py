"""The host's memory, as docs/host-objects.md defines it, and buffers of this process's own."""

from __future__ import annotations

import mmap
import os
import threading

from xsem.errors import BadHandleError
from xsem.types import OwnedHandle
from xsem_host.files import check_sealed_memfd, file_name
from xsem_host.linux import map_private, map_shared, new_sealed_memfd, unmap
from xsem_host.semaphores import TIMELINE_NAME

__all__ = ["HostBuffer", "HostMemory", "new_memory", "open_memory"]


class HostMemory:
    """Memory that several processes share: a sealed memfd. It is mapped, once, while anything of it is in use.

    Parameters
    ----------
    fd : int
        Owned from here on.
    size : int
        Bytes to map from its start.
    """

    def __init__(self, fd: int, size: int) -> None:
        self.fd = fd
        self.size = size
        self._lock = threading.Lock()
        self._users = 0
        self._address = 0

    def map(self) -> int:
        """The address of its first byte, valid until as many calls of `unmap`."""
        with self._lock:
            if self._users == 0:
                self._address = map_shared(self.fd, self.size)
            self._users += 1
            return self._address

    def unmap(self) -> None:
        """Undo one `map`."""
        with self._lock:
            self._users -= 1
            if self._users == 0:
                unmap(self._address, self.size)

    def close(self) -> None:
        """Close the file; what is still mapped stays so until it is unmapped."""
        os.close(self.fd)


def new_memory(size: int) -> HostMemory:
    """Zeroed memory of `size` bytes, rounded up to whole pages."""
    whole = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    with OwnedHandle(new_sealed_memfd("xsem-memory", whole)) as handle:
        memory = _tried(HostMemory(handle.fileno(), whole))
        handle.detach()
        return memory


def open_memory(fd: int, size: int) -> HostMemory:
    """Check that `fd` is sealed memory of at least `size` bytes.

    Raises
    ------
    BadHandleError
        ``not_a_memfd``, ``unsealed``, ``short_page``, ``wrong_kind``, ``read_only``, ``no_proc``; `fd` is left
        alone.
    """
    check_sealed_memfd(fd, "memory", size)
    # The contents are the user's, so they carry no header; but a timeline taken for memory would be scribbled on.
    if file_name(fd) == f"/memfd:{TIMELINE_NAME} (deleted)":
        raise BadHandleError("this is a timeline, not memory", reason="wrong_kind")
    return _tried(HostMemory(fd, size))


def _tried(memory: HostMemory) -> HostMemory:
    """Map it once: that it cannot be is to be known at import, not when the buffer is wanted."""
    memory.map()
    memory.unmap()
    return memory


class HostBuffer:
    """Memory of this process alone."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.address = map_private(size)

    def close(self) -> None:
        """Give it back."""
        unmap(self.address, self.size)
