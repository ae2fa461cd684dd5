"""Imports that are refused, and imports of another object."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from faults.base import Driver, a_driver
from xsem import spi
from xsem.types import MemoryDesc, OwnedHandle, SemaphoreDesc, SemaphoreKind


@a_driver
class FdClosedOnFailure(Driver):
    """A failed import closes the handle and reports that it was left."""

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        return self._closing(self.inner.import_semaphore, desc, handle)

    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Any:
        return self._closing(self.inner.import_memory, desc, handle)

    def _closing(self, act: Callable[..., Any], desc: Any, handle: OwnedHandle | None) -> Any:
        try:
            return act(desc, handle)
        except spi.ImportFailure as failure:
            if handle is None:
                raise
            os.close(handle.fileno())
            raise spi.ImportFailure(failure.error, handle="left") from failure


@a_driver
class ErrorSwallowed(Driver):
    """A handle that the driver refuses counts as imported."""

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        try:
            return self.inner.import_semaphore(desc, handle)
        except spi.ImportFailure:
            return spi.Imported(object(), handle="left")

    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Any:
        try:
            return self.inner.import_memory(desc, handle)
        except spi.ImportFailure:
            return spi.Imported(object(), handle="left")

    def release_semaphore(self, semaphore: Any) -> None:
        if type(semaphore) is not object:
            self.inner.release_semaphore(semaphore)

    def release_memory(self, memory: Any) -> None:
        if type(memory) is not object:
            self.inner.release_memory(memory)


@a_driver
class ImportedSemaphoreIsAnother(Driver):
    """The handle of a semaphore is checked, and the import is a new semaphore of the device."""

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        imported = self.inner.import_semaphore(desc, handle)
        self.inner.release_semaphore(imported.token)
        return spi.Imported(self.inner.create_semaphore(desc.type, 0), handle=imported.handle)


@a_driver
class ImportedMemoryIsAnother(Driver):
    """The handle of memory is checked, and the import is new memory of the device with the same size."""

    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Any:
        imported = self.inner.import_memory(desc, handle)
        self.inner.release_memory(imported.token)
        made, _ = self.inner.create_memory(desc.type, desc.allocation_size, desc.dedicated)
        return spi.Imported(made, handle=imported.handle)


@a_driver
class ImportResets(Driver):
    """An import takes the signal of a binary semaphore."""

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        imported = self.inner.import_semaphore(desc, handle)
        if desc.type.kind is SemaphoreKind.BINARY:
            self.inner.host_wait(imported.token, None, 0)
        return imported
