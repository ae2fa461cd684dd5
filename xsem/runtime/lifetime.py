"""The lifetime of driver objects: the conditions for a free, and the thread that makes it."""

# A `Lifetime` stands for one driver object. The object is freed when it is released, has no holder (a mapping of a
# memory, an array over a mapping, or a call in progress), and the markers of the queues tell that all its operations
# are done. A finalizer calls no driver and takes no lock: it puts a job into the device's inbox, and later calls and
# the releasing thread do the jobs.

from __future__ import annotations

import contextlib
import logging
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import Final, Protocol, Self

from xsem.errors import ReleasedError
from xsem.runtime.forks import generation
from xsem.runtime.quick import Lock
from xsem.runtime.release_gate import ReleaseGate
from xsem.runtime.threads import Background, Pause, exiting
from xsem.runtime.tracing import fact, tracing

__all__ = ["Lease", "Lifetime", "QueueProgress", "Releaser", "Usable"]

_log = logging.getLogger("xsem")

_PAUSE_FIRST_S: Final = 0.0005
_PAUSE_LAST_S: Final = 0.05
_LINGER_S: Final = 0.05   # the start of a thread costs as much as several releases
_NUDGE_S: Final = 0.05
_NUDGE_IN_APPEND_S: Final = 0.005
_LOOK_S: Final = 0.01
_MANY_USES: Final = 32
_CROWD: Final = 64
_TOO_MANY: Final = 1000


