"""Signals that Intel's driver makes later than their event: what a list has appended, and what is before a fence."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from xsem_levelzero.fences import Fence, Order

__all__ = ["Signals", "SignalsBefore"]


class Signalled(Protocol):
    """A semaphore whose value may be readable."""

    def has(self, value: int | None) -> bool | None:
        """Whether the value is signalled. None: nothing tells."""


class SignalsBefore:
    """The signals before a fence that the driver may make after the event of the fence."""

    __slots__ = ("signals", "ticket")

    def __init__(self, signals: tuple[tuple[Signals, int], ...]) -> None:
        self.signals = signals   # for each list: its signals, and the number of the last one before the fence
        self.ticket = 0          # the pass of the driver's thread that tells their end; 0: not chosen yet

    def made(self) -> bool | None:
        """Whether the driver's thread has certainly made them. None: their semaphores do not tell."""
        answers = [signals.look(number) for signals, number in self.signals]
        return None if None in answers else all(answers)


class Signals(Order):
    """The signals among the operations of one list, by the numbers of the operations."""

    __slots__ = ("_others", "_unseen", "last", "made", "unused")

    def __init__(self) -> None:
        super().__init__()
        self.last = 0   # the last signal
        self.made = 0   # the driver's thread has certainly made the signals up to this one
        self.unused = 0   # and does not use the semaphores of the signals up to this one any more
        # The signals behind `made`, each with its semaphores and their values. None: the semaphores tell nothing.
        self._unseen: deque[tuple[int, Sequence[tuple[Signalled, int | None]] | None]] = deque()
        # The list may wait for events of other lists. The signals before these events are then before its own end, too.
        self._others: dict[Signals, int] = {}

    def note(self) -> None:
        """Note the newest operation of the list as a signal: the driver may have it soon."""
        self.last = self.appended
        self._unseen.append((self.last, None))

    def tell(self, signalled: Sequence[tuple[Signalled, int | None]]) -> None:
        """Tell the semaphores and values of the noted signal: the driver has it."""
        self._unseen[-1] = self.last, signalled

    def forget(self, last: int) -> None:
        """Drop the noted signal, which the driver refused. `last` is the one before."""
        self.last = last
        self._unseen.pop()

    def look(self, number: int) -> bool | None:
        """Whether the driver has made the signal with this number and all before. None: its semaphores do not tell."""
        while self._unseen and self._unseen[0][0] <= max(number, self.made):
            first, signalled = self._unseen[0]
            if first > self.made:
                answers = [None] if signalled is None else [each.has(value) for each, value in signalled]
                if None in answers:
                    return None
                if not all(answers):
                    return False
                self.made = first
            self._unseen.popleft()
        return True

    def follow(self, fences: Sequence[Fence]) -> dict[Signals, int]:
        """Note the signals of other lists before fences for which this list waits. Return what was noted before."""
        before = self._others
        self._others = dict(before) if fences else before
        for fence in fences:
            for signals, number in fence.late.signals if fence.late else ():
                if signals is not self:
                    self._others[signals] = max(number, self._others.get(signals, 0))
        return before

    def unfollow(self, before: dict[Signals, int]) -> None:
        """Undo `follow`: the driver refused the operation that would have waited."""
        self._others = before

    def before_end(self) -> SignalsBefore | None:
        """Return the signals before the end of the list that the thread may not have made."""
        if self._others:
            self._others = {each: number for each, number in self._others.items() if each.made < number}
        own = ((self, self.last),) if self.made < self.last else ()
        signals = (*own, *self._others.items())
        return SignalsBefore(signals) if signals else None
