"""What has been appended to one native queue and is not known to be done.

One `Book` per native queue, shared by all lists that wrap it. Ends are seen by markers: a barrier with a point,
appended when something is released, when somebody waits, and once every `MARK_EVERY` operations so that the books stay
flat. An operation's own completion is never asked for.
"""

from __future__ import annotations

import copy
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias, overload

from xsem.errors import BusyError, DriverError, WouldBlockError
from xsem.lifetime import Record
from xsem.session import Point, Session
from xsem.spi import CommandListDriver, Token
from xsem.state import SemaphoreState

__all__ = ["MARK_EVERY", "Book", "Entry", "Operation"]

MARK_EVERY: Final = 256
_MANY_MARKERS: Final = 16

Operation: TypeAlias = Literal["wait", "signal", "work", "copy", "fill", "barrier"]
Targets: TypeAlias = Sequence[tuple[SemaphoreState, int | None]]


class Entry:
    """One appended operation. `kept` is what must live until it is done: points that it waits for."""

    __slots__ = ("appended_at", "kept", "operation", "point", "rewinds", "seq", "targets")

    def __init__(
        self, seq: int, operation: Operation, targets: Targets, kept: Sequence[object], point: Point | None,
        rewinds: bool,
    ) -> None:
        self.seq = seq
        self.operation = operation
        self.targets = targets
        self.kept = kept
        self.point = point
        self.rewinds = rewinds
        self.appended_at = time.monotonic()


class _Marker:
    __slots__ = ("point", "seq", "slots")

    def __init__(self, seq: int, slots: int, point: Point) -> None:
        self.seq = seq
        self.slots = slots
        self.point = point


