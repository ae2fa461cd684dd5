"""The host's semaphores on Windows (docs/host-objects.md, "Windows").

They have no lock in shared memory. So a process that is killed at any moment leaves nothing locked.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from xsem.errors import BadArgumentError, BadHandleError
from xsem.types import OwnedHandle
from xsem_host.sharing import HostSemaphore, Looks
from xsem_host.windows import (
    check_section,
    check_synchronization_event,
    event_set,
    map_shared,
    named_event,
    new_event,
    new_section,
    signal_named_event,
    wait_event,
)

__all__ = ["HEAD", "HEAD_BYTES", "Binary", "Timeline", "new_binary", "new_timeline", "open_binary", "open_timeline"]

MAGIC: Final = 0x314E4C544D455358  # "XSEMTLN1", little-endian
VERSION: Final = 1
KIND_TIMELINE: Final = 2
TIMELINE_BYTES: Final = 4096
_HEADER: Final = struct.Struct("<QIIQ16s")
HEAD: Final = struct.pack("<QII", MAGIC, VERSION, KIND_TIMELINE)
HEAD_BYTES: Final = _HEADER.size
_VALUE_AT: Final = 16
_ID_AT: Final = 24
_ID_BYTES: Final = 16
_WAITERS_AT: Final = 64
_WAITERS: Final = 256

# A peer that is killed between store and wake leaves the waiters asleep, so a wait reads the value this often.
_LONGEST_SLEEP_NS: Final = 1_000_000_000
# A wait without an event of its own (256 others wait) reads the value this often.
_POLL_NS: Final = 1_000_000


class Binary(HostSemaphore):
    """A binary semaphore: a synchronization event.

    Parameters
    ----------
    handle : OwnedHandle
        From `open_binary` or `new_binary`. On success this object owns the handle.
    """

    def signal(self, value: int | None = None) -> None:
        """Signal the semaphore. A signalled semaphore stays signalled. Never blocks."""
        with self._use():
            event_set(self.fd)

    def wait(self, value: int | None, timeout_ns: int) -> bool:
        """Take the signal, which resets the semaphore; return False if the timeout expires first."""
        with self._use():
            looks = Looks(timeout_ns)
            sleep_ns = timeout_ns
            while not wait_event(self.fd, sleep_ns):
                sleep_ns = looks.sleep_ns()
                if sleep_ns == 0:
                    return False
            return True


def new_binary() -> Binary:
    """Create an unsignalled binary semaphore."""
    with new_event() as handle:
        return Binary(handle)


def open_binary(handle: OwnedHandle) -> Binary:
    """Check that the handle is one of a synchronization event, and take ownership of it.

    Raises
    ------
    BadHandleError
        ``wrong_object``, ``event_stays_signalled``, ``read_only``. The handle stays the caller's.
    """
    check_synchronization_event(handle.fileno())
    return Binary(handle)


class Timeline(HostSemaphore):
    """A timeline semaphore: a value in a section that all its processes map, and one named event for each waiter.

    Parameters
    ----------
    handle : OwnedHandle
        From `open_timeline` or `new_timeline`. On success this object owns the handle. After an error the caller still
        owns it.
    """

    def __init__(self, handle: OwnedHandle) -> None:
        self._pages = map_shared(handle.fileno(), TIMELINE_BYTES)
        # Each access is one aligned load or store, so no process sees half a value.
        self._value = ctypes.c_uint64.from_address(self._pages.address + _VALUE_AT)
        self._waiters = (ctypes.c_uint8 * _WAITERS).from_address(self._pages.address + _WAITERS_AT)
        # The copy of the identifier does not change if a peer overwrites the section.
        self._names = f"Local\\xsem-{ctypes.string_at(self._pages.address + _ID_AT, _ID_BYTES).hex()}-"
        super().__init__(handle)

    @property
    def value(self) -> int:
        """The current value."""
        with self._use():
            value = self._value.value
            self._fence()
            return value

    def signal(self, value: int | None) -> None:
        """Set the value and wake all waiters. Never blocks.

        Raises
        ------
        BadArgumentError
            ``value_required``: `value` is None.
        """
        wanted = _needed(value)
        with self._use():
            self._fence()
            self._value.value = wanted
            self._fence()
            # A waiter sets its byte before it reads the value. So either it reads the new value, or its byte is set.
            waiting = bytes(self._waiters)
            place = -1
            while (place := waiting.find(1, place + 1)) >= 0:
                signal_named_event(f"{self._names}{place}")

    def wait(self, value: int | None, timeout_ns: int) -> bool:
        """Block until the timeline is at least `value` or the timeout expires; return whether it is.

        Raises
        ------
        BadArgumentError
            ``value_required``: `value` is None.
        """
        wanted = _needed(value)
        with self._use():
            if self._reached(wanted):
                return True
            looks = Looks(timeout_ns)
            with self._waiter() as event:
                while not self._reached(wanted):
                    sleep_ns = looks.sleep_ns()
                    if sleep_ns == 0:
                        return False
                    if event is None:
                        self._pause(min(sleep_ns, _POLL_NS))
                    else:
                        wait_event(event.fileno(), min(sleep_ns, _LONGEST_SLEEP_NS))
                return True

    def _reached(self, wanted: int) -> bool:
        self._fence()
        reached = self._value.value >= wanted
        self._fence()
        return reached

    @staticmethod
    def _pause(nanoseconds: int) -> None:
        import time

        time.sleep(nanoseconds / 1e9)

    @contextmanager
    def _waiter(self) -> Iterator[OwnedHandle | None]:
        """Enter a waiter: an event with the name of its place, and the byte of this place. None if all are in use.

        The system creates a name at most once, so a place has one waiter. The name ends with the waiter's process.
        """
        place, event = self._enter()
        try:
            yield event
        finally:
            if event is not None:
                # The byte first: afterwards the place can have a new waiter.
                self._waiters[place] = 0
                event.close()

    def _enter(self) -> tuple[int, OwnedHandle | None]:
        taken = bytes(self._waiters)
        # Free places first. Then the others: a killed process leaves its byte and not its event.
        for free in (True, False):
            for place in range(_WAITERS):
                if (taken[place] == 0) is free and (event := named_event(f"{self._names}{place}")) is not None:
                    self._waiters[place] = 1
                    return place, event
        return -1, None

    def _free(self) -> None:
        super()._free()
        self._pages.close()


def new_timeline(initial_value: int) -> Timeline:
    """Create a timeline with value `initial_value`."""
    head = _HEADER.pack(MAGIC, VERSION, KIND_TIMELINE, initial_value, os.urandom(_ID_BYTES))
    with new_section(TIMELINE_BYTES) as handle:
        pages = map_shared(handle.fileno(), TIMELINE_BYTES)
        try:
            ctypes.memmove(pages.address, head, len(head))
        finally:
            pages.close()
        return Timeline(handle)


def open_timeline(handle: OwnedHandle) -> Timeline:
    """Check that the handle is one of a timeline's section, map it, and take ownership of it.

    Raises
    ------
    BadHandleError
        ``wrong_object``, ``not_of_paging_file``, ``short_page``, ``wrong_magic``, ``wrong_version``, ``wrong_kind``,
        ``read_only``. The handle stays the caller's.
    """
    number = handle.fileno()
    check_section(number, "timeline", TIMELINE_BYTES)
    magic, version, kind, _, _ = _HEADER.unpack(read_at_start(number, HEAD_BYTES))
    if magic != MAGIC:
        raise BadHandleError("the section is not a timeline of host: its magic number differs", reason="wrong_magic")
    if version != VERSION:
        raise BadHandleError(f"the timeline has format version {version}; this xsem supports {VERSION}",
                             reason="wrong_version")
    if kind != KIND_TIMELINE:
        raise BadHandleError(f"the section holds an object of kind {kind}, not a timeline", reason="wrong_kind")
    return Timeline(handle)


def read_at_start(number: int, size: int) -> bytes:
    """Read the first bytes of a section.

    Raises
    ------
    BadHandleError
        ``read_only``: the handle does not permit reading and writing.
    """
    pages = map_shared(number, size)
    try:
        return ctypes.string_at(pages.address, size)
    finally:
        pages.close()


def _needed(value: int | None) -> int:
    if value is None:
        raise BadArgumentError("a timeline needs a value", reason="value_required")
    return value
