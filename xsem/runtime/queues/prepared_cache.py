"""The prepared appends of one queue, by their semaphores."""

from __future__ import annotations

from typing import Any, Final, Literal

from xsem.runtime.queues.prepared_append import PreparedAppend
from xsem.runtime.semaphore_state import SemaphoreState

__all__ = ["PreparedCache"]

_MOST_BATCHES: Final = 16
"""Limit of the batches with the same first semaphore. A further batch replaces the oldest batch."""
_MANY: Final = 32
"""The cache drops entries with released semaphores first at this number of waits or signals. It can then grow."""


class PreparedCache:
    """The prepared waits and signals of one queue."""

    def __init__(self) -> None:
        # By the state of one semaphore, or by the tuple of states of a batch.
        self.waits: dict[object, PreparedAppend] = {}
        self.signals: dict[object, PreparedAppend] = {}
        self._batches: dict[tuple[str, SemaphoreState], tuple[object, ...]] = {}
        self._many = _MANY

    def find_batch(self, operation: Literal["wait", "signal"], semaphores: Any) -> PreparedAppend | None:
        """Return the prepared append of a list or tuple of semaphores. Return None for all other arguments."""
        if type(semaphores) is not list and type(semaphores) is not tuple:
            return None
        try:
            return self._entries(operation).get(tuple([each._state for each in semaphores]))
        except (AttributeError, TypeError):
            return None

    def add(self, prepared: PreparedAppend) -> None:
        """Keep a prepared append for later appends of the same semaphores."""
        states = prepared.states
        operation = prepared.operation
        entries = self._entries(operation)
        key: object = states if prepared.batch else states[0]
        if prepared.batch:
            self._make_room(operation, states[0], key)
        if len(entries) >= self._many:
            for other, old in entries.copy().items():   # another thread may append meanwhile
                if any(state.lifetime.released for state in old.states):
                    entries.pop(other, None)
            for begin in self._batches.copy():
                if not any(each in self._entries(begin[0]) for each in self._batches[begin]):
                    self._batches.pop(begin, None)
            self._many = max(_MANY, 2 * len(entries))
        entries[key] = prepared

    def _make_room(self, operation: str, first: SemaphoreState, key: object) -> None:
        entries = self._entries(operation)
        batches = tuple(each for each in self._batches.get((operation, first), ()) if each in entries)
        if len(batches) >= _MOST_BATCHES:
            entries.pop(batches[0], None)
        self._batches[operation, first] = (*batches[1 - _MOST_BATCHES:], key)

    def _entries(self, operation: str) -> dict[object, PreparedAppend]:
        return self.waits if operation == "wait" else self.signals
