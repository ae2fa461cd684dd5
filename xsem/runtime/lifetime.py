"""When a driver object may be freed, and who frees it.

A `Lifetime` stands for one driver object. The object is freed once three things hold: it has been released; nothing
holds it (mappings of a memory, arrays over a mapping, calls in progress); all operations appended with it are done. The
fences of its queues tell that (`xsem.runtime.queues.completion`), never a completion of each append.

A release that can be done at once is done on the caller's thread. All others are done by one thread per device, which
exists only while a release is pending. Finalizers call no driver and take no lock: they put a job into the device's
inbox, which later calls and that thread empty.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from queue import Empty, SimpleQueue
from typing import Final, Protocol, Self

from xsem.errors import ReleasedError
from xsem.runtime.forks import generation
from xsem.runtime.release_gate import ReleaseGate
from xsem.runtime.threads import Background, exiting

__all__ = ["Lease", "Lifetime", "QueueProgress", "Releaser"]

_log = logging.getLogger("xsem")

_PAUSE_FIRST_S: Final = 0.0005
_PAUSE_LAST_S: Final = 0.05
_NUDGE_S: Final = 0.05
_NUDGE_IN_APPEND_S: Final = 0.005
_LOOK_S: Final = 0.01
_MANY_USES: Final = 32
_CROWD: Final = 64
_TOO_MANY: Final = 1000


class QueueProgress(Protocol):
    """What a record must know of a list's books."""

    @property
    def done_seq(self) -> int: ...
    @property
    def closed(self) -> bool: ...

    def ensure_fence(self, seq: int) -> None: ...
    def poll(self) -> None: ...


