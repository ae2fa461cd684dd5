"""What has been appended to one native queue: one `Book` for each, shared by all lists that wrap it."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Literal, overload

from xsem.entries import Entry, Operation, Targets
from xsem.errors import WouldBlockError, XsemError
from xsem.forks import Clock
from xsem.lifetime import Record
from xsem.plain import Plain, out_of_range
from xsem.progress import Progress
from xsem.session import Point, Session
from xsem.spi import CommandListDriver, Token

__all__ = ["Book"]

_OPEN: Final[AbstractContextManager[None]] = nullcontext()
_now = time.monotonic


class Book(Progress):
    """The books of one native queue.

    Attributes
    ----------
    recorded : list of Entry
        What was appended while `recording`.
    recorded_uses : list of Record
        What that uses, held.
    wrappers : set of CommandList
    """

    def __init__(self, session: Session, driver: CommandListDriver, name: str, *, borrowed: bool) -> None:
        super().__init__(session, driver, name, borrowed=borrowed)
        self.recorded: list[Entry] = []
        self.recorded_uses: list[Record] = []
        self.wrappers: weakref.WeakSet[object] = weakref.WeakSet()

    # ---- appending
    @overload
    def append(
        self, operation: Operation, issue: Callable[[bool], Token | None], *, records: Sequence[Record] = (),
        targets: Targets = (), kept: Sequence[Point] = (), want_point: Literal[True], rewinds: bool = False,
        waits: bool = False, signals: Targets = (), reenters: bool = False,
    ) -> Point: ...
    @overload
    def append(
        self, operation: Operation, issue: Callable[[bool], Token | None], *, records: Sequence[Record] = (),
        targets: Targets = (), kept: Sequence[Point] = (), want_point: bool = False, rewinds: bool = False,
        waits: bool = False, signals: Targets = (), reenters: bool = False,
    ) -> Point | None: ...
    def append(
        self, operation: Operation, issue: Callable[[bool], Token | None], *, records: Sequence[Record] = (),
        targets: Targets = (), kept: Sequence[Point] = (), want_point: bool = False, rewinds: bool = False,
        waits: bool = False, signals: Targets = (), reenters: bool = False,
    ) -> Point | None:
        """Hand one operation to the driver and note it; the point if `want_point`.

        `waits`: it can hold the queue though it is no wait; `signals`: what it signals though it is no signal.
        `reenters`: `issue` may append to this list itself.

        Raises
        ------
        ReleasedError, WouldBlockError, and what the driver raises
            Nothing was appended.
        """
        gate = self.session.gate if waits or kept or operation == "wait" else None
        crowded = gate is not None and self.session.releaser.crowded
        if crowded and gate is not None:
            self.session.releaser.use_moment(gate)
        with self.lock, _OPEN if gate is None else gate.appending():
            seq = self.seq = self.seq + 1
            try:
                # The list itself before anything is asked of its driver: from here on nobody closes it under us.
                self.record.use(self, seq)
                self.raise_failure()
                foreign = bool(kept) and any(point.book is None for point in kept)
                self.exposed = self.exposed or foreign
                captured = self.recording or (self.exposed and self.driver.capturing())
                if not captured:
                    self._check_room()
                for record in records:
                    record.use(self, seq)
                    if self.recording:
                        record.hold()
                        self.recorded_uses.append(record)
                outer, self._issuing = self._issuing, not reenters
                try:
                    token = issue(want_point)
                finally:
                    self._issuing = outer
            except XsemError:
                if self.seq == seq:
                    self.not_appended(seq)
                raise
            finally:
                if self.seq != seq:
                    # Work that appended to its own list is done after what it appended.
                    seq = self.seq = self.seq + 1
                    self.record.uses[self] = seq
                self._issued = seq
            # A wait for an event of a capture takes this queue into that capture.
            captured = captured or (foreign and self.driver.capturing())
            entry = Entry(seq, operation, targets, kept, None, rewinds, signals)
            if captured:
                # It runs when the graph is launched, as often as that is; no marker can tell.
                if self.recording:
                    self.recorded.append(entry)
                else:
                    for record in records:
                        record.pin()
                return Point(self.session, token, self, seq, captured=True) if want_point else None
            self._slots += 1
            if waits or kept or operation == "wait":
                self._last_wait = seq
            point = entry.point = Point(self.session, token, self, seq) if want_point else None
            self.entries.append(entry)
            if point is not None:
                self._note_marker(point)
            elif crowded:
                # Directly behind the wait: so the next look knows whether it is met.
                self._try_mark()
        self.keep_up()
        return point

    def append_plain(self, plain: Plain, values: Any, user: Record) -> bool:
        """The same for what was checked once; False where something is not as usual: `append` says what, or does it.

        In one piece, without a call that it can do without: this is what an application does for each frame. `user` is
        the record of the list that it is done through.

        Raises
        ------
        What the driver raises
            Nothing was appended.
        """
        session = self.session
        if session.generation != Clock.now:
            return False  # before the lock: in a forked child a thread that is not there may hold it
        releaser = session.releaser
        if releaser.jobs:
            releaser.drain()
        lock = self.lock
        try:
            # Not `with`, which takes longer than most of what is done inside. Inside `try`, as Ctrl-C can come between
            # this and the next line.
            lock.acquire()
            record = self.record
            # The notes come first, as in `Record.use`: of a release at the same time, it sees them or we see it. The
            # list's own before the others': on a list that is closed nobody would learn of their end.
            seq = self.seq = self.seq + 1
            record.uses[self] = seq
            if record.released:
                self._issued = seq
                return False
            plain.last_seq = seq
            outer, self._issuing = self._issuing, True
            try:
                if (
                    user.released or plain.dropped or self.recording or self.failure is not None
                    or (plain.seen != releaser.releases and plain.released())
                    or (self.exposed and self.driver.capturing())
                    or (self._slots >= self._due and self._room() <= 1)
                ):
                    return False
                gate = plain.gate
                if gate is not None:
                    if releaser.crowded:
                        return False  # `append` looks first whether this is a moment to free something
                    # `gate.appending` without its lock: whoever is about to release looks at this after it closed the
                    # gate, so one of the two sees the other.
                    self._last_wait = seq
                    if gate.closed:
                        return False
                    plain.call(values)
                elif not plain.append(values):
                    return False
            except XsemError as error:
                session.blame(error)
                raise
            except ValueError as error:
                return out_of_range(error)
            finally:
                self._issuing = outer
                if self.seq != seq:
                    seq = plain.last_seq = self.seq = self.seq + 1
                    record.uses[self] = seq
                self._issued = seq
            self._slots += 1
            self.entries.append((seq, plain, values, _now()))
        finally:
            try:  # noqa: SIM105 - contextlib.suppress takes longer than a lock does
                lock.release()
            except RuntimeError:
                pass  # Ctrl-C came while another thread had it
        if self._slots > self._due:
            self.keep_up()
        return True

    def _check_room(self) -> None:
        # The last place is kept for the marker behind all the rest: without it nobody would learn of any progress.
        if self._room() > 1 or self._limit is None:
            return
        self.poll()
        if self._room() > 1 or self._last_wait <= self.done_seq:
            return
        self._try_mark()
        raise WouldBlockError(
            f"{self._slots - self._done_slots} operations are pending on {self.name} behind a wait that is not known "
            "to be met; the driver would hold this thread in the next append",
            reason="would_block",
            likely_causes=("the signal that the wait needs was never submitted",
                           "the host runs too far ahead: synchronize() now and then"),
        )
