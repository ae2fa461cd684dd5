"""Imports with a duplicate of the caller's handle, and the state of this duplicate after the import."""

# The driver gets a duplicate, never the caller's handle. After a failed import, drivers treat an fd differently:
# NVIDIA's driver leaves the fd of a semaphore open, SwiftShader closes the fd, and Intel's driver closes the fd since
# release 26.09. If the backend reports the state "unknown", xsem asks the kernel whether the number still means the
# same open file. Without this answer, xsem does not close the number, because another thread may have a file with the
# same number.

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Final, NoReturn, TypeVar, cast

from xsem.data.file_descriptors import DriverFd, duplicate_fd
from xsem.data.handles import LentHandle, number_of
from xsem.errors import BadHandleError, UnsupportedError, XsemError
from xsem.spi import HandleState, Imported, ImportFailure
from xsem.types import MemoryDesc, OsHandleKind, OwnedHandle, SemaphoreDesc

if sys.platform == "win32":
    from xsem.data.windows.handles import object_type
else:
    import fcntl

__all__ = ["TOKEN", "import_chunks", "import_with_duplicate", "refuse_imported"]

TOKEN: Final = attrgetter("token")
"""Takes the token from an `Imported`, for `DeviceState.making`."""

_Desc = TypeVar("_Desc", SemaphoreDesc, MemoryDesc)


def import_with_duplicate(
    desc: _Desc, importer: Callable[[_Desc, OwnedHandle | None], Imported]
) -> Imported:
    """Call ``importer(desc, duplicate)``; the duplicate is None if `desc` has no fd and no NT handle."""
    # The caller's handle does not change, on success and on failure. `Imported.handle` or `ImportFailure.handle` is the
    # state of the duplicate: this function closes it if the state is "left", and asks the kernel if the state is
    # "unknown" (`DriverFd.settle`).
    given: OwnedHandle | None = None
    fd: DriverFd | None = None
    os_handle_kind = desc.type.os_handle_kind
    duplicated = _duplicate(desc, os_handle_kind)
    if duplicated is not None:
        given, number = duplicated
        try:
            # The caller's number stays open during the import, so the kernel can compare it with the duplicate.
            fd = DriverFd(given, number)
            # Examine the duplicate and not the caller's number: another thread may close and reuse the number.
            if os_handle_kind is OsHandleKind.FD:
                _check_sort(desc, fd.number, number)
            else:
                _check_object(desc, fd.number, number)
        except BaseException:
            given.close()
            raise
    return _imported(lambda: importer(desc, given), [(fd, given)] if fd is not None and given is not None else [])


def _imported(importer: Callable[[], Imported], given: Sequence[tuple[DriverFd, OwnedHandle]]) -> Imported:
    """Call the driver's import, and give each duplicate the fate that the driver reports."""
    # The state after any exception other than ImportFailure, for example after Ctrl-C inside the driver.
    state: HandleState = "unknown"
    imported: Imported | None = None
    refused: Exception | None = None
    try:
        imported = importer()
        state = imported.handle
    except ImportFailure as failure:
        state, refused = failure.handle, failure.error
    finally:
        for fd, handle in given:
            _settle(state, fd, handle)
    if refused is not None:
        # Raised outside of `except`: a reference from the error to its ImportFailure would be a cycle.
        try:
            raise refused
        finally:
            refused = None   # the traceback refers to this frame
    return cast("Imported", imported)


def import_chunks(
    desc: MemoryDesc, importer: Callable[[MemoryDesc, Sequence[OwnedHandle]], Imported]
) -> Imported:
    """Call ``importer(desc, duplicates)`` with a duplicate for each chunk, otherwise as `import_with_duplicate`."""
    given: list[tuple[DriverFd, OwnedHandle]] = []
    try:
        for chunk in desc.chunks:
            one = replace(desc, chunks=(), handle=chunk.handle, allocation_size=chunk.size)
            duplicated = _duplicate(one, OsHandleKind.FD)
            if duplicated is None:
                raise AssertionError   # a device that imports chunks is on a system with file descriptors
            handle, number = duplicated
            given.append((DriverFd(handle, number), handle))
            _check_sort(one, handle.fileno(), number)
    except BaseException:
        for _, handle in given:
            handle.close()
        raise
    return _imported(lambda: importer(desc, [handle for _, handle in given]), given)


def refuse_imported(what: str, capability: str, backend: str) -> NoReturn:
    """Refuse the export of an imported object. The descriptor that the import has left open can go on instead."""
    raise UnsupportedError(
        f"{what} was imported, and only its exporter makes new handles of it. Forward the received descriptor, for "
        "example xsem.ipc.send(sock, desc): keep it open until then, because an import does not consume it",
        capability=capability, reason="imported", backend=backend)


