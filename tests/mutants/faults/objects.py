"""Faults in a part of the objects: in one kind, one direction, one size, one number, or after one call."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import stat
import threading
import time
from typing import Any

from faults.base import Driver, List, a_driver, a_list
from xsem import spi
from xsem.errors import BadHandleError, DriverError, ReleasedError
from xsem.types import MemoryDesc, OwnedHandle, SemaphoreDesc, SemaphoreHandleType, SemaphoreKind


# ---- fills, copies, mappings
@a_list
class PageOfALargeCopyMissing(List):
    """A copy of more than 1 MiB leaves out a page."""

    def append_copy(self, dst, dst_offset, src, src_offset, size, wait_fences, want_fence):  # type: ignore[no-untyped-def]
        if size <= 1 << 20:
            return self.inner.append_copy(dst, dst_offset, src, src_offset, size, wait_fences, want_fence)
        first = size // 8
        self.inner.append_copy(dst, dst_offset, src, src_offset, first, wait_fences, False)
        at = first + 4096
        return self.inner.append_copy(dst, dst_offset + at, src, src_offset + at, size - at, (), want_fence)


@a_driver
class TokenOfTheMemory(Driver):
    """The address of a mapping begins at its offset, and its token begins at the start of the memory."""

    def map_buffer(self, memory: Any, offset: int, size: int) -> tuple[Any, int]:
        token, address = self.inner.map_buffer(memory, 0, offset + size)
        return token, address + offset


@a_driver
class LaterMappingIsCleared(Driver):
    """A mapping of bytes that were mapped before contains zeros."""

    def __init__(self, inner: spi.DeviceDriver) -> None:
        super().__init__(inner)
        self._mapped: set[tuple[int, int]] = set()
        self._ranges: dict[int, tuple[int, int]] = {}
        self._kept: list[Any] = []   # so that no token gets the id of another

    def map_buffer(self, memory: Any, offset: int, size: int) -> tuple[Any, int]:
        token, address = self.inner.map_buffer(memory, offset, size)
        self._kept += [memory, token]
        self._ranges[id(token)] = id(memory), offset
        if (id(memory), offset) in self._mapped:
            ctypes.memset(address, 0, size)
        return token, address

    def unmap_buffer(self, buffer: Any) -> None:
        self._mapped.add(self._ranges[id(buffer)])
        self.inner.unmap_buffer(buffer)


@a_driver
class ReleasedMemoryIsWrittenBack(Driver):
    """The bytes of released memory are written to it again and again, for a second."""

    def release_memory(self, memory: Any) -> None:
        file = os.dup(self.inner.native_handle(memory))
        old = os.pread(file, 4096, 0)
        self.inner.release_memory(memory)

        def write() -> None:
            for _ in range(100):
                os.pwrite(file, old, 0)
                time.sleep(0.01)
            os.close(file)

        threading.Thread(target=write, daemon=True).start()


# ---- second imports
class _SecondImports(Driver):
    """Notes the imports of a file that another import already refers to."""

    def __init__(self, inner: spi.DeviceDriver) -> None:
        super().__init__(inner)
        self._files: dict[int, Any] = {}
        self.second: list[Any] = []

    def _note(self, handle: OwnedHandle | None, imported: Any) -> Any:
        assert handle is not None
        inode = os.fstat(handle.fileno()).st_ino
        if inode in self._files.values():
            self.second.append(imported.token)
        self._files[id(imported.token)] = inode
        return imported

    def _forget(self, token: Any) -> None:
        self._files.pop(id(token), None)
        self.second = [each for each in self.second if each is not token]


@a_driver
class WritesOfASecondImportLost(_SecondImports):
    """Fills and copies to a second import of the same memory are dropped."""

    class list_type(List):  # noqa: N801
        def append_copy(self, dst, dst_offset, src, src_offset, size, wait_fences, want_fence):  # type: ignore[no-untyped-def]
            if any(getattr(dst, "memory", None) is each for each in self.driver.second):   # type: ignore[attr-defined]
                return self.inner.append_barrier(wait_fences, want_fence)
            return self.inner.append_copy(dst, dst_offset, src, src_offset, size, wait_fences, want_fence)

    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Any:
        return self._note(handle, self.inner.import_memory(desc, handle))

    def release_memory(self, memory: Any) -> None:
        self._forget(memory)
        self.inner.release_memory(memory)


@a_driver
class SignalsOfASecondImportLost(_SecondImports):
    """Signals of a second import of the same timeline are dropped."""

    class list_type(List):  # noqa: N801
        def append_signal(self, semaphores, params, wait_fences, release, want_fence):  # type: ignore[no-untyped-def]
            if any(semaphores[0] is each for each in self.driver.second):   # type: ignore[attr-defined]
                return self.inner.append_barrier(wait_fences, want_fence)
            return self.inner.append_signal(semaphores, params, wait_fences, release, want_fence)

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        imported = self.inner.import_semaphore(desc, handle)
        return self._note(handle, imported) if desc.type.kind is SemaphoreKind.TIMELINE else imported

    def release_semaphore(self, semaphore: Any) -> None:
        self._forget(semaphore)
        self.inner.release_semaphore(semaphore)


# ---- handles
class _ClosedAgain(Driver):
    """Reports that an import left the handle, and closes the number of the handle when the object is released."""

    def __init__(self, inner: spi.DeviceDriver) -> None:
        super().__init__(inner)
        self._numbers: dict[int, int] = {}

    def noting(self, imported: Any, handle: OwnedHandle | None) -> Any:
        assert handle is not None
        self._numbers[id(imported.token)] = handle.fileno()
        return imported

    def close_again(self, token: Any) -> None:
        number = self._numbers.pop(id(token), None)
        if number is not None:
            with contextlib.suppress(OSError):
                os.close(number)


@a_driver
class HandleOfMemoryClosedAgain(_ClosedAgain):
    """An import of memory reports that it left the handle; the release of the memory closes its number."""

    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Any:
        return self.noting(self.inner.import_memory(desc, handle), handle)

    def release_memory(self, memory: Any) -> None:
        self.inner.release_memory(memory)
        self.close_again(memory)


@a_driver
class HandleOfATimelineClosedAgain(_ClosedAgain):
    """An import of a timeline reports that it left the handle; the release of the timeline closes its number."""

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        imported = self.inner.import_semaphore(desc, handle)
        return self.noting(imported, handle) if desc.type.kind is SemaphoreKind.TIMELINE else imported

    def release_semaphore(self, semaphore: Any) -> None:
        self.inner.release_semaphore(semaphore)
        self.close_again(semaphore)


@a_driver
class Number0ClosedAgain(_ClosedAgain):
    """An import of a handle with the number 0 reports that it left the handle; the release closes the number 0."""

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        imported = self.inner.import_semaphore(desc, handle)
        return imported if handle is None or handle.fileno() else self.noting(imported, handle)

    def release_semaphore(self, semaphore: Any) -> None:
        self.inner.release_semaphore(semaphore)
        self.close_again(semaphore)


@a_driver
class OneFileIn20Leaked(Driver):
    """Every twentieth import leaves a file descriptor open."""

    _imports = 0

    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Any:
        type(self)._imports += 1
        if self._imports % 20 == 0 and handle is not None:
            os.dup(handle.fileno())
        return self.inner.import_memory(desc, handle)


@a_driver
class LaterExportsDuplicateTheFirst(Driver):
    """Later exports of an object are duplicates of its first export, which belongs to the caller."""

    def __init__(self, inner: spi.DeviceDriver) -> None:
        super().__init__(inner)
        self._first: dict[int, tuple[Any, int]] = {}

    def _export(self, token: Any, export: Any) -> OwnedHandle:
        if id(token) in self._first:
            return OwnedHandle(os.dup(self._first[id(token)][1]))
        made: OwnedHandle = export(token)
        self._first[id(token)] = token, made.fileno()
        return made

    def export_semaphore(self, semaphore: Any) -> OwnedHandle:
        return self._export(semaphore, self.inner.export_semaphore)

    def export_memory(self, memory: Any) -> OwnedHandle:
        return self._export(memory, self.inner.export_memory)


@a_driver
class ExportsAreInherited(Driver):
    """The programs that a process starts inherit its exports."""

    def export_semaphore(self, semaphore: Any) -> OwnedHandle:
        return _inherited(self.inner.export_semaphore(semaphore))

    def export_memory(self, memory: Any) -> OwnedHandle:
        return _inherited(self.inner.export_memory(memory))


def _inherited(made: OwnedHandle) -> OwnedHandle:
    os.set_inheritable(made.fileno(), True)
    return made


@a_driver
class RefusalOfASocketWithoutAReason(Driver):
    """The refusal of a socket has a sentence as its reason."""

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        try:
            return self.inner.import_semaphore(desc, handle)
        except spi.ImportFailure as failure:
            if handle is None or not stat.S_ISSOCK(os.fstat(handle.fileno()).st_mode):
                raise
            raise spi.ImportFailure(BadHandleError("no", reason="It is a socket."), handle="left") from failure


@a_driver
class RefusalBlamesEarlierWork(Driver):
    """The refusal of a bad handle is a failure of earlier work."""

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        try:
            return self.inner.import_semaphore(desc, handle)
        except spi.ImportFailure as failure:
            raise spi.ImportFailure(DriverError("it failed", reason="earlier_work_failed", from_earlier_work=True),
                                    handle=failure.handle) from failure


@a_driver
class RefusalIsOfAnotherClass(Driver):
    """The refusal of a bad handle is a ReleasedError."""

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        try:
            return self.inner.import_semaphore(desc, handle)
        except spi.ImportFailure as failure:
            raise spi.ImportFailure(ReleasedError("it is gone", reason="released"), handle=failure.handle) from failure


# ---- devices
@a_driver
class CloseHangs(Driver):
    """Closing the device does not return."""

    def close(self) -> None:
        time.sleep(3600)


@a_driver
class EveryFifthCloseLeaks(Driver):
    """Every fifth close of a device leaves a file descriptor open."""

    _closed = 0

    def close(self) -> None:
        self.inner.close()
        type(self)._closed += 1
        if self._closed % 5 == 0:
            os.close(os.pipe()[0])


@a_driver
class SemaphoreTypeAsMemoryType(Driver):
    """The types of memory are members of the enumeration of semaphore types."""

    @property
    def capabilities(self) -> Any:
        return dataclasses.replace(self.inner.capabilities,
                                   memory_import=frozenset({SemaphoreHandleType.OPAQUE_FD}))   # type: ignore[arg-type]


@a_driver
class TextIsAnEvent(Driver):
    """A text is accepted as an event."""

    def borrow_event(self, native: object) -> Any:
        event = threading.Event()
        event.set()
        return self.inner.borrow_event(event if isinstance(native, str) else native)
