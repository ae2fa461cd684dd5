"""Waits and signals of fixed semaphores on one queue: validated once, and appended with new values many times."""

# A `PreparedAppend` that is kept registers once as a user of its semaphores, so an append examines each semaphore only
# after a release on the device.

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from xsem.data.params import UINT64_MAX
from xsem.errors import XsemError
from xsem.runtime.lifetime import User
from xsem.runtime.queues.completion import CompletionTracker
from xsem.runtime.queues.operations import NOT_NOTED, Append, Operation, Targets
from xsem.runtime.queues.timeline_values import all_above, last_values, store_values
from xsem.runtime.semaphore_state import SemaphoreState
from xsem.spi import Token
from xsem.spi.native_call import NativeCall
from xsem.types import Feature, SemaphoreKind, SignalParams, WaitParams

__all__ = ["PreparedAppend", "prepared_append"]


class PreparedAppend(Append):
    """A wait or a signal of one or several semaphores on one queue, and a `User` for their lifetimes."""

    # This base class serves appends without a change of stored semaphore state, for example waits for timelines.

    __slots__ = (
        "_append",
        "_appends",
        "_limit",
        "_limited",
        "_lock",
        "_native",
        "_prepare",
        "_releaser",
        "_repeat",
        "_resets",
        "_seen",
        "_tokens",
        "batch",
        "dropped",
        "last_seq",
        "params_type",
        "queue",
        "states",
        "takes_int",
        "takes_none",
        "timelines",
    )

    def __init__(
        self, queue: CompletionTracker, operation: Literal["wait", "signal"], states: Sequence[SemaphoreState], *,
        batch: bool,
    ) -> None:
        super().__init__(operation, [state.lifetime for state in states], may_wait=operation == "wait")
        driver, device_state = queue.driver, queue.device_state
        self.queue = queue
        self.states = tuple(states)
        if operation == "wait":
            readable = Feature.READ_VALUE in device_state.capabilities.features
            self.unreadable = tuple(
                [state for state in states if not (readable and state.kind is SemaphoreKind.TIMELINE)])
        self.batch = batch   # the application passed a sequence of semaphores; the parameters are then one, too
        self.params_type: type[WaitParams | SignalParams] = WaitParams if operation == "wait" else SignalParams
        self.timelines = all(state.kind is SemaphoreKind.TIMELINE for state in states)
        self.takes_int = self.timelines and not batch   # the parameter can be a bare int
        self.takes_none = not batch and self.states[0].kind is SemaphoreKind.BINARY   # the parameter can be None
        self._append: Callable[..., Token | None] = getattr(driver, f"append_{operation}")
        self._prepare: Callable[..., Any] = getattr(driver, f"prepare_{operation}")
        self._repeat: Callable[..., Token | None] | None = None
        self._native: NativeCall | None = None   # `_repeat`, if this is a `NativeCall`
        self._appends = 0   # number of appends without `_repeat`
        self._tokens: Sequence[Token] = [state.token for state in states]
        self._limit = device_state.capabilities.max_value_difference
        self._limited = self._limit != UINT64_MAX
        self._resets = device_state.capabilities.resets_on_wait
        self._releaser = device_state.releaser
        self._lock = device_state.values_lock
        self.last_seq = 0   # number of the last operation of this append
        self._seen = -1   # number of the device's releases at the last examination of the semaphores
        # The cache does not keep the append: before `keep`, in a recording, or because it was discarded. The lifetimes
        # of the semaphores do not know this user or can forget it, so each append notes the queue as the user.
        self.dropped = True

    def keep(self) -> None:
        """Register as a user of the semaphores, for an owner that keeps the append. ReleasedError: one is released."""
        self.dropped = False
        for lifetime in self.lifetimes:
            lifetime.use(self, 1)

    # ---- `User` for the lifetimes of the semaphores: one use with number 1, until the last operation is done
    @property
    def done_seq(self) -> int:
        """1 if no operation of this append is pending, otherwise 0."""
        return 1 if self.queue.done_seq >= self.last_seq else 0

    @property
    def closed(self) -> bool:
        """Whether lifetimes can forget this use."""
        # The queue is closed, or no operation is pending and the append is dropped or has a released semaphore.
        return self.queue.closed or (self.done_seq == 1 and (
            self.dropped or any(lifetime.released for lifetime in self.lifetimes)))

    def on_queue(self, seq: int) -> tuple[CompletionTracker, int]:
        """Return the queue, and the number of the last operation of this append."""
        return self.queue, self.last_seq

    # ---- use
    def begin(self, op: Operation, user: User, recording: bool) -> None:
        """Note the use. Check the values of a wait, if the device limits the difference of values."""
        self.note_use(op, user)
        if self._limited:
            for state, value in self.targets(op.params):
                if value is not None:
                    state.check_difference(value, self._limit)

    def note_use(self, op: Operation, user: User) -> None:
        """Note the use. Examine the semaphores only after a release on the device."""
        # The note precedes the examination, as in `Lifetime.use`.
        self.last_seq = op.seq
        if self._seen != self._releaser.releases:
            self._examine()
        if self.dropped:
            for lifetime in self.lifetimes:
                lifetime.use(user, op.seq)

    def _examine(self) -> None:
        now = self._releaser.releases
        for lifetime in self.lifetimes:
            lifetime.check()
        self._seen = now

    # ---- the driver's call
    def prepare(self) -> None:
        """Let the driver prepare its arrays now, if all are timelines or there is one binary semaphore."""
        if self.timelines or self.takes_none:
            self._repeat = self._prepare(self._tokens)
            if isinstance(self._repeat, NativeCall):
                self._native = self._repeat

    def call(self, params: Any, fences: Sequence[Token], memories: Sequence[Token], want_fence: bool) -> Token | None:
        """Call the driver's prepared function. Without such a function, call `append_wait` or `append_signal`."""
        if type(params) is list:
            return self._append(self._tokens, params, fences, memories, want_fence)
        if not memories:
            if self._native is not None:
                return self._native.append(params, fences, want_fence)
            # The first append prepares nothing: the preparation takes as long as several appends, and many batches
            # occur only once. After a failure, the preparation is not repeated.
            if self._repeat is None:
                if self._appends == 1:
                    with contextlib.suppress(XsemError):   # if the error persists, the call below raises it
                        self.prepare()
                self._appends += 1
            if self._repeat is not None:
                return self._repeat(params, fences, want_fence)
        return self._append(self._tokens, [self.params_type(value=each) for each in _values(params)], fences, memories,
                            want_fence)

    def targets(self, params: Any) -> Targets:
        """Return the semaphores with their values."""
        return tuple(zip(self.states, _values(params), strict=True))


