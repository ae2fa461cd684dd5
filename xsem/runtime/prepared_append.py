"""Signals and waits of timelines alone, whose semaphores are checked once: what is left to do at each call.

A `Plain` is to a list what one append is, over and over: `Book.append_plain` gives it a number each time, and it is the
list's note in the records of all its semaphores, so that no call looks at each of them. Of several timelines it keeps
the values last signalled together, until somebody else signals one or asks for it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from xsem.data.params import UINT64_MAX
from xsem.errors import XsemError
from xsem.runtime.semaphore_state import SemaphoreState
from xsem.spi import Token
from xsem.types import Kind

if TYPE_CHECKING:
    from xsem.runtime.queue import Book
    from xsem.runtime.release_gate import Gate

__all__ = ["Plain", "PlainEntry", "PlainFacts", "known", "plain_of", "remember"]

_MOST_BATCHES: Final = 16
"""That begin with the same semaphore; of more the oldest is forgotten."""

_state_of = operator.attrgetter("_state")


class Plain:
    """One semaphore's or several semaphores' waits on one list; a subclass each for signals.

    Attributes
    ----------
    book : Book
        The list's.
    states : tuple of SemaphoreState
    gate : Gate or None
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

    __slots__ = ("book", "call", "dropped", "gate", "last_seq", "seen", "states")

    operation: Literal["wait", "signal"] = "wait"

    def __init__(
        self, book: Book, states: Sequence[SemaphoreState], call: Callable[[Any], object], gate: Gate | None
    ) -> None:
        self.book = book
        self.states = tuple(states)
        self.gate = gate
        self.last_seq = 0
        self.seen = -1
        self.dropped = False
        self.call = call
        for state in self.states:
            state.record.uses[self] = 1
        self.released()  # after the notes, as at each call

    # ---- as a list's note in a record (`UseBook`): it is done when the last operation is
    @property
    def done_seq(self) -> int:
        """1 where no operation of it is pending."""
        return 1 if self.book.done_seq >= self.last_seq else 0

    @property
    def closed(self) -> bool:
        """Whether the note can be forgotten: nothing is pending, and nothing will be appended."""
        return self.book.closed or (self.done_seq == 1 and (self.dropped or self.released()))

    def cover(self, _seq: int) -> None:
        """See to it that a marker tells when its last operation is done."""
        self.book.cover(self.last_seq)

    def poll(self) -> None:
        """Look how far the list is."""
        self.book.poll()

    # ---- calls
    def released(self) -> bool:
        """Whether one of the semaphores has been released, looked at anew."""
        now = self.book.session.releaser.releases
        if any(state.record.released for state in self.states):
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


class _Signal(Plain):
    """Of one semaphore."""

    __slots__ = ("_before", "_state")

    operation = "signal"

    def __init__(
        self, book: Book, states: Sequence[SemaphoreState], call: Callable[[Any], object], gate: Gate | None
    ) -> None:
        super().__init__(book, states, call, gate)
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


class _Signals(Plain):
    """Signals of several semaphores. It keeps their last values together until one of them is read."""

    __slots__ = ("_above", "_before", "_held", "_last")

    operation = "signal"

    def __init__(
        self, book: Book, states: Sequence[SemaphoreState], call: Callable[[Any], object], gate: Gate | None
    ) -> None:
        super().__init__(book, states, call, gate)
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
        noted = self._last is values   # not if Ctrl-C came before `note` had stored them
        if noted:
            for state, value, last in zip(self.states, values, self._before, strict=True):
                state.restore(value, last)

    def give_back(self) -> None:
        """Let all the semaphores have their last values themselves; the lock is held."""
        self._held = False
        for state, value in zip(self.states, self._last, strict=True):
            # Some may have their value already: an interrupt may have come in this loop, or in `note`.
            if state.holder is self:
                state.last, state.holder = value, None


PlainFacts: TypeAlias = tuple[int, Plain, Any, float]
"""Of an append: its number, what was appended, the values, and when. `PlainEntry` is made of it for who asks."""


class PlainEntry(NamedTuple):
    """What `xsem.runtime.entries.Entry` is of other operations."""

    seq: int
    plain: Plain
    values: Any
    appended_at: float

    @property
    def kept(self) -> tuple[()]:
        """It waits for no points."""
        return ()

    @property
    def point(self) -> None:
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
        return self.plain.operation

    @property
    def targets(self) -> Sequence[tuple[SemaphoreState, int | None]]:
        """The semaphores, with their values."""
        return self.plain.targets(self.values)


def plain_of(book: Book, operation: Literal["wait", "signal"], states: Sequence[SemaphoreState]) -> Plain | None:
    """Have the list's driver prepare it; None where each append must look at more than values."""
    session = book.session
    if (
        session.capabilities.max_value_difference != UINT64_MAX
        or any(state.kind is not Kind.TIMELINE for state in states)
    ):
        return None
    tokens: list[Token] = [state.token for state in states]
    with book.record.held(), session.calling(), book.lock:
        if operation == "wait":
            return Plain(book, states, book.driver.prepare_wait(tokens), session.gate)
        made = _Signal if len(states) == 1 else _Signals
        return made(book, states, book.driver.prepare_signal(tokens), None)


def known(book: Book, operation: Literal["wait", "signal"], semaphores: Any) -> Plain | None:
    """What `remember` keeps for this list or tuple of semaphores, more than one; None for whatever else it is."""
    if type(semaphores) is not list and type(semaphores) is not tuple:
        return None
    try:
        states = tuple(map(_state_of, semaphores))
        return _plains(operation, states[0]).get((book, *states))
    except (AttributeError, LookupError, TypeError):
        return None


def remember(
    book: Book, operation: Literal["wait", "signal"], states: Sequence[SemaphoreState], params: object
) -> None:
    """Have the list's next append of this kind find what it needs in the state of the first semaphore.

    Where `params`, what the application gave for them, are values alone: ints, and nothing else. A batch is remembered
    when it comes a second time: to prepare one that never comes again costs several appends.
    """
    values = params if isinstance(params, Sequence) else (params,)
    if book.recording or book.closed or set(map(type, values)) != {int}:
        return
    plains = _plains(operation, states[0])
    key = book if len(states) == 1 else (book, *states)
    if key in plains or (type(key) is tuple and not states[0].seen_before(hash((operation, key)))):
        return
    try:
        plain = plain_of(book, operation, states)
    except XsemError:
        return  # the append itself took effect: the next one goes the ordinary way, and is told what there is to say
    if plain is None:
        return
    # A copy: another thread's first append to another list may add to them meanwhile.
    before = plains.copy()
    batches = [each for each in before if type(each) is tuple]
    for other, old in before.items():
        if old.closed or (len(batches) >= _MOST_BATCHES and other is batches[0]):
            old.dropped = True
            plains.pop(other, None)
    plains[key] = plain


def _plains(operation: Literal["wait", "signal"], state: SemaphoreState) -> dict[object, Plain]:
    return state.plain_waits if operation == "wait" else state.plain_signals