class QueueProgress(Protocol):
    """A queue, as the lifetimes of its objects see it."""

    @property
    def done_seq(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def ensure_marker(self, seq: int) -> None: ...
    def poll(self) -> None: ...
    def unblock(self, seq: int) -> None: ...


class Usable:
    """The lifetime of an object of the application, as its public object sees it."""

    __slots__ = ()

    def is_released(self) -> bool:
        """Return whether the object was released."""
        raise NotImplementedError

    def check(self) -> None:
        """Refuse a use after release."""
        raise NotImplementedError

    def held(self) -> AbstractContextManager[object]:
        """Hold the object during a driver call."""
        raise NotImplementedError

    def release(self) -> None:
        """Release the object. A second call has no effect."""
        raise NotImplementedError

    def drop(self) -> None:
        """Release the object from a finalizer."""
        raise NotImplementedError


class Lifetime(Usable):
    """One driver object: its users, and the call that frees it."""

    __slots__ = (
        "__weakref__", "_free", "_gate", "_hold", "_many_uses", "_pinned", "_reference", "_releaser", "freed",
        "holders", "may_block", "over", "parent", "released", "uses", "visitors", "what",
    )

    def __init__(
        self, releaser: Releaser, what: str, free: Callable[[], None], *, may_block: bool, parent: Lifetime | None,
        gate: ReleaseGate | None = None,
    ) -> None:
        self._releaser = releaser
        self._gate = gate   # the object is freed only while this gate knows of no pending wait
        self.what = what   # name of the object in messages, such as "semaphore 'frames'"
        self._free = free   # makes the driver's call; called exactly once
        self.may_block = may_block   # the call can block its thread, so only the releasing thread makes it
        self.parent = parent   # held until this object has been freed
        self.freed = False   # the driver's call has begun
        self.over = False    # the driver's call has returned
        self._hold = object()   # the holder on the parent; `self` as holder would keep this lifetime alive
        self.holders: set[object] = set()   # see `hold`
        self.visitors: set[object] = set()   # see `Visit`
        self._pinned = False
        self._many_uses = _MANY_USES
        self.released = False   # the application has given the object up
        self._reference = weakref.ref(self, releaser.forget)
        # Number of the last operation that uses the object, by queue. Assigned last: if it is there, `__del__` finds a
        # complete lifetime.
        self.uses: dict[QueueProgress, int] = {}
        with releaser.lock:
            releaser.lifetimes.add(self._reference)
            if parent is not None:
                # Also if the parent is released by now: the caller checks the parent next, and releases this lifetime.
                parent.holders.add(self._hold)

    def __del__(self) -> None:
        # Its owner could not be made, for example because of Ctrl-C, so no other code can release it.
        if getattr(self, "uses", None) is not None:
            self.drop()

    # ---- use
    def is_released(self) -> bool:
        """Return `released`."""
        return self.released

    def check(self) -> None:
        """Refuse a use after release."""
        if self.released:
            raise ReleasedError(f"the {self.what} has been released", reason="released")

    def use(self, queue: QueueProgress, seq: int) -> None:
        """Note that operation `seq` of a queue is about to use this object (ReleasedError: ``released``)."""
        # The note precedes the check. A concurrent release in another thread sees the note, or this call sees the
        # release.
        self.uses[queue] = seq
        if self.released:
            self.check()
        if len(self.uses) > self._many_uses:
            for other in self.uses.copy():
                if other.closed:   # it gets no more appends
                    self.uses.pop(other, None)
            self._many_uses = max(_MANY_USES, 2 * len(self.uses))

    def hold(self, by: object) -> None:
        """Keep the object until `unhold` with the same `by`, the caller's own (ReleasedError: ``released``)."""
        # A set rather than a counter: `unhold` may run twice.
        # The addition precedes the check: a concurrent release sees this holder, or this call sees the release.
        self.holders.add(by)
        if self.released:
            self.unhold(by)
            self.check()

    def unhold(self, by: object) -> None:
        """Undo `hold`. A second call has no effect."""
        self.holders.discard(by)
        if self.released:
            self._releaser.submit(self)

    def held(self) -> Lease:
        """Hold the object for a ``with`` block."""
        return Lease(self)

    def visited(self) -> Visit:
        """Keep the object, released or not, for a ``with`` block that queries pending work. False: it is freed."""
        return Visit(self)

    def pin(self) -> None:
        """Keep the object until its device is released, because a graph that xsem cannot see refers to it."""
        self._pinned = True

    # ---- release
    def release(self) -> None:
        """Release the object. Returns at once; the object is freed later if it is still in use."""
        # A second call has no effect, or completes a release that was interrupted.
        if tracing.note is not None and not self.released:
            fact("object", "release", what=self.what)
        with self._releaser.lock:
            self._releaser.note_release(self)
        self._releaser.submit(self)

    def drop(self) -> None:
        """Release the object from a finalizer, without a lock and without a driver call."""
        if self.released:
            return
        self.post(self.release)

    def post(self, job: Callable[[], None]) -> None:
        """Let a later call, or the releasing thread, do a job of a finalizer."""
        self._releaser.post(job)

    @property
    def idle(self) -> bool:
        """Whether the object is released and unused: no holder, no pin, no pending operation. Makes no driver call."""
        if not self.released or self.holders or (self._pinned and not self._releaser.closing):
            return False
        if not self.uses:
            return True
        # copy() creates no object that the garbage collector tracks, so no finalizer and no other thread interrupts it.
        return all(queue.done_seq >= seq for queue, seq in self.uses.copy().items())

    @property
    def held_by_others(self) -> bool:
        """Whether the object has a holder, or is pinned. The end of the hold or of the device submits it again."""
        return bool(self.holders) or (self._pinned and not self._releaser.closing)

    @property
    def gated(self) -> bool:
        """Whether a free waits for the release gate, that is, until no wait is pending on the backend's devices."""
        return self._gate is not None

    def free(self) -> bool:
        """Free the object if that is possible now and was not done before. Return whether it is freed."""
        if self._gate is None:
            return self._free_now()
        return self._gate.release(self._free_now) and self.over

    def _free_now(self) -> bool:
        claimed = called = False
        try:
            with self._releaser.lock:
                if self.freed or not self.released or self.holders or self.visitors:
                    return False
                self.freed = claimed = True
            called = True
            self._free()
        except Exception:
            # A log message is the only report, because the caller's release() has returned.
            _log.warning("releasing the %s failed", self.what, exc_info=True)
        finally:
            if claimed:
                self.freed = self.over = called   # an interrupt can come before the driver's call
                self.end()
        return called

    def end(self) -> None:
        """End the hold on the parent and forget this lifetime, if it is freed. A second call has no effect."""
        if self.over:
            self.uses.clear()
            if self.parent is not None:
                self.parent.unhold(self._hold)
            with self._releaser.lock:   # last: until then, the release of the device finds it and comes here again
                self._releaser.ending.discard(self)
                self._releaser.lifetimes.discard(self._reference)


class Lease:
    """A hold on a lifetime. It ends with `end`, with its ``with`` block, or at the latest with its collection."""

    __slots__ = ("__weakref__", "_by", "_lifetime")

    def __init__(self, lifetime: Lifetime) -> None:
        self._by = object()   # not `self`, which the lifetime would keep alive
        self._lifetime = lifetime
        lifetime.hold(self._by)

    def end(self) -> None:
        """End the hold. A second call has no effect."""
        self._lifetime.unhold(self._by)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.end()

    def __del__(self) -> None:
        lifetime = getattr(self, "_lifetime", None)
        if lifetime is not None and self._by in lifetime.holders:
            lifetime.post(partial(lifetime.unhold, self._by))


class Visit:
    """A stay of an object, released or not. Unlike the end of a hold, its end never frees the object."""

    # Ctrl-C can come before the first line of `__exit__`, so the collection of the visit ends it, too.

    __slots__ = ("_by", "_lifetime")

    def __init__(self, lifetime: Lifetime) -> None:
        self._by = object()   # not `self`, which the lifetime would keep alive
        self._lifetime = lifetime

    def __enter__(self) -> bool:
        lifetime = self._lifetime
        with lifetime._releaser.lock:
            if not lifetime.freed:
                lifetime.visitors.add(self._by)
            return not lifetime.freed

    def __exit__(self, *exc: object) -> None:
        self._lifetime.visitors.discard(self._by)

    def __del__(self) -> None:
        lifetime = getattr(self, "_lifetime", None)
        if lifetime is not None:
            lifetime.visitors.discard(self._by)


class Releaser:
    """The releases of one device: the inbox, the lock of all its lifetimes, and the releasing thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        # Protects the lifetimes of the device, and the progress of its queues. Re-entrant: a finalizer of the
        # application can run while this thread holds the lock, and may release objects.
        self.lock = Lock()
        self.closing = False   # the device is released
        # The owner of each lifetime keeps it alive. The callback of a reference removes it: C code, without a lock.
        self.lifetimes: set[weakref.ref[Lifetime]] = set()
        self.forget = self.lifetimes.discard
        self.ending: set[Lifetime] = set()  # the released ones of `lifetimes`, which may have thousands of others
        self._generation = generation()
        # Jobs of finalizers. `post` sets `jobs` after it has added one, and `drain` clears `jobs` before it looks.
        self.jobs = False
        self.inbox: deque[Callable[[], None]] = deque()
        self._waiting: dict[Lifetime, None] = {}   # released, and still in use
        # Unused objects that wait only for the release gate. They are not polled one by one: there may be thousands.
        self._ready: dict[Lifetime, None] = {}
        self._nap = Pause()
        self._pause_s = _PAUSE_FIRST_S
        self._lingering = False   # the thread has no work, and waits for new work before it ends
        self._rounds = 0
        # At least `_CROWD` objects are ready. An append of a wait then calls `free_between_waits` first.
        self.crowded = False
        self._warned = False
        self._looked = 0.0
        self._thread = Background(f"xsem-release-{name}", self._work, self._has_work)

    def post(self, job: Callable[[], None]) -> None:
        """Queue a job from a finalizer. The releasing thread or a later call does it soon."""
        if generation() == self._generation:
            self.inbox.append(job)
            self.jobs = True
            self._thread.wake()
            self._rouse()

    def release_all(self, last: Lifetime) -> None:
        """Release all objects of the device. `last`, the lifetime of the device, is freed after all others."""
        self.closing = True
        with self.lock:
            # This comes first: the device now refuses new objects of other threads. `lifetimes` has all earlier ones.
            self.note_release(last)
            # copy() is one step, because a collection removes references meanwhile.
            references = self.lifetimes.copy()
        for reference in references:
            # Also the released ones: no other call may submit a lifetime that was pinned or held until now.
            lifetime = reference()
            if lifetime is not None and lifetime is not last:
                lifetime.release()
        self.submit(last)

    def drain(self) -> None:
        """Do the jobs of finalizers. Other calls begin with this one."""
        self.jobs = False
        while self.inbox and not exiting():
            try:
                job = self.inbox[0]
            except IndexError:
                break   # another thread has done the last one
            try:
                job()
            except KeyboardInterrupt:
                raise
            except BaseException:
                _log.warning("a deferred release failed", exc_info=True)
            with contextlib.suppress(ValueError):
                self.inbox.remove(job)   # afterwards, so that an interrupted job is not lost: each may run twice
        if self._thread.stalled:
            self._start()

    def _start(self) -> None:
        """Start the releasing thread. If that is impossible, `drain` of a later call tries again."""
        if not self._thread.ensure():
            self.jobs = True
        self._rouse()

    def _rouse(self) -> None:
        """End `_linger` of the releasing thread, because there is new work. A finalizer may call this method."""
        if self._lingering:
            self._nap.end()

    def _has_work(self) -> bool:
        return bool(self.inbox or self._waiting or self._ready)

    def _linger(self) -> bool:
        """Wait for new work before the thread ends. Return whether there is new work."""
        self._lingering = True   # set before the query of the work, so that a later release ends the wait
        try:
            if not self._has_work():
                self._nap.wait(_LINGER_S)
            return self._has_work()
        finally:
            self._lingering = False

    def note_release(self, lifetime: Lifetime) -> None:
        """Note that a lifetime is released, and keep it until it is freed. The caller holds the lock."""
        lifetime.released = True
        if not lifetime.over:
            self.ending.add(lifetime)

    def submit(self, lifetime: Lifetime) -> None:
        """Free a released object now if that needs no wait; otherwise the releasing thread frees it."""
        if exiting():
            return
        if lifetime.over:
            lifetime.end()   # perhaps the end of the free was interrupted
            return
        _look([lifetime])
        if not lifetime.may_block and lifetime.idle:
            lifetime.free()
        if not lifetime.freed and not lifetime.held_by_others:
            self._waiting[lifetime] = None
            self._pause_s = _PAUSE_FIRST_S
            self._start()

    def releasing(self) -> tuple[str, ...]:
        """Return the names of objects released and not freed yet. An object counts until the driver's call returns."""
        # The copy is one step, because other threads, and finalizers on this one, free objects meanwhile.
        return tuple(sorted(lifetime.what for lifetime in self.ending.copy()))

    def _work(self) -> None:
        while not exiting():
            self.drain()
            before = len(self._waiting) + len(self._ready)
            for queue, seq in _look(self._waiting.copy()).items():
                queue.unblock(seq)
            self._settle()
            self._free_ready()
            self._rounds += 1
            if len(self._waiting) + len(self._ready) < before:
                self._pause_s = _PAUSE_FIRST_S
            if self._has_work():
                self._nap.wait(self._pause_s)
                self._pause_s = min(self._pause_s * 2, _PAUSE_LAST_S)
            elif not self._linger():
                return

    def _settle(self) -> None:
        """Free the objects that can be freed now. Those with a holder come again at the end of the hold."""
        for lifetime in self._waiting.copy():
            self._waiting.pop(lifetime, None)   # first, because another thread may submit it again from here on
            if lifetime.freed:
                continue
            if lifetime.gated and lifetime.idle:
                self._ready[lifetime] = None
            elif not (lifetime.idle and lifetime.free()) and not lifetime.held_by_others:
                self._waiting[lifetime] = None

    def _free_ready(self) -> None:
        """Free the objects that wait for the release gate, if no wait is pending now."""
        while self._ready:
            lifetime = next(iter(self._ready))
            # A lifetime with a holder is removed: the end of the hold submits it again.
            if not lifetime.freed and not lifetime.held_by_others and not lifetime.free():
                break
            del self._ready[lifetime]
        self.crowded = len(self._ready) >= _CROWD
        if self._ready and not self._warned and len(self.ending) >= _TOO_MANY:
            self._warned = True
            _log.warning(
                "%d released objects of %s are not freed yet: the driver frees objects only while no wait is pending "
                "on any list of the process. Call synchronize() before some of the waits are appended, or use the "
                "same objects for all frames", len(self.ending), self._name,
            )

    def wake(self, limit_s: float = _NUDGE_S) -> None:
        """Give the releasing thread up to `limit_s` to free the objects that wait for the release gate, if any."""
        # For callers that know a moment without pending waits, such as `synchronize()`.
        deadline, enough = time.monotonic() + limit_s, self._rounds + 2
        while self._ready and self._rounds < enough and time.monotonic() < deadline:
            self._nap.end()
            time.sleep(_PAUSE_FIRST_S)

    def free_between_waits(self, gate: ReleaseGate) -> None:
        """Let the releasing thread free objects before the append of a wait, if no wait is pending now."""
        # An append calls this method if `crowded`, because in a loop with a wait per frame the releasing thread itself
        # finds few moments without a pending wait.
        now = time.monotonic()
        if now - self._looked >= _LOOK_S:
            self._looked = now
            if not gate.any_wait_pending():
                self.wake(_NUDGE_IN_APPEND_S)


def _look(lifetimes: Iterable[Lifetime]) -> dict[QueueProgress, int]:
    """Update the progress of the queues that some lifetimes wait for, and return them. Each queue is polled once."""
    wanted: dict[QueueProgress, int] = {}
    for lifetime in lifetimes:
        for queue, seq in lifetime.uses.copy().items():
            if queue.done_seq < seq:
                wanted[queue] = max(seq, wanted.get(queue, 0))
    for queue, seq in wanted.items():
        queue.ensure_marker(seq)
        queue.poll()
    return wanted
