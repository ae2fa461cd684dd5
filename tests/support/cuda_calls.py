"""Calls of the CUDA driver for the test itself, by the name of the function."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["ask", "code", "driver", "primary_context"]


def driver() -> Any:
    return importlib.import_module("cuda.bindings.driver")


def code(function: str, *args: Any) -> int:
    return int(getattr(driver(), function)(*args)[0])


def ask(function: str, *args: Any) -> Any:
    result, *rest = getattr(driver(), function)(*args)
    assert int(result) == 0, (function, result)
    return rest[0] if len(rest) == 1 else rest


@contextmanager
def primary_context() -> Iterator[None]:
    """The primary context of device 0, current in this thread."""
    ask("cuInit", 0)
    device = ask("cuDeviceGet", 0)
    ask("cuCtxPushCurrent", ask("cuDevicePrimaryCtxRetain", device))
    try:
        yield
    finally:
        ask("cuCtxPopCurrent")
        ask("cuDevicePrimaryCtxRelease", device)
