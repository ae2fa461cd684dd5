"""Addresses for buffers: OpenCL copies between objects and offsets, the driver interface between addresses."""

from __future__ import annotations

import bisect
import threading
from typing import Final, NamedTuple

from xsem.errors import BadArgumentError

__all__ = ["Addresses", "Place"]

# No program has anything up here: on x86-64 and AArch64 such addresses are not even possible.
_BASE: Final = 1 << 62
_PAGE: Final = 1 << 12


class Place(NamedTuple):
    """Where an address lies: a cl_mem and bytes from its start; or host memory: 0 and a pointer."""

    buffer: int
    offset: int


class Addresses:
    """Which memory an address belongs to.

    A cl_mem has no address that the host could know, so device memory gets addresses of our own making; none is given
    twice, so that an old one is no other memory's. Host memory keeps its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = _BASE
        self._starts: list[int] = []
        self._found: dict[int, tuple[int, int]] = {}

    def add_memory(self, buffer: int, size: int) -> int:
        """The address of the first byte of a cl_mem."""
        with self._lock:
            start = self._next
            # A page between them: an address beyond the end of one is no address of the next.
            self._next += (size + 2 * _PAGE - 1) // _PAGE * _PAGE
            bisect.insort(self._starts, start)
            self._found[start] = (size, buffer)
        return start

    def add_host(self, address: int, size: int) -> None:
        """Host memory that copies may use."""
        with self._lock:
            bisect.insort(self._starts, address)
            self._found[address] = (size, 0)

    def remove(self, address: int) -> None:
        """Undo `add_memory` or `add_host`."""
        with self._lock:
            self._starts.remove(address)
            del self._found[address]

    def find(self, address: int, size: int) -> Place:
        """What holds ``address … address + size``.

        Raises
        ------
        BadArgumentError
            ``out_of_range``: nothing does.
        """
        with self._lock:
            at = bisect.bisect_right(self._starts, address) - 1
            start = self._starts[at] if at >= 0 else 0
            length, buffer = self._found.get(start, (0, 0))
        if address - start + size <= length:
            return Place(buffer, address - start if buffer else address)
        raise BadArgumentError(f"{size} bytes at {address:#x} are not memory of this device", reason="out_of_range",
                               backend="opencl")
