"""Faults in the semaphores and the memory that the device itself creates: those of the exporter are sound."""

from __future__ import annotations

import os
import stat
from typing import Any

from faults.base import Driver, List, a_driver
from xsem import spi
from xsem.types import SignalParams


class _NotesCreated(Driver):
    """No fault: a semaphore that it created has its initial value as an attribute."""

    def create_semaphore(self, type: Any, initial_value: int) -> Any:
        made = self.inner.create_semaphore(type, initial_value)
        made.created_at = initial_value
        return made


def _is_created(semaphore: Any) -> bool:
    return hasattr(semaphore, "created_at")


@a_driver
class CreatedBinaryIsNotReset(_NotesCreated):
    """A met wait leaves a binary semaphore that the device created signalled."""

    class list_type(List):  # noqa: N801
        def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
            self.inner.append_wait(semaphores, params, wait_fences, acquire, False)
            left = [each for each, param in zip(semaphores, params, strict=True)
                    if param.value is None and _is_created(each)]
            if left:
                self.inner.append_signal(left, [SignalParams()] * len(left), (), (), False)
            return self.inner.append_barrier((), True) if want_fence else None


@a_driver
class WaitForACreatedBinaryIsEarly(_NotesCreated):
    """A wait for a binary semaphore that the device created passes at once."""

    class list_type(List):  # noqa: N801
        def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
            if params[0].value is None and _is_created(semaphores[0]):
                return self.inner.append_barrier(wait_fences, want_fence)
            return self.inner.append_wait(semaphores, params, wait_fences, acquire, want_fence)


@a_driver
class CreatedTimelineReadsItsFirstValue(_NotesCreated):
    """The value of a timeline that the device created is read as its initial value."""

    def semaphore_value(self, semaphore: Any) -> Any:
        return semaphore.created_at if _is_created(semaphore) else self.inner.semaphore_value(semaphore)


@a_driver
class ImportsEndWithTheCreated(_NotesCreated):
    """After the release of a timeline that the device created, a signal through an import of it is lost."""

    class list_type(List):  # noqa: N801
        def append_signal(self, semaphores, params, wait_fences, release, want_fence):  # type: ignore[no-untyped-def]
            if getattr(semaphores[0], "file", None) in self.driver.released:   # type: ignore[attr-defined]
                return self.inner.append_barrier(wait_fences, want_fence)
            return self.inner.append_signal(semaphores, params, wait_fences, release, want_fence)

    def __init__(self, inner: spi.DeviceDriver) -> None:
        super().__init__(inner)
        self.released: set[int] = set()

    def export_semaphore(self, semaphore: Any) -> Any:
        handle = self.inner.export_semaphore(semaphore)
        semaphore.file = _file(handle)
        return handle

    def import_semaphore(self, desc: Any, handle: Any) -> Any:
        file = _file(handle)
        made = self.inner.import_semaphore(desc, handle)
        made.token.file = file
        return made

    def release_semaphore(self, semaphore: Any) -> None:
        if _is_created(semaphore) and getattr(semaphore, "file", None) is not None:
            self.released.add(semaphore.file)
        self.inner.release_semaphore(semaphore)


def _file(handle: Any) -> int | None:
    """Return the number of the file behind a timeline. All binary semaphores are one file."""
    status = os.fstat(handle.fileno())
    return status.st_ino if stat.S_ISREG(status.st_mode) else None


# ---- memory
class _NotesCreatedMemory(Driver):
    """No fault: a mapping of memory that it created has an attribute."""

    def create_memory(self, type: Any, size: int, dedicated: bool) -> Any:
        made = self.inner.create_memory(type, size, dedicated)
        made[0].is_created = True
        return made


def _in_created(buffer: Any) -> bool:
    return hasattr(getattr(buffer, "memory", None), "is_created")


@a_driver
class FillOfCreatedMemoryIsEarly(_NotesCreatedMemory):
    """A fill of memory that the device created does not wait for the earlier work of its list."""

    class list_type(List):  # noqa: N801
        def append_fill(self, dst, offset, pattern, size, wait_fences, want_fence):  # type: ignore[no-untyped-def]
            if not _in_created(dst) or wait_fences:
                return self.inner.append_fill(dst, offset, pattern, size, wait_fences, want_fence)
            other = self.driver.inner.create_queue()
            done = other.append_fill(dst, offset, pattern, size, (), True)
            self.driver.inner.wait_fence(done, 10**9)
            self.driver.inner.release_fence(done)
            other.close()
            return self.inner.append_barrier((), want_fence)
