"""The host's memory, as docs/host-objects.md defines it, and buffers of this process's own."""

from __future__ import annotations

import mmap
import threading
import weakref

from xsem.errors import BadHandleError
from xsem.types import OwnedHandle
from xsem_host.files import check_sealed_memfd, file_name
from xsem_host.linux import Pages, duplicate, map_private, map_shared, new_sealed_memfd
from xsem_host.semaphores import TIMELINE_NAME

__all__ = ["HostBuffer", "HostMapping", "HostMemory", "new_memory", "open_memory"]


class HostMemory:
    """Memory that several processes share: a sealed memfd. It is mapped, once, while anything of it is in use.

    Parameters
    ----------
    handle : OwnedHandle
        This object owns its file from here on. After an error the caller still does.
    size : int
        Bytes to map from its start.
    """

    def __init__(self, handle: OwnedHandle, size: int) -> None:
        self.size = size
        self._lock = threading.Lock()
        self._pages: Pages | None = None
        # Weak: a use that Ctrl-C kept from the caller ends by itself.
        self._uses: weakref.WeakSet[HostMapping] = weakref.WeakSet()
        # A file that cannot be mapped is refused at import, not at the first buffer.
        map_shared(handle.fileno(), size).close()
        self._file = handle.take()

    @property
    def fd(self) -> int:
        """The descriptor, still owned by this object."""
        return self._file.fileno()

    def duplicate(self) -> OwnedHandle:
        """Another descriptor of the same file, owned by the caller."""
        return duplicate(self._file.fileno())

    def map(self) -> HostMapping:
        """Return a use of the single mapping of the whole memory, which ends with its last use."""
        with self._lock:
            if self._pages is None:
                self._pages = map_shared(self._file.fileno(), self.size)
            use = HostMapping(self, self._pages.address)
            self._uses.add(use)
            return use

    def unmap(self, use: HostMapping) -> None:
        """Undo one `map`; no effect a second time."""
        with self._lock:
            self._uses.discard(use)
            if self._pages is not None and not self._uses:
                # Taken out first: after Ctrl-C in `close`, the next `map` makes a mapping of its own.
                pages, self._pages = self._pages, None
                pages.close()

    def close(self) -> None:
        """Close the file; what is still mapped stays so until it is unmapped."""
        self._file.close()


class HostMapping:
    """One use of a mapped memory.

    Attributes
    ----------
    memory : HostMemory
    address : int
        Address of the first byte.
    """

    __slots__ = ("__weakref__", "address", "memory")

    def __init__(self, memory: HostMemory, address: int) -> None:
        self.memory = memory
        self.address = address


def new_memory(size: int) -> HostMemory:
    """Zeroed memory of `size` bytes, rounded up to whole pages."""
    whole = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    with new_sealed_memfd("xsem-memory", whole) as handle:
        return HostMemory(handle, whole)


def open_memory(handle: OwnedHandle, size: int) -> HostMemory:
    """Check that the file is sealed memory of at least `size` bytes, and own it.

    Raises
    ------
    BadHandleError
        ``not_a_memfd``, ``unsealed``, ``short_page``, ``wrong_kind``, ``read_only``, ``no_proc``; the
        handle is left alone.
    """
    fd = handle.fileno()
    check_sealed_memfd(fd, "memory", size)
    # The contents are the user's, so they carry no header; but a timeline taken for memory would be scribbled on.
    if file_name(fd) == f"/memfd:{TIMELINE_NAME} (deleted)":
        raise BadHandleError("this is a timeline, not memory", reason="wrong_kind")
    return HostMemory(handle, size)


class HostBuffer:
    """Memory of this process alone."""

    def __init__(self, size: int) -> None:
        self._pages = map_private(size)
        self.address = self._pages.address

    def close(self) -> None:
        """Give it back."""
        self._pages.close()
