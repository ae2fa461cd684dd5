"""Notes for waits and signals: the changes of semaphore state that go with an append."""

from __future__ import annotations

from collections.abc import Sequence

from xsem.runtime.queue import Book
from xsem.runtime.semaphore_changes import Note, Noted
from xsem.runtime.semaphore_state import SemaphoreState
from xsem.types import SignalParams

__all__ = ["note_signal", "note_wait"]


def note_wait(book: Book, states: Sequence[SemaphoreState]) -> Note:
    """Return the note of a wait for these semaphores."""
    resets = book.session.capabilities.resets_on_wait

    def note(noted: Noted) -> None:
        for state in states:
            noted.wait(state, resets=resets)

    return note


def note_signal(book: Book, states: Sequence[SemaphoreState], params: Sequence[SignalParams]) -> Note:
    """Return the note of a signal of these semaphores."""
    limit = book.session.capabilities.max_value_difference

    def note(noted: Noted) -> None:
        for state, param in zip(states, params, strict=True):
            # A recorded signal takes effect in the replays only; each replay makes its own note.
            noted.signal(state, None if book.recording else param.value, allow_rewind=param.allow_rewind, limit=limit)

    return note
