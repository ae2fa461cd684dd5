"""Addresses for buffers: the driver interface copies between addresses, OpenCL between objects and offsets."""

from __future__ import annotations

import bisect
import threading
from typing import Final, NamedTuple

from xsem.errors import BadArgumentError

__all__ = ["Addresses", "Place"]

# These addresses are unused in every process: x86-64 and AArch64 do not support them.
_BASE: Final = 1 << 62
_PAGE: Final = 1 << 12


class Place(NamedTuple):
    """The location of an address: a cl_mem and an offset in bytes. For host memory: 0 and a pointer."""

    buffer: int
    offset: int


class Addresses:
    """A map from addresses to memory.

    A cl_mem has no address on the host. Device memory therefore gets addresses that xsem invents. No address is
    assigned twice, so an old address never refers to other memory. Host memory keeps its own addresses.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = _BASE
        self._starts: list[int] = []
        self._found: dict[int, tuple[int, int]] = {}

    def add_memory(self, buffer: int, size: int) -> int:
        """Assign addresses to a cl_mem and return the address of its first byte."""
        with self._lock:
            start = self._next
            # A page separates two ranges, so an address beyond the end of one is not in the next.
            self._next += (size + 2 * _PAGE - 1) // _PAGE * _PAGE
            bisect.insort(self._starts, start)
            self._found[start] = (size, buffer)
        return start

    def add_host(self, address: int, size: int) -> None:
        """Register host memory for copies."""
        with self._lock:
            bisect.insort(self._starts, address)
            self._found[address] = (size, 0)

    def remove(self, address: int) -> None:
        """Undo `add_memory` or `add_host`."""
        with self._lock:
            self._starts.remove(address)
            del self._found[address]

    def find(self, address: int, size: int) -> Place:
        """Return the location of ``address … address + size``.

        Raises
        ------
        BadArgumentError
            ``out_of_range``: no memory of this device contains the range.
        """
        with self._lock:
            at = bisect.bisect_right(self._starts, address) - 1
            start = self._starts[at] if at >= 0 else 0
            length, buffer = self._found.get(start, (0, 0))
        if address - start + size <= length:
            return Place(buffer, address - start if buffer else address)
        raise BadArgumentError(f"{size} bytes at {address:#x} are not memory of this device", reason="out_of_range",
                               backend="opencl")
