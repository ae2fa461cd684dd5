"""What has been appended to one native queue: one `Book` for each, shared by all lists that wrap it."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Literal, overload

from xsem.errors import WouldBlockError, XsemError
from xsem.runtime.claims import Claim
from xsem.runtime.completion import Progress
from xsem.runtime.device_state import Point, Session
from xsem.runtime.entries import Entry, Operation, Targets
from xsem.runtime.forks import Clock
from xsem.runtime.lifetime import Record
from xsem.runtime.prepared_append import Plain, PlainFacts
from xsem.runtime.semaphore_changes import Note, Noted
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
        Records of the objects that `recorded` uses, held by `recorded_by`.
    wrappers : set of CommandList
    """

    def __init__(self, session: Session, driver: CommandListDriver, name: str, *, borrowed: bool) -> None:
        super().__init__(session, driver, name, borrowed=borrowed)
        self.recorded: list[Entry] = []
        self.recorded_uses: list[Record] = []
        self.recorded_by: object = None
        self.wrappers: weakref.WeakSet[object] = weakref.WeakSet()

    # ---- appending
    @overload
    def append(
        self, operation: Operation, call: Callable[[bool], Token | None], *, note: Note | None = None,
        records: Sequence[Record] = (), targets: Targets = (), kept: Sequence[Point] = (), want_point: Literal[True],
        rewinds: bool = False, waits: bool = False, signals: Targets = (), reenters: bool = False,
    ) -> Point: ...
    @overload
    def append(
        self, operation: Operation, call: Callable[[bool], Token | None], *, note: Note | None = None,
        records: Sequence[Record] = (), targets: Targets = (), kept: Sequence[Point] = (), want_point: bool = False,
        rewinds: bool = False, waits: bool = False, signals: Targets = (), reenters: bool = False,
    ) -> Point | None: ...
    def append(
        self, operation: Operation, call: Callable[[bool], Token | None], *, note: Note | None = None,
        records: Sequence[Record] = (), targets: Targets = (), kept: Sequence[Point] = (), want_point: bool = False,
        rewinds: bool = False, waits: bool = False, signals: Targets = (), reenters: bool = False,
    ) -> Point | None:
        """Hand one operation to the driver and note it; the point if `want_point`.

        `call` makes the driver's call; its argument is `want_point`. `note` changes the semaphores' state before it.
        The change is undone if the driver refuses. An operation that Ctrl-C interrupts inside `call` counts as
        appended, because the driver may have it.

        `waits`: the operation can hold the queue, although it is not a wait. `signals`: the values that it signals,
        although it is not a signal. `reenters`: `call` itself may append to this list.

        Raises
        ------
        ReleasedError, WouldBlockError, and what the driver raises
            Nothing was appended.
        """
        may_wait = bool(waits or kept or operation == "wait")
        gate = self.session.gate if may_wait else None
        crowded = gate is not None and self.session.releaser.crowded
        if crowded and gate is not None:
            self.session.releaser.use_moment(gate)
        claim = Claim()
        noted, calling = Noted(claim), False
        with self.lock, _OPEN if gate is None else gate.lock:
            entry = Entry(operation, targets, kept, rewinds, signals)
            outer = self._issuing
            # No call between here and `try`: Ctrl-C there would leave a number that is never issued and never done.
            seq = entry.seq = self.seq = self.seq + 1
            try:
                if gate is not None:
                    gate.inside += 1
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
                        self.recorded_uses.append(record)
                        record.hold(self.recorded_by)
                if note is not None:
                    note(noted)
                self._issuing = not reenters
                if not captured:
                    self._slots += 1
                    if may_wait:
                        self._last_wait = seq
                    self.entries.append(entry)
                calling = True
                token = call(want_point)
            except BaseException as error:
                if not calling or isinstance(error, Exception):
                    noted.take_back()
                    self._take_back(entry)
                    if isinstance(error, XsemError) and self.seq == seq:
                        self.not_appended(seq)
                raise
            finally:
                claim.over = True
                if gate is not None:
                    gate.inside -= 1
                self._issuing = outer
                if self.seq != seq:
                    # Work that appended to its own list is done after what it appended.
                    seq = entry.seq = self.seq = self.seq + 1
                    self.record.uses[self] = seq
                self._issued = seq
            if foreign and not captured and self.driver.capturing():
                # A wait for an event of a capture takes this queue into that capture.
                captured = True
                self._take_back(entry)
            if captured:
                # It runs when the graph is launched, as often as that is; no marker can tell.
                if self.recording:
                    self.recorded.append(entry)
                else:
                    for record in records:
                        record.pin()
                return Point(self.session, token, self, seq, captured=True) if want_point else None
            if reenters:
                self._move_to_the_end(entry)
            point = entry.point = Point(self.session, token, self, seq) if want_point else None
            if point is not None:
                self._note_marker(point)
            elif crowded:
                # A marker directly behind the wait tells the next poll whether the wait is met.
                self._try_mark()
        self.keep_up()
        return point

    def _take_back(self, entry: Entry | PlainFacts) -> None:
        """Remove the newest entry: the driver did not get it, or refused it. The lock is held."""
        with contextlib.suppress(ValueError):  # not listed yet, or the list has failed and dropped its entries
            self.entries.remove(entry)
            self._slots -= 1

    def _move_to_the_end(self, entry: Entry) -> None:
        if self.entries and self.entries[-1] is not entry:
            with contextlib.suppress(ValueError):
                self.entries.remove(entry)
            self.entries.append(entry)

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
            outer, self._issuing = self._issuing, True
            try:
                if record.released:
                    return False
                plain.last_seq = seq
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
                        return False  # `append` first calls `Releaser.use_moment`
                    # No gate lock is needed. A release closes the gate before it reads `_last_wait`, so either the
                    # release sees this wait, or this append sees the closed gate.
                    self._last_wait = seq
                    if gate.closed:
                        return False
                # Noted before the driver's call, and taken back, as in `append`.
                noted = (seq, plain, values, _now())
                calling = False
                try:
                    if not plain.note(values):
                        return False
                    self._slots += 1
                    self.entries.append(noted)
                    calling = True
                    plain.call(values)
                except BaseException as error:
                    if not calling or isinstance(error, Exception):
                        self._take_back(noted)
                        plain.take_back(values)
                    if isinstance(error, XsemError):
                        session.blame(error)
                    if type(error) is not ValueError:
                        raise
                    return False  # the bare one of a value that is no unsigned 64-bit int
            finally:
                self._issuing = outer
                if self.seq != seq:
                    seq = plain.last_seq = self.seq = self.seq + 1
                    record.uses[self] = seq
                self._issued = seq
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
