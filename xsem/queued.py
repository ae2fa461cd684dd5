"""Signals that were appended and are not known to be done."""

from __future__ import annotations

from xsem.session import Session
from xsem.state import SemaphoreState
from xsem.types import Feature

__all__ = ["queued_signal"]


def queued_signal(session: Session, state: SemaphoreState, last: int) -> tuple[str, int | None] | None:
    """List and value of a signal of this timeline that was appended here and may not be done; None where all are done.

    A timeline that has the value of a signal has had the signal. So it costs one look at the value, however much is
    pending, unless a signal is queued indeed.

    Parameters
    ----------
    last : int
        The value last signalled here.
    """
    uses = [(use, seq) for use, seq in state.record.uses.copy().items() if use.done_seq < seq]
    if not uses:
        return None
    now = _value(session, state)
    if now >= last and not state.rewound:
        return None
    found = _find(session, state, now)
    if found is not None:
        for use, seq in uses:
            use.cover(seq)
            use.poll()
        found = _find(session, state, _value(session, state))
    return found


def _value(session: Session, state: SemaphoreState) -> int:
    """-1 where it cannot be read."""
    return session.driver.semaphore_value(state.token) if Feature.READ_VALUE in session.capabilities.features else -1


def _find(session: Session, state: SemaphoreState, now: int) -> tuple[str, int | None] | None:
    for book in session.live_books():
        for entry in book.pending():
            for target, value in entry.targets if entry.operation == "signal" else entry.signals:
                if target is state and (value is None or value > now or entry.rewinds):
                    return book.name, value
    return None
