"""Faults in import and in the ownership of handles."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from faults.base import Driver, a_driver
from xsem import spi
from xsem.types import MemoryDesc, OwnedHandle, SemaphoreDesc, SemaphoreKind


# ---- import
@a_driver
class FdLeaked(Driver):
    """Every import leaves a file descriptor open."""

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        if handle is not None:
            os.dup(handle.fileno())
        return self.inner.import_semaphore(desc, handle)


class _Elsewhere(Driver):
    """Imports another duplicate of the handle. The handle itself stays open."""

    def elsewhere(self, act: Callable[..., Any], desc: Any, handle: OwnedHandle | None) -> Any:
        assert handle is not None
        own = OwnedHandle(os.dup(handle.fileno()))
        imported = act(desc, own)
        if imported.handle == "taken":
            own.detach()
        else:
            own.close()
        return imported.token


@a_driver
class SaysLeftButTookIt(_Elsewhere):
    """A successful import closes the handle and reports that it was left."""

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        return self._closing(self.inner.import_semaphore, desc, handle)

    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Any:
        return self._closing(self.inner.import_memory, desc, handle)

    def _closing(self, act: Callable[..., Any], desc: Any, handle: OwnedHandle | None) -> Any:
        token = self.elsewhere(act, desc, handle)
        assert handle is not None
        os.close(handle.fileno())
        return spi.Imported(token, handle="left")


@a_driver
class SaysTakenButLeavesIt(_Elsewhere):
    """A successful import leaves the handle and reports that it was taken."""

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        return spi.Imported(self.elsewhere(self.inner.import_semaphore, desc, handle), handle="taken")

    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Any:
        return spi.Imported(self.elsewhere(self.inner.import_memory, desc, handle), handle="taken")


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
            return spi.Imported(kept[0], handle="left")
        imported = self.inner.import_semaphore(desc, handle)
        self._kept[desc.type] = [imported.token, 1]
        return imported

    def release_semaphore(self, semaphore: Any) -> None:
        for type, kept in list(self._kept.items()):
            if kept[0] is semaphore:
                kept[1] -= 1
                if kept[1]:
                    return
                del self._kept[type]
        self.inner.release_semaphore(semaphore)
