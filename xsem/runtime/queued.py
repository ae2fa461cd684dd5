"""Pending signals: appended, and not known to be done."""

from __future__ import annotations

from xsem.runtime.device_state import Session
from xsem.runtime.semaphore_state import SemaphoreState
from xsem.types import Feature

__all__ = ["queued_signal"]


def queued_signal(session: Session, state: SemaphoreState, last: int) -> tuple[str, int | None] | None:
    """Find a pending signal of this timeline: name of the list, and value; None if all signals are done.

    A timeline that has reached the value of a signal has received that signal. One read of the value is therefore
    enough, unless a signal is pending or the values went back here.

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
    """The value of the timeline; -1 if the device cannot read it."""
    return session.driver.semaphore_value(state.token) if Feature.READ_VALUE in session.capabilities.features else -1


def _find(session: Session, state: SemaphoreState, now: int) -> tuple[str, int | None] | None:
    for book in session.live_books():
        for entry in book.pending():
            for target, value in entry.targets if entry.operation == "signal" else entry.signals:
                if target is state and (value is None or value > now or entry.rewinds):
                    return book.name, value
    return None
