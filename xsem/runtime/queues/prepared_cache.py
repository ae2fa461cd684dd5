"""The prepared appends of one queue, by their semaphores."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final, Literal

from xsem.data.params import UINT64_MAX
from xsem.errors import XsemError
from xsem.runtime.queues.completion import CompletionTracker
from xsem.runtime.queues.prepared_append import PreparedAppend, prepared_signal
from xsem.runtime.semaphore_state import SemaphoreState
from xsem.spi import Token
from xsem.types import SemaphoreKind

__all__ = ["PreparedCache"]

_MOST_BATCHES: Final = 16
"""Limit of the batches that begin with the same semaphore. A further batch replaces the oldest."""
_MANY: Final = 32
"""From this number of waits (or signals) on, the cache looks for unusable ones and drops them."""

_state_of = operator.attrgetter("_state")


class PreparedCache:
    """The prepared waits and signals of one queue.

    Attributes
    ----------
    waits, signals : dict
        Prepared appends by the state of one semaphore, or by the tuple of states of a batch.
    """

    def __init__(self, queue: CompletionTracker) -> None:
        self._queue = queue
        self.waits: dict[object, PreparedAppend] = {}
        self.signals: dict[object, PreparedAppend] = {}
        self._batches: dict[tuple[str, SemaphoreState], tuple[object, ...]] = {}
        self._many = _MANY

    def make(self, operation: Literal["wait", "signal"], states: Sequence[SemaphoreState]) -> PreparedAppend | None:
        """Let the driver prepare an append.

        Returns
        -------
        PreparedAppend or None
            None if each append must check more than its values: the device limits the difference of values, or a
            semaphore is not a timeline.
        """
        queue, device_state = self._queue, self._queue.device_state
        if (
            device_state.capabilities.max_value_difference != UINT64_MAX
            or any(state.kind is not SemaphoreKind.TIMELINE for state in states)
        ):
            return None
        tokens: list[Token] = [state.token for state in states]
        releaser = device_state.releaser
        with queue.lifetime.held(), device_state.calling(), queue.lock:
            if operation == "wait":
                return PreparedAppend(queue, releaser, states, queue.driver.prepare_wait(tokens), device_state.gate)
            return prepared_signal(queue, releaser, states, queue.driver.prepare_signal(tokens))

    def find_batch(self, operation: Literal["wait", "signal"], semaphores: Any) -> PreparedAppend | None:
        """Return the prepared append of a list or tuple of semaphores; None if unknown, or for another argument."""
        if type(semaphores) is not list and type(semaphores) is not tuple:
            return None
        try:
            return self._entries(operation).get(tuple(map(_state_of, semaphores)))
        except (AttributeError, TypeError):
            return None

    def remember(
        self, operation: Literal["wait", "signal"], states: Sequence[SemaphoreState], params: object
    ) -> None:
        """Prepare the next append of these semaphores, after an ordinary one whose `params` were only ints.

        A batch is prepared when it comes a second time. Preparing a batch that never returns costs as much as several
        appends.
        """
        values = params if isinstance(params, Sequence) else (params,)
        if self._queue.recording or self._queue.closed or set(map(type, values)) != {int}:
            return
        entries = self._entries(operation)
        key: object = states[0] if len(states) == 1 else tuple(states)
        known = entries.get(key)
        if known is not None and not known.dropped:
            return
        if len(states) > 1 and not states[0].seen_before(hash((operation, self._queue, key))):
            return
        try:
            prepared = self.make(operation, states)
        except XsemError:
            return  # the append itself succeeded; the next append is an ordinary one, and raises the error if any
        if prepared is None:
            return
        if len(states) > 1:
            self._make_room(operation, states[0], key)
        if len(entries) >= self._many:
            for other, old in entries.copy().items():   # a copy, because another thread may append meanwhile
                if old.closed:
                    self._drop(entries, other)
            for begin in self._batches.copy():
                if not any(each in self._entries(begin[0]) for each in self._batches[begin]):
                    self._batches.pop(begin, None)
            self._many = max(_MANY, 2 * len(entries))
        entries[key] = prepared

    def _make_room(self, operation: str, first: SemaphoreState, key: object) -> None:
        entries = self._entries(operation)
        batches = tuple(each for each in self._batches.get((operation, first), ()) if each in entries)
        if len(batches) >= _MOST_BATCHES:
            self._drop(entries, batches[0])
        self._batches[operation, first] = (*batches[1 - _MOST_BATCHES:], key)

    @staticmethod
    def _drop(entries: dict[object, PreparedAppend], key: object) -> None:
        old = entries.get(key)
        if old is not None:
            old.dropped = True
            entries.pop(key, None)

    def _entries(self, operation: str) -> dict[object, PreparedAppend]:
        return self.waits if operation == "wait" else self.signals
