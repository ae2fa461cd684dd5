"""The append of operations to one native queue. All lists that wrap the native queue share one `Queue`."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any
from weakref import ref

from xsem.errors import WouldBlockError, XsemError
from xsem.runtime.device_state import DeviceState
from xsem.runtime.forks import check_generation
from xsem.runtime.lifetime import Lifetime, Usable
from xsem.runtime.queues.completion import CompletionTracker
from xsem.runtime.queues.operations import Append, DriverCall, Fence, Operation, new_fence, new_operation
from xsem.runtime.queues.prepared_cache import PreparedCache
from xsem.runtime.release_gate import ReleaseGate
from xsem.spi import QueueDriver, Token

__all__ = ["Queue", "StreamUse"]


class StreamUse:
    """The use of a borrowed stream, common to all its lists. `QueueTable.release_idle` spares a stream in use."""

    __slots__ = ("__weakref__",)


class Queue(CompletionTracker):
    """One native queue with its operations in flight."""

    def __init__(self, device_state: DeviceState, driver: QueueDriver, name: str, *, borrowed: bool) -> None:
        super().__init__(device_state, driver, name, borrowed=borrowed)
        self.recorded: list[Operation] = []   # operations appended while `recording` is True
        self.recorded_uses: list[Lifetime] = []   # lifetimes of their objects, held by `recorded_by`
        self.recorded_by: object = None
        self.prepared = PreparedCache(self)
        self.barrier = DriverCall("barrier", driver.append_barrier)   # common to all lists of the queue
        self._use: StreamUse | None = None   # kept for the next list
        self._last_use: ref[StreamUse] | None = None

    # ---- lists on a borrowed stream
    def stream_use(self) -> StreamUse:
        """Return the use of the lists on this borrowed stream. The caller holds `QueueTable.streams_lock`."""
        use = self._use
        if use is None and self._last_use is not None:
            use = self._last_use()
        if use is None:
            use = StreamUse()
            self._last_use = ref(use)
        self._use = use
        return use

    def is_used(self) -> bool:
        """Return whether a list on this borrowed stream exists. The caller holds `QueueTable.streams_lock`."""
        self._use = None   # from now on, only the lists keep the use
        return self._last_use is not None and self._last_use() is not None

    # ---- appending
    def append(
        self, append: Append, params: Any = None, user: Usable | None = None,
        kept: Sequence[Fence] = (), lifetimes: Sequence[Lifetime] = (), memories: Sequence[Token] = (),
        want_fence: bool = False,
    ) -> Any:
        """Append one operation: record it, and make the driver's call. Return its fence if `want_fence` is True."""
        # All appends on the device take this path, except markers. After an error nothing was appended, but an
        # operation whose driver call Ctrl-C interrupts counts as appended, because the driver may have it.
        # `user` is the lifetime of the appending command list, because a released list cannot append. `kept` has the
        # wait fences. `lifetimes` and `memories` are the memory in the handover and its tokens; `memories` is empty
        # unless the device declares `needs_handover`.
        device_state = self.device_state
        if device_state.generation != device_state.clock.now:
            # This check precedes the lock: at the fork, another thread of the parent process may have held the lock.
            check_generation(device_state.generation, device_state.info.id)
        releaser = device_state.releaser
        if releaser.jobs or device_state.owing or device_state.callbacks_thread.stalled:
            device_state.catch_up()
        gate, crowded = None, False
        if append.may_wait or kept:
            gate = device_state.gate
            if gate is not None and releaser.crowded:
                crowded = True
                releaser.use_moment(gate)
        if self._only_application:
            self.enter()
        op = new_operation(append, params, kept)
        with self.lock:
            fence = self._append(op, append, params, user, kept, lifetimes, memories, want_fence, gate, crowded)
        if self._slots > self._due:
            self.maybe_fence()
        return fence

    def _append(
        self, op: Operation, append: Append, params: Any, user: Usable | None, kept: Sequence[Fence],
        lifetimes: Sequence[Lifetime], memories: Sequence[Token], want_fence: bool, gate: ReleaseGate | None,
        crowded: bool,
    ) -> Fence | None:
        """Append the operation. The caller holds the lock."""
        device_state = self.device_state
        calling = foreign = captured = watched = False
        fences: Sequence[Token] = ()
        outer = self._issuing
        seq = op.seq = self.seq = self.seq + 1
        try:
            # The new number precedes this check. Either a concurrent release in another thread reads the new number and
            # the queue stays open, or this check detects the release.
            lifetime = self.lifetime
            if lifetime.released or (user is not None and user is not lifetime and user.is_released()):
                self._raise_released(user)
            if self.failure is not None:
                self.raise_failure()
            if kept:
                tokens = []
                for waited in kept:
                    tokens.append(waited.token)
                    foreign = foreign or waited.queue is None
                fences = tokens
                self.exposed = self.exposed or foreign
            if self.exposed or self.recording:
                captured = self.recording or self._query_capture()
            if self._slots >= self._due and not captured:
                self._check_room()
            if gate is not None and not captured:
                # A release closes the gate and then reads `_last_wait`. Either the release sees this wait, or this
                # append sees the closed gate and waits for the end of the release.
                self._last_wait = seq
                if gate.closed:
                    with gate.lock:
                        pass
            if append.unreadable and not captured:
                for state in append.unreadable:
                    watched = watched or state.signallers.known
                if watched:
                    # A marker before the wait and one behind it tell whether the wait holds the queue when its
                    # signallers have ended. The first one is missing only if everything before the wait is done.
                    self._try_mark()
            append.begin(op, self, self.recording)
            for used in lifetimes:
                used.use(self, seq)
            if self.recording:
                for used in (*append.lifetimes, *lifetimes):
                    self.recorded_uses.append(used)
                    used.hold(self.recorded_by)
            self._issuing = not append.reenters
            if not captured:
                self._slots += 1
                self.operations.append(op)
            calling = True
            token = append.call(params, fences, memories, want_fence)
        except BaseException as error:
            if not calling or isinstance(error, Exception):
                append.take_back(op)
                self._take_back(op)
                if isinstance(error, XsemError):
                    device_state.annotate_error(error)
                    if self.seq == seq:
                        self.not_appended(seq)
            raise
        finally:
            self._issuing = outer
            if self.seq != seq:
                # The work has appended operations to its own queue. The work is done after these operations.
                seq = op.seq = self.seq = self.seq + 1
            self._issued = seq
        if op.changes is not None:
            op.changes.settle()
        if foreign and not captured and self._query_capture():
            # A wait for an event from a capture makes this queue part of that capture.
            captured = True
            self._take_back(op)
        if captured:
            return self._captured_fence(op, (*append.lifetimes, *lifetimes), token, want_fence)
        if append.reenters:
            self._move_to_the_end(op)
        fence = None
        if want_fence:
            fence = op.fence = new_fence(device_state, token, self, seq)
            self._note_marker(fence)
        elif crowded or watched:
            # This marker is directly behind the wait. The next poll can then tell whether the wait is met.
            self._try_mark()
        return fence

    def _raise_released(self, user: Usable | None) -> None:
        self.device_state.lifetime.check()
        self.lifetime.check()
        if user is not None:
            user.check()

    def _captured_fence(
        self, op: Operation, lifetimes: Sequence[Lifetime], token: Token | None, want_fence: bool
    ) -> Fence | None:
        """Store a recorded operation, or pin the objects of a captured one. Return the requested fence."""
        # The operation runs at each launch of its graph, so no marker can tell its end.
        if self.recording:
            self.recorded.append(op)
        else:
            for lifetime in lifetimes:
                lifetime.pin()
        if not want_fence:
            return None
        fence = new_fence(self.device_state, token, self, op.seq)
        fence.captured = True
        return fence

    def _take_back(self, op: Operation) -> None:
        """Remove an operation that the driver did not get, refused or captured. The caller holds the lock."""
        with contextlib.suppress(ValueError):  # not in the list yet, or dropped after a failure of the queue
            self.operations.remove(op)
            self._slots -= 1

    def _move_to_the_end(self, op: Operation) -> None:
        if self.operations and self.operations[-1] is not op:
            with contextlib.suppress(ValueError):
                self.operations.remove(op)
            self.operations.append(op)

    def _check_room(self) -> None:
        # The last place belongs to a marker behind all operations. Without that marker, their progress stays unknown.
        if self._room() > 1:
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
