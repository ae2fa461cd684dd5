"""Direct calls of a driver: types for the calls, and handles for imports, closed by the rules of the facade."""

from __future__ import annotations

from typing import Self, cast

from xsem.spi import (
    BorrowedEvents,
    CopyQueue,
    DeviceDriver,
    DriverFd,
    HandleState,
    HostMemory,
    HostSemaphore,
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
from xsem_conformance.system import handles

__all__ = ["AbleDriver", "AbleQueue", "Given", "duplicate"]


class AbleQueue(SemaphoreQueue, CopyQueue, ImageCopyQueue):
    """For the type checker: a queue with all abilities that checks use. A check calls only declared abilities."""


class AbleDriver(
    DeviceDriver, SemaphoreImport, SemaphoreExport, MemoryImport, MemoryExport, HostSemaphore, HostMemory, Images,
    BorrowedEvents,
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
