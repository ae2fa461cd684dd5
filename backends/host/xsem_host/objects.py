"""The host's own objects, as docs/host-objects.md defines them: binary semaphore, timeline, memory.

No object has a lock in shared memory, so a process that is killed at any moment leaves nothing locked.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import time
from typing import Final

from xsem.errors import BadHandleError
from xsem.types import OwnedHandle
from xsem_host.linux import (
    SEALS,
    eventfd_add,
    eventfd_take,
    futex_wait,
    futex_wake_all_and_add,
    map_shared,
    new_eventfd,
    new_sealed_memfd,
    read_at_start,
    readable,
    seals,
)

__all__ = ["Binary", "HostMemory", "Timeline"]

MAGIC: Final = 0x314E4C544D455358  # "XSEMTLN1", little-endian
VERSION: Final = 1
KIND_TIMELINE: Final = 2
TIMELINE_BYTES: Final = 4096
_HEADER: Final = struct.Struct("<QIIQI")
_VALUE_AT: Final = 16
_SEQUENCE_AT: Final = 24

# A peer that writes the sequence all the time keeps everybody from sleeping; after this many tries in a row the waiter
# sleeps by the clock instead.
_RESTLESS: Final = 64
_RESTLESS_PAUSE_S: Final = 0.001


class Binary:
    """An eventfd: counter 0 is unsignalled, anything else is signalled.

    Parameters
    ----------
    fd : int
        Owned from here on; checked by `open_binary` or made by `new_binary`.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def signal(self) -> None:
        """Set it; already set stays set. Never blocks."""
        eventfd_add(self.fd)

    def wait(self, timeout_ns: int) -> bool:
        """Take the signal, resetting it; whether it was got within the time."""
        deadline = time.monotonic_ns() + timeout_ns
        while True:
            left_ns = max(0, deadline - time.monotonic_ns())
            if readable(self.fd, -(-left_ns // 1_000_000)) and eventfd_take(self.fd):
                return True
            if time.monotonic_ns() >= deadline:
                return False

    def close(self) -> None:
        """Close the eventfd."""
        os.close(self.fd)


def new_binary() -> Binary:
    """An unsignalled binary semaphore."""
    return Binary(new_eventfd())


def open_binary(fd: int) -> Binary:
    """Check that `fd` is an eventfd of the right sort, and wrap it.

    Raises
    ------
    BadHandleError
        ``not_an_eventfd``, ``eventfd_is_counting``, ``no_proc``; `fd` is left alone.
    """
    target = file_name(fd)
    if target != "anon_inode:[eventfd]":
        raise BadHandleError(f"a binary semaphore of host is an eventfd, and this is {target}", reason="not_an_eventfd")
    with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as info:
        # Shown since Linux 6.5; an older kernel cannot tell.
        if any(line.split() == ["eventfd-semaphore:", "1"] for line in info):
            raise BadHandleError("the eventfd counts (EFD_SEMAPHORE), so one wait would not reset it",
                                 reason="eventfd_is_counting")
    return Binary(fd)


class Timeline:
    """A counter in a sealed page that all processes map.

    Parameters
    ----------
    fd : int
        Owned from here on; checked by `open_timeline` or made by `new_timeline`.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._page = map_shared(fd, TIMELINE_BYTES)
        # One aligned eight-byte store or load each: no process ever sees half a value.
        self._value = ctypes.c_uint64.from_buffer(self._page, _VALUE_AT)
        self._sequence = ctypes.c_uint32.from_buffer(self._page, _SEQUENCE_AT)
        self._futex = ctypes.addressof(self._sequence)

    @property
    def value(self) -> int:
        """The value now."""
        return self._value.value

    def signal(self, value: int) -> None:
        """Set the value and wake everybody."""
        self._value.value = value
        # The kernel adds, not we: two processes that each did `+= 1` could lose one, and with it a wake-up. The
        # sequence is apart from the value because a futex compares 32 bits: a jump by 2**32 would look like none.
        futex_wake_all_and_add(self._futex)

    def wait(self, value: int, timeout_ns: int) -> bool:
        """Whether the value is at least `value` within the time."""
        deadline = time.monotonic_ns() + timeout_ns
        restless = 0
        while True:
            # Read before the value: a signal in between changes it, and the kernel will not let us sleep.
            sequence = self._sequence.value
            if self._value.value >= value:
                return True
            left_ns = deadline - time.monotonic_ns()
            if left_ns <= 0:
                return False
            if futex_wait(self._futex, sequence, left_ns):
                restless = 0
                continue
            restless += 1
            if restless > _RESTLESS:
                time.sleep(min(_RESTLESS_PAUSE_S, left_ns / 1e9))

    def close(self) -> None:
        """Unmap the page and close the file."""
        del self._value, self._sequence
        self._page.close()
        os.close(self.fd)


def new_timeline(initial_value: int) -> Timeline:
    """A timeline with that value."""
    fd = new_sealed_memfd(
        "xsem-timeline", TIMELINE_BYTES, _HEADER.pack(MAGIC, VERSION, KIND_TIMELINE, initial_value, 0)
    )
    with OwnedHandle(fd) as handle:
        timeline = Timeline(fd)
        handle.detach()
        return timeline


def open_timeline(fd: int) -> Timeline:
    """Check that `fd` is a timeline's page, and map it.

    Raises
    ------
    BadHandleError
        ``not_a_memfd``, ``unsealed``, ``short_page``, ``wrong_magic``, ``wrong_version``, ``wrong_kind``; `fd` is left
        alone.
    """
    _check_sealed(fd, "timeline", TIMELINE_BYTES)
    magic, version, kind, _, _ = _HEADER.unpack(read_at_start(fd, _HEADER.size))
    if magic != MAGIC:
        raise BadHandleError("the page is not a timeline of host: its magic number is another", reason="wrong_magic")
    if version != VERSION:
        raise BadHandleError(f"the timeline has version {version} of the format; this xsem knows {VERSION}",
                             reason="wrong_version")
    if kind != KIND_TIMELINE:
        raise BadHandleError(f"the page holds an object of kind {kind}, not a timeline", reason="wrong_kind")
    try:
        return Timeline(fd)
    except PermissionError as error:
        raise BadHandleError("the timeline's file is not open for reading and writing", reason="read_only") from error


class HostMemory:
    """Memory that all processes map: a sealed memfd.

    Parameters
    ----------
    fd : int
        Owned from here on.
    size : int
        Bytes to map from its start.
    """

    def __init__(self, fd: int, size: int) -> None:
        self.fd = fd
        self.size = size
        self._map = map_shared(fd, size)
        self._first = ctypes.c_char.from_buffer(self._map)
        self.address = ctypes.addressof(self._first)

    def close(self) -> None:
        """Unmap it and close the file."""
        del self._first
        self._map.close()
        os.close(self.fd)


def new_memory(size: int) -> HostMemory:
    """Zeroed memory of `size` bytes, a multiple of the page size."""
    with OwnedHandle(new_sealed_memfd("xsem-memory", size)) as handle:
        memory = HostMemory(handle.fileno(), size)
        handle.detach()
        return memory


def open_memory(fd: int, size: int) -> HostMemory:
    """Check that `fd` is sealed memory of at least `size` bytes, and map it.

    Raises
    ------
    BadHandleError
        ``not_a_memfd``, ``unsealed``, ``short_page``, ``wrong_kind``, ``read_only``; `fd` is left alone.
    """
    _check_sealed(fd, "memory", size)
    # The contents are the user's, so they carry no header; but a timeline taken for memory would be scribbled on.
    if os.fstat(fd).st_size == TIMELINE_BYTES and file_name(fd).startswith("/memfd:xsem-timeline"):
        raise BadHandleError("this is a timeline, not memory", reason="wrong_kind")
    try:
        return HostMemory(fd, size)
    except PermissionError as error:
        raise BadHandleError("the memory's file is not open for reading and writing", reason="read_only") from error


def file_name(fd: int) -> str:
    """What the kernel calls the file.

    Raises
    ------
    BadHandleError
        ``no_proc``.
    """
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError as error:
        raise BadHandleError(f"what fd {fd} is cannot be seen: /proc is not there ({error.strerror})",
                             reason="no_proc") from error


def _check_sealed(fd: int, what: str, size: int) -> None:
    present = seals(fd)
    if present is None or not stat.S_ISREG(os.fstat(fd).st_mode):
        raise BadHandleError(f"{what} of host is a sealed memfd, and this file is none", reason="not_a_memfd")
    if present & SEALS != SEALS:
        raise BadHandleError(f"the {what}'s memfd is not sealed against shrinking: its owner could kill this process",
                             reason="unsealed")
    if os.fstat(fd).st_size < size:
        raise BadHandleError(f"the {what}'s memfd has {os.fstat(fd).st_size} bytes, fewer than {size}",
                             reason="short_page")
