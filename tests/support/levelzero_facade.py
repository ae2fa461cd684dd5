"""xsem on the simulated Level Zero driver, with the host device as exporter."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import xsem
from support.importer import BOUND_S, PAGE, Pair, driver_of, fd_of, list_of, pair, soon
from support.levelzero_rig import value_of
from xsem.types import SemaphoreHandleType

__all__ = [
    "BINARY", "BOUND_S", "PAGE", "TIMELINE", "UNKNOWN", "Pair", "driver_of", "failing", "fd_of", "library", "list_of",
    "opened", "own", "soon", "value_of",
]

TIMELINE = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
BINARY = SemaphoreHandleType.OPAQUE_FD
UNKNOWN = "0x7ffffffe"   # ZE_RESULT_ERROR_UNKNOWN


def opened(device: str = "levelzero:0", *, native: object | None = None) -> AbstractContextManager[Pair]:
    return pair(device, TIMELINE, native)


def own(types: frozenset[Any]) -> set[Any]:
    """Return the types of the driver, without those of the host."""
    return {each for each in types if not each.portable}


def library(name: str = "libze_intel_gpu.so.1") -> ctypes.CDLL:
    """Return the simulated driver that this process has loaded."""
    return ctypes.CDLL(name, mode=os.RTLD_NOW | os.RTLD_NOLOAD)


@contextmanager
def failing(what: str, name: str = "libze_intel_gpu.so.1") -> Iterator[None]:
    """Let calls of the simulated driver fail, in the form of SIMZE_FAIL."""
    xsem.devices("levelzero")   # loads the driver
    library(name).simze_fail(what.encode(), None)
    try:
        yield
    finally:
        library(name).simze_fail(None, None)
