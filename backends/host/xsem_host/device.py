"""The host as a device: its objects and lists behind the driver interface."""

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
from xsem_host.lists import HostList
from xsem_host.memory import HostBuffer, HostMapping, HostMemory, new_memory, open_memory
from xsem_host.points import Waitable, foreign
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
    """One open `host` device. Several in one process share nothing but the objects that they import."""

    def __init__(self) -> None:
        self._lists: weakref.WeakSet[HostList] = weakref.WeakSet()   # a worker keeps its list alive
        self._lock = threading.Lock()

    @property
    def capabilities(self) -> Capabilities:
        """See `CAPABILITIES`."""
        return CAPABILITIES

    def create_command_list(self) -> HostList:
        """A list with a worker thread of its own.

        Raises
        ------
        BusyError
            ``too_many_lists``.
        """
        with self._lock:
            if len(self._lists) >= _MANY_LISTS:
                raise BusyError(f"host has {_MANY_LISTS} command lists open, which is all it promises",
                                reason="too_many_lists")
            made = HostList(self._forget)
            self._lists.add(made)
        return made

    def _forget(self, gone: HostList) -> None:
        with self._lock:
            self._lists.discard(gone)

    def done(self, point: Waitable) -> bool:
        """Whether the worker has come past it."""
        return point.done()

    def wait(self, point: Waitable, timeout_ns: int) -> bool:
        """Sleep until the worker has."""
        return point.wait(timeout_ns)

    def release_point(self, point: Waitable) -> None:
        """Nothing to give back."""

    def close(self) -> None:
        """End the workers that are left."""
        with self._lock:
            left = list(self._lists)
        for each in left:
            each.close()

    # ---- semaphores
    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> HostSemaphore:
        """Wrap the eventfd or map the timeline's page."""
        if desc.type not in _SEMAPHORES:
            _refuse(f"semaphore.import.{desc.type.value}")
        open_ = open_timeline if desc.type is SemaphoreHandleType.TIMELINE_SEMAPHORE_FD else open_binary
        try:
            return open_(_given(handle))
        except XsemError as error:
            raise ImportFailure(error, fate="left") from error

    def release_semaphore(self, semaphore: HostSemaphore) -> None:
        """Close it, as soon as no worker of a closed list is inside any more."""
        semaphore.close()

    def create_semaphore(self, type: SemaphoreHandleType, initial_value: int) -> HostSemaphore:
        """A new eventfd or timeline page."""
        if type is SemaphoreHandleType.TIMELINE_SEMAPHORE_FD:
            return new_timeline(initial_value)
        if type is SemaphoreHandleType.OPAQUE_FD:
            return new_binary()
        raise UnsupportedError(f"host does not export {type.value}", capability=f"semaphore.export.{type.value}")

    def export_semaphore(self, semaphore: HostSemaphore) -> OwnedHandle:
        """A duplicate of its fd."""
        return semaphore.duplicate()

    def semaphore_value(self, semaphore: HostSemaphore) -> int:
        """The page's counter."""
        if not isinstance(semaphore, Timeline):
            raise UnsupportedError("a binary semaphore has no value", capability="binary.value")
        return semaphore.value

    def host_signal(self, semaphore: HostSemaphore, value: int | None) -> None:
        """Signal on the caller's thread."""
        semaphore.signal(value)

    def host_wait(self, semaphore: HostSemaphore, value: int | None, timeout_ns: int) -> bool:
        """Wait on the caller's thread."""
        return semaphore.wait(value, timeout_ns)

    # ---- memory
    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> HostMemory:
        """Take the memfd, as far as the descriptor says."""
        if desc.type not in _MEMORIES:
            _refuse(f"memory.import.{desc.type.value}")
        try:
            return open_memory(_given(handle), desc.allocation_size)
        except XsemError as error:
            raise ImportFailure(error, fate="left") from error

    def create_memory(self, type: MemoryHandleType, size: int, dedicated: bool) -> tuple[HostMemory, int]:
        """A new memfd of whole pages."""
        if type not in _MEMORIES:
            raise UnsupportedError(f"host does not export {type.value}", capability=f"memory.export.{type.value}")
        made = new_memory(size)
        return made, made.size

    def export_memory(self, memory: HostMemory) -> OwnedHandle:
        """A duplicate of its fd."""
        return memory.duplicate()

    def map_buffer(self, memory: HostMemory, offset: int, size: int) -> tuple[HostMapping, int]:
        """An address in the one mapping of the memory, made for the first buffer."""
        mapping = memory.map()
        return mapping, mapping.address + offset

    def unmap_buffer(self, buffer: HostMapping) -> None:
        """The last one unmaps the memory."""
        buffer.memory.unmap(buffer)

    def release_memory(self, memory: HostMemory) -> None:
        """Close it."""
        memory.close()

    def host_buffer(self, size: int) -> tuple[HostBuffer, int]:
        """Pages of this process's own. Not locked: the host's copies need no such thing."""
        made = HostBuffer(size)
        return made, made.address

    def release_host_buffer(self, buffer: HostBuffer) -> None:
        """Unmap it."""
        buffer.close()

    # ---- other
    def open_event(self, native: object) -> Waitable:
        """A threading.Event or a concurrent.futures.Future."""
        return foreign(native)

    def native_handle(self, token: object) -> int:
        """The fd of a semaphore or memory."""
        if isinstance(token, HostSemaphore | HostMemory):
            return token.fd
        raise UnsupportedError("only semaphores and memory of host have a native handle: their fd",
                               capability="native_handle")


def _refuse(capability: str) -> NoReturn:
    raise ImportFailure(UnsupportedError(f"host does not declare {capability}", capability=capability), fate="left")


def _given(handle: OwnedHandle | None) -> OwnedHandle:
    if handle is None:
        raise BadHandleError("host imports file descriptors only", reason="no_handle")
    return handle
