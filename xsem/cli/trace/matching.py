"""Finds the signal that met each wait, in whichever process it was."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate

from xsem.cli.trace.model import Match, Slice, Trace, Use

__all__ = ["blocked_us", "ended_by", "match"]


def match(trace: Trace) -> None:
    """Fill in `Slice.met` of every wait."""
    waits: dict[str, list[tuple[Slice, Use]]] = defaultdict(list)
    signals: dict[str, list[tuple[Slice, Use]]] = defaultdict(list)
    for each in trace.slices:
        for use in each.waits:
            waits[use.key].append((each, use))
        for use in each.signals:
            signals[use.key].append((each, use))
    for key, found in waits.items():
        if any(use.value is None for _, use in found):
            _match_binary(found, signals[key])
        else:
            _match_timeline(found, signals[key])


def _match_binary(waits: list[tuple[Slice, Use]], signals: list[tuple[Slice, Use]]) -> None:
    """Give the k-th wait the k-th signal, in the order of the appends."""
    waits.sort(key=lambda each: each[0].asked)
    signals.sort(key=lambda each: each[0].asked)
    for number, (wait, use) in enumerate(waits):
        signal = signals[number][0] if number < len(signals) else None
        wait.met.append(_fitting(wait, use, signal))


def _match_timeline(waits: list[tuple[Slice, Use]], signals: list[tuple[Slice, Use]]) -> None:
    """Give each wait the first signal in time whose value is high enough."""
    done = sorted((each for each in signals if each[0].end is not None), key=lambda each: each[0].until)
    to_come = sorted((each for each in signals if each[0].end is None), key=lambda each: each[0].asked)
    highest = list(accumulate((use.value or 0 for _, use in done), max))   # a later signal may go back
    highest_to_come = list(accumulate((use.value or 0 for _, use in to_come), max))
    for wait, use in waits:
        value = use.value or 0
        found = _fitting(wait, use, _first(done, highest, value))
        if found.signal is None and wait.end is None:
            found = _fitting(wait, use, _first(to_come, highest_to_come, value))
        wait.met.append(Match(use, "start value") if found.signal is None and value == 0 else found)


def _first(signals: Sequence[tuple[Slice, Use]], highest: list[int], value: int) -> Slice | None:
    place = bisect_left(highest, value)
    return signals[place][0] if place < len(signals) else None


def _fitting(wait: Slice, use: Use, signal: Slice | None) -> Match:
    if signal is None:
        return Match(use, "outside")
    if signal.end is None:
        return Match(use, "expected", signal) if wait.end is None else Match(use, "outside")
    if wait.result in ("timeout", "error"):
        return Match(use, "late", signal)
    behind = (signal.process, signal.tid) == (wait.process, wait.tid) and (signal.seq or 0) > (wait.seq or 0)
    if wait.end is not None and (behind or _earliest(signal) > wait.end):   # signalled by what is outside the trace
        return Match(use, "outside")
    return Match(use, "signal", signal)


def _earliest(signal: Slice) -> float:
    """Return the earliest time at which the signal can have been done: its marker, or xsem, comes later."""
    return signal.until - signal.process.resolution_us if signal.by_device else signal.asked


def ended_by(wait: Slice) -> Slice | None:
    """Return the signal that ended the wait: the last one, if it waits for several semaphores."""
    last = max(wait.met, key=lambda each: each.at, default=None)
    return last.signal if last is not None and last.how == "signal" else None


def blocked_us(wait: Slice, found: Match, end: float) -> float:
    """Return how long the wait was held by this semaphore; `end` is the end of the trace."""
    if wait.queued or found.how == "start value":
        return 0.0
    until = end if wait.end is None else wait.end
    return max(0.0, (min(found.at, until) if found.how == "signal" else until) - wait.begin)
