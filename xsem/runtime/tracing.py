"""The place where the parts of xsem leave their notes while a trace is recorded."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from time import perf_counter as now
from typing import Any, Final, Protocol

__all__ = ["Note", "TracedOperations", "TracedTable", "fact", "tables", "tracing"]

Note = tuple[Any, ...]
"""What happened: a word, the time of time.perf_counter(), the thread, and what the word needs."""


class TracedTable(Protocol):
    """The queues of a device."""

    def live(self) -> list[Any]:
        """Return the queues."""


class _Tracing:
    """Whether a trace is recorded: then `note` takes the notes. Else it is None, and the parts look at nothing more."""

    note: Callable[[Note], None] | None = None


tracing: Final = _Tracing()
tables: Final = weakref.WeakSet[TracedTable]()
"""The queues of all open devices, for a trace that begins later."""


def fact(category: str, name: str, **facts: Any) -> None:
    """Note something that happens at one moment. The caller has seen that `tracing.note` is not None."""
    if tracing.note is not None:
        tracing.note(("fact", now(), threading.get_native_id(), category, name, facts))


class TracedOperations(deque[tuple[Any, ...]]):
    """The operations in flight of a queue, with a note of each that comes and goes."""

    def __init__(self, operations: deque[tuple[Any, ...]], queue: object, note: Callable[[Note], None]) -> None:
        super().__init__(operations)
        self._queue = queue
        self._note = note

    def append(self, operation: tuple[Any, ...], /) -> None:
        """Take an operation, which the driver gets next."""
        super().append(operation)
        self._note(("appended", operation[4], threading.get_native_id(), self._queue, operation))

    def popleft(self) -> tuple[Any, ...]:
        """Drop an operation that is done."""
        operation = super().popleft()
        self._note(("done", now(), 0, self._queue, operation))
        return operation

    def remove(self, operation: tuple[Any, ...], /) -> None:
        """Drop an operation that the driver did not get."""
        super().remove(operation)
        self._note(("refused", now(), threading.get_native_id(), self._queue, operation))


def _in_child() -> None:
    tracing.note = None   # the child has no thread that would write the notes


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
