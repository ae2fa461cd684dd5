"""The calls of one case, in a file that two processes map. The file outlives a process that hangs or is killed."""

from __future__ import annotations

import mmap
import struct
import threading
import time
from typing import Final

from xsem_conformance.outcomes import Call

__all__ = ["SIZE", "CallLog"]

_HEAD: Final = struct.Struct("<Q")          # number of calls of the case
_SLOT: Final = struct.Struct("<QddIHHB")    # number, begin, seconds, times, length of call and result, side
_SLOT_SIZE: Final = 256
_SLOTS: Final = 96
_KEPT: Final = 24                           # slots of the first calls: the setup of the case
_FIRST: Final = 64
_ROOM: Final = _SLOT_SIZE - _SLOT.size
_LONGEST_RESULT: Final = 60
_SIDES: Final = ("device", "exporter", "second process")
_IN_FLIGHT: Final = -1.0

SIZE: Final = _FIRST + _SLOTS * _SLOT_SIZE
"""The size of the file."""


class CallLog:
    """The first and the last calls of a case. The worker writes them, and the runner reads them."""

    # The worker writes a call before it makes the call. The log of a killed process therefore contains the call in
    # progress. Equal calls in a row share one entry, because most of them are polls. The log leaves out calls between
    # the first and the last calls of a long case.

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, SIZE)
        self._lock = threading.Lock()
        self._in_flight: set[int] = set()
        self._cases = 0
        self._slot = -1
        self._last: tuple[int, int, str] | None = None   # slot, side and `same` of the last call, if it has returned

    def clear(self) -> None:
        """Remove all calls for a new case, also the calls in flight."""
        with self._lock:
            self._map[:] = bytes(SIZE)
            self._in_flight.clear()
            self._cases += 1
            self._slot, self._last = -1, None

    def begin(self, by: str, call: str, same: str = "") -> tuple[int, int, str]:
        """Record a call before the call is made. Return the place for `end`."""
        # Two calls in a row are equal if their `same` is equal. The default of `same` is the text of the call.
        same = same or call
        side, raw = _SIDES.index(by), call.encode(errors="replace")[:_ROOM - _LONGEST_RESULT]
        with self._lock:
            number = _HEAD.unpack_from(self._map)[0] + 1
            _HEAD.pack_into(self._map, 0, number)
            times = 1
            if self._last is not None and self._last[1:] == (side, same):
                slot = self._last[0]
                times = _SLOT.unpack_from(self._map, _at(slot))[3] + 1
            else:
                slot = _next(self._slot)
                while slot in self._in_flight and len(self._in_flight) < _SLOTS - _KEPT:
                    slot = _next(slot)
                self._slot = slot
            self._in_flight.add(slot)
            self._last = None
            at = _at(slot)
            self._map[at + _SLOT.size:at + _SLOT.size + len(raw)] = raw
            _SLOT.pack_into(self._map, at, number, time.monotonic(), _IN_FLIGHT, times, len(raw), 0, side)
            return self._cases, slot, same

    def end(self, place: tuple[int, int, str], by: str, result: str) -> None:
        """Record the return of a call."""
        case, slot, same = place
        raw = result.encode(errors="replace")[:_LONGEST_RESULT]
        with self._lock:
            if case != self._cases:
                return   # a call of an earlier case, on a thread that still runs
            at = _at(slot)
            number, began, _, times, length, _, side = _SLOT.unpack_from(self._map, at)
            start = at + _SLOT.size + length
            self._map[start:start + len(raw)] = raw
            _SLOT.pack_into(self._map, at, number, began, time.monotonic() - began, times, length, len(raw), side)
            self._in_flight.discard(slot)
            self._last = (slot, _SIDES.index(by), same)

    def calls(self) -> tuple[tuple[Call, ...], int, int]:
        """Return the kept calls in the order of their start, the number of first calls, and the number left out."""
        # The calls that are left out belong between the first calls and the other calls.
        found: list[tuple[int, Call]] = []
        for slot in range(_SLOTS):
            at = _at(slot)
            number, _, seconds, times, length, more, side = _SLOT.unpack_from(self._map, at)
            if not number:
                continue
            text = self._map[at + _SLOT.size:at + _SLOT.size + length].decode(errors="replace")
            result = self._map[at + _SLOT.size + length:at + _SLOT.size + length + more].decode(errors="replace")
            text += f" -> {result}" if more else ""
            found.append((number, Call(_SIDES[side], text, None if seconds < 0 else round(seconds, 6), times)))
        found.sort(key=lambda each: each[0])
        left_out = _HEAD.unpack_from(self._map)[0] - sum(call.times for _, call in found)
        return tuple(call for _, call in found), min(_KEPT, len(found)), max(0, left_out)

    def in_flight(self) -> tuple[str, float] | None:
        """Return the side and the name of the oldest call in flight, and its duration so far in seconds."""
        oldest: tuple[float, str] | None = None
        for slot in range(_SLOTS):
            at = _at(slot)
            number, began, seconds, _, length, _, side = _SLOT.unpack_from(self._map, at)
            if number and seconds < 0 and (oldest is None or began < oldest[0]):
                text = self._map[at + _SLOT.size:at + _SLOT.size + length].decode(errors="replace")
                oldest = began, f"{_SIDES[side]}: {text.partition('(')[0]}"
        return None if oldest is None else (oldest[1], time.monotonic() - oldest[0])

    def close(self) -> None:
        """Unmap the file."""
        self._map.close()


def _next(slot: int) -> int:
    return slot + 1 if slot + 1 < _SLOTS else _KEPT


def _at(slot: int) -> int:
    return _FIRST + slot * _SLOT_SIZE
