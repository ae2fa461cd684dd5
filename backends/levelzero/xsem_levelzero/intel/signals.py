"""Signals that Intel's driver makes later than their event: what a list has appended, and what is before a fence."""

from __future__ import annotations

from collections.abc import Iterable

from xsem_levelzero.fences import Fence

__all__ = ["Signals", "SignalsBefore"]


class SignalsBefore:
    """The signals before a fence that the driver may make after the event of the fence."""

    __slots__ = ("signals", "ticket")

    def __init__(self, signals: tuple[tuple[Signals, int], ...]) -> None:
        self.signals = signals   # for each list: its signals, and the number of them before the fence
        self.ticket = 0          # the pass of the driver's thread that tells their end; 0: not chosen yet

    def all_made(self) -> bool:
        """Whether the driver's thread has certainly made them."""
        return all(signals.made >= number for signals, number in self.signals)


class Signals:
    """The signals of one list, as counts."""

    __slots__ = ("_others", "appended", "made", "passed")

    def __init__(self) -> None:
        self.appended = 0
        self.passed = 0   # the list has certainly passed so many
        self.made = 0     # the driver's thread has certainly made so many
        # The list may wait for events of other lists. The signals before these events are then before its own end, too.
        self._others: dict[Signals, int] = {}

    def follow(self, fences: Iterable[Fence]) -> None:
        """Note the signals of other lists before fences for which this list waits."""
        for fence in fences:
            for signals, number in fence.late.signals if fence.late else ():
                if signals is not self:
                    self._others[signals] = max(number, self._others.get(signals, 0))

    def before_end(self) -> SignalsBefore | None:
        """Return the signals before the end of the list that the thread may not have made."""
        if self._others:
            self._others = {each: number for each, number in self._others.items() if each.made < number}
        own = ((self, self.appended),) if self.made < self.appended else ()
        signals = (*own, *self._others.items())
        return SignalsBefore(signals) if signals else None