class Book:
    """The books of one native queue.

    Attributes
    ----------
    seq : int
        Number of the last operation appended.
    done_seq : int
        All operations up to this one are known to be done.
    entries : deque of Entry
        Operations after `done_seq`, oldest first.
    failure : DriverError or None
        The queue's work failed: nothing more of it will be done.
    """

    def __init__(self, session: Session, driver: CommandListDriver, name: str, *, borrowed: bool) -> None:
        self.session = session
        self.driver = driver
        self.name = name
        self.borrowed = borrowed
        # Re-entrant: work that is called at once may append to the list it was appended to.
        self.lock = threading.RLock()
        self.seq = 0
        self.done_seq = 0
        self.entries: deque[Entry] = deque()
        self.failure: DriverError | None = None
        self.recording = False
        self.record: Record  # set by Session.add_book
        self.wrappers: weakref.WeakSet[object] = weakref.WeakSet()
        self._markers: deque[_Marker] = deque()
        self._slots = 0  # operations given to the driver, markers included: they count towards max_pending
        self._done_slots = 0
        self._unmarked = 0

    # ---- appending
    @overload
    def append(
        self, operation: Operation, issue: Callable[[bool], Token | None], *, records: Sequence[Record] = (),
        targets: Targets = (), kept: Sequence[Point] = (), want_point: Literal[True], rewinds: bool = False,
    ) -> Point: ...
    @overload
    def append(
        self, operation: Operation, issue: Callable[[bool], Token | None], *, records: Sequence[Record] = (),
        targets: Targets = (), kept: Sequence[Point] = (), want_point: bool = False, rewinds: bool = False,
    ) -> Point | None: ...
    def append(
        self, operation: Operation, issue: Callable[[bool], Token | None], *, records: Sequence[Record] = (),
        targets: Targets = (), kept: Sequence[Point] = (), want_point: bool = False, rewinds: bool = False,
    ) -> Point | None:
        """Hand one operation to the driver and note it; the point if `want_point`.

        Raises
        ------
        ReleasedError, WouldBlockError, and what the driver raises
            Nothing was appended.
        """
        with self.lock:
            captured = self.recording or (self.borrowed and self.driver.capturing())
            if not captured:
                self._check_room()
            seq = self.seq = self.seq + 1
            self.record.use(self, seq)
            for record in records:
                record.use(self, seq)
            token = issue(want_point)
            if captured:
                # It runs when the graph is launched, as often as that is; no marker can tell.
                for record in records:
                    record.pin()
                return self._point(token, seq) if want_point else None
            self._slots += 1
            self._unmarked += 1
            point = self._point(token, seq) if want_point else None
            self.entries.append(Entry(seq, operation, targets, kept, point, rewinds))
            if point is not None:
                self._note_marker(point)
        if self._unmarked >= MARK_EVERY:
            self.cover(seq)
            self.poll()
        elif len(self._markers) > _MANY_MARKERS:
            # Operations with events are markers themselves; somebody must take note of them, too.
            self.poll()
        return point

    def _point(self, token: Token, seq: int) -> Point:
        return Point(self.session, token, self, seq)

    def _note_marker(self, point: Point) -> None:
        self._markers.append(_Marker(self.seq, self._slots, point))
        self._unmarked = 0

    def _has_room(self) -> bool:
        limit = self.session.capabilities.max_pending
        return limit is None or self._slots - self._done_slots < limit

    def _check_room(self) -> None:
        if self._has_room():
            return
        self.poll()
        if self._has_room() or not any(entry.operation == "wait" for entry in list(self.entries)):
            return
        raise WouldBlockError(
            f"{self._slots - self._done_slots} operations are pending on {self.name} behind a wait that is not known "
            "to be met; the driver would hold this thread in the next append",
            reason="would_block",
            likely_causes=("the signal that the wait needs was never submitted",
                           "the host runs too far ahead: synchronize() now and then"),
        )

    # ---- markers
    def cover(self, seq: int) -> None:
        """See to it that a marker will tell when `seq` is done; without waiting for anybody, so it may do nothing."""
        if self.failure is None and not self._covered(seq) and self.lock.acquire(blocking=False):
            try:
                self._mark()
            finally:
                self.lock.release()

    def mark(self) -> Point | None:
        """The newest marker's point, None if all is done. Waits for appends under way in other threads.

        It lies behind everything appended so far, unless there was no room for a marker: compare its `seq`.

        Raises
        ------
        DriverError
            Earlier work failed.
        BusyError
            ``capturing``: what is captured does not run, so there is nothing to ask.
        """
        with self.lock:
            if not self._covered(self.seq):
                if self.recording or (self.borrowed and self.driver.capturing()):
                    raise BusyError(f"{self.name} is being captured", reason="capturing")
                self._mark()
            self.raise_failure()
            try:
                return self._markers[-1].point
            except IndexError:
                return None

    def _covered(self, seq: int) -> bool:
        if self.done_seq >= seq:
            return True
        try:
            return self._markers[-1].seq >= seq
        except IndexError:
            return False

    def _mark(self) -> None:
        if self.done_seq >= self.seq or self.recording or not self._has_room():
            return
        if self.borrowed and self.driver.capturing():
            return
        try:
            with self.session.driver.quiet():
                token = self.driver.append_barrier((), True)
        except DriverError as failure:
            self.fail(failure)
            return
        self._slots += 1
        self._note_marker(self._point(token, self.seq))

    def poll(self) -> None:
        """Take note of the markers that have been reached."""
        session = self.session
        while True:
            try:
                head = self._markers[0]
            except IndexError:
                return
            try:
                with session.driver.quiet():
                    done = session.driver.done(head.point.token)
            except DriverError as failure:
                self.fail(failure)
                return
            if not done:
                return
            with session.releaser.lock:
                if self._markers and self._markers[0] is head:
                    self._markers.popleft()
                    self._retire(head.seq, head.slots)

    def reached(self, seq: int) -> None:
        """A point after `seq` was seen reached by a waiter: all markers up to it are, too."""
        with self.session.releaser.lock:
            while self._markers and self._markers[0].seq <= seq:
                head = self._markers.popleft()
                self._retire(head.seq, head.slots)

    def _retire(self, seq: int, slots: int) -> None:
        self.done_seq = max(self.done_seq, seq)
        self._done_slots = max(self._done_slots, slots)
        entries = self.entries
        while entries and entries[0].seq <= seq:
            entries.popleft()

    # ---- failure
    def fail(self, failure: DriverError) -> None:
        """The queue's work failed: nothing that was appended will use anything any more."""
        with self.session.releaser.lock:
            self.failure = failure
            self._markers.clear()
            self._retire(self.seq, self._slots)

    def forget(self) -> None:
        """The list is closed: let go of points and of what waited for them."""
        with self.session.releaser.lock:
            self._markers.clear()
            self.entries.clear()

    def raise_failure(self) -> None:
        """Raise what `fail` was told."""
        if self.failure is not None:
            # A copy: one exception raised over and over would gather the traceback of every caller.
            raise copy.copy(self.failure) from self.failure.__cause__
