"""When a driver object may be freed, and who frees it.

A `Record` stands for one driver object. It is freed once it has been released, nothing holds it (mappings of a memory,
arrays over a mapping, calls in progress) and all that was appended with it is done. Ends of appended work are seen by
the markers of its lists (`xsem.books`), never by a completion of each append.

Release that can be done at once is done on the caller's thread; all else by one thread per device that exists only
while something is pending. Finalizers call no driver and take no lock: they put a job into the device's inbox, which is
emptied by later calls and by that thread.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from xsem.errors import ReleasedError
from xsem.forks import generation

__all__ = ["Lease", "Record", "Releaser", "UseBook"]

_log = logging.getLogger("xsem")

_PAUSE_FIRST_S = 0.0005
_PAUSE_LAST_S = 0.05


class _Exit:
    under_way = False


def _at_exit() -> None:
    _Exit.under_way = True


atexit.register(_at_exit)


class UseBook(Protocol):
    """What a record must know of a list's books."""

    done_seq: int

    def cover(self, seq: int) -> None: ...
    def poll(self) -> None: ...


class Record:
    """One driver object: its users, and the call that frees it.

    Parameters
    ----------
    releaser : Releaser
        The device's.
    what : str
        For messages: "semaphore 'frames'".
    free : callable
        The driver call, made exactly once.
    may_block : bool
        `free` can hold its thread, so only the releasing thread makes it.
    parent : Record, optional
        Held until this record has been freed.
    """

    __slots__ = ("_free", "_holds", "_pinned", "_releaser", "freed", "may_block", "parent", "released", "uses", "what")

    def __init__(
        self, releaser: Releaser, what: str, free: Callable[[], None], *, may_block: bool, parent: Record | None
    ) -> None:
        self._releaser = releaser
        self.what = what
        self._free = free
        self.may_block = may_block
        self.parent = parent
        self.uses: dict[UseBook, int] = {}
        self.released = False
        self.freed = False
        self._holds = 0
        self._pinned = False
        with releaser.lock:
            releaser.records.add(self)
            if parent is not None:
                # Also where the parent is released by now: the caller holds it, and must have something to release.
                parent._holds += 1

    # ---- use
    def check(self) -> None:
        """Refuse use after release."""
        if self.released:
            raise ReleasedError(f"the {self.what} has been released", reason="released")

    def use(self, book: UseBook, seq: int) -> None:
        """Note that operation `seq` of a list is about to be appended with this object."""
        # The note comes first: of a release in another thread at the same time, either it sees the note or we see it.
        self.uses[book] = seq
        self.check()

    def hold(self) -> None:
        """Keep the object from being freed until `unhold`.

        Raises
        ------
        ReleasedError
            ``released``.
        """
        with self._releaser.lock:
            self.check()
            self._holds += 1

    def unhold(self) -> None:
        """Undo one `hold`."""
        with self._releaser.lock:
            self._holds -= 1
            again = self.released and self._holds == 0 and not self.freed
        if again:
            self._releaser.submit(self)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold for the length of a driver call."""
        self.hold()
        try:
            yield
        finally:
            self.unhold()

    def pin(self) -> None:
        """Keep the object until its device is released: a captured graph that we cannot see refers to it."""
        self._pinned = True

    # ---- release
    def release(self) -> None:
        """Release once; the object is freed when nothing uses it any more. Returns at once."""
        with self._releaser.lock:
            if self.released:
                return
            self.released = True
        self._releaser.submit(self)

    def drop(self) -> None:
        """Release from a finalizer: no lock, no driver call."""
        if not self.released:
            self._releaser.post(self.release)

    @property
    def idle(self) -> bool:
        """Whether it could be freed now, as far as the books know."""
        if not self.released or self._holds or (self._pinned and not self._releaser.closing):
            return False
        return all(book.done_seq >= seq for book, seq in list(self.uses.items()))

    @property
    def held_by_others(self) -> bool:
        """Whether something holds it whose end will submit it again."""
        return self._holds > 0 or (self._pinned and not self._releaser.closing)

    def free(self) -> bool:
        """Make the driver call if it was not made yet; whether this call made it."""
        with self._releaser.lock:
            if self.freed or not self.released or self._holds:
                return False
            self.freed = True
        try:
            with self._releaser.quiet():
                self._free()
        except Exception:
            # Nobody can be told: the caller's release() returned long ago.
            _log.warning("releasing the %s failed", self.what, exc_info=True)
        self.uses.clear()
        with self._releaser.lock:
            self._releaser.records.discard(self)
        if self.parent is not None:
            self.parent.unhold()
        return True


class Lease:
    """Keeps a record from being freed until this object is collected: an array that we handed out refers to it."""

    __slots__ = ("__weakref__", "_record", "_releaser")

    def __init__(self, record: Record, releaser: Releaser) -> None:
        record.hold()
        self._record = record
        self._releaser = releaser

    def __del__(self) -> None:
        record = getattr(self, "_record", None)
        if record is not None:
            self._releaser.post(record.unhold)


class Releaser:
    """One device's releases: the inbox, the lock of all its records, and the releasing thread."""

    def __init__(self, name: str, quiet: Callable[[], AbstractContextManager[None]]) -> None:
        self.name = name
        self.lock = threading.Lock()
        self.quiet = quiet
        self.closing = False
        self.records: set[Record] = set()
        self._generation = generation()
        self._inbox: deque[Callable[[], None]] = deque()
        self._later: deque[Callable[[], None]] = deque()
        self._pending: deque[Record] = deque()
        # Holds one element while no thread runs: pop() is an atomic claim that even a finalizer may make.
        self._no_thread: deque[None] = deque([None])

    def post(self, job: Callable[[], None]) -> None:
        """From a finalizer: have `job` done soon, on another thread or in a later call."""
        if generation() == self._generation:
            self._inbox.append(job)
            self._wake()

    def post_later(self, job: Callable[[], None]) -> None:
        """From a finalizer: have `job` done with a later call; not worth a thread."""
        if generation() == self._generation:
            self._later.append(job)

    def release_all(self, last: Record) -> None:
        """The device goes: release everything on it, and `last`, the device's own record, when all that is freed."""
        self.closing = True
        with self.lock:
            records = [record for record in self.records if record is not last]
        for record in records:
            record.release()
            # Released earlier but pinned until now: nothing else will submit it again.
            self.submit(record)
        last.release()

    def drain(self) -> None:
        """Do the jobs that finalizers left. Called at the start of other calls."""
        for jobs in (self._later, self._inbox):
            while jobs:
                try:
                    job = jobs.popleft()
                except IndexError:
                    break
                try:
                    job()
                except Exception:
                    _log.warning("a deferred release failed", exc_info=True)

    def submit(self, record: Record) -> None:
        """A released record: free it now where that is possible without waiting, otherwise on the releasing thread."""
        for book, seq in list(record.uses.items()):
            if book.done_seq < seq:
                book.cover(seq)
                book.poll()
        if not record.may_block and record.idle:
            record.free()
        elif record.released and not record.freed and not record.held_by_others:
            self._pending.append(record)
            self._wake()

    def _wake(self) -> None:
        if _Exit.under_way:
            return
        try:
            self._no_thread.pop()
        except IndexError:
            return  # it runs, and looks at both queues before it ends
        try:
            # Not threading.Thread: its start() takes locks, and a finalizer can run while this thread holds them.
            _thread.start_new_thread(self._run, ())
        except RuntimeError:  # the interpreter is going down
            self._no_thread.append(None)

    def _run(self) -> None:
        # No threading.current_thread() here: it would enter a dummy into threading's list that outlives this thread.
        waiting: list[Record] = []
        pause_s = _PAUSE_FIRST_S
        while not _Exit.under_way:
            self.drain()
            with contextlib.suppress(IndexError):
                while True:
                    waiting.append(self._pending.popleft())
                    pause_s = _PAUSE_FIRST_S
            before = len(waiting)
            waiting = [record for record in waiting if not self._settle(record)]
            if len(waiting) < before:
                pause_s = _PAUSE_FIRST_S
            if not waiting and not self._inbox and not self._pending:
                self._no_thread.append(None)
                if not self._inbox and not self._pending:
                    return
                try:
                    self._no_thread.pop()
                except IndexError:
                    return  # another thread was started for what came in between
                continue
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, _PAUSE_LAST_S)

    def _settle(self, record: Record) -> bool:
        """Whether the thread is through with the record: freed, or held by something that will submit it again."""
        for book, seq in list(record.uses.items()):
            if book.done_seq < seq:
                book.cover(seq)
                book.poll()
        if record.freed or (record.idle and record.free()):
            return True
        with self.lock:
            return record.held_by_others
