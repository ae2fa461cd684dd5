"""Faults in the use of given handles, sizes and streams."""

from __future__ import annotations

from typing import Any

from faults.base import Driver, a_driver
from xsem import spi
from xsem.errors import BadHandleError
from xsem.types import MemoryDesc, OwnedHandle, SemaphoreDesc


@a_driver
class ZeroIsNoHandle(Driver):
    """A handle with the number 0 counts as missing."""

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        return self.inner.import_semaphore(desc, _unless_0(handle))

    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Any:
        return self.inner.import_memory(desc, _unless_0(handle))


def _unless_0(handle: OwnedHandle | None) -> OwnedHandle | None:
    if handle is not None and not handle.fileno():
        raise spi.ImportFailure(BadHandleError("no handle", reason="no_handle"), handle="left")
    return handle


@a_driver
class DedicatedIsElsewhere(Driver):
    """Memory with the dedicated flag maps to other memory."""

    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Any:
        if not desc.dedicated:
            return self.inner.import_memory(desc, handle)
        made, _ = self.inner.create_memory(desc.type, desc.allocation_size, True)
        return spi.Imported(made, handle="left")


@a_driver
class AnythingIsAStream(Driver, spi.BorrowedQueues):
    """Any object is accepted as a stream."""

    def borrow_queue(self, stream: object, in_order: bool) -> spi.QueueDriver:
        return self.create_queue()
