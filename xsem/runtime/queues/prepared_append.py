"""Waits and signals of fixed semaphores on one queue: validated once, and appended with new values many times."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, Protocol

from xsem.data.params import UINT64_MAX
from xsem.errors import XsemError
from xsem.runtime.device_state import DeviceState
from xsem.runtime.lifetime import QueueProgress
from xsem.runtime.queues.operations import Append, Targets
from xsem.runtime.queues.semaphore_changes import StateChanges
from xsem.runtime.quick import QuickAppend
from xsem.runtime.semaphore_state import SemaphoreState, can_read
from xsem.spi import QueueDriver, Token
from xsem.types import SemaphoreKind, SignalParams, WaitParams

__all__ = ["PreparedAppend", "are_values", "prepared_append"]


class AppendingQueue(Protocol):
    """The queue of a prepared append."""

    @property
    def device_state(self) -> DeviceState: ...
    @property
    def driver(self) -> QueueDriver: ...
    @property
    def quick(self) -> object: ...


class PreparedAppend(Append):
    """A wait or a signal of one or several semaphores on one queue."""

    # This base class serves appends without a change of stored semaphore state, for example waits for timelines.

    __slots__ = (
        "_append", "_appends", "_lock", "_prepare", "_queue", "_repeat", "_resets", "_tokens", "batch", "limit",
        "params_type", "quick", "states", "takes_int", "takes_none", "timelines",
    )

    def __init__(
        self, queue: AppendingQueue, operation: Literal["wait", "signal"], states: Sequence[SemaphoreState], *,
        batch: bool,
    ) -> None:
        device_state, driver = queue.device_state, queue.driver
        super().__init__(operation, [state.lifetime for state in states], may_wait=operation == "wait")
        self.states = tuple(states)
        if operation == "wait":
            self.unreadable = tuple(
                [state for state in states
                 if not (state.kind is SemaphoreKind.TIMELINE and can_read(device_state, state))])
            self.paged = tuple([state for state in states if state.page is not None])
        self.batch = batch   # the application passed a sequence of semaphores; the parameters are then one, too
        self.params_type: type[WaitParams | SignalParams] = WaitParams if operation == "wait" else SignalParams
        self.timelines = all(state.kind is SemaphoreKind.TIMELINE for state in states)
        self.takes_int = self.timelines and not batch   # the parameter can be a bare int
        self.takes_none = not batch and self.states[0].kind is SemaphoreKind.BINARY   # the parameter can be None
        self._append: Callable[..., Token | None] = getattr(driver, f"append_{operation}")
        self._prepare: Callable[..., Any] = getattr(driver, f"prepare_{operation}")
        self._repeat: Callable[..., Token | None] | None = None   # the driver's prepared call
        self._appends = 0   # number of appends without `_repeat`
        self._queue = queue
        self.quick: Any = None   # makes the append in C, where that is possible
        self.bridged = tuple([state for state in states if state.type in device_state.capabilities.bridged])
        self._tokens: Sequence[Token] = [state.token for state in states if state not in self.bridged]
        # A value up to here is not too far above any value. A higher one is checked, except at the largest limit.
        self.limit = min(state.limit for state in states)
        self._resets = device_state.capabilities.resets_on_wait
        self._lock = device_state.values_lock

    def begin(self, queue: QueueProgress, seq: int, params: Any, recording: bool) -> Any:
        """Note the use. Check the values of a wait, if the device limits the difference of values."""
        for lifetime in self.lifetimes:
            lifetime.use(queue, seq)
        if self.limit != UINT64_MAX:
            for state, value in self.targets(params):
                if value is not None:
                    state.check_difference(value)

    def call(self, params: Any, fences: Sequence[Token], memories: Sequence[Token], want_fence: bool) -> Token | None:
        """Call the driver's prepared function. Without such a function, call `append_wait` or `append_signal`."""
        if self.bridged:
            return self._append(self._tokens, self._of_driver(params), fences, memories, want_fence)
        if type(params) is list:
            return self._append(self._tokens, params, fences, memories, want_fence)
        if not memories:
            repeat = self._repeat
            if repeat is None and (self.timelines or self.takes_none):
                # The first append prepares nothing: the preparation takes as long as several appends, and many batches
                # occur only once. After a failure, the preparation is not repeated.
                if self._appends == 1:
                    with contextlib.suppress(XsemError):   # if the error persists, the call below raises it
                        repeat = self._repeat = self._prepare(self._tokens)
                        self._make_quick(getattr(repeat, "native", None))
                self._appends += 1
            if repeat is not None:
                return repeat(params, fences, want_fence)
        return self._append(self._tokens, [self.params_type(value=each) for each in _values(params)], fences, memories,
                            want_fence)

    def _of_driver(self, params: Any) -> list[WaitParams | SignalParams]:
        """Return the parameters of the semaphores that the driver knows."""
        listed = params if type(params) is list else [self.params_type(value=each) for each in _values(params)]
        return [param for state, param in zip(self.states, listed, strict=True) if state not in self.bridged]

    def _make_quick(self, native: object) -> None:
        """Let the compiled file make further appends, if they have nothing to check but the values of timelines."""
        quick = self._queue.quick
        if quick is not None and native is not None and not isinstance(self, _OtherKinds):
            self.quick = QuickAppend(quick, self, native)

    def targets(self, params: Any) -> Targets:
        """Return the semaphores with their values."""
        return tuple(zip(self.states, _values(params), strict=True))


