"""What is pending on a device, and why a wait ran out: the books turned into data and sentences."""

from __future__ import annotations

import bisect
import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from xsem.errors import ReleasedError, WaitTimeoutError, XsemError
from xsem.runtime.completion import Progress
from xsem.runtime.device_state import Session
from xsem.runtime.entries import Entry
from xsem.runtime.prepared_append import PlainEntry
from xsem.runtime.semaphore_state import SemaphoreState
from xsem.types import Feature, Kind, PendingOp

if TYPE_CHECKING:
    from xsem.runtime.queue import Book

__all__ = ["Stuck", "book_pending", "host_wait_timeout", "overdue_lists", "recorded_lists", "session_pending",
           "timeout_error"]

Stuck: TypeAlias = tuple[str, int, list[PendingOp]]
"""A stuck list: its name, the number of the operation that holds it, and its pending operations."""


def session_pending(session: Session) -> tuple[PendingOp, ...]:
    """All that is not known to be done on a device, list by list, oldest first in each; nothing once it is released."""
    with contextlib.suppress(ReleasedError), session.calling():
        look = _Look(session)
        return tuple(op for book in session.live_books() for _, _, ops in _stuck(book, look) for op in ops)
    return ()


def overdue_lists(session: Session, after_s: float) -> list[Stuck]:
    """Lists with an operation that is pending for `after_s` seconds or more, according to the driver.

    The driver may block this thread as long as a wait is unmet, for example in a kernel's first launch behind it.
    """
    found: list[Stuck] = []
    with contextlib.suppress(ReleasedError), session.calling():
        look = _Look(session)
        for book in sorted(_overdue(session, after_s), key=lambda book: not book.may_wait):
            # A marker is appended under the list's lock. If the driver blocks this thread there, the lock must not be
            # that of a list which gets the missing signal. So the lists with waits come first.
            if book.may_wait or not found:
                found += _stuck(book, look)
    return found


def recorded_lists(session: Session, after_s: float) -> list[Stuck]:
    """Like `overdue_lists`, from xsem's own records: no driver call, and no lock that an append holds during one."""
    look = _Look(session, ask=False)
    return [(book.name, entries[0].seq, list(look.describe(book, entries)))
            for book in _overdue(session, after_s) if (entries := book.pending())]


def _overdue(session: Session, after_s: float) -> list[Book]:
    limit = time.monotonic() - after_s
    return [book for book in session.live_books()
            if (entries := book.pending()) and entries[0].appended_at <= limit]


def _stuck(book: Progress, look: _Look) -> list[Stuck]:
    book.cover(book.seq)
    book.poll()
    entries = _not_done(book.pending(), look)
    return [(book.name, entries[0].seq, list(look.describe(book, entries)))] if entries else []


def book_pending(session: Session, book: Progress, up_to: int) -> list[PendingOp]:
    """Pending operations of a queue up to operation `up_to`, after a wait for that timed out.

    The operation that holds the others comes first, if it can be identified.
    """
    with contextlib.suppress(ReleasedError), session.calling():
        look = _Look(session)
        book.poll()
        entries = [entry for entry in book.pending() if entry.seq <= up_to]
        # Whatever the values say, the last one was not done when the time was over.
        return list(look.describe(book, _not_done(entries, look) or entries[-1:]))
    return []


def timeout_error(
    session: Session, what: str, timeout_s: float | None, pending: Sequence[PendingOp]
) -> WaitTimeoutError:
    """The error for a host wait that ran out, with the stuck operation in words."""
    message = f"{what} was not done within {timeout_s:g} s" if timeout_s is not None else f"{what} was not done"
    causes: list[str] = []
    if pending:
        head, doubtful = pending[0], _doubtful(pending)
        if doubtful:
            message += (f"; one of {len(pending)} operations is stuck, and {session.info.id} cannot tell which: the "
                        f"first is {_sentence(head)}, the last wait is {_sentence(doubtful[-1])}")
            causes += _causes_of_one(doubtful)
        else:
            message += f"; pending first: {_sentence(head)}"
            if len(pending) > 1:
                message += f" (and {len(pending) - 1} more behind it)"
            causes += _causes(head)
        if doubtful or (_waits(head.operation) and head.semaphore is not None):
            causes += session.driver.timeout_causes
    return WaitTimeoutError(message, pending=tuple(pending), backend=session.info.backend, likely_causes=tuple(causes))


def host_wait_timeout(
    session: Session, state: SemaphoreState, value: int | None, timeout_s: float | None, age_s: float
) -> WaitTimeoutError:
    """The error for `Semaphore.host_wait`."""
    for book in session.live_books():
        book.poll()
    look = _Look(session)
    op = PendingOp(
        operation="wait",
        semaphore=state.described,
        value=value,
        current_value=look.value(state),
        last_signalled_here=state.last_signalled,
        command_list="host",
        age_s=age_s,
        possible_signallers=look.signallers(state, value, None, None),
    )
    return timeout_error(session, f"the host's wait for {state.described}", timeout_s, (op,))


