"""The operations in flight of one native queue, its markers, and how far it has come."""

# A marker is a barrier with a fence, or an operation with its own fence. When the fence is reached, all earlier
# operations of the queue are done, so xsem does not request the completion of each operation. It appends a marker at a
# release, at a host wait, and after at most `MARK_EVERY` operations, which bounds the list of pending operations.

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from xsem.runtime.queues.operations import Fence, Operation
from xsem.runtime.queues.room import Room
from xsem.runtime.quick import retire
from xsem.runtime.tracing import Note, Stack, TracedOperations
from xsem.spi import Token

__all__ = ["Progress"]


class Progress:
    """The operations in flight and the markers of one native queue."""

    def __init__(self, lock: Any, room: Room, before: Callable[[int], None]) -> None:
        self._lock = lock   # of the releaser, because releases depend on `done`
        self._room = room
        self._before = before   # called before operations up to this number are retired as done
        self.done = 0   # all operations up to this number are known to be done
        self.operations: deque[tuple[Any, ...]] = deque()   # the fields of each `Operation`, oldest first
        self._traced: TracedOperations | None = None   # the same, while a trace is recorded
        self._markers: deque[tuple[Fence, int]] = deque()   # with everything given to the driver up to the marker
        self.note_marker = self._markers.append   # for the quick append

    def pending(self) -> list[Operation]:
        """Return the operations that are not known to be done, oldest first."""
        return [Operation(*each) for each in list(self.operations)]   # `list` copies in one step: other threads append

    def trace(self, queue: object, note: Callable[[Note], None] | None) -> None:
        """Note each operation from now on, or with None no longer. The caller holds the lock of the queue."""
        with self._lock:
            if note is None:
                self.operations, self._traced = deque(self.operations), None
            else:
                self.operations = self._traced = TracedOperations(self.operations, queue, note)

    def stack(self, seq: int) -> Stack:
        """Return the lines that appended an operation, which only a trace knows."""
        traced = self._traced
        return [] if traced is None else traced.stacks.get(seq, [])

    def markers(self) -> list[Fence]:
        """Return the markers that are not known to be reached, oldest first."""
        return [fence for fence, _ in list(self._markers)]

    def covers(self, seq: int) -> bool:
        """Return whether operation `seq` is done, or a marker will tell when it is."""
        newest = self.newest_marker()
        return self.done >= seq or (newest is not None and newest.seq >= seq)

    def newest_marker(self) -> Fence | None:
        """Return the marker behind all others."""
        try:
            return self._markers[-1][0]
        except IndexError:
            return None

    def add_marker(self, fence: Fence, given: int) -> None:
        """Note a marker behind everything given to the driver."""
        self._markers.append((fence, given))
        self._room.note_marker()

    def poll(self, done: Callable[[Token], bool]) -> None:
        """Query the markers with `done`, and retire the operations before each reached one."""
        while True:
            try:
                head, tail = self._markers[0][0], self._markers[-1][0]
            except IndexError:
                return
            if not done(head.token):
                return
            # If the last marker is reached, this query covers all markers: a queue can have hundreds of them.
            if tail is not head and done(tail.token):
                head = tail
            self.reached(head.seq)

    def reached(self, seq: int) -> None:
        """Retire all markers up to `seq`, and their operations: a fence at `seq` or later is reached."""
        self._before(seq)
        with self._lock:
            markers, last = self._markers, None
            while markers and markers[0][0].seq <= seq:
                last = markers.popleft()
                if self._traced is not None:
                    self._traced.reached.append(last[0])
            if last is not None:
                self._retire(last[0].seq, last[1])

    def retire(self, seq: int, given: int) -> None:
        """Retire all markers and the operations up to `seq`, because no work of the queue is left to run."""
        with self._lock:
            self._markers.clear()
            self._retire(seq, given)

    def skip(self, seq: int) -> None:
        """Count a refused operation as done. An idle list thus stays idle and needs no marker."""
        with self._lock:
            if self.done == seq - 1:
                self.done = seq

    def _retire(self, seq: int, given: int) -> None:
        self.done = max(self.done, seq)
        self._room.note_done(given)
        retire(self.operations, seq)