def _settle(state: HandleState, fd: DriverFd, given: OwnedHandle) -> None:
    if given.closed:
        return  # an error of the backend: it must neither close nor detach the handle
    if state == "taken":
        given.detach()
    elif state == "left" and fd.left_open() is not False:
        given.close()
    else:
        fd.settle()


def _duplicate(desc: SemaphoreDesc | MemoryDesc, os_handle_kind: OsHandleKind) -> tuple[OwnedHandle, int] | None:
    """Return a duplicate of the handle, and the number of the handle; None if the import needs no duplicate."""
    handle = desc.handle
    if handle is None or handle == -1:
        return None
    # On Windows, a file descriptor is a number of the C library: no driver takes it, and the device refuses the type.
    if os_handle_kind is not (OsHandleKind.NT if sys.platform == "win32" else OsHandleKind.FD):
        return None
    number = number_of(handle)
    if os_handle_kind is OsHandleKind.FD and number < 0:
        raise BadHandleError("the file is closed", reason="closed_fd", handle_type=desc.type)
    try:
        duplicate = duplicate_fd(number)
    except XsemError as error:
        error.handle_type = desc.type
        raise
    return LentHandle(duplicate), number


# Character devices that cannot be a vendor's object: null, zero and random (major number 1), terminals, and a DRM node.
# A DRM node is the device itself, not an object exported from it.
_MEM_MAJOR: Final = 1
_TTY_MAJORS: Final = frozenset({4, 5, *range(136, 144)})
_DRM_MAJOR: Final = 226


def _check_sort(desc: SemaphoreDesc | MemoryDesc, fd: int, number: int) -> None:
    """Refuse a file that cannot come from an exporter. The driver decides on all other files."""
    # lavapipe blocks for ever on a pipe, and SwiftShader dies of SIGBUS on an empty file.
    status = os.fstat(fd)
    kind, sort, reason = stat.S_IFMT(status.st_mode), "", ""
    # This check comes first, because fstat describes an O_PATH fd like any other fd of the file. A read-only fd passes:
    # the kernel opens sync files read-only, and exporters of dma-bufs may do so.
    if sys.platform == "linux" and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_PATH:
        sort, reason = "opened with O_PATH, which gives no access to the file", "fd_is_path"
    elif kind == stat.S_IFIFO:
        sort, reason = "a pipe", "fd_is_pipe"
    elif kind == stat.S_IFSOCK:
        sort, reason = "a socket", "fd_is_socket"
    elif kind == stat.S_IFDIR:
        sort, reason = "a directory", "fd_is_directory"
    elif kind == stat.S_IFBLK:
        sort, reason = "a block device", "fd_is_device"
    elif kind == stat.S_IFREG and status.st_size == 0:
        sort, reason = "an empty file", "fd_is_empty_file"
    elif sys.platform != "win32" and kind == stat.S_IFCHR:
        major = os.major(status.st_rdev)
        if major in _TTY_MAJORS:
            sort, reason = "a terminal", "fd_is_terminal"
        elif major == _MEM_MAJOR:
            sort, reason = "a device such as /dev/null", "fd_is_device"
        elif major == _DRM_MAJOR:
            sort, reason = "a DRM device node, not an object exported from it", "fd_is_device"
    if reason:
        raise BadHandleError(
            f"file descriptor {number} is {sort}; {desc.type.value} needs the fd of an exported object", reason=reason,
            handle_type=desc.type, likely_causes=("the wrong number was passed", "it was closed and its number reused"),
        )
    if kind == stat.S_IFREG and isinstance(desc, MemoryDesc) and status.st_size < desc.allocation_size:
        raise BadHandleError(
            f"file descriptor {number} holds {status.st_size} bytes, fewer than the allocation_size of "
            f"{desc.allocation_size}",
            reason="allocation_size_beyond_file", handle_type=desc.type,
        )


# Types of NT objects that cannot be shared by a GPU API. A vendor's objects have types of their own.
_NO_GPU_OBJECTS: Final = frozenset({
    "Desktop", "Device", "Directory", "File", "IoCompletion", "Job", "Key", "Mutant", "Process", "SymbolicLink",
    "Thread", "Timer", "Token", "WindowStation",
})
_NO_MEMORY: Final = _NO_GPU_OBJECTS | {"Event", "Semaphore"}


def _check_object(desc: SemaphoreDesc | MemoryDesc, handle: int, number: int) -> None:
    """Refuse an NT object that cannot come from an exporter. The driver decides on all other objects."""
    if sys.platform == "win32":
        found = object_type(handle)
        if found in (_NO_MEMORY if isinstance(desc, MemoryDesc) else _NO_GPU_OBJECTS):
            raise BadHandleError(
                f"NT handle {number:#x} is a handle of the type {found}; {desc.type.value} needs the handle of an "
                f"exported object", reason="wrong_object", handle_type=desc.type,
                likely_causes=("the wrong number was passed", "it was closed and its number reused"),
            )
