"""Semaphores: structs for the driver, imports, and fresh imports for drivers whose handles support one wait."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from xsem.errors import XsemError
from xsem.spi import DriverFd, Lock, duplicate_fd
from xsem.types import MemoryDesc, OsHandleKind, OwnedHandle, SemaphoreDesc, SemaphoreHandleType, SemaphoreKind
from xsem_levelzero import ze
from xsem_levelzero.core import Core
from xsem_levelzero.events import Events, Fence

__all__ = ["Batches", "Semaphore", "handle_number", "import_fd", "import_semaphore", "semaphore_struct", "win32_name"]


def semaphore_struct(desc: SemaphoreDesc, number: int | None) -> ze.ExternalSemaphoreDesc:
    """Return a ze_external_semaphore_ext_desc_t with its linked struct.

    The struct has exactly one flag, and the handle's struct is the first in the chain: Intel's driver reads only that
    one.

    Parameters
    ----------
    number : int or None
        The handle; None if the object is named.
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
    """Put the address of a name into a struct. The struct keeps the bytes alive."""
    struct.kept_name = ctypes.create_string_buffer(name, len(name))
    struct.name = ctypes.addressof(struct.kept_name)


def import_fd(core: Core, type: SemaphoreHandleType, given: OwnedHandle, kept: OwnedHandle) -> int:
    """Import one fd, and close it unless the driver did.

    Parameters
    ----------
    given : OwnedHandle
        The fd to import. It is consumed on success and on failure.
    kept : OwnedHandle
        Another number of the same open file. It stays the caller's.

    Returns
    -------
    int
        The ze_external_semaphore_ext_handle_t.

    Raises
    ------
    XsemError
        The driver refused the import.
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
        A duplicate for fresh imports, on drivers where a handle supports one wait: after its first completed wait,
        every later wait on the same handle passes at once. Each wait then uses a fresh import, and `handle` is used
        only for signals.
    """

    __slots__ = ("_kept_handles", "_lock", "_signals", "_waiting", "handle", "kept", "type")

    def __init__(self, handle: int, type: SemaphoreHandleType, kept: OwnedHandle | None) -> None:
        self.handle = handle
        self.type = type
        self.kept = kept
        self._lock = Lock()
        # Fresh handles in use, oldest first, each with the event of its completed wait.
        self._waiting: deque[tuple[int, Fence]] = deque()
        self._kept_handles: list[int] = []
        # Signals that the driver may make after their event, oldest first. For each: the `Signals` of the list, the
        # number of the signal on the list, and the event of the signal.
        self._signals: list[tuple[Any, int, Fence]] = []

    def handle_for_wait(self, core: Core, events: Events) -> int:
        """Return the handle for one wait.

        A handle other than `handle` is a fresh import: pass it to `waits_with`, or release it with the driver.
        """
        if self.kept is None:
            return self.handle
        self.sweep(core, events)
        return import_fd(core, self.type, duplicate_fd(self.kept.fileno()), self.kept)

    def waits_with(self, handle: int, over: Fence) -> None:
        """Record a wait that uses a fresh handle.

        When `over` is signalled, the wait is complete. A later `sweep` releases the handle and `over`.
        """
        with self._lock:
            self._waiting.append((handle, over))

    def keep(self, handle: int) -> None:
        """Keep a fresh handle until `release`, because an interrupted append may use it."""
        self._kept_handles.append(handle)

    def sweep(self, core: Core, events: Events) -> None:
        """Release the handles of completed waits."""
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

    def signals_with(self, signals: Any, number: int, over: Fence) -> None:
        """Record a signal that the driver may make after its event. Call this method before the append.

        Parameters
        ----------
        signals : Signals
            The signals of the list.
        number : int
            The number of the signal on the list.
        over : Fence
            The event of the signal. `signal_appended` of a later signal on the list, or `release`, releases the event
            once.
        """
        with self._lock:
            self._signals.append((signals, number, over))

    def signal_appended(self, signals: Any, number: int, events: Events) -> None:
        """Drop the earlier signals of the semaphore on the list: the event of this signal comes after theirs."""
        with self._lock:
            earlier = self._dropped(signals, range(number))
        for over in earlier:
            events.release(over)

    def signal_refused(self, signals: Any, number: int) -> None:
        """Drop a signal that the driver refused. The caller gives its event back."""
        with self._lock:
            self._dropped(signals, range(number, number + 1))

    def made(self) -> bool:
        """Return whether the driver has certainly made all recorded signals of the semaphore."""
        return all(signals.made >= number for signals, number, _ in self._signals)

    def passed(self, events: Events) -> bool:
        """Return whether the lists have certainly passed all recorded waits and signals of the semaphore.

        An interrupted wait has no record (`keep`).
        """
        with self._lock:
            left = self._not_passed()
        try:
            return all(events.done(fence) for fence in left)
        except XsemError:
            return False   # the state of an event is unknown

    # The caller of these two holds the lock. They are functions of their own: in CPython 3.12 to 3.14, Ctrl-C in a loop
    # with a condition can skip the end of the caller's block.
    def _dropped(self, signals: Any, numbers: range) -> list[Fence]:
        """Drop the signals of a list with these numbers, and return their events."""
        dropped = [each for each in self._signals if each[0] is signals and each[1] in numbers]
        self._signals = [each for each in self._signals if each not in dropped]
        return [over for _, _, over in dropped]

    def _not_passed(self) -> list[Fence]:
        return [*(over for _, over in self._waiting),
                *(over for signals, number, over in self._signals if signals.passed < number)]

    def release(self, core: Core, events: Events) -> None:
        """Release the semaphore and all its handles. No appended operation may still use them."""
        with ExitStack() as rest:   # each call is made, also after a failure
            if self.kept is not None:
                rest.callback(self.kept.close)
            for _, _, over in self._signals:
                rest.callback(events.release, over)
            for handle in (self.handle, *self._kept_handles):
                rest.callback(core.extension.release_semaphore, handle)
            for handle, over in self._waiting:
                rest.callback(events.release, over)
                rest.callback(core.extension.release_semaphore, handle)


