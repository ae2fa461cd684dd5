"""Changes of semaphore state for one append, undone if the driver refuses the operation."""

from __future__ import annotations

from typing import Self

from xsem.runtime.semaphore_state import SemaphoreState
from xsem.types import SemaphoreKind

__all__ = ["StateChanges"]


class StateChanges:
    """Changes of semaphore state for one append or host signal: made before the driver call, undone if it fails."""

    __slots__ = ("_ordered", "_signalled", "_turned", "_waiting")

    def __init__(self) -> None:
        self._signalled: list[tuple[SemaphoreState, int, int | None]] = []
        self._turned: list[SemaphoreState] = []   # sync files
        self._ordered: list[tuple[SemaphoreState, bool]] = []
        self._waiting: list[SemaphoreState] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Undo the changes, because one of them was refused."""
        if exc[1] is not None:
            self.take_back()

    def wait(self, state: SemaphoreState, *, resets: bool) -> None:
        """Note a wait (BusyError: ``not_reset``, ``nothing_signalled``, ``sync_file_used``)."""
        if state.kind is SemaphoreKind.SYNC_FILE:
            state.claim_use()
            self._turned.append(state)
            return
        if state.signal_first:
            self._ordered.append((state, state.require_signal()))
        if not resets:
            state.claim_wait()
            self._waiting.append(state)

    def signal(self, state: SemaphoreState, value: int | None, *, allow_rewind: bool) -> int | None:
        """Note a signal (BadArgumentError, BusyError), and return the timeline's value before it."""
        previous = None
        if state.kind is SemaphoreKind.SYNC_FILE:
            state.claim_signal()
            self._turned.append(state)
        elif state.signal_first:
            self._ordered.append((state, state.note_signal()))
        elif value is not None:
            with state.lock:   # check and change in one: of two threads that signal, the lower value is refused
                state.check_advance(value, allow_rewind=allow_rewind)
                previous = state.last
                self._signalled.append((state, value, previous))
                state.rewound = state.rewound or (previous is not None and value <= previous)
                state.last = value
        return previous

    def settle(self) -> None:
        """Keep the changes, because the driver has the operation."""
        for state in self._turned:
            state.settle()

    def take_back(self) -> None:
        """Undo all changes, because the driver did not get the operation or refused it."""
        for state, value, previous in reversed(self._signalled):
            state.restore(value, previous)
        for state in self._turned:
            state.take_back()
        for state, there in reversed(self._ordered):
            state.note_signal(there)
        for state in self._waiting:
            state.mark_reset()
