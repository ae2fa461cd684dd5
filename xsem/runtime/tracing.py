"""The place where the parts of xsem leave their notes while a trace is recorded."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter as now
from types import CodeType, FrameType
from typing import Any, Final, Protocol

__all__ = ["Note", "Stack", "TracedOperations", "TracedTable", "add_table", "callers", "fact", "place", "queues",
           "tracing"]

_FRAMES: Final = 2   # of the stack of an append

Stack = list[tuple[CodeType, int]]
"""The code of each frame, and the place in it."""
Note = tuple[Any, ...]
"""What happened: a word, the time of time.perf_counter(), the thread, and what the word needs."""


class TracedTable(Protocol):
    """The queues of a device."""

    def live(self) -> list[Any]:
        """Return the queues."""


class _Tracing:
    """Whether a trace is recorded: then `note` takes the notes. Else it is None, and the parts look at nothing more."""

    note: Callable[[Note], None] | None = None
    device_times = False   # whether each operation gets a marker, of which the device tells the time
    one: threading.Lock = threading.Lock()   # held while a trace is recorded


tracing: Final = _Tracing()
_tables: Final[dict[weakref.ref[TracedTable], None]] = {}   # a WeakSet cannot be read while other threads add to it


def add_table(table: TracedTable) -> None:
    """Note the queues of a device, for a trace that begins later."""
    _tables[weakref.ref(table, _drop)] = None


def _drop(table: weakref.ref[TracedTable]) -> None:
    _tables.pop(table, None)


def queues() -> Iterator[Any]:
    """Yield the queues of all open devices."""
    for each in list(_tables):   # in one step
        table = each()
        if table is not None:
            yield from table.live()


def fact(category: str, name: str, **facts: Any) -> None:
    """Note something that happens at one moment. The caller has seen that `tracing.note` is not None."""
    note = tracing.note   # a trace may end meanwhile
    if note is not None:
        note(("fact", now(), threading.get_native_id(), category, name, facts))


def callers(frame: FrameType | None, most: int) -> Stack:
    """Return where the frames outside of xsem are, the innermost first."""
    while frame is not None and str(frame.f_globals.get("__name__"))[:4] == "xsem":
        frame = frame.f_back
    found: Stack = []
    while frame is not None and len(found) < most:
        found.append((frame.f_code, frame.f_lasti))   # the search for its line takes longer
        frame = frame.f_back
    return found


def place(code: CodeType, at: int) -> str:
    """Return one place of `callers` as text."""
    line = next(itertools.islice(code.co_positions(), at // 2, None), (None,))[0]
    return f"{code.co_filename}:{line} in {code.co_name}"


class TracedOperations(deque[tuple[Any, ...]]):
    """The operations in flight of a queue, with a note of each that comes and goes."""

    def __init__(self, operations: deque[tuple[Any, ...]], queue: object, note: Callable[[Note], None]) -> None:
        super().__init__(operations)
        self._queue = queue
        self._note = note
        self.stacks: dict[int, Stack] = {}   # of the appends, by the number of the operation
        self.reached: deque[Any] = deque()   # the fences of operations that are dropped next

    def append(self, operation: tuple[Any, ...], /) -> None:
        """Take an operation, which the driver gets next."""
        deque.append(self, operation)   # `super()` takes longer
        stack = self.stacks[operation[0]] = callers(sys._getframe(2), _FRAMES)
        self._note(("appended", operation[4], threading.get_native_id(), self._queue, operation, stack))

    def popleft(self) -> tuple[Any, ...]:
        """Drop an operation that is done."""
        operation = deque.popleft(self)
        self.stacks.pop(operation[0], None)
        reached = self.reached
        while reached and reached[0].seq < operation[0]:
            reached.popleft()
        self._note(("done", now(), 0, self._queue, operation, reached[0] if reached else None))
        return operation

    def remove(self, operation: tuple[Any, ...], /) -> None:
        """Drop an operation that the driver did not get."""
        super().remove(operation)
        self.stacks.pop(operation[0], None)
        self._note(("refused", now(), threading.get_native_id(), self._queue, operation))


def _in_child() -> None:
    tracing.note = None   # the child has no thread that would write the notes
    tracing.one = threading.Lock()
    _tables.clear()   # the child must not use the devices of its parent


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
