"""Direct calls of a driver: types for the calls, and handles for imports, closed by the rules of the facade."""

from __future__ import annotations

from typing import Final, Self, cast

from xsem.errors import XsemError
from xsem.portable import SharedMemory, Timeline, open_any_timeline, open_whole_pages, opened
from xsem.spi import (
    BorrowedEvents,
    CopyQueue,
    DeviceDriver,
    DriverFd,
    HandleState,
    HostFences,
    HostMemory,
    HostMemoryImport,
    HostSemaphore,
    HostTimelines,
    ImageCopyQueue,
    Images,
    ImportFailure,
    MemoryExport,
    MemoryImport,
    SemaphoreExport,
    SemaphoreImport,
    SemaphoreQueue,
    Token,
)
from xsem.types import MemoryDesc, OwnedHandle, SemaphoreDesc
from xsem_conformance.outcomes import NotDeclaredError
from xsem_conformance.system import handles

__all__ = ["AbleDriver", "AbleQueue", "Given", "close_host_objects", "duplicate"]

_host_objects: Final[list[tuple[Token, Timeline | SharedMemory]]] = []
"""The open objects of the host, each with the driver's token for it."""


class AbleQueue(SemaphoreQueue, CopyQueue, ImageCopyQueue):
    """For the type checker: a queue with all abilities that checks use. A check calls only declared abilities."""


class AbleDriver(
    DeviceDriver, SemaphoreImport, SemaphoreExport, HostTimelines, HostFences, MemoryImport, MemoryExport,
    HostMemoryImport, HostSemaphore, HostMemory, Images, BorrowedEvents,
):
    """For the type checker: a driver with all abilities that checks use, as `AbleQueue`."""

    def create_queue(self) -> AbleQueue:
        """Create a queue."""
        raise NotImplementedError


class Given:
    """A handle for one import through a driver, and the state of the handle."""

    # The end of the ``with`` block closes the number if the driver has left it open.

    def __init__(self, handle: OwnedHandle) -> None:
        self.handle = handle
        self.state: HandleState = "unknown"   # as the driver reports it
        self._number = handle.fileno()
        self._before = handles.identity(self._number)
        self._kept = OwnedHandle(handles.duplicate(self._number))
        self._fd = DriverFd(handle, self._kept)

    def imported_by(self, driver: DeviceDriver, desc: SemaphoreDesc | MemoryDesc) -> Token:
        """Import the handle through the driver, and return the token. The caller releases the token."""
        able = cast("AbleDriver", driver)
        if desc.type.portable:
            self.state = "left"
            return _taken_into_use(able, desc, self.handle)
        try:
            if isinstance(desc, MemoryDesc):
                imported = able.import_memory(desc, self.handle)
            else:
                imported = able.import_semaphore(desc, self.handle)
        except ImportFailure as failure:
            self.state = failure.handle
            raise
        self.state = imported.handle
        return imported.token

    def is_open(self) -> bool:
        """Return whether the number still means the same file."""
        alive = self._fd.left_open()
        # If the kernel cannot compare, the identity decides. It is weaker: all anonymous inodes have one number.
        return handles.identity(self._number) == self._before if alive is None else alive

    def close(self) -> None:
        """Close the number if the driver has left it open. A second call has no effect."""
        if self._kept.closed:
            return
        if self.state != "taken" and self.is_open():
            self.handle.close()
        elif not self.handle.closed:
            self.handle.detach()
        self._kept.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def duplicate(desc: SemaphoreDesc | MemoryDesc) -> Given:
    """Return a duplicate of the descriptor's handle for an import through a driver."""
    # A handle from the exporter's process arrives as an OwnedHandle.
    return Given(OwnedHandle(handles.duplicate(cast("OwnedHandle", desc.handle).fileno())))


def _taken_into_use(driver: AbleDriver, desc: SemaphoreDesc | MemoryDesc, handle: OwnedHandle) -> Token:
    """Open an object of the host as the facade does, and let the driver take it into use."""
    made: Timeline | SharedMemory
    try:
        if isinstance(desc, MemoryDesc):
            size = desc.allocation_size
            made = opened(desc, handle, lambda own: open_whole_pages(own, size))
        else:
            made = opened(desc, handle, open_any_timeline)
    except XsemError as error:
        raise ImportFailure(error, handle="left") from error
    try:
        if isinstance(made, SharedMemory):
            token = driver.import_host_memory(made)
        elif desc.type in driver.capabilities.bridged:
            raise NotDeclaredError("the driver itself has no semaphore of this type: xsem bridges it")
        else:
            if not (driver.signals_wake or made.read_only):
                made.note_silent_signals()
            token = driver.import_host_timeline(made)
    except BaseException:
        made.close()
        raise
    _host_objects.append((token, made))
    return token


def close_host_objects(*released: Token) -> None:
    """Close the objects of the host behind tokens that the driver has released; without tokens, all of them."""
    for each in list(_host_objects):
        if not released or any(each[0] is token for token in released):
            _host_objects.remove(each)
            each[1].close()
