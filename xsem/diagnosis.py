"""What is pending on a device, and why a wait ran out: the books turned into data and sentences."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Sequence

from xsem.books import Book, Entry
from xsem.errors import ReleasedError, WaitTimeoutError, XsemError
from xsem.session import Session
from xsem.state import SemaphoreState
from xsem.types import Feature, Kind, PendingOp

__all__ = ["book_pending", "host_wait_timeout", "session_pending", "timeout_error"]


def session_pending(session: Session) -> tuple[PendingOp, ...]:
    """All that is not known to be done on a device, list by list, oldest first in each; nothing once it is released."""
    ops: list[PendingOp] = []
    with contextlib.suppress(ReleasedError), session.calling():
        for book in session.live_books():
            book.cover(book.seq)
            book.poll()
            ops += book_pending(session, book)
    return tuple(ops)


def book_pending(session: Session, book: Book, up_to: int | None = None) -> list[PendingOp]:
    """What is not known to be done on one queue, up to operation `up_to`; the one that holds the rest comes first."""
    reader = _Reader(session)
    entries = [entry for entry in list(book.entries) if up_to is None or entry.seq <= up_to]
    with contextlib.suppress(ReleasedError), session.calling():
        entries = entries[_known_done(entries, reader):]
        while entries and _is_met_wait(entries[0], reader):
            del entries[0]
    now = time.monotonic()
    return [op for entry in entries for op in _ops(session, book, entry, reader, now)]


def timeout_error(
    session: Session, what: str, timeout_s: float | None, pending: Sequence[PendingOp]
) -> WaitTimeoutError:
    """The error for a host wait that ran out, with the stuck operation in words."""
    message = f"{what} was not done within {timeout_s:g} s" if timeout_s is not None else f"{what} was not done"
    causes: list[str] = []
    if pending:
        head = pending[0]
        message += f"; pending first: {_sentence(head)}"
        if len(pending) > 1:
            message += f" (and {len(pending) - 1} more behind it)"
        causes += _causes(head)
    return WaitTimeoutError(message, pending=tuple(pending), backend=session.info.backend, likely_causes=tuple(causes))


def host_wait_timeout(
    session: Session, state: SemaphoreState, value: int | None, timeout_s: float | None, age_s: float
) -> WaitTimeoutError:
    """The error for `Semaphore.host_wait`."""
    op = PendingOp(
        operation="wait",
        semaphore=state.described,
        value=value,
        current_value=_Reader(session).value(state),
        last_signalled_here=state.last_signalled,
        command_list="host",
        age_s=age_s,
        possible_signallers=_signallers(session, state, value, None, None),
    )
    return timeout_error(session, f"the host's wait for {state.described}", timeout_s, (op,))


class _Reader:
    """Timeline values now, each read once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._can = Feature.READ_VALUE in session.capabilities.features
        self._values: dict[int, int | None] = {}

    def value(self, state: SemaphoreState) -> int | None:
        if not self._can or state.kind is not Kind.TIMELINE:
            return None
        key = id(state)
        if key not in self._values:
            self._values[key] = self._read(state)
        return self._values[key]

    def _read(self, state: SemaphoreState) -> int | None:
        # Released by now: it may be freed at any moment, so it is not touched.
        with contextlib.suppress(ReleasedError, XsemError), state.record.held(), self._session.driver.quiet():
            return self._session.driver.semaphore_value(state.token)
        return None


def _known_done(entries: Sequence[Entry], reader: _Reader) -> int:
    """How many entries are certainly done. The queue is in order: what precedes something done is done."""
    for count in range(len(entries), 0, -1):
        if _is_done(entries[count - 1], reader):
            return count
    return 0


def _is_done(entry: Entry, reader: _Reader) -> bool:
    if entry.point is not None:
        with contextlib.suppress(XsemError):
            return entry.point.done()
    # A timeline at or above a value that this very operation sets: timelines do not go back, so it has been set.
    if entry.operation == "signal" and not entry.rewinds and entry.targets:
        return all(_at_least(reader.value(state), value) for state, value in entry.targets)
    return False


def _is_met_wait(entry: Entry, reader: _Reader) -> bool:
    return (
        entry.operation == "wait"
        and not entry.kept
        and all(_at_least(reader.value(state), value) for state, value in entry.targets)
    )


def _at_least(current: int | None, value: int | None) -> bool:
    return current is not None and value is not None and current >= value


def _ops(session: Session, book: Book, entry: Entry, reader: _Reader, now: float) -> Iterable[PendingOp]:
    for state, value in entry.targets or ((None, None),):
        yield PendingOp(
            operation=entry.operation,
            semaphore=None if state is None else state.described,
            value=value,
            current_value=None if state is None else reader.value(state),
            last_signalled_here=None if state is None else state.last_signalled,
            command_list=book.name,
            age_s=now - entry.appended_at,
            possible_signallers=(
                _signallers(session, state, value, book, entry) if entry.operation == "wait" and state else ()
            ),
        )


def _signallers(
    session: Session, state: SemaphoreState, value: int | None, book: Book | None, wait: Entry | None
) -> tuple[str, ...]:
    found: list[str] = []
    for other in session.live_books():
        enough = [
            (entry, signalled)
            for entry in list(other.entries)
            if entry.operation == "signal"
            for target, signalled in entry.targets
            if target is state and (value is None or signalled is None or signalled >= value)
        ]
        if enough:
            # The first of a list is the one that matters; a frame loop has hundreds behind it.
            entry, signalled = enough[0]
            behind = other is book and wait is not None and entry.seq > wait.seq
            what = "signal" if signalled is None else f"signal of {signalled}"
            found.append(f"{other.name} ({what} {'behind this very wait' if behind else 'pending'})")
    if state.imported:
        found.append("the exporter, or another importer of its handle")
    elif state.exported:
        found.append("an importer of the exported handle")
    return tuple(dict.fromkeys(found))


def _sentence(op: PendingOp) -> str:
    text = f"{op.operation}"
    if op.semaphore is not None:
        text += f" {op.semaphore}"
    if op.value is not None:
        text += f" {'>=' if op.operation == 'wait' else '='} {op.value}"
    if op.semaphore is not None:
        now = "unknown" if op.current_value is None else str(op.current_value)
        here = "nothing" if op.last_signalled_here is None else str(op.last_signalled_here)
        text += f" (now {now}, last signalled here {here})"
    return f"{text} on {op.command_list}, {op.age_s:.1f} s old"


def _causes(op: PendingOp) -> list[str]:
    if op.operation != "wait":
        return ["the device is still busy with it, or something outside this list holds it"]
    if not op.possible_signallers:
        return [f"nobody known here can signal {op.semaphore}: no signal was appended, nor its handle exported"]
    causes = []
    if all("behind this very wait" in who for who in op.possible_signallers):
        causes.append("the only signal known is queued behind the wait that needs it: append the signal first (Level "
                      "Zero external semaphores, rule 5: producer first)")
    else:
        causes.append("its signal has not been submitted (Level Zero external semaphores, rule 5: producer first) by: "
                      + ", ".join(op.possible_signallers))
    if op.current_value and op.value is not None and op.current_value < op.value:
        causes.append(f"the signaller stopped at {op.current_value}, or counts differently")
    return causes