class _Look:
    """What one report needs to know of a device, each thing found out once."""

    def __init__(self, session: Session, *, ask: bool = True) -> None:
        self._session = session
        self._ask = ask
        self._can_read = Feature.READ_VALUE in session.capabilities.features
        self._values: dict[SemaphoreState, int | None] = {}
        self._signals: dict[SemaphoreState, list[_Signals]] | None = None

    # ---- values
    def value(self, state: SemaphoreState) -> int | None:
        """A timeline's value now; None if neither the device nor an exporter in this process can read it."""
        if not self._ask or state.kind is not Kind.TIMELINE:
            return None
        if state not in self._values:
            self._values[state] = self._read(state)
        return self._values[state]

    def _read(self, state: SemaphoreState) -> int | None:
        if not self._can_read:
            return None if state.origin is None else state.origin.value()
        # It may be released and waiting to be freed: that must not happen in the midst of this.
        with state.record.visited() as there:
            if there:
                with contextlib.suppress(XsemError), self._session.driver.quiet():
                    return self._session.driver.semaphore_value(state.token)
        return None

    # ---- reports
    def describe(self, book: Progress, entries: Sequence[Entry | PlainEntry]) -> Iterator[PendingOp]:
        """The entries as data."""
        now = time.monotonic()
        for entry in entries:
            for state, value in entry.targets or ((None, None),):
                yield PendingOp(
                    operation=entry.operation,
                    semaphore=None if state is None else state.described,
                    value=value,
                    current_value=None if state is None else self.value(state),
                    last_signalled_here=None if state is None else state.last_signalled,
                    command_list=book.name,
                    age_s=now - entry.appended_at,
                    possible_signallers=(
                        self.signallers(state, value, book, entry) if state and _waits(entry.operation) else ()
                    ),
                )

    def signallers(
        self, state: SemaphoreState, value: int | None, book: Progress | None, wait: Entry | PlainEntry | None
    ) -> tuple[str, ...]:
        """Who could satisfy a wait, as far as this process can know."""
        if self._signals is None:
            self._signals = self._find_signals()
        found: list[str] = []
        for signals in self._signals.get(state, ()):
            # The first of a list is the one that matters; a frame loop has hundreds behind it.
            first = signals.first(value)
            if first is not None:
                seq, signalled = first
                behind = signals.book is book and wait is not None and seq > wait.seq
                what = "signal" if signalled is None else f"signal of {signalled}"
                found.append(f"{signals.book.name} ({what} {_BEHIND if behind else 'pending'})")
        if state.imported:
            found.append("the exporter, or another importer of its handle")
        elif state.exported:
            found.append("an importer of the exported handle")
        return tuple(dict.fromkeys(found))

    def _find_signals(self) -> dict[SemaphoreState, list[_Signals]]:
        found: dict[SemaphoreState, list[_Signals]] = {}
        for book in self._session.live_books():
            here: dict[SemaphoreState, _Signals] = {}
            for entry in book.pending():
                for state, value in entry.targets if entry.operation == "signal" else entry.signals:
                    if state not in here:
                        here[state] = _Signals(book)
                        found.setdefault(state, []).append(here[state])
                    here[state].add(entry.seq, value)
        return found


class _Signals:
    """The signals of one semaphore that are pending on one list, oldest first."""

    def __init__(self, book: Progress) -> None:
        self.book = book
        self._signals: list[tuple[int, int | None]] = []
        self._highest: list[float] = []  # so far: rises, so that it can be searched, also where the values went back

    def add(self, seq: int, value: int | None) -> None:
        self._signals.append((seq, value))
        reach = math.inf if value is None else value
        self._highest.append(max(reach, self._highest[-1]) if self._highest else reach)

    def first(self, value: int | None) -> tuple[int, int | None] | None:
        """Number and value of the first that satisfies a wait for `value`."""
        at = 0 if value is None else bisect.bisect_left(self._highest, value)
        return self._signals[at] if at < len(self._signals) else None


def _not_done(entries: Sequence[Entry | PlainEntry], look: _Look) -> Sequence[Entry | PlainEntry]:
    """The entries from the first on that is not known to be done. A queue is in order: what precedes that is done."""
    unmet = next((at for at, entry in enumerate(entries) if _is_unmet_wait(entry, look)), len(entries))
    start = max(_reached(entries, unmet), _left_its_value(entries, unmet, look))
    # From here on a value may have come from somebody else, so it counts only where no wait can hold the list.
    at = start
    while at < unmet:
        entry = entries[at]
        if entry.kept or (_waits(entry.operation) and entry.targets):
            if not _is_met(entry, look):
                break
            if entry.operation == "wait":
                start = at + 1 if start == at else start
        if entry.operation == "signal" and _passed(entry, look):
            start = at + 1
        at += 1
    return entries[start:]


