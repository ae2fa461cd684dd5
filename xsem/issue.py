"""How a wait or a signal is given to the driver: what its semaphores note first, and take back where it refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TypeAlias

from xsem.books import Book
from xsem.spi import Token
from xsem.state import SemaphoreState
from xsem.types import Kind, SignalParams, WaitParams

__all__ = ["Issue", "issue_signal", "issue_wait"]

Issue: TypeAlias = Callable[[Sequence[Token], Sequence[Token], bool], Token | None]
"""Called under the list's lock with points to wait for, memory that changes hands, and whether a point is wanted."""


def issue_wait(book: Book, states: Sequence[SemaphoreState], params: Sequence[WaitParams]) -> Issue:
    """Where waits do not reset, each semaphore is claimed by this wait until it is marked as reset."""
    tokens = [state.token for state in states]
    append = _around(book.driver.append_wait, [state.using_up for state in _for_sync_files(states)])

    def issue(points: Sequence[Token], memories: Sequence[Token], want: bool) -> Token | None:
        claimed: list[SemaphoreState] = []
        try:
            if not book.session.capabilities.resets_on_wait:
                for state in states:
                    state.claim_wait()
                    claimed.append(state)
            return append(tokens, params, points, memories, want)
        except BaseException:
            for state in claimed:
                state.mark_reset()
            raise

    return issue


def issue_signal(book: Book, states: Sequence[SemaphoreState], params: Sequence[SignalParams]) -> Issue:
    """Each timeline's last value rises: of two threads with rising values the lower one must not be appended last."""
    tokens = [state.token for state in states]
    append = _around(book.driver.append_signal, [state.signalling for state in _for_sync_files(states)])
    limit = book.session.capabilities.max_value_difference

    def issue(points: Sequence[Token], memories: Sequence[Token], want: bool) -> Token | None:
        advanced: list[tuple[SemaphoreState, int, int | None]] = []
        try:
            for state, param in zip(states, params, strict=True):
                # What is recorded is signalled by its replays, which take note then.
                if param.value is not None and not book.recording:
                    previous = state.advance(param.value, allow_rewind=param.allow_rewind, limit=limit)
                    advanced.append((state, param.value, previous))
            return append(tokens, params, points, memories, want)
        except BaseException:
            for state, value, previous in reversed(advanced):
                state.restore(value, previous)
            raise

    return issue


def _around(
    append: Callable[..., Token | None], turns: Sequence[Callable[[], AbstractContextManager[None]]]
) -> Callable[..., Token | None]:
    """The driver's call, with a turn of each of these around it."""
    if not turns:
        return append

    def inside(*arguments: object) -> Token | None:
        with ExitStack() as held:
            for turn in turns:
                held.enter_context(turn())
            return append(*arguments)

    return inside


def _for_sync_files(states: Sequence[SemaphoreState]) -> Sequence[SemaphoreState]:
    """A signal of one is for one wait, or of one that was made here for one export."""
    return [state for state in states if state.kind is Kind.SYNC_FILE]
