"""Signals that were appended and are not known to be done."""

from __future__ import annotations

from xsem.session import Session
from xsem.state import SemaphoreState
from xsem.types import Feature

__all__ = ["queued_signal"]


def queued_signal(session: Session, state: SemaphoreState) -> tuple[str, int | None] | None:
    """List and value of a signal of this timeline that was appended here and may not be done; None where all are done.

    A timeline that has a signal's value has had the signal: the lists are asked only where the value does not tell.
    """
    uses = [(use, seq) for use, seq in state.record.uses.copy().items() if use.done_seq < seq]
    if not uses:
        return None
    found = _find(session, state)
    if found is not None:
        for use, seq in uses:
            use.cover(seq)
            use.poll()
        found = _find(session, state)
    return found


def _find(session: Session, state: SemaphoreState) -> tuple[str, int | None] | None:
    pending = [
        (book.name, value, entry.rewinds)
        for book in session.live_books() for entry in book.pending()
        for target, value in (entry.targets if entry.operation == "signal" else entry.signals) if target is state
    ]
    if not pending:
        return None
    now = session.driver.semaphore_value(state.token) if Feature.READ_VALUE in session.capabilities.features else -1
    return next(((name, value) for name, value, rewinds in pending if rewinds or value is None or value > now), None)
