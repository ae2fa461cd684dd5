"""Faults in imports that the driver refuses."""

from __future__ import annotations

from typing import Any

from patches.base import instead, patch
from xsem.spi import ImportFailure
from xsem.types import MemoryDesc
from xsem_cuda.device import CudaDevice


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