def _reached(entries: Sequence[Entry | PlainEntry], end: int) -> int:
    """Up to where the points of operations with events of their own are reached."""
    marked = [(at, entry.point) for at, entry in enumerate(entries[:end]) if entry.point is not None]
    with contextlib.suppress(XsemError):
        count = bisect.bisect_left(marked, True, key=lambda each: not each[1].done())
        return marked[count - 1][0] + 1 if count else 0
    return 0


def _left_its_value(entries: Sequence[Entry | PlainEntry], end: int, look: _Look) -> int:
    """Up to where a timeline has the very value that one of these operations gives it: nobody else signals that one."""
    for at in range(end, 0, -1):
        entry = entries[at - 1]
        if _passed(entry, look) and any(look.value(state) == value for state, value in entry.targets):
            return at
    return 0


def _waits(operation: str) -> bool:
    """Whether what it names semaphores for is a wait: a replay is work, and names those that it waits for."""
    return operation in ("wait", "work")


def _passed(entry: Entry | PlainEntry, look: _Look) -> bool:
    return (
        entry.operation == "signal" and not entry.rewinds and bool(entry.targets)
        and all(_at_least(look.value(state), value) for state, value in entry.targets)
    )


def _is_met(entry: Entry | PlainEntry, look: _Look) -> bool:
    if _waits(entry.operation) and not all(_at_least(look.value(state), value) for state, value in entry.targets):
        return False
    with contextlib.suppress(XsemError):
        return all(point.done() for point in entry.kept)
    return False


def _is_unmet_wait(entry: Entry | PlainEntry, look: _Look) -> bool:
    if not _waits(entry.operation):
        return False
    for state, value in entry.targets:
        current = look.value(state)
        if current is not None and value is not None and current < value:
            return True
    return False


def _at_least(current: int | None, value: int | None) -> bool:
    return current is not None and value is not None and current >= value


def _doubtful(pending: Sequence[PendingOp]) -> list[PendingOp]:
    """Waits that may each be the unmet one; empty if there is only one candidate."""
    head = pending[0]
    if _waits(head.operation) and None not in (head.value, head.current_value):
        return []
    unknown = [op for op in pending if _waits(op.operation) and op.semaphore is not None and op.current_value is None]
    # The waits of one batch have the same age.
    return unknown if any(op.age_s != head.age_s for op in unknown) else []


def _causes_of_one(waits: Sequence[PendingOp]) -> list[str]:
    who = dict.fromkeys(who for op in waits for who in op.possible_signallers if _BEHIND not in who)
    if not who:
        return _causes(waits[0])
    return ["the signal that one of these waits needs has not been submitted (Level Zero external semaphores, rule 5: "
            "producer first) by: " + ", ".join(who)]


_BEHIND = "behind this very wait"
_PENDING = " pending)"


def _fell(op: PendingOp) -> bool:
    """Whether the signal for this wait was appended here and is done, but the value is below it now."""
    now, last = op.current_value, op.last_signalled_here
    return (
        now is not None and last is not None and op.value is not None and now < op.value <= last
        and not any(_PENDING in who or _BEHIND in who for who in op.possible_signallers)
    )


def _sentence(op: PendingOp) -> str:
    text = f"{op.operation}"
    if op.semaphore is not None:
        text += f" {op.semaphore}"
    if op.value is not None:
        text += f" {'>=' if _waits(op.operation) else '='} {op.value}"
    if op.semaphore is not None:
        now = "unknown" if op.current_value is None else str(op.current_value)
        here = "nothing" if op.last_signalled_here is None else str(op.last_signalled_here)
        text += f" (now {now}, last signalled here {here})"
    return f"{text} on {op.command_list}, {op.age_s:.1f} s old"


def _causes(op: PendingOp) -> list[str]:
    if op.semaphore is None or not _waits(op.operation):
        return ["the device is still busy with it, or something outside this list holds it"]
    if _fell(op):
        fell = f"a signal of {op.current_value} was done after one of {op.last_signalled_here}"
        return [f"{fell}: lists that signal one timeline are not in order with each other; have one wait for the other"]
    if not op.possible_signallers:
        return [f"nobody known here can signal {op.semaphore}: no signal was appended, nor its handle exported"]
    causes = []
    if all(_BEHIND in who for who in op.possible_signallers):
        causes.append("the only signal known is queued behind the wait that needs it: append the signal first (Level "
                      "Zero external semaphores, rule 5: producer first)")
    else:
        causes.append("its signal has not been submitted (Level Zero external semaphores, rule 5: producer first) by: "
                      + ", ".join(op.possible_signallers))
    if op.current_value and op.value is not None and op.current_value < op.value:
        causes.append(f"the signaller stopped at {op.current_value}, or counts differently")
    return causes
