"""Addresses for buffers: the driver interface copies between addresses, Vulkan between objects and offsets."""

from __future__ import annotations

import bisect
import threading
from typing import Final, NamedTuple

from xsem.errors import BadArgumentError, OutOfMemoryError

__all__ = ["LARGEST", "AddressSpace", "Place"]

# These addresses are unused in every process: x86-64 and AArch64 do not support them.
_BASE: Final = 1 << 62
_SHIFT: Final = 40
LARGEST: Final = 1 << _SHIFT
"""Bytes of the largest memory with an address: 1 TiB, more than any GPU has."""


class Place(NamedTuple):
    """The location of an address: a VkBuffer and an offset in bytes."""

    buffer: int
    offset: int


class AddressSpace:
    """A map from addresses to buffers.

    Each device memory gets a range of addresses that xsem invents. VkDeviceAddress is not used: it is an optional
    feature that must be requested at the allocation, and an exporter may not have requested it. Host memory keeps its
    address in the process, because the application reads and writes there.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._memories: dict[int, tuple[int, int]] = {}
        self._next = 0
        self._free: list[int] = []
        self._starts: list[int] = []
        self._hosts: dict[int, tuple[int, int]] = {}

    def add_memory(self, buffer: int, size: int) -> int:
        """Assign addresses to a device memory and return the address of its first byte."""
        with self._lock:
            if self._free:
                number = self._free.pop()
            else:
                number, self._next = self._next, self._next + 1
            if number >= (_BASE >> _SHIFT):
                raise OutOfMemoryError("too many memories have addresses on the device", reason="out_of_memory")
            self._memories[number] = (size, buffer)
        return _BASE + (number << _SHIFT)

    def remove_memory(self, address: int) -> None:
        """Undo `add_memory`."""
        with self._lock:
            number = (address - _BASE) >> _SHIFT
            del self._memories[number]
            self._free.append(number)

    def add_host(self, address: int, size: int, buffer: int) -> None:
        """Register host memory of `size` bytes. The device uses it through `buffer`."""
        with self._lock:
            bisect.insort(self._starts, address)
            self._hosts[address] = (size, buffer)

    def remove_host(self, address: int) -> None:
        """Undo `add_host`."""
        with self._lock:
            self._starts.remove(address)
            del self._hosts[address]

    def find(self, address: int, size: int) -> Place:
        """Return the buffer that holds ``address … address + size``.

        Raises
        ------
        BadArgumentError
            ``out_of_range``: no memory of this device contains the range.
        """
        with self._lock:
            if address >= _BASE:
                number, offset = divmod(address - _BASE, LARGEST)
                length, buffer = self._memories.get(number, (0, 0))
            else:
                at = bisect.bisect_right(self._starts, address) - 1
                start = self._starts[at] if at >= 0 else 0
                length, buffer = self._hosts.get(start, (0, 0))
                offset = address - start
        if offset + size <= length:
            return Place(buffer, offset)
        raise BadArgumentError(f"{size} bytes at {address:#x} are not memory of this device", reason="out_of_range",
                               backend="vulkan")