class _TimelineSignal(PreparedAppend):
    """A signal of timelines. One lock covers the check and the change of the values."""

    __slots__ = ()

    def begin(self, op: Operation, user: User, recording: bool) -> None:
        """Note the use, then check and store the values."""
        self.last_seq = op.seq
        if self._seen != self._releaser.releases or self.dropped:
            self.note_use(op, user)
        if recording:
            return   # each replay stores the values of its signals
        with self._lock:
            self._store(op)

    def _store(self, op: Operation) -> None:
        params = op.params
        if type(params) is int:
            state = self.states[0]
            last = state.last
            if last is not None and (params <= last or self._limited):
                state.check_advance(params, allow_rewind=False, limit=self._limit)
            op.before = (last,)
            state.last = params
            return
        values = _values(params)
        lasts = last_values(self.states)
        if self._limited or not all_above(values, lasts):
            self._check_each(op, values, lasts)
        op.before = lasts
        store_values(self.states, values)

    def _check_each(self, op: Operation, values: Sequence[Any], lasts: Sequence[int | None]) -> None:
        """Refuse a value that cannot be signalled next, and note each rewind."""
        rewinds = [param.allow_rewind for param in op.params] if type(op.params) is list else [False] * len(values)
        for state, value, rewind in zip(self.states, values, rewinds, strict=True):
            state.check_advance(value, allow_rewind=rewind, limit=self._limit)
        for state, value, last in zip(self.states, values, lasts, strict=True):
            state.rewound = state.rewound or (last is not None and value <= last)

    def take_back(self, op: Operation) -> None:
        if op.before is not NOT_NOTED:
            for state, value, last in zip(self.states, _values(op.params), op.before, strict=True):
                state.restore(value, last)

    def rewinds(self, params: Any) -> bool:
        return type(params) is list and any(param.allow_rewind for param in params)


class _OtherKinds(PreparedAppend):
    """A wait or a signal of other or mixed kinds, or of binary semaphores whose state changes."""

    # The state changes at a wait on a device without `resets_on_wait`, and at waits and signals on a device that needs
    # the signal first.

    __slots__ = ()

    def begin(self, op: Operation, user: User, recording: bool) -> None:
        """Note the use, and change the state of each semaphore."""
        if recording:
            for state in self.states:
                state.lent = True
        if self.operation == "wait":
            PreparedAppend.begin(self, op, user, recording)
            changes = op.change_states()
            for state in self.states:
                changes.wait(state, resets=self._resets)
        else:
            self.note_use(op, user)
            changes = op.change_states()
            params = (_NO_VALUE,) if op.params is None else op.params
            for state, param in zip(self.states, params, strict=True):
                changes.signal(state, None if recording else param.value, allow_rewind=param.allow_rewind,
                               limit=self._limit)

    def rewinds(self, params: Any) -> bool:
        return self.operation == "signal" and params is not None and any(param.allow_rewind for param in params)


_NO_VALUE: Final = SignalParams()


def prepared_append(
    queue: CompletionTracker, operation: Literal["wait", "signal"], states: Sequence[SemaphoreState], *, batch: bool
) -> PreparedAppend:
    """Create the prepared append of these semaphores. It serves one append; for more, the caller calls `keep`."""
    kinds = {state.kind for state in states}
    kind: type[PreparedAppend] = _OtherKinds
    if kinds == {SemaphoreKind.TIMELINE}:
        kind = _TimelineSignal if operation == "signal" else PreparedAppend
    elif kinds == {SemaphoreKind.BINARY} and not any(state.signal_first for state in states) and (
            operation == "signal" or queue.device_state.capabilities.resets_on_wait):
        kind = PreparedAppend   # the state of the binary semaphores does not change
    return kind(queue, operation, states, batch=batch)


def _values(params: Any) -> Sequence[Any]:
    """Return one value for each semaphore. The value of a semaphore without values is None."""
    if type(params) is int or params is None:
        return (params,)
    return [param.value for param in params] if type(params) is list else params
