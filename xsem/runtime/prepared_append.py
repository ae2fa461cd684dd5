"""Signals and waits of timelines alone, whose semaphores are checked once: what is left to do at each call.

A `PreparedAppend` is a wait or signal of fixed timelines on one queue, validated once and repeated. It registers once
as a user of its semaphores, so no call examines each of them. A signal of several timelines keeps their last values
together, until other code signals one of them or reads its value.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from xsem.data.params import UINT64_MAX
from xsem.errors import XsemError
from xsem.runtime.semaphore_state import SemaphoreState
from xsem.spi import Token
from xsem.types import SemaphoreKind

if TYPE_CHECKING:
    from xsem.runtime.queue import Queue
    from xsem.runtime.release_gate import ReleaseGate

__all__ = ["OperationFacts", "PreparedAppend", "PreparedOperation", "known", "prepare_append", "remember"]

_MOST_BATCHES: Final = 16
"""That begin with the same semaphore; of more the oldest is forgotten."""

_state_of = operator.attrgetter("_state")


class PreparedAppend:
    """One semaphore's or several semaphores' waits on one list; a subclass each for signals.

    Attributes
    ----------
    queue : Queue
        The list's.
    states : tuple of SemaphoreState
    gate : ReleaseGate or None
        Of the releases that an append of it must let end first: signals have none.
    call : callable
        The driver's call; its argument is that of `note`. Raises a bare ValueError for a value that is not an unsigned
        64-bit int.
    last_seq : int
        Number of its last operation.
    seen : int
        `Releaser.releases` when none of the semaphores had been released.
    dropped : bool
        It will not be used any more.
    """

    __slots__ = ("call", "dropped", "gate", "last_seq", "queue", "seen", "states")

    operation: Literal["wait", "signal"] = "wait"

    def __init__(
        self, queue: Queue, states: Sequence[SemaphoreState], call: Callable[[Any], object], gate: ReleaseGate | None
    ) -> None:
        self.queue = queue
        self.states = tuple(states)
        self.gate = gate
        self.last_seq = 0
        self.seen = -1
        self.dropped = False
        self.call = call
        for state in self.states:
            state.lifetime.uses[self] = 1
        self.released()  # after the notes, as at each call

    # ---- as a list's note in a record (`QueueProgress`): it is done when the last operation is
    @property
    def done_seq(self) -> int:
        """1 where no operation of it is pending."""
        return 1 if self.queue.done_seq >= self.last_seq else 0

    @property
    def closed(self) -> bool:
        """Whether the note can be forgotten: nothing is pending, and nothing will be appended."""
        return self.queue.closed or (self.done_seq == 1 and (self.dropped or self.released()))

    def ensure_fence(self, _seq: int) -> None:
        """See to it that a marker tells when its last operation is done."""
        self.queue.ensure_fence(self.last_seq)

    def poll(self) -> None:
        """Look how far the list is."""
        self.queue.poll()

    # ---- calls
    def released(self) -> bool:
        """Whether one of the semaphores has been released, looked at anew."""
        now = self.queue.device_state.releaser.releases
        if any(state.lifetime.released for state in self.states):
            return True
        self.seen = now
        return False

    def takes(self, values: tuple[Any, ...]) -> bool:
        """Whether `note` accepts the application's values: one int for each semaphore, and not a bool."""
        return len(values) == len(self.states) and set(map(type, values)) == {int}

    def note(self, values: Any) -> bool:
        """Check and store the values; return False if the ordinary append must decide on them."""
        return True

    def take_back(self, values: Any) -> None:
        """Undo the last `note`: the driver refused the operation."""

    def targets(self, values: Any) -> Sequence[tuple[SemaphoreState, int | None]]:
        """For the books."""
        return ((self.states[0], values),) if type(values) is int else tuple(zip(self.states, values, strict=True))