class _TimelineSignal(PreparedAppend):
    """A signal of timelines. One lock covers the check and the change of the values."""

    __slots__ = ()

    def begin(self, queue: QueueProgress, seq: int, params: Any, recording: bool) -> Any:
        """Note the use, then check and store the values. Return the values before."""
        for lifetime in self.lifetimes:
            lifetime.use(queue, seq)
        if recording:
            return None   # each replay stores the values of its signals
        before: Sequence[int | None] | None = None
        try:
            with self._lock:
                if type(params) is int and params <= self.limit:   # the usual case, without the loops
                    state = self.states[0]
                    last = state.last
                    if (last is not None and params <= last) or state.page is not None:
                        state.check_advance(params, allow_rewind=False)
                    before, state.last = (last,), params
                else:
                    values = _values(params)
                    before = self._checked(params, values)
                    for state, value in zip(self.states, values, strict=True):
                        state.last = value
        except BaseException:
            if before is not None:   # Ctrl-C
                self.take_back(params, before)
            raise
        return before

    def _checked(self, params: Any, values: Sequence[Any]) -> list[int | None]:
        """Refuse a value that cannot be signalled next, and return the last values."""
        before: list[Any] = [state.last for state in self.states]
        if self.limit != UINT64_MAX or None in before or not all(map(operator.gt, values, before)):
            rewinds = [param.allow_rewind for param in params] if type(params) is list else [False] * len(values)
            for state, value, rewind in zip(self.states, values, rewinds, strict=True):
                state.check_advance(value, allow_rewind=rewind)
            for state, value, last in zip(self.states, values, before, strict=True):
                state.rewound = state.rewound or (last is not None and value <= last)
        return before

    def take_back(self, params: Any, before: Any) -> None:
        """Restore the values before."""
        for state, value, last in zip(self.states, _values(params), before, strict=True):
            state.restore(value, last)

    def settle(self, before: Any) -> None:
        """Keep the values."""

    def rewinds(self, params: Any) -> bool:
        return type(params) is list and any(param.allow_rewind for param in params)


class _OtherKinds(PreparedAppend):
    """A wait or a signal of other or mixed kinds, or of binary semaphores whose state changes."""

    # The state changes at a wait on a device without `resets_on_wait`, and at waits and signals on a device that needs
    # the signal first.

    __slots__ = ()

    def begin(self, queue: QueueProgress, seq: int, params: Any, recording: bool) -> Any:
        """Note the use, and change the state of each semaphore."""
        # `changes.signal` checks the difference of values.
        begin = PreparedAppend.begin if self.operation == "wait" else Append.begin
        begin(self, queue, seq, params, recording)
        if recording:
            for state in self.states:
                state.lent = True
        with StateChanges() as changes:
            if self.operation == "wait":
                for state in self.states:
                    changes.wait(state, resets=self._resets)
            else:
                for state, param in zip(self.states, (_NO_VALUE,) if params is None else params, strict=True):
                    changes.signal(state, None if recording else param.value, allow_rewind=param.allow_rewind)
        return changes

    def rewinds(self, params: Any) -> bool:
        return self.operation == "signal" and params is not None and any(param.allow_rewind for param in params)


_NO_VALUE: Final = SignalParams()


def prepared_append(
    queue: AppendingQueue, operation: Literal["wait", "signal"], states: Sequence[SemaphoreState], *, batch: bool
) -> PreparedAppend:
    """Create the prepared append of these semaphores on a queue."""
    kinds = {state.kind for state in states}
    kind: type[PreparedAppend] = _OtherKinds
    if kinds == {SemaphoreKind.TIMELINE}:
        kind = _TimelineSignal if operation == "signal" else PreparedAppend
    elif kinds == {SemaphoreKind.BINARY} and not any(state.signal_first for state in states) and (
            operation == "signal" or queue.device_state.capabilities.resets_on_wait):
        kind = PreparedAppend   # the state of the binary semaphores does not change
    return kind(queue, operation, states, batch=batch)


def are_values(given: tuple[Any, ...]) -> bool:
    """Return whether each element is an int from 0 to 2**64 - 1. Subclasses of int, such as bool, do not count."""
    return set(map(type, given)) == {int} and min(given) >= 0 and max(given) <= UINT64_MAX


def _values(params: Any) -> Sequence[Any]:
    """Return one value for each semaphore. The value of a semaphore without values is None."""
    if type(params) is int or params is None:
        return (params,)
    return [param.value for param in params] if type(params) is list else params
