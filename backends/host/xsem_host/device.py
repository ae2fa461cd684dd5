"""The driver of the device ``host:0``: its semaphores, memory and queues."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Final

from xsem import spi
from xsem.errors import BusyError, UnsupportedError, XsemError
from xsem.portable import (
    HostMapping,
    Pages,
    SemaphoreBase,
    SharedMemory,
    Timeline,
    map_private,
    new_memory,
    new_timeline,
    open_memory,
    open_timeline,
    opened,
)
from xsem.types import (
    Capabilities,
    Feature,
    MemoryDesc,
    MemoryHandleType,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
)
from xsem_host.fences import HostFence, Waitable, foreign
from xsem_host.queue import HostQueue

if sys.platform == "win32":
    from xsem_host.windows_semaphores import new_binary, open_binary
else:
    from xsem_host.dmabufs import is_dmabuf, open_dmabuf
    from xsem_host.semaphores import new_binary, open_binary

__all__ = ["CAPABILITIES", "HostDevice"]

_MANY_LISTS: Final = 1024
_DLPACK_CPU: Final = 1
_WINDOWS: Final = sys.platform == "win32"
_BINARY: Final = SemaphoreHandleType.OPAQUE_WIN32 if _WINDOWS else SemaphoreHandleType.OPAQUE_FD
_TIMELINE: Final = (
    SemaphoreHandleType.TIMELINE_SEMAPHORE_WIN32 if _WINDOWS else SemaphoreHandleType.TIMELINE_SEMAPHORE_FD)
_SEMAPHORES: Final = frozenset({
    _BINARY, _TIMELINE,
    SemaphoreHandleType.HOST_TIMELINE_WIN32 if _WINDOWS else SemaphoreHandleType.HOST_TIMELINE_FD})
_MEMORIES: Final = frozenset(
    {MemoryHandleType.OPAQUE_WIN32, MemoryHandleType.HOST_MEMORY_WIN32} if _WINDOWS else
    {MemoryHandleType.OPAQUE_FD, MemoryHandleType.HOST_MEMORY_FD})

CAPABILITIES: Final = Capabilities(
    semaphore_import=_SEMAPHORES,
    semaphore_export=_SEMAPHORES,
    memory_import=_MEMORIES,
    memory_export=_MEMORIES,
    features=frozenset({Feature.HOST_SIGNAL, Feature.HOST_WAIT, Feature.READ_VALUE, Feature.NATIVE_EVENTS}),
    wait_before_signal=_SEMAPHORES,
    resets_on_wait=True,
    append_never_blocks=True,
    release_never_blocks=True,
    independent_lists=_MANY_LISTS,
    max_value_difference=2**64 - 1,
)
_UNDECLARED_CAUSES: Final = {
    "memory.import.dmabuf_fd": ((
        "host imports a dma-buf that the CPU can map as an opaque_fd: MemoryDesc.opaque_fd(fd, allocation_size=…, "
        "device_uuid=None)"),),
    "borrow_queue": ("host has no streams: pass a list of create_command_list(), or no stream to a ring",),
}


class HostDevice(
    spi.DeviceDriver, spi.SemaphoreImport, spi.SemaphoreExport, spi.HostTimelines, spi.HostSemaphore, spi.MemoryImport,
    spi.MemoryExport, spi.HostMemoryImport, spi.HostMemory, spi.BorrowedEvents,
):
    """One open ``host`` device. Devices of one process share only the objects that they import."""

    def __init__(self) -> None:
        self.undeclared_causes = _UNDECLARED_CAUSES
        self._queues: weakref.WeakSet[HostQueue] = weakref.WeakSet()   # a worker keeps its queue alive
        self._lock = spi.Lock()

    @property
    def capabilities(self) -> Capabilities:
        """The constant `CAPABILITIES`."""
        return CAPABILITIES

    def create_queue(self) -> HostQueue:
        """Create a queue with its own worker thread."""
        with self._lock:
            if len(self._queues) >= _MANY_LISTS:
                raise BusyError(f"{_MANY_LISTS} command lists of host are open, its maximum: close one first",
                                reason="too_many_lists")
            made = HostQueue(self._forget)
            self._queues.add(made)
        return made

    def _forget(self, gone: HostQueue) -> None:
        with self._lock:
            self._queues.discard(gone)

    def query_fence(self, fence: Waitable) -> bool:
        """Return whether the fence is reached; raise the failure that keeps it from being reached."""
        return fence.done()

    def wait_fence(self, fence: Waitable, timeout_ns: int) -> bool:
        """Block until the fence is reached or the timeout expires; return whether it is reached."""
        return fence.wait(timeout_ns)

    def time_fences(self, on: bool) -> bool:
        """Return True: each fence of a queue notes its time."""
        return True

    def fence_time(self, fence: Waitable) -> float | None:
        """Return when the worker of the queue reached the fence."""
        return fence.at if isinstance(fence, HostFence) else None

    def release_fence(self, fence: Waitable) -> None:
        """Do nothing: a fence of host owns no resource."""

    def close(self) -> None:
        """Close the queues that are still open, and end their workers."""
        with self._lock:
            left = list(self._queues)
        for each in left:
            each.close()

    # ---- semaphores
    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> spi.Imported:
        """Import an eventfd or a timeline's memfd; on Windows an event or a section, by handle or by name."""
        is_timeline = desc.type is _TIMELINE
        return _imported(desc, handle, open_timeline if is_timeline else open_binary)

    def import_host_timeline(self, page: Timeline) -> Timeline:
        """Return the page: the queues wait for its futex, and wake its waiters."""
        return page

    def release_semaphore(self, semaphore: SemaphoreBase) -> None:
        """Close the semaphore, at the latest when the last worker thread has left it."""
        semaphore.close()

    def create_semaphore(self, type: SemaphoreHandleType, initial_value: int) -> SemaphoreBase:
        """Create an unsignalled binary semaphore, or a timeline with `initial_value`."""
        return new_timeline(initial_value) if type is _TIMELINE else new_binary()

    def export_semaphore(self, semaphore: SemaphoreBase) -> OwnedHandle:
        """Return a duplicate of the semaphore's fd or NT handle, owned by the caller."""
        return semaphore.duplicate()

    def semaphore_value(self, semaphore: SemaphoreBase) -> int:
        """Return the current value of a timeline."""
        if not isinstance(semaphore, Timeline):
            raise UnsupportedError("a binary semaphore has no value", capability="binary.value")
        return semaphore.value

    def host_signal(self, semaphore: SemaphoreBase, value: int | None) -> None:
        """Signal on the calling thread. Never blocks."""
        semaphore.signal(value)

    def host_wait(self, semaphore: SemaphoreBase, value: int | None, timeout_ns: int) -> bool:
        """Wait on the calling thread, and return whether the wait is met before the timeout."""
        return semaphore.wait(value, timeout_ns)

    # ---- memory
    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> spi.Imported:
        """Import a sealed memfd or a dma-buf; on Windows a section, by handle or by name."""
        return _imported(desc, handle, lambda own: _open_memory(own, desc.allocation_size))

    def import_host_memory(self, memory: SharedMemory) -> SharedMemory:
        """Return the memory, which `map_buffer` maps."""
        return memory

    def create_memory(self, type: MemoryHandleType, size: int, dedicated: bool) -> tuple[SharedMemory, int]:
        """Create a sealed memfd or a section, and return it with its size, a number of whole pages."""
        made = new_memory(size)
        return made, made.size

    def export_memory(self, memory: SharedMemory) -> OwnedHandle:
        """Return a duplicate of the memory's fd or NT handle, owned by the caller."""
        return memory.duplicate()

    def map_buffer(self, memory: SharedMemory, offset: int, size: int) -> tuple[HostMapping, int]:
        """Return a use of the memory's one mapping, and the address of `offset` in it."""
        mapping = memory.map(offset)
        return mapping, mapping.address

    def unmap_buffer(self, buffer: HostMapping) -> None:
        """Undo `map_buffer`. The last buffer unmaps the memory."""
        buffer.memory.unmap()

    def release_memory(self, memory: SharedMemory) -> None:
        """Close the memory's file."""
        memory.close()

    def dlpack_device(self) -> tuple[int, int]:
        """Return DLPack's kDLCPU: the host accesses mapped memory directly."""
        return (_DLPACK_CPU, 0)

    def host_buffer(self, size: int) -> tuple[Pages, int]:
        """Allocate private pages. They are not page-locked, because copies of host do not need that."""
        made = map_private(size)
        return made, made.address

    def release_host_buffer(self, buffer: Pages) -> None:
        """Unmap the pages."""
        buffer.close()

    # ---- other
    def borrow_event(self, native: object) -> Waitable:
        """Borrow a `threading.Event` or a `concurrent.futures.Future` as a fence."""
        return foreign(native)

    def native_handle(self, token: object) -> int:
        """Return the fd or NT handle of a semaphore or memory. The object still owns it."""
        if isinstance(token, SemaphoreBase | SharedMemory):
            return token.fd
        raise UnsupportedError("a native handle exists only for semaphores and memory of host: their fd",
                               capability="native_handle")


def _open_memory(handle: OwnedHandle, size: int) -> SharedMemory:
    """Open a memfd, a dma-buf or a section, and take ownership of it."""
    if sys.platform != "win32" and is_dmabuf(handle.fileno()):
        return open_dmabuf(handle, size)
    return open_memory(handle, size)


def _imported(
    desc: SemaphoreDesc | MemoryDesc, handle: OwnedHandle | None, open_: Callable[[OwnedHandle], object]
) -> spi.Imported:
    """Open an object that owns a second duplicate. The facade closes `handle`, so each number has one owner."""
    try:
        return spi.Imported(opened(desc, handle, open_, event=desc.type is _BINARY), handle="left")
    except XsemError as error:
        raise spi.ImportFailure(error, handle="left") from error