class _Signal(PreparedAppend):
    """Of one semaphore."""

    __slots__ = ("_before", "_state")

    operation = "signal"

    def __init__(
        self, queue: Queue, states: Sequence[SemaphoreState], call: Callable[[Any], object], gate: ReleaseGate | None
    ) -> None:
        super().__init__(queue, states, call, gate)
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
    """Signals of several semaphores. It keeps their last values together until one of them is read."""

    __slots__ = ("_above", "_before", "_held", "_last")

    operation = "signal"

    def __init__(
        self, queue: Queue, states: Sequence[SemaphoreState], call: Callable[[Any], object], gate: ReleaseGate | None
    ) -> None:
        super().__init__(queue, states, call, gate)
        self._last: Sequence[int | None] = ()
        self._before: Sequence[int | None] = ()
        self._above = UINT64_MAX  # a value above this one is above all that are held
        self._held = False

    def takes(self, values: tuple[Any, ...]) -> bool:
        # What is held is 1 at least: a bool is never above that, and what is no number is refused by the comparison.
        return len(values) == len(self.states) if self._held else super().takes(values)

    def note(self, values: Any) -> bool:
        with self.states[0].lock:
            before: Sequence[Any] = self._last if self._held else [state.current() for state in self.states]
            first, same, rises = values[0], False, False
            try:
                same = values.count(first) == len(values)  # the number of the frame, for all of them
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
                # First the values that the semaphores have already: an interrupt in this loop then changes nothing.
                self._last = before
                for state in self.states:
                    state.holder = self
                self._held = True
            self._before, self._last = before, values
            self._above = first if same else UINT64_MAX
        return True

    def take_back(self, values: Any) -> None:
        changes = self._last is values   # not if Ctrl-C came before `note` had stored them
        if changes:
            for state, value, last in zip(self.states, values, self._before, strict=True):
                state.restore(value, last)

    def give_back(self) -> None:
        """Let all the semaphores have their last values themselves; the lock is held."""
        self._held = False
        for state, value in zip(self.states, self._last, strict=True):
            # Some may have their value already: an interrupt may have come in this loop, or in `note`.
            if state.holder is self:
                state.last, state.holder = value, None


OperationFacts: TypeAlias = tuple[int, PreparedAppend, Any, float]
"""Of an append: its number, what was appended, the values, and when. `PreparedOperation` is made of it for who asks."""


class PreparedOperation(NamedTuple):
    """What `xsem.runtime.operations.OperationName` is of other operations."""

    seq: int
    prepared: PreparedAppend
    values: Any
    appended_at: float

    @property
    def kept(self) -> tuple[()]:
        """It waits for no points."""
        return ()

    @property
    def fence(self) -> None:
        """It has none."""

    @property
    def rewinds(self) -> bool:
        """It may not."""
        return False

    @property
    def signals(self) -> tuple[()]:
        """For replays."""
        return ()

    @property
    def operation(self) -> Literal["wait", "signal"]:
        """Which."""
        return self.prepared.operation

    @property
    def targets(self) -> Sequence[tuple[SemaphoreState, int | None]]:
        """The semaphores, with their values."""
        return self.prepared.targets(self.values)


def prepare_append(
    queue: Queue, operation: Literal["wait", "signal"], states: Sequence[SemaphoreState]
) -> PreparedAppend | None:
    """Have the list's driver prepare it; None where each append must look at more than values."""
    device_state = queue.device_state
    if (
        device_state.capabilities.max_value_difference != UINT64_MAX
        or any(state.kind is not SemaphoreKind.TIMELINE for state in states)
    ):
        return None
    tokens: list[Token] = [state.token for state in states]
    with queue.lifetime.held(), device_state.calling(), queue.lock:
        if operation == "wait":
            return PreparedAppend(queue, states, queue.driver.prepare_wait(tokens), device_state.gate)
        made = _Signal if len(states) == 1 else _Signals
        return made(queue, states, queue.driver.prepare_signal(tokens), None)


def known(queue: Queue, operation: Literal["wait", "signal"], semaphores: Any) -> PreparedAppend | None:
    """What `remember` keeps for this list or tuple of semaphores, more than one; None for whatever else it is."""
    if type(semaphores) is not list and type(semaphores) is not tuple:
        return None
    try:
        states = tuple(map(_state_of, semaphores))
        return _prepared_of(operation, states[0]).get((queue, *states))
    except (AttributeError, LookupError, TypeError):
        return None


def remember(
    queue: Queue, operation: Literal["wait", "signal"], states: Sequence[SemaphoreState], params: object
) -> None:
    """Have the list's next append of this kind find what it needs in the state of the first semaphore.

    Where `params`, what the application gave for them, are values alone: ints, and nothing else. A batch is remembered
    when it comes a second time: to prepare one that never comes again costs several appends.
    """
    values = params if isinstance(params, Sequence) else (params,)
    if queue.recording or queue.closed or set(map(type, values)) != {int}:
        return
    prepared_appends = _prepared_of(operation, states[0])
    key = queue if len(states) == 1 else (queue, *states)
    if key in prepared_appends or (type(key) is tuple and not states[0].seen_before(hash((operation, key)))):
        return
    try:
        prepared = prepare_append(queue, operation, states)
    except XsemError:
        return  # the append itself took effect: the next one goes the ordinary way, and is told what there is to say
    if prepared is None:
        return
    # A copy: another thread's first append to another list may add to them meanwhile.
    before = prepared_appends.copy()
    batches = [each for each in before if type(each) is tuple]
    for other, old in before.items():
        if old.closed or (len(batches) >= _MOST_BATCHES and other is batches[0]):
            old.dropped = True
            prepared_appends.pop(other, None)
    prepared_appends[key] = prepared


def _prepared_of(operation: Literal["wait", "signal"], state: SemaphoreState) -> dict[object, PreparedAppend]:
    return state.prepared_waits if operation == "wait" else state.prepared_signals
