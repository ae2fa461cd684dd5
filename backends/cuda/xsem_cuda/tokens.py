"""Tokens of driver objects."""

from __future__ import annotations

from typing import Any

__all__ = ["DriverObject", "HostObject"]


class DriverObject:
    """A driver object, for example an imported semaphore or a mapped buffer."""

    __slots__ = ("address", "native")

    def __init__(self, native: Any) -> None:
        self.native = native   # the bindings' object
        self.address = int(native)   # the handle as a number; of a buffer its first byte


class HostObject(DriverObject):
    """A buffer in page-locked memory of the host."""

    __slots__ = ()
