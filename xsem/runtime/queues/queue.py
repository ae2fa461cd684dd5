"""The append of operations to one native queue. All lists that wrap the native queue share one `Queue`."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Literal, overload

from xsem.errors import WouldBlockError, XsemError
from xsem.runtime.claims import Claim
from xsem.runtime.device_state import DeviceState
from xsem.runtime.forks import Clock
from xsem.runtime.lifetime import Lifetime
from xsem.runtime.queues.completion import CompletionTracker
from xsem.runtime.queues.operations import Fence, Operation, OperationFacts, OperationName, Targets
from xsem.runtime.queues.prepared_append import PreparedAppend
from xsem.runtime.queues.prepared_cache import PreparedCache
from xsem.runtime.queues.semaphore_changes import Note, StateChanges
from xsem.spi import CommandListDriver, Token

__all__ = ["Queue"]

_OPEN: Final[AbstractContextManager[None]] = nullcontext()
_now = time.monotonic


class Queue(CompletionTracker):
    """One native queue with its operations in flight.

    Attributes
    ----------
    recorded : list of Operation
        Operations appended while `recording` is True.
    recorded_uses : list of Lifetime
        Lifetimes of the objects that `recorded` uses. `recorded_by` holds them.
    recorded_by : object
        The holder of `recorded_uses`.
    wrappers : set of CommandList
        The lists that wrap this queue, by weak references.
    prepared : PreparedCache
        The prepared appends of this queue.
    """

    def __init__(self, device_state: DeviceState, driver: CommandListDriver, name: str, *, borrowed: bool) -> None:
        super().__init__(device_state, driver, name, borrowed=borrowed)
        self.recorded: list[Operation] = []
        self.recorded_uses: list[Lifetime] = []
        self.recorded_by: object = None
        self.wrappers: weakref.WeakSet[object] = weakref.WeakSet()
        self.prepared = PreparedCache(self)

    # ---- appending
    @overload
    def append(
        self, operation: OperationName, call: Callable[[bool], Token | None], *, note: Note | None = None,
        lifetimes: Sequence[Lifetime] = (), targets: Targets = (), kept: Sequence[Fence] = (),
        want_fence: Literal[True], rewinds: bool = False, waits: bool = False, signals: Targets = (),
        reenters: bool = False,
    ) -> Fence: ...
    @overload
    def append(
        self, operation: OperationName, call: Callable[[bool], Token | None], *, note: Note | None = None,
        lifetimes: Sequence[Lifetime] = (), targets: Targets = (), kept: Sequence[Fence] = (), want_fence: bool = False,
        rewinds: bool = False, waits: bool = False, signals: Targets = (), reenters: bool = False,
    ) -> Fence | None: ...
    def append(
        self, operation: OperationName, call: Callable[[bool], Token | None], *, note: Note | None = None,
        lifetimes: Sequence[Lifetime] = (), targets: Targets = (), kept: Sequence[Fence] = (), want_fence: bool = False,
        rewinds: bool = False, waits: bool = False, signals: Targets = (), reenters: bool = False,
    ) -> Fence | None:
        """Append one operation: note it, and make the driver's call.

        An operation that Ctrl-C interrupts inside `call` counts as appended, because the driver may have it.

        Parameters
        ----------
        operation : OperationName
        call : callable
            Makes the driver's call and returns the token of a fence or None. Its argument is `want_fence`.
        note : callable, optional
            Changes the state of the semaphores before `call`. The changes are undone if the driver refuses.
        lifetimes : sequence of Lifetime
            Lifetimes of the objects that the operation uses.
        targets, kept, rewinds, signals
            As in `Operation`.
        want_fence : bool
            Return a fence of the operation.
        waits : bool
            The operation can hold the queue, although it is not a wait.
        reenters : bool
            `call` itself may append to this queue.

        Returns
        -------
        Fence or None
            The fence of the operation if `want_fence` is True.

        Raises
        ------
        ReleasedError, WouldBlockError
            Nothing was appended.
        XsemError
            The driver refused the operation, or earlier work of the queue failed. Nothing was appended.
        """
        may_wait = bool(waits or kept or operation == "wait")
        gate = self.device_state.gate if may_wait else None
        crowded = gate is not None and self.device_state.releaser.crowded
        if crowded and gate is not None:
            self.device_state.releaser.use_moment(gate)
        claim = Claim()
        changes, calling = StateChanges(claim), False
        with self.lock, _OPEN if gate is None else gate.lock:
            op = Operation(operation, targets, kept, rewinds, signals)
            outer = self._issuing
            # No call stands between here and `try`: Ctrl-C there would leave a number that is never issued or done.
            seq = op.seq = self.seq = self.seq + 1
            try:
                if gate is not None:
                    gate.inside += 1
                # The queue itself comes first, before any driver call: from here on no other thread can close it.
                self.lifetime.use(self, seq)
                self.raise_failure()
                foreign = bool(kept) and any(fence.queue is None for fence in kept)
                self.exposed = self.exposed or foreign
                captured = self.recording or (self.exposed and self.driver.capturing())
                if not captured:
                    self._check_room()
                for lifetime in lifetimes:
                    lifetime.use(self, seq)
                    if self.recording:
                        self.recorded_uses.append(lifetime)
                        lifetime.hold(self.recorded_by)
                if note is not None:
                    note(changes)
                self._issuing = not reenters
                if not captured:
                    self._slots += 1
                    if may_wait:
                        self._last_wait = seq
                    self.operations.append(op)
                calling = True
                token = call(want_fence)
            except BaseException as error:
                if not calling or isinstance(error, Exception):
                    changes.take_back()
                    self._take_back(op)
                    if isinstance(error, XsemError) and self.seq == seq:
                        self.not_appended(seq)
                raise
            finally:
                claim.over = True
                if gate is not None:
                    gate.inside -= 1
                self._issuing = outer
                if self.seq != seq:
                    # Work that appended to its own queue is done after the operations that it appended.
                    seq = op.seq = self.seq = self.seq + 1
                    self.lifetime.uses[self] = seq
                self._issued = seq
            if foreign and not captured and self.driver.capturing():
                # A wait for an event from a capture makes this queue part of that capture.
                captured = True
                self._take_back(op)
            if captured:
                # The operation runs at each launch of the graph. No marker can tell its end.
                if self.recording:
                    self.recorded.append(op)
                else:
                    for lifetime in lifetimes:
                        lifetime.pin()
                return Fence(self.device_state, token, self, seq, captured=True) if want_fence else None
            if reenters:
                self._move_to_the_end(op)
            fence = op.fence = Fence(self.device_state, token, self, seq) if want_fence else None
            if fence is not None:
                self._note_marker(fence)
            elif crowded:
                # With a marker directly behind the wait, the next poll can tell whether the wait is met.
                self._try_mark()
        self.maybe_fence()
        return fence

    def _take_back(self, op: Operation | OperationFacts) -> None:
        """Remove an operation that the driver did not get, or refused. The caller holds the lock."""
        with contextlib.suppress(ValueError):  # not in the list yet, or the queue has failed and dropped its operations
            self.operations.remove(op)
            self._slots -= 1

    def _move_to_the_end(self, op: Operation) -> None:
        if self.operations and self.operations[-1] is not op:
            with contextlib.suppress(ValueError):
                self.operations.remove(op)
            self.operations.append(op)

    def append_prepared(self, prepared: PreparedAppend, values: Any, user: Lifetime) -> bool:
        """Append a prepared wait or signal. Return False if the case is unusual: `append` then handles or refuses it.

        This method is one piece with as few calls as possible, because an application appends in each frame.

        Parameters
        ----------
        prepared : PreparedAppend
        values : int or sequence of int
            One value for each semaphore.
        user : Lifetime
            Lifetime of the command list that appends.

        Raises
        ------
        XsemError
            The driver refused the operation. Nothing was appended.
        """
        device_state = self.device_state
        if device_state.generation != Clock.now:
            return False  # before the lock: in a forked child, a thread of the parent process may hold it
        releaser = device_state.releaser
        if releaser.jobs:
            releaser.drain()
        lock = self.lock
        try:
            # Not `with`, which takes longer than most of this method. Inside `try`, because Ctrl-C can come between
            # this line and the next one.
            lock.acquire()
            lifetime = self.lifetime
            # The notes of use precede the checks, as in `Lifetime.use`: a concurrent release sees the note, or this
            # append sees the release. The note of the queue precedes those of the semaphores, because a closed queue
            # would not tell when their use ends.
            seq = self.seq = self.seq + 1
            lifetime.uses[self] = seq
            outer, self._issuing = self._issuing, True
            try:
                if lifetime.released:
                    return False
                prepared.last_seq = seq
                if (
                    user.released or prepared.dropped or self.recording or self.failure is not None
                    or (prepared.seen != releaser.releases and prepared.released())
                    or (self.exposed and self.driver.capturing())
                    or (self._slots >= self._due and self._room() <= 1)
                ):
                    return False
                gate = prepared.gate
                if gate is not None:
                    if releaser.crowded:
                        return False  # `append` calls `Releaser.use_moment` first
                    # No gate lock is needed. A release closes the gate before it reads `_last_wait`, so either the
                    # release sees this wait, or this append sees the closed gate.
                    self._last_wait = seq
                    if gate.closed:
                        return False
                # As in `append`: noted before the driver's call, and removed if the driver refuses.
                operation = (seq, prepared, values, _now())
                calling = False
                try:
                    if not prepared.note(values):
                        return False
                    self._slots += 1
                    self.operations.append(operation)
                    calling = True
                    prepared.call(values)
                except BaseException as error:
                    if not calling or isinstance(error, Exception):
                        self._take_back(operation)
                        prepared.take_back(values)
                    if isinstance(error, XsemError):
                        device_state.annotate_error(error)
                    if type(error) is not ValueError:
                        raise
                    return False  # a bare ValueError means a value that is not an unsigned 64-bit int
            finally:
                self._issuing = outer
                if self.seq != seq:
                    seq = prepared.last_seq = self.seq = self.seq + 1
                    lifetime.uses[self] = seq
                self._issued = seq
        finally:
            try:  # noqa: SIM105 - contextlib.suppress takes longer than a lock does
                lock.release()
            except RuntimeError:
                pass  # Ctrl-C came while another thread had the lock
        if self._slots > self._due:
            self.maybe_fence()
        return True

    def _check_room(self) -> None:
        # The last place is kept for a marker behind all operations. Without that marker, their progress stays unknown.
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
