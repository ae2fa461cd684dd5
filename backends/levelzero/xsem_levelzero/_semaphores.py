"""Semaphores: from xsem's descriptors to the driver's structs, imports, and waits on drivers whose handles wear out."""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from xsem.spi import DriverFd, duplicate_fd
from xsem.types import OsHandleKind, OwnedHandle, SemaphoreDesc, SemaphoreHandleType, SemaphoreKind
from xsem_levelzero import _ze as ze
from xsem_levelzero._core import Core
from xsem_levelzero._events import Events, Point

__all__ = ["Batches", "Semaphore", "import_fd", "import_semaphore", "kept_duplicate", "semaphore_struct", "win32_name"]


def semaphore_struct(desc: SemaphoreDesc, number: int | None) -> ze.ExternalSemaphoreDesc:
    """ze_external_semaphore_ext_desc_t with what it is linked to; `number` is the handle, None for a name.

    Exactly one flag, and the handle's struct as the first of the chain: Intel's driver reads no further.
    """
    flags = desc.type.native["levelzero"][1]
    handle: ze.Base
    if desc.type.os_handle_kind is OsHandleKind.FD:
        handle = ze.ExternalSemaphoreFdDesc.made(fd=number)
    else:
        handle = ze.ExternalSemaphoreWin32Desc.made(handle=number)
        if desc.name is not None:
            win32_name(handle, desc.name.encode() + b"\0")  # const char*
    return ze.ExternalSemaphoreDesc.made(flags=flags, pNext=handle)


def win32_name(struct: Any, name: bytes) -> None:
    """Put the address of a name into a struct, which keeps the bytes alive."""
    struct.kept_name = ctypes.create_string_buffer(name, len(name))
    struct.name = ctypes.addressof(struct.kept_name)


def kept_duplicate(desc: SemaphoreDesc, handle: OwnedHandle | None) -> OwnedHandle | None:
    """A duplicate to compare with after the import, for types that are file descriptors.

    Intel's driver has changed its mind: before 26.05 it never closed an imported fd, 26.05 closes it after success,
    26.09 after failure too (docs/levelzero.md). Where the kernel cannot tell, one number is leaked rather than
    another's closed; after a failed import the facade does the same.
    """
    return duplicate_fd(handle.fileno()) if handle is not None and desc.type.os_handle_kind is OsHandleKind.FD else None


def import_fd(core: Core, type: SemaphoreHandleType, given: OwnedHandle, kept: OwnedHandle) -> int:
    """Import one fd and close it unless the driver did; the semaphore's handle. `kept` is another number of that fd.

    Raises
    ------
    XsemError
        The driver refused it; `given` is closed all the same.
    """
    fd = DriverFd(given, kept)
    desc = SemaphoreDesc(type=type, handle=fd.number)
    try:
        return core.extension.import_semaphore(core.extension_device, semaphore_struct(desc, fd.number))
    finally:
        fd.settle()


class Semaphore:
    """An imported semaphore.

    Parameters
    ----------
    handle : int
        ze_external_semaphore_ext_handle_t.
    kept : OwnedHandle or None
        A duplicate to import again from, where the driver's handles wear out: after its first met wait every later one
        on the same handle passes at once. Then each wait has a fresh import, and `handle` is for signals alone.
    """

    __slots__ = ("_lock", "_waiting", "handle", "kept", "released", "type")

    def __init__(self, handle: int, type: SemaphoreHandleType, kept: OwnedHandle | None) -> None:
        self.handle = handle
        self.type = type
        self.kept = kept
        self.released = False
        self._lock = threading.Lock()
        # Fresh handles in use, oldest first, each with the event that its wait is over.
        self._waiting: deque[tuple[int, Point]] = deque()

    def handle_for_wait(self, core: Core, events: Events) -> int:
        """The handle for one wait; a fresh one is to be given to `waits_with`, or back to the driver."""
        if self.kept is None:
            return self.handle
        self.sweep(core, events)
        return import_fd(core, self.type, duplicate_fd(self.kept.fileno()), self.kept)

    def waits_with(self, handle: int, over: Point) -> None:
        """A wait was appended with a fresh handle; `over` is reached when it is met, and released here."""
        with self._lock:
            self._waiting.append((handle, over))

    def sweep(self, core: Core, events: Events) -> None:
        """Release the handles of waits that are over."""
        while True:
            with self._lock:
                if not self._waiting:
                    return
                handle, over = self._waiting[0]
                if not events.done(over):
                    return
                self._waiting.popleft()
            core.extension.release_semaphore(handle)
            events.release(over)

    def release(self, core: Core, events: Events) -> None:
        """Release all of it; nothing that was appended uses it any more."""
        with self._lock:
            if self.released:
                return  # a second release of a handle would use freed memory
            self.released = True
            waiting, self._waiting = list(self._waiting), deque()
        for handle, over in waiting:
            core.extension.release_semaphore(handle)
            events.release(over)
        core.extension.release_semaphore(self.handle)
        if self.kept is not None:
            self.kept.close()


def import_semaphore(
    core: Core, desc: SemaphoreDesc, handle: OwnedHandle | None, *, wears_out: bool
) -> Semaphore:
    """Import; `handle` is detached if the driver took it.

    Raises
    ------
    XsemError
        The driver's refusal; what became of `handle` is not known.
    """
    number = handle.fileno() if handle is not None else _number(desc)
    kept = kept_duplicate(desc, handle)
    fd = DriverFd(handle, kept) if handle is not None and kept is not None else None
    try:
        made = core.extension.import_semaphore(core.extension_device, semaphore_struct(desc, number))
    except BaseException:
        if kept is not None:
            kept.close()
        raise
    if fd is not None and handle is not None and not fd.left_open():
        handle.detach()
    if kept is not None and not wears_out:
        kept.close()
        kept = None
    return Semaphore(made, desc.type, kept)


def _number(desc: SemaphoreDesc) -> int | None:
    handle = desc.handle
    return handle if handle is None or isinstance(handle, int) else handle.fileno()


class Batches:
    """Parameter structs of one list, for signals or for waits: the appends of a list never overlap, so they are kept.

    The driver has read them when its call returns.
    """

    def __init__(self, struct: type[ze.Base]) -> None:
        self._struct = struct
        self._by_count: dict[int, Any] = {}

    def fill(self, semaphores: Sequence[Semaphore], params: Sequence[Any]) -> Any:
        """An array of structs, contiguous. A binary semaphore's value is 0; a keyed mutex's is its key."""
        count = len(semaphores)
        structs = self._by_count.get(count)
        if structs is None:
            structs = self._by_count[count] = (self._struct * count)()
            for each in structs:
                each.stype = self._struct.STYPE
        for each, semaphore, param in zip(structs, semaphores, params, strict=True):
            each.value = (param.key if semaphore.type.kind is SemaphoreKind.KEYED_MUTEX else param.value) or 0
        return structs
