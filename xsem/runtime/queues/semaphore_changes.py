"""Changes of semaphore state for one append, undone if the driver refuses the operation."""

from __future__ import annotations

from xsem.runtime.claims import Claim
from xsem.runtime.semaphore_state import SemaphoreState
from xsem.types import SemaphoreKind

__all__ = ["StateChanges"]


class StateChanges:
    """Changes of semaphore state for one append. The changes precede the driver's call. `take_back` undoes them."""

    __slots__ = ("_claim", "_ordered", "_signalled", "_turning", "_waiting")

    def __init__(self, claim: Claim) -> None:
        # Each semaphore is listed before its state changes. Undoing a change that Ctrl-C prevented has no effect.
        self._claim = claim
        self._signalled: list[tuple[SemaphoreState, int, int | None]] = []
        self._turning: list[SemaphoreState] = []
        self._ordered: list[tuple[SemaphoreState, bool]] = []
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
            return
        if state.signal_first:
            self._ordered.append((state, state.take_signal()))
        if not resets:
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
        elif state.signal_first:
            self._ordered.append((state, state.put_signal()))
        elif value is not None:
            with state.lock:
                state.check_advance(value, allow_rewind=allow_rewind, limit=limit)
                previous = state.last
                self._signalled.append((state, value, previous))
                state.rewound = state.rewound or (previous is not None and value <= previous)
                state.last = value
        return previous

    def take_back(self) -> None:
        """Undo all changes, because the driver did not get the operation or refused it."""
        for state, value, previous in reversed(self._signalled):
            state.restore(value, previous)
        for state in self._turning:
            state.take_back(self._claim)
        for state, there in reversed(self._ordered):
            state.put_signal(there)
        for state in self._waiting:
            state.mark_reset()