class Lifetime:
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
    parent : Lifetime, optional
        Held until this record has been freed.
    light : bool
        `free` makes no driver call: dropping the object is not worth a thread, a later call will do.
    gate : ReleaseGate, optional
        `free` is called at its moments only.
    """

    __slots__ = (
        "__weakref__", "_free", "_gate", "_hold", "_holders", "_light", "_many_uses", "_pinned", "_releaser",
        "_visitors", "freed", "may_block", "over", "parent", "released", "uses", "what",
    )

    def __init__(
        self, releaser: Releaser, what: str, free: Callable[[], None], *, may_block: bool, parent: Lifetime | None,
        light: bool = False, gate: ReleaseGate | None = None,
    ) -> None:
        self._releaser = releaser
        self._gate = gate
        self.what = what
        self._free = free
        self.may_block = may_block
        self.parent = parent
        self.uses: dict[QueueProgress, int] = {}
        self.freed = False   # the driver's call has begun
        self.over = False    # the driver's call has returned
        self._light = light
        self._hold = object()   # the holder on the parent; `self` would keep this record alive
        self._holders: set[object] = set()
        self._visitors: set[object] = set()
        self._pinned = False
        self._many_uses = _MANY_USES
        self.released = False   # assigned last: `__del__` finds a complete record
        with releaser.lock:
            releaser.lifetimes.add(self)
            if parent is not None:
                # Also where the parent is released by now: the caller holds it, and must have something to release.
                parent._holders.add(self._hold)

    def __del__(self) -> None:
        # Ctrl-C came before the record had an owner, so no other code can release it.
        if not getattr(self, "released", True):
            self.drop()

    # ---- use
    def check(self) -> None:
        """Refuse use after release."""
        if self.released:
            raise ReleasedError(f"the {self.what} has been released", reason="released")

    def use(self, queue: QueueProgress, seq: int) -> None:
        """Note that operation `seq` of a list is about to be appended with this object."""
        # The note comes first: of a release in another thread at the same time, either it sees the note or we see it.
        self.uses[queue] = seq
        self.check()
        if len(self.uses) > self._many_uses:
            # Closed lists take no more appends, so nobody is about to note another use of theirs.
            for other in self.uses.copy():
                if other.closed:
                    self.uses.pop(other, None)
            self._many_uses = max(_MANY_USES, 2 * len(self.uses))

    def hold(self, by: object) -> None:
        """Keep the object from being freed until `unhold` with the same `by`, an object that only the caller has.

        The holders are a set and not a count, so that a caller can repeat `unhold` after Ctrl-C.

        Raises
        ------
        ReleasedError
            ``released``.
        """
        # Add first, then look: a concurrent release either sees this holder, or is seen here.
        self._holders.add(by)
        if self.released:
            self.unhold(by)
            self.check()

    def unhold(self, by: object) -> None:
        """Undo `hold`; no effect if that is undone already."""
        try:
            self._holders.discard(by)
        finally:
            if self.released:
                self._releaser.submit(self)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold for the length of a driver call."""
        by = object()
        try:
            self.hold(by)
            yield
        finally:
            # Not `unhold`: Ctrl-C could come at the start of a Python function, before its first line.
            try:
                self._holders.discard(by)
            finally:
                if self.released:
                    self._releaser.submit(self)

    @contextmanager
    def visited(self) -> Iterator[bool]:
        """Keep the object from being freed inside, also if it is released; yield False if it is freed already.

        For queries of pending work. The end of a visit frees nothing, unlike that of a hold: the releasing thread does.
        """
        by = object()
        try:
            with self._releaser.lock:
                if not self.freed:
                    self._visitors.add(by)
                there = not self.freed
            yield there
        finally:
            self._visitors.discard(by)

    def pin(self) -> None:
        """Keep the object until its device is released: a captured graph that we cannot see refers to it."""
        self._pinned = True

    # ---- release
    def release(self) -> None:
        """Release the object; it is freed when nothing uses it any more. Returns at once.

        A second call has no effect, or completes a release that Ctrl-C interrupted.
        """
        with self._releaser.lock:
            if not self.released:
                # First: a `PreparedAppend` remembers this number, and checks `released` only after a change of it.
                self._releaser.releases += 1
                self.released = True
            self._releaser.unsettled.add(self)
        self._releaser.submit(self)

    def drop(self) -> None:
        """Release from a finalizer: no lock, no driver call."""
        if self.released:
            return
        if self._light:
            self._releaser.post_later(self.release)
        else:
            self._releaser.post(self.release)

    @property
    def idle(self) -> bool:
        """Whether it could be freed now, as far as the books know."""
        if not self.released or self._holders or (self._pinned and not self._releaser.closing):
            return False
        # copy() makes nothing that the collector watches: no finalizer and no other thread comes in between.
        return all(queue.done_seq >= seq for queue, seq in self.uses.copy().items())

    @property
    def held_by_others(self) -> bool:
        """Whether something holds it whose end will submit it again."""
        return bool(self._holders) or (self._pinned and not self._releaser.closing)

    @property
    def gated(self) -> bool:
        """Whether it can be freed only when no wait is pending anywhere."""
        return self._gate is not None

    def free(self) -> bool:
        """Make the driver call if it was not made yet and may be made now; whether this call made it."""
        if self._gate is None:
            return self._free_now()
        freed: list[bool] = []
        self._gate.release(lambda: freed.append(self._free_now()))
        return freed == [True]

    def _free_now(self) -> bool:
        claimed = called = False
        try:
            with self._releaser.lock:
                if self.freed or not self.released or self._holders or self._visitors:
                    return False
                self.freed = claimed = True
            with self._releaser.quiet():
                called = True
                self._free()
        except Exception:
            called = True   # also where `quiet` raises: it raises the next time, too
            # Nobody can be told: the caller's release() returned long ago.
            _log.warning("releasing the %s failed", self.what, exc_info=True)
        finally:
            if claimed:
                # If Ctrl-C came before the driver's call, `Releaser.drain` tries again.
                self.freed = self.over = called
                self.end()
        return called

    def end(self) -> None:
        """Let go of a freed record and of the hold on its parent. No effect before that, or a second time."""
        if self.over:
            self.uses.clear()
            with self._releaser.lock:   # `release_all` reads them
                self._releaser.lifetimes.discard(self)
                self._releaser.ending.discard(self)
            if self.parent is not None:
                self.parent.unhold(self._hold)


class Lease:
    """Keeps a record from being freed until this object is collected: an array that we handed out refers to it."""

    __slots__ = ("__weakref__", "_end", "_releaser")

    def __init__(self, lifetime: Lifetime, releaser: Releaser) -> None:
        self._releaser = releaser
        self._end = _EndOfLease(self, releaser.later, lifetime)
        lifetime.hold(self._end)

    def __del__(self) -> None:
        end = getattr(self, "_end", None)
        if end is not None:
            self._releaser.post(end.take_effect)


class _EndOfLease(weakref.ref[Lease]):
    """The holder of the record: a weak reference whose callback queues it as a job for a later call.

    The callback is C code, which Ctrl-C cannot prevent. The finalizer of the lease ends the hold sooner, but Ctrl-C in
    a finalizer ends the finalizer, and Python drops the exception.
    """

    __slots__ = ("_lifetime",)
    __hash__ = object.__hash__   # by identity: the lease, whose hash a weak reference has, is gone
    __eq__ = object.__eq__

    def __new__(cls, lease: Lease, jobs: deque[Callable[[], None]], _lifetime: Lifetime) -> Self:
        return super().__new__(cls, lease, jobs.append)

    def __init__(self, lease: Lease, jobs: deque[Callable[[], None]], lifetime: Lifetime) -> None:
        self._lifetime = lifetime

    def __call__(self) -> None:
        self.take_effect()

    def take_effect(self) -> None:
        """End the hold on the record."""
        self._lifetime.unhold(self)