def import_semaphore(
    core: Core, desc: SemaphoreDesc, handle: OwnedHandle | None, *, wears_out: bool
) -> Semaphore:
    """Import a semaphore.

    Parameters
    ----------
    handle : OwnedHandle or None
        The handle to import. None: `desc` has neither an fd nor an NT handle.
    wears_out : bool
        True: one import supports one wait, so the semaphore keeps a duplicate of the fd for further imports.

    Raises
    ------
    XsemError
        The driver refused the import.
    """
    number = handle_number(desc, handle)
    kept = None
    if wears_out and handle is not None and desc.type.os_handle_kind is OsHandleKind.FD:
        # The duplicate is made before the driver's call, because some releases of the driver close the fd in the call.
        kept = duplicate_fd(handle.fileno())
    try:
        made = core.extension.import_semaphore(core.extension_device, semaphore_struct(desc, number))
    except BaseException:
        if kept is not None:
            kept.close()
        raise
    return Semaphore(made, desc.type, kept)


def handle_number(desc: SemaphoreDesc | MemoryDesc, handle: OwnedHandle | None) -> int | None:
    """Return the number of `handle`. Without `handle`, return the number of the descriptor's handle, or None."""
    if handle is not None:
        return handle.fileno()
    return desc.handle if desc.handle is None or isinstance(desc.handle, int) else desc.handle.fileno()


class Batches:
    """Parameter structs of one list, for signals or for waits.

    The structs are reused: the appends of one list never overlap, and the driver has read the structs when its call
    returns.
    """

    def __init__(self, struct: type[ze.Base]) -> None:
        self._struct = struct
        self._by_count: dict[int, Any] = {}

    def fill(self, semaphores: Sequence[Semaphore], params: Sequence[Any]) -> Any:
        """Return a contiguous array of structs. The value is 0 for a binary semaphore and the key for a keyed mutex."""
        count = len(semaphores)
        structs = self._by_count.get(count)
        if structs is None:
            structs = self._by_count[count] = (self._struct * count)()
            for each in structs:
                each.stype = self._struct.STYPE
        for each, semaphore, param in zip(structs, semaphores, params, strict=True):
            each.value = (param.key if semaphore.type.kind is SemaphoreKind.KEYED_MUTEX else param.value) or 0
        return structs
