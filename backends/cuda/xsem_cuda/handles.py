"""Tokens of driver objects."""

from __future__ import annotations

from typing import Any

__all__ = ["DriverObject"]


class DriverObject:
    """A driver object, for example an imported semaphore or a mapped buffer.

    Attributes
    ----------
    native : object
        The bindings' handle object.
    address : int
        The handle as a number. For a buffer: the address of the first byte.
    """

    __slots__ = ("address", "native")

    def __init__(self, native: Any) -> None:
        self.native = native
        self.address = int(native)