class Releaser:
    """One device's releases: the inbox, the lock of all its records, and the releasing thread.

    Attributes
    ----------
    crowded : bool
        Many released objects wait only for a moment without pending waits. An append of a wait then calls `use_moment`
        first.
    """

    def __init__(self, name: str, quiet: Callable[[], AbstractContextManager[None]]) -> None:
        self._name = name
        # Re-entrant: a finalizer of the application's may release things, and can run while this thread is inside.
        self.lock = threading.RLock()
        self.quiet = quiet
        self.closing = False
        self.releases = 0  # so far: whoever remembers it knows that nothing has been released since
        self.lifetimes: weakref.WeakSet[Lifetime] = weakref.WeakSet()   # each is kept alive by its owner
        self.ending: set[Lifetime] = set()  # those of them that are released: thousands may be alive beside them
        self._generation = generation()
        # Jobs for `drain`, and whether there may be any: set after one was added, taken back before they are done.
        self.jobs = False
        self.inbox: deque[Callable[[], None]] = deque()
        self.later: deque[Callable[[], None]] = deque()
        self._pending: deque[Lifetime] = deque()   # for the releasing thread; may hold a record twice
        self.unsettled: set[Lifetime] = set()   # released, but `submit` is not over: Ctrl-C may interrupt it
        self._nap: SimpleQueue[None] = SimpleQueue()   # an element ends a pause of the thread
        self._rounds = 0
        # Unused objects that wait only for the release gate; not polled one by one, because there may be thousands.
        self._ready: dict[Lifetime, None] = {}
        self._held_back = False
        self.crowded = False
        self._warned = False
        self._looked = 0.0
        self._thread = Background(f"xsem-release-{name}", self._work,
                                  lambda: bool(self.inbox or self._pending or self._ready or self._last_jobs))

    def post(self, job: Callable[[], None]) -> None:
        """From a finalizer: have `job` done soon, on another thread or in a later call."""
        if generation() == self._generation:
            self.inbox.append(job)
            self.jobs = True
            self._thread.wake()

    def post_later(self, job: Callable[[], None]) -> None:
        """From a finalizer: have `job` done with a later call; not worth a thread."""
        if generation() == self._generation:
            self.later.append(job)
            self.jobs = True
            if self._last_jobs:
                self._thread.wake()

    @property
    def _last_jobs(self) -> bool:
        """Whether jobs wait for a later call of a device that is released, and so has none."""
        return self.closing and bool(self.later)

    def release_all(self, last: Lifetime) -> None:
        """The device goes: release everything on it, and `last`, the device's own record, when all that is freed."""
        self.closing = True
        with self.lock:
            # First: what another thread opens from here on is refused. All that was opened before is in `lifetimes`.
            last.released = True
            self.unsettled.add(last)
            lifetimes = [lifetime for lifetime in self.lifetimes if lifetime is not last]
        # A dropped object of a cycle is only among the jobs: the collector clears weak references before it calls
        # finalizers.
        if self._last_jobs:
            self._start()
        for lifetime in lifetimes:
            # Released records too: one that was pinned or held until now may have no other caller that submits it.
            lifetime.release()
        self.submit(last)

    def drain(self) -> None:
        """Do the jobs that finalizers left. Called at the start of other calls."""
        self.jobs = False
        for jobs in (self.later, self.inbox):
            while jobs and not exiting():
                try:
                    job = jobs[0]
                except IndexError:
                    break
                try:
                    job()
                except KeyboardInterrupt:
                    raise
                except BaseException:
                    _log.warning("a deferred release failed", exc_info=True)
                # Removed after it is done: a job that Ctrl-C interrupts is repeated. Two threads may do one job;
                # a second run has no effect.
                with contextlib.suppress(ValueError):
                    jobs.remove(job)
        for lifetime in self.unsettled.copy():
            self.submit(lifetime)
        if self._thread.stalled:
            self._start()

    def _start(self) -> None:
        """Start the releasing thread; if the system refuses it, `drain` of a later call tries again."""
        if not self._thread.ensure():
            self.jobs = True

    def submit(self, lifetime: Lifetime) -> None:
        """A released record: free it now where that is possible without waiting, otherwise on the releasing thread."""
        if exiting():
            return
        # Listed until this method ends: after Ctrl-C, the next `drain` submits the record again.
        self.unsettled.add(lifetime)
        settled = lifetime.over
        lifetime.end()
        if not settled:
            self.ending.add(lifetime)
            _look([lifetime])
            settled = not lifetime.may_block and lifetime.idle and lifetime.free()
            if not lifetime.freed and not lifetime.held_by_others:
                self._pending.append(lifetime)
                self._start()
        # Still listed while another thread frees it: Ctrl-C may interrupt that thread.
        if settled or not lifetime.freed:
            self.unsettled.discard(lifetime)

    def releasing(self) -> tuple[str, ...]:
        """What is released and not freed yet; what is being freed counts until the driver's call returns."""
        # A copy, made in one go: other threads free meanwhile, and so do finalizers that run in this one.
        return tuple(sorted(lifetime.what for lifetime in self.ending.copy()))

    def _work(self) -> None:
        waiting: dict[Lifetime, None] = {}
        pause_s = _PAUSE_FIRST_S
        try:
            while not exiting():
                self.drain()
                while self._pending:
                    waiting[self._pending.popleft()] = None
                    pause_s = _PAUSE_FIRST_S
                _look(waiting)
                before = len(waiting) + len(self._ready)
                waiting = self._settle(waiting)
                self._free_ready()
                self._rounds += 1
                if len(waiting) + len(self._ready) < before:
                    pause_s = _PAUSE_FIRST_S
                if not (waiting or self._ready or self.inbox or self._pending or self._last_jobs):
                    return
                with contextlib.suppress(Empty):
                    self._nap.get(timeout=pause_s)
                    while True:
                        self._nap.get_nowait()
                pause_s = min(pause_s * 2, _PAUSE_LAST_S)
        finally:
            self._pending.extend(waiting)

    def _settle(self, waiting: Iterable[Lifetime]) -> dict[Lifetime, None]:
        """Free what can be freed; what is left, but for records held by something that will submit them again."""
        left: dict[Lifetime, None] = {}
        for lifetime in waiting:
            if lifetime.gated and lifetime.idle:
                self._ready[lifetime] = None
            elif not lifetime.freed and not (lifetime.idle and lifetime.free()) and not lifetime.held_by_others:
                left[lifetime] = None
        return left

    def _free_ready(self) -> None:
        """Free the objects that wait for the release gate, if no wait is pending now."""
        while self._ready:
            lifetime = next(iter(self._ready))
            # A record that is held is taken out: the end of the hold submits it again.
            if not lifetime.freed and not lifetime.held_by_others and not lifetime.free():
                break
            del self._ready[lifetime]
        self._held_back = bool(self._ready)
        self.crowded = len(self._ready) >= _CROWD
        if self._held_back and not self._warned and len(self.ending) >= _TOO_MANY:
            self._warned = True
            _log.warning(
                "%d released objects of %s are not freed yet: the driver frees objects only while no wait is pending "
                "on any list of the process. Call synchronize() before some of the waits are appended, or use the "
                "same objects for all frames", len(self.ending), self._name,
            )

    def wake(self, limit_s: float = _NUDGE_S) -> None:
        """Let the thread free what had to wait for a moment without pending waits: this may be one. Takes a moment."""
        deadline, enough = time.monotonic() + limit_s, self._rounds + 2
        while self._held_back and self._rounds < enough and time.monotonic() < deadline:
            self._nap.put(None)
            time.sleep(_PAUSE_FIRST_S)

    def use_moment(self, gate: ReleaseGate) -> None:
        """Let the releasing thread free objects before a wait is appended, if no wait is pending now.

        An append calls this where `crowded`. In a loop that soon appends the next wait, the thread itself meets few
        such moments.
        """
        now = time.monotonic()
        if now - self._looked >= _LOOK_S:
            self._looked = now
            if not gate.waiting():
                self.wake(_NUDGE_IN_APPEND_S)


def _look(lifetimes: Iterable[Lifetime]) -> None:
    """Ask the lists of some records how far they are: each once, however many records wait for it."""
    wanted: dict[QueueProgress, int] = {}
    for lifetime in lifetimes:
        for queue, seq in lifetime.uses.copy().items():
            if queue.done_seq < seq:
                wanted[queue] = max(seq, wanted.get(queue, 0))
    for queue, seq in wanted.items():
        queue.ensure_fence(seq)
        queue.poll()
