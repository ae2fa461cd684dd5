"""Timelines on Linux (docs/host-objects.md)."""

# They have no lock in shared memory, so a process that is killed at any moment leaves nothing locked.

from __future__ import annotations

import ctypes
import os
import struct
from typing import Final

from xsem.data.handles import OwnedHandle
from xsem.portable.files import check_sealed_memfd, is_read_only, page_name, reopen
from xsem.portable.holders import Holder
from xsem.portable.linux import futex_wait, futex_wake_all_and_add, map_shared, new_sealed_memfd, read_at_start
from xsem.portable.semaphore_base import Looks
from xsem.portable.timeline import HEAD, TIMELINE_BYTES, Fields, TimelineSemaphore, check_head

__all__ = ["TIMELINE_NAME", "Timeline", "new_timeline", "open_any_timeline", "open_timeline"]

TIMELINE_NAME: Final = "xsem-timeline"
_FIELDS: Final = struct.Struct("=QI")  # value, sequence
_SEQUENCE_AT: Final = 24
_AT: Final = Fields(silent=28, abandoned=32, last=40)

# A peer that is killed between store and wake leaves the waiters asleep, so a wait reads the value this often.
_LONGEST_SLEEP_NS: Final = 1_000_000_000


class Timeline(TimelineSemaphore):
    """A timeline semaphore: a counter in a sealed page that all its processes map."""

    def __init__(self, handle: OwnedHandle, *, read_only: bool = False) -> None:
        pages = map_shared(handle.fileno(), TIMELINE_BYTES, writable=not read_only)
        self._sequence = ctypes.c_uint32.from_address(pages.address + _SEQUENCE_AT)
        try:
            holder = Holder(handle.fileno(), writable=not read_only)
        except BaseException:
            pages.close()   # at once: a traceback could keep it mapped
            raise
        self.identity = page_name(handle.fileno())
        super().__init__(handle, pages, _AT, read_only=read_only, holder=holder)

    def duplicate_read_only(self) -> OwnedHandle:
        """Return the file, open only for reading, owned by the caller."""
        with self._use():
            return reopen(self.fd, os.O_RDONLY)

    def _wake(self) -> None:
        # The kernel adds to the sequence: two processes with `+= 1` each could lose a step, and with it a wake-up.
        # The futex is not the value itself, because a futex compares 32 bits and would miss a jump by 2**32.
        futex_wake_all_and_add(self._pages.address + _SEQUENCE_AT)

    def _sleep(self, wanted: int, timeout_ns: int) -> bool:
        looks = Looks(timeout_ns)
        while True:
            # Read before the value: a signal in between changes the sequence, and then futex_wait returns at once.
            sequence = self._sequence.value
            if self._reached(wanted):
                return True
            sleep_ns = looks.sleep_ns()
            if sleep_ns == 0:
                return False
            if self._silent.value:
                return self._poll(wanted, sleep_ns)
            futex_wait(self._pages.address + _SEQUENCE_AT, sequence, min(sleep_ns, _LONGEST_SLEEP_NS))


def new_timeline(initial_value: int) -> Timeline:
    """Create a timeline with value `initial_value`."""
    head = HEAD + _FIELDS.pack(initial_value, 0)
    with new_sealed_memfd(TIMELINE_NAME, TIMELINE_BYTES, head) as handle:
        return Timeline(handle)


def open_timeline(handle: OwnedHandle) -> Timeline:
    """Check that the file is a timeline's page, map it, and take ownership of it."""
    _check(handle.fileno())
    return Timeline(handle)


def open_any_timeline(handle: OwnedHandle) -> Timeline:
    """Open a timeline as `open_timeline`; a file that is open only for reading gives a timeline without signals."""
    _check(handle.fileno())
    return Timeline(handle, read_only=is_read_only(handle.fileno()))


def _check(fd: int) -> None:
    check_sealed_memfd(fd, "timeline", TIMELINE_BYTES)
    check_head(read_at_start(fd, len(HEAD)), "file")
