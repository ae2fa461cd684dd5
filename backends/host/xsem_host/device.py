"""The host as a device: its objects and lists behind the driver interface."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from typing import Final, NoReturn

from xsem.errors import BadHandleError, BusyError, UnsupportedError
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
from xsem_host.objects import (
    Binary,
    HostMemory,
    Timeline,
    new_binary,
    new_memory,
    new_timeline,
    open_binary,
    open_memory,
    open_timeline,
)
from xsem_host.points import Waitable, foreign

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

Semaphore = Binary | Timeline


class HostDevice(DeviceDriver):
    """One open `host` device. Several in one process share nothing but the objects that they import."""

    def __init__(self) -> None:
        self._lists: set[HostList] = set()
        self._lock = threading.Lock()

    @property
    def capabilities(self) -> Capabilities:
        """See `CAPABILITIES`."""
        return CAPABILITIES

    def create_command_list(self) -> HostList:
        """A list with a worker thread of its own."""
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
    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Semaphore:
        """Wrap the eventfd or map the timeline's page."""
        if desc.type not in _SEMAPHORES:
            _refuse(f"semaphore.import.{desc.type.value}")
        fd = _fd(handle)
        try:
            timeline = desc.type is SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
            opened: Semaphore = open_timeline(fd) if timeline else open_binary(fd)
        except BadHandleError as error:
            raise ImportFailure(error, fate="left") from error
        _take(handle)
        return opened

    def release_semaphore(self, semaphore: Semaphore) -> None:
        """Close it."""
        semaphore.close()

    def create_semaphore(self, type: SemaphoreHandleType, initial_value: int) -> Semaphore:
        """A new eventfd or timeline page."""
        if type is SemaphoreHandleType.TIMELINE_SEMAPHORE_FD:
            return new_timeline(initial_value)
        if type is SemaphoreHandleType.OPAQUE_FD:
            return new_binary()
        raise UnsupportedError(f"host does not export {type.value}", capability=f"semaphore.export.{type.value}")

    def export_semaphore(self, semaphore: Semaphore) -> OwnedHandle:
        """A duplicate of its fd."""
        return _duplicate(semaphore.fd)

    def semaphore_value(self, semaphore: Semaphore) -> int:
        """The page's counter."""
        return _timeline(semaphore, "value").value

    def host_signal(self, semaphore: Semaphore, value: int | None) -> None:
        """Signal on the caller's thread."""
        if isinstance(semaphore, Timeline):
            semaphore.signal(value or 0)
        else:
            semaphore.signal()

    def host_wait(self, semaphore: Semaphore, value: int | None, timeout_ns: int) -> bool:
        """Wait on the caller's thread."""
        if isinstance(semaphore, Timeline):
            return semaphore.wait(value or 0, timeout_ns)
        return semaphore.wait(timeout_ns)

    # ---- memory
    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> HostMemory:
        """Map the whole memfd, as far as the descriptor says."""
        if desc.type not in _MEMORIES:
            _refuse(f"memory.import.{desc.type.value}")
        try:
            opened = open_memory(_fd(handle), desc.allocation_size)
        except BadHandleError as error:
            raise ImportFailure(error, fate="left") from error
        _take(handle)
        return opened

    def create_memory(self, type: MemoryHandleType, size: int, dedicated: bool) -> tuple[HostMemory, int]:
        """A new memfd of whole pages."""
        if type not in _MEMORIES:
            raise UnsupportedError(f"host does not export {type.value}", capability=f"memory.export.{type.value}")
        whole = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        return new_memory(whole), whole

    def export_memory(self, memory: HostMemory) -> OwnedHandle:
        """A duplicate of its fd."""
        return _duplicate(memory.fd)

    def map_buffer(self, memory: HostMemory, offset: int, size: int) -> tuple[object, int]:
        """An address in the one mapping of the memory."""
        return memory, memory.address + offset

    def unmap_buffer(self, buffer: object) -> None:
        """Nothing: the mapping goes with the memory."""

    def release_memory(self, memory: HostMemory) -> None:
        """Unmap and close it."""
        memory.close()

    def host_buffer(self, size: int) -> tuple[object, int]:
        """Ordinary memory: the host's copies block nobody."""
        data = ctypes.create_string_buffer(size)
        return data, ctypes.addressof(data)

    def release_host_buffer(self, buffer: object) -> None:
        """Collected with the token."""

    # ---- other
    def open_event(self, native: object) -> Waitable:
        """A threading.Event or a concurrent.futures.Future."""
        return foreign(native)

    def native_handle(self, token: object) -> int:
        """The fd of a semaphore or memory."""
        if isinstance(token, Binary | Timeline | HostMemory):
            return token.fd
        raise UnsupportedError("only semaphores and memory of host have a native handle: their fd",
                               capability="native_handle")


def _refuse(capability: str) -> NoReturn:
    raise ImportFailure(UnsupportedError(f"host does not declare {capability}", capability=capability), fate="left")


def _fd(handle: OwnedHandle | None) -> int:
    if handle is None:
        raise ImportFailure(BadHandleError("host imports file descriptors only", reason="no_handle"), fate="left")
    return handle.fileno()


def _take(handle: OwnedHandle | None) -> None:
    """The object owns the fd from here on."""
    if handle is not None:
        handle.detach()


def _duplicate(fd: int) -> OwnedHandle:
    return OwnedHandle(os.dup(fd))


def _timeline(semaphore: Semaphore, what: str) -> Timeline:
    if not isinstance(semaphore, Timeline):
        raise UnsupportedError(f"a binary semaphore has no {what}", capability=f"binary.{what}")
    return semaphore
