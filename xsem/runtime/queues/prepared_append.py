"""Prepared appends: waits and signals of fixed timelines on one queue, validated once and repeated.

A `PreparedAppend` registers once as a user of its semaphores, so a call need not examine each of them. A signal of
several timelines holds their last values together until other code signals one of them or reads its value.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal

from xsem.data.params import UINT64_MAX
from xsem.runtime.lifetime import QueueProgress, Releaser
from xsem.runtime.release_gate import ReleaseGate
from xsem.runtime.semaphore_state import SemaphoreState

__all__ = ["PreparedAppend", "prepared_signal"]


class PreparedAppend:
    """A wait for one or several timelines on one queue. Subclasses are signals.

    For the lifetimes of its semaphores it is a `QueueProgress`.

    Attributes
    ----------
    queue : QueueProgress
    states : tuple of SemaphoreState
    gate : ReleaseGate or None
        The gate whose releases must end before the append of a wait. None for signals.
    call : callable
        The driver's call. Its argument is that of `note`. Raises a bare ValueError for a value that is not an unsigned
        64-bit int.
    last_seq : int
        Number of its last operation.
    seen : int
        `Releaser.releases` at a moment when no semaphore was released.
    dropped : bool
        It will not be used any more.
    """

    __slots__ = ("_releaser", "call", "dropped", "gate", "last_seq", "queue", "seen", "states")

    operation: Literal["wait", "signal"] = "wait"

    def __init__(
        self, queue: QueueProgress, releaser: Releaser, states: Sequence[SemaphoreState],
        call: Callable[[Any], object], gate: ReleaseGate | None,
    ) -> None:
        self.queue = queue
        self._releaser = releaser
        self.states = tuple(states)
        self.gate = gate
        self.last_seq = 0
        self.seen = -1
        self.dropped = False
        self.call = call
        for state in self.states:
            state.lifetime.uses[self] = 1
        self.released()  # after the notes, as at each call

    # ---- `QueueProgress` for the lifetimes of the semaphores: the use has number 1, and ends with the last operation
    @property
    def done_seq(self) -> int:
        """1 if none of its operations is pending, otherwise 0."""
        return 1 if self.queue.done_seq >= self.last_seq else 0

    @property
    def closed(self) -> bool:
        """Whether lifetimes can forget this use: no operation is pending, and none will follow."""
        return self.queue.closed or (self.done_seq == 1 and (self.dropped or self.released()))

    def ensure_fence(self, _seq: int) -> None:
        """Ensure that a marker tells when the last operation is done."""
        self.queue.ensure_fence(self.last_seq)

    def poll(self) -> None:
        """Update the progress of the queue."""
        self.queue.poll()

    # ---- calls
    def released(self) -> bool:
        """Return whether one of the semaphores has been released. Examines each of them."""
        now = self._releaser.releases
        if any(state.lifetime.released for state in self.states):
            return True
        self.seen = now
        return False

    def takes(self, values: tuple[Any, ...]) -> bool:
        """Return whether `note` accepts the application's values: one int for each semaphore, and not a bool."""
        return len(values) == len(self.states) and set(map(type, values)) == {int}

    def note(self, values: Any) -> bool:
        """Check and store the values. Return False if the ordinary append must decide on them."""
        return True

    def take_back(self, values: Any) -> None:
        """Undo the last `note`: the driver refused the operation."""

    def targets(self, values: Any) -> Sequence[tuple[SemaphoreState, int | None]]:
        """Return the semaphores with their values, for `PreparedOperation`."""
        return ((self.states[0], values),) if type(values) is int else tuple(zip(self.states, values, strict=True))


class _Signal(PreparedAppend):
    """A signal of one timeline."""

    __slots__ = ("_before", "_state")

    operation = "signal"

    def __init__(
        self, queue: QueueProgress, releaser: Releaser, states: Sequence[SemaphoreState],
        call: Callable[[Any], object], gate: ReleaseGate | None,
    ) -> None:
        super().__init__(queue, releaser, states, call, gate)
        self._state = states[0]
        self._before: int | None = None

    def note(self, values: Any) -> bool:
        state = self._state
        with state.lock:
            before = state.last if state.holder is None else state.current()
            if before is None or values <= before:
                return False
            self._before, state.last = before, values
        return True

    def take_back(self, values: Any) -> None:
        self._state.restore(values, self._before)


class _Signals(PreparedAppend):
    """A signal of several timelines. It holds their last values together until other code needs one of them."""

    __slots__ = ("_above", "_before", "_held", "_last")

    operation = "signal"

    def __init__(
        self, queue: QueueProgress, releaser: Releaser, states: Sequence[SemaphoreState],
        call: Callable[[Any], object], gate: ReleaseGate | None,
    ) -> None:
        super().__init__(queue, releaser, states, call, gate)
        self._last: Sequence[int | None] = ()
        self._before: Sequence[int | None] = ()
        self._above = UINT64_MAX  # a value above this one is above all held values
        self._held = False

    def takes(self, values: tuple[Any, ...]) -> bool:
        # A held value is at least 1, so a bool is never above it. The comparison in `note` refuses other types.
        return len(values) == len(self.states) if self._held else super().takes(values)

    def note(self, values: Any) -> bool:
        with self.states[0].lock:
            before: Sequence[Any] = self._last if self._held else [state.current() for state in self.states]
            first, same, rises = values[0], False, False
            try:
                same = values.count(first) == len(values)  # one value for all, such as the number of the frame
                if self._held:
                    rises = (same and first > self._above) or all(map(operator.gt, values, before))
                else:
                    rises = min(values) > 0 and all(last is None or value > last
                                                    for value, last in zip(values, before, strict=True))
            except TypeError:
                pass
            if not rises:
                return False
            if not self._held:
                # Start with the present values of the semaphores: Ctrl-C in this loop then changes no value.
                self._last = before
                for state in self.states:
                    state.holder = self
                self._held = True
            self._before, self._last = before, values
            self._above = first if same else UINT64_MAX
        return True

    def take_back(self, values: Any) -> None:
        changes = self._last is values   # False if Ctrl-C came before `note` stored the values
        if changes:
            for state, value, last in zip(self.states, values, self._before, strict=True):
                state.restore(value, last)

    def give_back(self) -> None:
        """Write the held values back into the states of the semaphores. The caller holds the lock."""
        self._held = False
        for state, value in zip(self.states, self._last, strict=True):
            # Some states may have their value already, after Ctrl-C in this loop or in `note`.
            if state.holder is self:
                state.last, state.holder = value, None


def prepared_signal(
    queue: QueueProgress, releaser: Releaser, states: Sequence[SemaphoreState], call: Callable[[Any], object]
) -> PreparedAppend:
    """Create the prepared append of a signal. The base class `PreparedAppend` is a wait."""
    kind = _Signal if len(states) == 1 else _Signals
    return kind(queue, releaser, states, call, None)
