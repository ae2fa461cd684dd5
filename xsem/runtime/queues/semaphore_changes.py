"""Changes of semaphore state for one wait or signal. They precede the driver's call and are undone if it refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from xsem.runtime.claims import Claim
from xsem.runtime.queues.completion import CompletionTracker
from xsem.runtime.semaphore_state import SemaphoreState
from xsem.types import SemaphoreKind, SignalParams

__all__ = ["Note", "StateChanges", "note_signal", "note_wait"]


class StateChanges:
    """Changes of semaphore state for one append. They precede the driver's call and can be undone."""

    __slots__ = ("_claim", "_signalled", "_turning", "_waiting")

    def __init__(self, claim: Claim) -> None:
        # Each semaphore is listed before its state changes. Undoing a change that Ctrl-C prevented has no effect.
        self._claim = claim
        self._signalled: list[tuple[SemaphoreState, int, int | None]] = []
        self._turning: list[SemaphoreState] = []
        self._waiting: list[SemaphoreState] = []

    def wait(self, state: SemaphoreState, *, resets: bool) -> None:
        """Note a wait. A binary semaphore that the wait does not reset refuses further waits until `mark_reset`.

        Raises
        ------
        BusyError
            ``not_reset``, ``nothing_signalled``, ``sync_file_used``.
        """
        if state.kind is SemaphoreKind.SYNC_FILE:
            self._turning.append(state)
            state.claim_use(self._claim)
        elif not resets:
            with state.lock:
                state.check_reset()
                self._waiting.append(state)
                state.claim_wait()

    def signal(
        self, state: SemaphoreState, value: int | None, *, allow_rewind: bool, limit: int
    ) -> int | None:
        """Note a signal, and return the timeline's value before it.

        The check and the change happen under one lock. If two threads signal, a lower value that comes second is
        refused.

        Raises
        ------
        BadArgumentError
            ``value_not_above_last``, ``value_difference``.
        BusyError
            ``signalled_already``.
        """
        previous = None
        if state.kind is SemaphoreKind.SYNC_FILE:
            self._turning.append(state)
            state.claim_signal(self._claim)
        elif value is not None:
            with state.lock:
                state.check_advance(value, allow_rewind=allow_rewind, limit=limit)
                previous = state.current()
                self._signalled.append((state, value, previous))
                state.rewound = state.rewound or (previous is not None and value <= previous)
                state.last = value
        return previous

    def take_back(self) -> None:
        """Undo all changes: the driver did not get the operation, or refused it."""
        for state, value, previous in reversed(self._signalled):
            state.restore(value, previous)
        for state in self._turning:
            state.take_back(self._claim)
        for state in self._waiting:
            state.mark_reset()


Note: TypeAlias = Callable[[StateChanges], None]
"""A function that changes the state of an append's semaphores, one after the other. It raises if one refuses."""


def note_wait(queue: CompletionTracker, states: Sequence[SemaphoreState]) -> Note:
    """Return the note of a wait for these semaphores."""
    resets = queue.device_state.capabilities.resets_on_wait

    def note(changes: StateChanges) -> None:
        for state in states:
            changes.wait(state, resets=resets)

    return note


def note_signal(queue: CompletionTracker, states: Sequence[SemaphoreState], params: Sequence[SignalParams]) -> Note:
    """Return the note of a signal of these semaphores."""
    limit = queue.device_state.capabilities.max_value_difference

    def note(changes: StateChanges) -> None:
        for state, param in zip(states, params, strict=True):
            # A recorded signal takes effect only in the replays. Each replay makes its own note.
            changes.signal(state, None if queue.recording else param.value, allow_rewind=param.allow_rewind,
                           limit=limit)

    return note
