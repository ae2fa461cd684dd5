"""Notes for waits and signals: the changes of semaphore state that go with an append."""

from __future__ import annotations

from collections.abc import Sequence

from xsem.runtime.queue import Queue
from xsem.runtime.semaphore_changes import Note, StateChanges
from xsem.runtime.semaphore_state import SemaphoreState
from xsem.types import SignalParams

__all__ = ["note_signal", "note_wait"]


def note_wait(queue: Queue, states: Sequence[SemaphoreState]) -> Note:
    """Return the note of a wait for these semaphores."""
    resets = queue.device_state.capabilities.resets_on_wait

    def note(changes: StateChanges) -> None:
        for state in states:
            changes.wait(state, resets=resets)

    return note


def note_signal(queue: Queue, states: Sequence[SemaphoreState], params: Sequence[SignalParams]) -> Note:
    """Return the note of a signal of these semaphores."""
    limit = queue.device_state.capabilities.max_value_difference

    def note(changes: StateChanges) -> None:
        for state, param in zip(states, params, strict=True):
            # A recorded signal takes effect in the replays only; each replay makes its own note.
            changes.signal(state, None if queue.recording else param.value, allow_rewind=param.allow_rewind,
                           limit=limit)

    return note
