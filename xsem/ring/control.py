"""The memory that all processes of a ring map: words, payloads, and behind its end the locks that tell who runs."""

from __future__ import annotations

import os
import struct
import threading
from typing import Final

from xsem.data.handles import number_of
from xsem.errors import BadArgumentError, BadHandleError
from xsem.facade.device import Device
from xsem.facade.memory import Memory
from xsem.ring.protocol import Layout
from xsem.types import MemoryDesc, MemoryHandleType

__all__ = ["Control"]

_MAGIC: Final = 0x314752_4D455358   # "XSEMRG1", little-endian
_HEAD: Final = struct.Struct("=4Q")   # before the words: magic, slots, places, bytes of a payload
_LENGTH: Final = 8   # bytes of the length of a payload, before it


class Control:
    """The words, the payloads and the locks of a ring."""

    def __init__(self, memory: Memory, fd: int, layout: Layout, payload_bytes: int) -> None:
        from xsem.portable.byte_locks import LockFile  # here, because they need Linux
        from xsem.portable.files import page_name

        self.memory = memory
        self.layout = layout
        self.payload_bytes = payload_bytes
        self._buffer = memory.map_buffer()
        self._bytes = self._buffer.numpy().data.cast("B")
        start = _HEAD.size
        self._words = self._bytes[start:start + 8 * layout.size].cast("Q")
        self._payloads = start + 8 * layout.size
        self._each = _entry_bytes(payload_bytes)
        self.locks = LockFile(fd, os.O_RDWR)
        self.identity = page_name(fd)
        self._locks_at = memory.allocation_size
        self._lock = threading.Lock()

    @classmethod
    def create(cls, host: Device, layout: Layout, payload_bytes: int) -> Control:
        """Allocate the memory of a new ring."""
        memory = host.create_memory(MemoryHandleType.HOST_MEMORY_FD, _size(layout, payload_bytes))
        with memory.export() as desc:
            made = cls(memory, _fd(desc), layout, payload_bytes)
        _HEAD.pack_into(made._bytes, 0, *_head(layout, payload_bytes))
        return made

    @classmethod
    def open(cls, host: Device, desc: MemoryDesc, layout: Layout, payload_bytes: int) -> Control:
        """Import the memory of a ring. The caller keeps `desc`."""
        if desc.type is not MemoryHandleType.HOST_MEMORY_FD or desc.allocation_size < _size(layout, payload_bytes):
            raise BadArgumentError("the message is not that of a ring: its memory of the words is too small or of "
                                   "another type", reason="bad_ring")
        made = cls(host.import_memory(desc), _fd(desc), layout, payload_bytes)
        if _HEAD.unpack_from(made._bytes) != _head(layout, payload_bytes):
            made.close()
            raise BadHandleError("the first memory of the message lacks the words of this ring", reason="wrong_magic")
        return made

    # ---- words
    def load(self, at: int) -> int:
        """Return a word."""
        return self._words[at]

    def store(self, at: int, value: int) -> None:
        """Set a word."""
        self._words[at] = value

    def fence(self) -> None:
        """Order the accesses before this call before those after it."""
        # As for timelines: Python has no other fence.
        for _ in range(2):
            with self._lock:
                pass

    # ---- payloads
    def put(self, entry: int, payload: bytes) -> None:
        """Store a payload."""
        at = self._payloads + entry * self._each
        self._bytes[at:at + _LENGTH] = len(payload).to_bytes(_LENGTH, "little")
        self._bytes[at + _LENGTH:at + _LENGTH + len(payload)] = payload

    def get(self, entry: int) -> bytes:
        """Return a payload."""
        at = self._payloads + entry * self._each
        length = min(int.from_bytes(self._bytes[at:at + _LENGTH], "little"), self.payload_bytes)
        return bytes(self._bytes[at + _LENGTH:at + _LENGTH + length])

    # ---- locks
    def take_producer(self) -> bool:
        """Become the producer; False if there is one."""
        return self.locks.lock(self._locks_at)

    def producer_runs(self) -> bool:
        """Return whether another end of the ring is its producer."""
        return self.locks.locked_by_others(self._locks_at)

    def take(self, place: int) -> bool:
        """Take the lock of a place; False if it has an owner."""
        return self.locks.lock(self._locks_at + 1 + place)

    def give_back(self, place: int) -> None:
        """Give the lock of a place up."""
        self.locks.unlock(self._locks_at + 1 + place)

    def close(self) -> None:
        """Give all locks up, and unmap the memory."""
        self.locks.close()
        self._words.release()
        self._bytes.release()
        self._buffer.release()
        self.memory.release()


def entries(layout: Layout) -> int:
    """Return how many payloads are kept: a producer may be that many frames ahead of each consumer."""
    return 2 * layout.slots


def _size(layout: Layout, payload_bytes: int) -> int:
    return _HEAD.size + 8 * layout.size + entries(layout) * _entry_bytes(payload_bytes)


def _entry_bytes(payload_bytes: int) -> int:
    return _LENGTH + -(-payload_bytes // 8) * 8


def _head(layout: Layout, payload_bytes: int) -> tuple[int, ...]:
    return _MAGIC, layout.slots, layout.places, payload_bytes


def _fd(desc: MemoryDesc) -> int:
    handle = desc.handle
    if handle is None:
        raise BadHandleError("the memory of the words has no handle", reason="no_handle")
    return number_of(handle)
