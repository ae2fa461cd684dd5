"""Timelines on Windows (docs/host-objects.md, "Windows")."""

# They have no lock in shared memory, so a process that is killed at any moment leaves nothing locked.

from __future__ import annotations

import ctypes
import os
import struct
import time
from typing import Final

from xsem.data.handles import OwnedHandle
from xsem.portable.semaphore_base import Looks
from xsem.portable.timeline import HEAD, TIMELINE_BYTES, Fields, TimelineSemaphore, check_head
from xsem.portable.windows import (
    check_section,
    map_shared,
    named_event,
    new_section,
    read_at_start,
    signal_named_event,
    wait_event,
)

__all__ = ["Timeline", "new_timeline", "open_timeline"]

_ID_AT: Final = 24
_ID_BYTES: Final = 16
_FIELDS: Final = struct.Struct(f"=Q{_ID_BYTES}s")  # value, identifier
_AT: Final = Fields(silent=40, abandoned=44, last=48)
_WAITERS_AT: Final = 64
_WAITERS: Final = 256

# A peer that is killed between store and wake leaves the waiters asleep, so a wait reads the value this often.
_LONGEST_SLEEP_NS: Final = 1_000_000_000
# A wait without an event of its own (256 others wait) reads the value this often.
_POLL_NS: Final = 1_000_000


class Timeline(TimelineSemaphore):
    """A timeline semaphore: a value in a section that all its processes map, and a named event for each waiter."""

    def __init__(self, handle: OwnedHandle) -> None:
        pages = map_shared(handle.fileno(), TIMELINE_BYTES)
        self._waiters = (ctypes.c_uint8 * _WAITERS).from_address(pages.address + _WAITERS_AT)
        # The copy of the identifier does not change if a peer overwrites the section.
        self._names = f"Local\\xsem-{ctypes.string_at(pages.address + _ID_AT, _ID_BYTES).hex()}-"
        super().__init__(handle, pages, _AT)

    def _wake(self) -> None:
        self._fence()
        # A waiter sets its byte before it reads the value. So either it reads the new value, or its byte is set.
        waiting = bytes(self._waiters)
        place = -1
        while (place := waiting.find(1, place + 1)) >= 0:
            signal_named_event(f"{self._names}{place}")

    def _sleep(self, wanted: int, timeout_ns: int) -> bool:
        if self._reached(wanted):
            return True
        looks = Looks(timeout_ns)
        place, event = self._enter()
        try:
            while not self._reached(wanted):
                sleep_ns = looks.sleep_ns()
                if sleep_ns == 0:
                    return False
                if self._silent.value:
                    return self._poll(wanted, sleep_ns)
                if event is None:
                    time.sleep(min(sleep_ns, _POLL_NS) / 1e9)
                else:
                    wait_event(event.fileno(), min(sleep_ns, _LONGEST_SLEEP_NS))
            return True
        finally:
            if event is not None:
                # The byte first: afterwards the place can have a new waiter.
                self._waiters[place] = 0
                event.close()

    def _enter(self) -> tuple[int, OwnedHandle | None]:
        """Enter a waiter: the event with the name of its place, and the byte of this place. None if all are in use."""
        # The system creates a name at most once, so a place has one waiter. The name ends with the waiter's process.
        taken = bytes(self._waiters)
        # Free places first. Then the others: a killed process leaves its byte and not its event.
        for free in (True, False):
            for place in range(_WAITERS):
                if (taken[place] == 0) is free and (event := named_event(f"{self._names}{place}")) is not None:
                    self._waiters[place] = 1
                    return place, event
        return -1, None


def new_timeline(initial_value: int) -> Timeline:
    """Create a timeline with value `initial_value`."""
    head = HEAD + _FIELDS.pack(initial_value, os.urandom(_ID_BYTES))
    with new_section(TIMELINE_BYTES) as handle:
        pages = map_shared(handle.fileno(), TIMELINE_BYTES)
        try:
            ctypes.memmove(pages.address, head, len(head))
        finally:
            pages.close()
        return Timeline(handle)


def open_timeline(handle: OwnedHandle) -> Timeline:
    """Check that the handle is one of a timeline's section, map it, and take ownership of it."""
    number = handle.fileno()
    check_section(number, "timeline", TIMELINE_BYTES)
    check_head(read_at_start(number, len(HEAD)), "section")
    return Timeline(handle)
