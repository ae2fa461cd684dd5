"""What semaphores note of a wait or a signal before the driver is called, and take back where it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from xsem.claims import Claim
from xsem.state import SemaphoreState
from xsem.types import Kind

__all__ = ["Note", "Noted"]


class Noted:
    """What semaphores take note of for one append, before the driver is called, so that it can be taken back."""

    __slots__ = ("_claim", "_signalled", "_turning", "_waiting")

    def __init__(self, claim: Claim) -> None:
        # Each semaphore is in a list before it takes note: an interrupt can come in between, not the other way round.
        self._claim = claim
        self._signalled: list[tuple[SemaphoreState, int, int | None]] = []
        self._turning: list[SemaphoreState] = []
        self._waiting: list[SemaphoreState] = []

    def wait(self, state: SemaphoreState, *, resets: bool) -> None:
        """A wait. Where it does not reset a binary semaphore, it claims it until that is marked as reset."""
        if state.kind is Kind.SYNC_FILE:
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
        """A signal; the value before it. Of two threads with rising values the lower one must not be appended last."""
        previous = None
        if state.kind is Kind.SYNC_FILE:
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
        """Nothing was appended."""
        for state, value, previous in reversed(self._signalled):
            state.restore(value, previous)
        for state in self._turning:
            state.take_back(self._claim)
        for state in self._waiting:
            state.mark_reset()


Note: TypeAlias = Callable[[Noted], None]
"""Has semaphores take note, one after the other. Raises where one of them refuses."""
