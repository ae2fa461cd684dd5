"""Faults in import and in the ownership of handles."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from faults.base import Driver, a_driver
from xsem import spi
from xsem.errors import DriverError, UnsupportedError
from xsem.types import MemoryDesc, OwnedHandle, SemaphoreDesc, SemaphoreHandleType, SemaphoreKind


# ---- import
@a_driver
class FdLeaked(Driver):
    """Every import leaves a file descriptor open."""

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        if handle is not None:
            os.dup(handle.fileno())
        return self.inner.import_semaphore(desc, handle)


@a_driver
class FdClosedUnsaid(Driver):
    """A successful import closes the handle and does not report it."""

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        assert handle is not None
        with OwnedHandle(os.dup(handle.fileno())) as own:
            token = self.inner.import_semaphore(desc, own)
        os.close(handle.fileno())
        return token


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
            if isinstance(failure.error, UnsupportedError) or handle is None or handle.closed:
                raise
            os.close(handle.fileno())
            raise spi.ImportFailure(failure.error, fate="left") from failure


@a_driver
class ErrorSwallowed(Driver):
    """A handle that the driver refuses counts as imported."""

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        try:
            return self.inner.import_semaphore(desc, handle)
        except spi.ImportFailure as failure:
            if isinstance(failure.error, UnsupportedError):
                raise
            return object()

    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Any:
        try:
            return self.inner.import_memory(desc, handle)
        except spi.ImportFailure as failure:
            if isinstance(failure.error, UnsupportedError):
                raise
            return object()

    def release_semaphore(self, semaphore: Any) -> None:
        if type(semaphore) is not object:
            self.inner.release_semaphore(semaphore)

    def release_memory(self, memory: Any) -> None:
        if type(memory) is not object:
            self.inner.release_memory(memory)


@a_driver
class UndeclaredAccepted(Driver):
    """Undeclared types are accepted."""

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        if desc.type not in self.capabilities.semaphore_import:
            return None
        return self.inner.import_semaphore(desc, handle)


@a_driver
class UndeclaredExported(Driver):
    """Semaphores of types that are not declared for export are created."""

    def create_semaphore(self, type: SemaphoreHandleType, initial_value: int) -> Any:
        if type not in self.capabilities.semaphore_export:
            return object()
        return self.inner.create_semaphore(type, initial_value)


@a_driver
class RefusedWithAnotherError(Driver):
    """Undeclared types are refused, with the wrong class of error."""

    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Any:
        if desc.type not in self.capabilities.memory_import:
            raise DriverError("no", reason="driver_error")
        return self.inner.import_memory(desc, handle)


@a_driver
class StaleAfterReimport(Driver):
    """A second import of a type returns the first object while that is alive."""

    _kept: dict[Any, list[Any]]

    def __init__(self, inner: spi.DeviceDriver) -> None:
        super().__init__(inner)
        self._kept = {}

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        kept = self._kept.get(desc.type)
        if kept is not None and desc.type.kind is SemaphoreKind.TIMELINE:
            kept[1] += 1
            return kept[0]
        token = self.inner.import_semaphore(desc, handle)
        self._kept[desc.type] = [token, 1]
        return token

    def release_semaphore(self, semaphore: Any) -> None:
        for type, kept in list(self._kept.items()):
            if kept[0] is semaphore:
                kept[1] -= 1
                if kept[1]:
                    return
                del self._kept[type]
        self.inner.release_semaphore(semaphore)
