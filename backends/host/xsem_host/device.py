"""The driver of the device ``host:0``: its semaphores, memory and command lists."""

from __future__ import annotations

import threading
import weakref
from typing import Final, NoReturn

from xsem.errors import BadHandleError, BusyError, UnsupportedError, XsemError
from xsem.spi import DeviceDriver, ImportFailure
from xsem.types import (
    Capabilities,
    Feature,
    MemoryDesc,
    MemoryHandleType,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
)
from xsem_host.fences import Waitable, foreign
from xsem_host.memory import HostBuffer, HostMapping, HostMemory, new_memory, open_memory
from xsem_host.queue import HostList
from xsem_host.semaphores import Timeline, new_binary, new_timeline, open_binary, open_timeline
from xsem_host.sharing import HostSemaphore

__all__ = ["CAPABILITIES", "HostDevice"]

_MANY_LISTS: Final = 1024
_SEMAPHORES: Final = frozenset({SemaphoreHandleType.OPAQUE_FD, SemaphoreHandleType.TIMELINE_SEMAPHORE_FD})
_MEMORIES: Final = frozenset({MemoryHandleType.OPAQUE_FD})

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


class HostDevice(DeviceDriver):
    """One open ``host`` device.

    Several devices in one process are independent. They share only the objects that they import.
    """

    def __init__(self) -> None:
        self._lists: weakref.WeakSet[HostList] = weakref.WeakSet()   # a worker keeps its list alive
        self._lock = threading.Lock()

    @property
    def capabilities(self) -> Capabilities:
        """The constant `CAPABILITIES`."""
        return CAPABILITIES

    def create_queue(self) -> HostList:
        """Create a list with its own worker thread.

        Raises
        ------
        BusyError
            ``too_many_lists``: 1,024 lists are open.
        """
        with self._lock:
            if len(self._lists) >= _MANY_LISTS:
                raise BusyError(f"{_MANY_LISTS} command lists of host are open, its maximum: close one first",
                                reason="too_many_lists")
            made = HostList(self._forget)
            self._lists.add(made)
        return made

    def _forget(self, gone: HostList) -> None:
        with self._lock:
            self._lists.discard(gone)

    def query_fence(self, fence: Waitable) -> bool:
        """Return whether the fence is reached.

        Raises
        ------
        XsemError
            The fence will never be reached: the list's work failed, or the list was closed.
        """
        return fence.done()

    def wait_fence(self, fence: Waitable, timeout_ns: int) -> bool:
        """Block until the fence is reached or the timeout expires.

        Parameters
        ----------
        fence : Waitable
        timeout_ns : int
            Timeout in nanoseconds.

        Returns
        -------
        bool
            Whether the fence is reached.
        """
        return fence.wait(timeout_ns)

    def release_fence(self, fence: Waitable) -> None:
        """Do nothing: a fence of host owns no resource."""

    def close(self) -> None:
        """Close the lists that are still open, and end their workers."""
        with self._lock:
            left = list(self._lists)
        for each in left:
            each.close()

    # ---- semaphores
    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> HostSemaphore:
        """Import an eventfd (``OPAQUE_FD``) or a timeline's memfd (``TIMELINE_SEMAPHORE_FD``).

        Parameters
        ----------
        desc : SemaphoreDesc
        handle : OwnedHandle
            On success the semaphore owns the file. On failure the handle stays the caller's (fate ``left``).

        Raises
        ------
        ImportFailure
            With the `UnsupportedError` or `BadHandleError`.
        """
        if desc.type not in _SEMAPHORES:
            _refuse(f"semaphore.import.{desc.type.value}")
        open_ = open_timeline if desc.type is SemaphoreHandleType.TIMELINE_SEMAPHORE_FD else open_binary
        try:
            return open_(_given(handle))
        except XsemError as error:
            raise ImportFailure(error, fate="left") from error

    def release_semaphore(self, semaphore: HostSemaphore) -> None:
        """Close the semaphore, at the latest when the last worker thread has left it."""
        semaphore.close()

    def create_semaphore(self, type: SemaphoreHandleType, initial_value: int) -> HostSemaphore:
        """Create an unsignalled binary semaphore, or a timeline with `initial_value`.

        Raises
        ------
        UnsupportedError
            `type` is not exportable.
        """
        if type is SemaphoreHandleType.TIMELINE_SEMAPHORE_FD:
            return new_timeline(initial_value)
        if type is SemaphoreHandleType.OPAQUE_FD:
            return new_binary()
        raise UnsupportedError(f"host does not export {type.value}", capability=f"semaphore.export.{type.value}")

    def export_semaphore(self, semaphore: HostSemaphore) -> OwnedHandle:
        """Return a duplicate of the semaphore's fd, owned by the caller."""
        return semaphore.duplicate()

    def semaphore_value(self, semaphore: HostSemaphore) -> int:
        """Return the current value of a timeline.

        Raises
        ------
        UnsupportedError
            The semaphore is binary.
        """
        if not isinstance(semaphore, Timeline):
            raise UnsupportedError("a binary semaphore has no value", capability="binary.value")
        return semaphore.value

    def host_signal(self, semaphore: HostSemaphore, value: int | None) -> None:
        """Signal on the calling thread. Never blocks."""
        semaphore.signal(value)

    def host_wait(self, semaphore: HostSemaphore, value: int | None, timeout_ns: int) -> bool:
        """Wait on the calling thread, and return whether the wait is met before the timeout."""
        return semaphore.wait(value, timeout_ns)

    # ---- memory
    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> HostMemory:
        """Import a sealed memfd (``OPAQUE_FD``), of which ``desc.allocation_size`` bytes are used.

        Parameters
        ----------
        desc : MemoryDesc
        handle : OwnedHandle
            On success the memory owns the file. On failure the handle stays the caller's (fate ``left``).

        Raises
        ------
        ImportFailure
            With the `UnsupportedError` or `BadHandleError`.
        """
        if desc.type not in _MEMORIES:
            _refuse(f"memory.import.{desc.type.value}")
        try:
            return open_memory(_given(handle), desc.allocation_size)
        except XsemError as error:
            raise ImportFailure(error, fate="left") from error

    def create_memory(self, type: MemoryHandleType, size: int, dedicated: bool) -> tuple[HostMemory, int]:
        """Create a sealed memfd of whole pages.

        Returns
        -------
        (HostMemory, int)
            The memory, and its size in bytes: `size` rounded up to whole pages.

        Raises
        ------
        UnsupportedError
            `type` is not exportable.
        OutOfMemoryError
            ``out_of_memory``.
        """
        if type not in _MEMORIES:
            raise UnsupportedError(f"host does not export {type.value}", capability=f"memory.export.{type.value}")
        made = new_memory(size)
        return made, made.size

    def export_memory(self, memory: HostMemory) -> OwnedHandle:
        """Return a duplicate of the memory's fd, owned by the caller."""
        return memory.duplicate()

    def map_buffer(self, memory: HostMemory, offset: int, size: int) -> tuple[HostMapping, int]:
        """Return the address of `offset` in the mapping of the memory.

        All buffers of a memory share one mapping. The first buffer creates it.
        """
        mapping = memory.map()
        return mapping, mapping.address + offset

    def unmap_buffer(self, buffer: HostMapping) -> None:
        """Undo `map_buffer`. The last buffer unmaps the memory."""
        buffer.memory.unmap(buffer)

    def release_memory(self, memory: HostMemory) -> None:
        """Close the memory's file."""
        memory.close()

    def host_buffer(self, size: int) -> tuple[HostBuffer, int]:
        """Allocate private pages. They are not page-locked, because copies of host do not need that."""
        made = HostBuffer(size)
        return made, made.address

    def release_host_buffer(self, buffer: HostBuffer) -> None:
        """Unmap the pages."""
        buffer.close()

    # ---- other
    def borrow_event(self, native: object) -> Waitable:
        """Borrow a `threading.Event` or a `concurrent.futures.Future` as a fence.

        Raises
        ------
        TypeError
            `native` has another type.
        """
        return foreign(native)

    def native_handle(self, token: object) -> int:
        """Return the fd of a semaphore or memory. The object still owns it.

        Raises
        ------
        UnsupportedError
            `token` is neither.
        """
        if isinstance(token, HostSemaphore | HostMemory):
            return token.fd
        raise UnsupportedError("a native handle exists only for semaphores and memory of host: their fd",
                               capability="native_handle")


def _refuse(capability: str) -> NoReturn:
    raise ImportFailure(UnsupportedError(f"host does not declare {capability}", capability=capability), fate="left")


def _given(handle: OwnedHandle | None) -> OwnedHandle:
    if handle is None:
        raise BadHandleError("host imports file descriptors only", reason="no_handle")
    return handle
