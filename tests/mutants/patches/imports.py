"""Faults in import, in the ownership of handles, and in release."""

from __future__ import annotations

import os
from typing import Any

import xsem_cuda.device as device
import xsem_cuda.semaphores as semaphores
from patches.base import instead, patch
from xsem.spi import ImportFailure
from xsem.types import MemoryDesc
from xsem_cuda.device import CudaDevice


class _Handle:
    """The handle of the caller, with one method replaced."""

    def __init__(self, real: Any, **instead_: Any) -> None:
        self._real = real
        self.__dict__.update(instead_)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@patch
def fd_not_detached() -> None:
    """A successful import reports that the driver left the descriptor, which belongs to the driver."""
    @instead(CudaDevice, "_import")
    def import_(before: Any, self: Any, *args: Any) -> Any:
        native, _ = before(self, *args)
        return native, "left"


@patch
def fd_duplicated() -> None:
    """The driver is given a duplicate, and the descriptor itself stays open."""
    @instead(CudaDevice, "_import")
    def import_(before: Any, self: Any, function: Any, describe: Any, desc: Any, handle: Any) -> Any:
        return before(self, function, describe, desc,
                      handle and _Handle(handle, fileno=lambda: os.dup(handle.fileno())))


def _failing(act: Any) -> None:
    @instead(CudaDevice, "_import")
    def import_(before: Any, self: Any, function: Any, describe: Any, desc: Any, handle: Any) -> Any:
        try:
            return before(self, function, describe, desc, handle)
        except ImportFailure as failure:
            act(failure, desc, handle)
            raise


@patch
def fate_taken_on_failure() -> None:
    """A failed import reports that the driver took the handle."""
    def act(failure: ImportFailure, desc: Any, handle: Any) -> None:
        raise ImportFailure(failure.error, handle="taken") from failure

    _failing(act)


@patch
def fate_of_memory_left() -> None:
    """A failed import of memory reports that the handle was left, even if the driver closed it."""
    def act(failure: ImportFailure, desc: Any, handle: Any) -> None:
        if isinstance(desc, MemoryDesc):
            raise ImportFailure(failure.error, handle="left") from failure

    _failing(act)


@patch
def fd_closed_on_failure() -> None:
    """A failed import of a semaphore closes the descriptor and reports that it was left."""
    def act(failure: ImportFailure, desc: Any, handle: Any) -> None:
        if handle is not None and not isinstance(desc, MemoryDesc):
            os.close(handle.fileno())

    _failing(act)


@patch
def failure_without_a_fate() -> None:
    """A failed import raises the driver's error unchanged, without the state of the handle."""
    def act(failure: ImportFailure, desc: Any, handle: Any) -> None:
        raise failure.error from failure

    _failing(act)


@patch
def failure_of_no_class() -> None:
    """A failed import raises an error outside xsem's tree."""
    def act(failure: ImportFailure, desc: Any, handle: Any) -> None:
        raise ImportFailure(ValueError("no"), handle=failure.handle) from failure  # type: ignore[arg-type]

    _failing(act)


@patch
def semaphore_type_of_windows() -> None:
    """Semaphores are imported with the type of Win32 handles."""
    @instead(device, "semaphore_descriptor")
    def describe(before: Any, driver: Any, desc: Any, handle: Any) -> Any:
        native, keep = before(driver, desc, handle)
        native.type = driver.CUexternalSemaphoreHandleType.CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32
        return native, keep


@patch
def memory_type_of_windows() -> None:
    """Memory is imported with the type of Win32 handles."""
    @instead(device, "memory_descriptor")
    def describe(before: Any, driver: Any, desc: Any, handle: Any) -> Any:
        native, keep = before(driver, desc, handle)
        native.type = driver.CUexternalMemoryHandleType.CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32
        return native, keep


@patch
def another_fd() -> None:
    """The driver is given a descriptor of /dev/null in place of the semaphore's."""
    @instead(semaphores, "handle_number")
    def number(before: Any, handle: Any) -> int:
        return os.open(os.devnull, os.O_RDWR)


@patch
def size_of_a_page() -> None:
    """Memory is imported with a size of one page."""
    @instead(device, "memory_descriptor")
    def describe(before: Any, driver: Any, desc: Any, handle: Any) -> Any:
        native, keep = before(driver, desc, handle)
        native.size = 4096
        return native, keep


@patch
def imports_are_cached() -> None:
    """A second import of a type returns the token of the first."""
    kept: dict[Any, Any] = {}

    @instead(CudaDevice, "import_semaphore")
    def import_semaphore(before: Any, self: Any, desc: Any, handle: Any) -> Any:
        imported = before(self, desc, handle)
        return kept.setdefault((self, desc.type), imported)


@patch
def release_not_called() -> None:
    """Releasing a semaphore or memory leaves the driver's object alive."""
    for name in ("release_semaphore", "release_memory", "unmap_buffer", "release_host_buffer", "release_array"):
        @instead(CudaDevice, name)
        def release(before: Any, self: Any, token: Any) -> None:
            return None
