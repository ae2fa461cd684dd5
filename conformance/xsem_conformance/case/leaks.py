"""Growth of a number, for example of threads, after repeated work, and the calls that it comes from."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Final

from xsem_conformance.case.call_watch import Listing, watching
from xsem_conformance.outcomes import BrokenError
from xsem_conformance.system import handles

__all__ = ["FILES", "MAPPINGS", "ROUNDS", "THREADS", "Kind", "growth", "settled", "stays_level"]

ROUNDS: Final = 10
"""How often most checks repeat their work: a fault may act only in each seventh call."""

_SETTLES_S: Final = 2.0
"""Longest time for threads to end and for the frees of other threads."""

_QUIET_S: Final = 0.2

_LOOKS_S: Final = 5.0
"""Longest time for the repeated work that finds the call of a left-over: not every turn leaves one."""
_MOST_SHOWN: Final = 3


@dataclass(frozen=True)
class Kind:
    """What can be left over: its name in a message, the number in this process, and the list with names."""

    words: str
    count: Callable[[], int]
    listing: Listing


FILES: Final = Kind("file descriptors open", handles.count, handles.named_files)
THREADS: Final = Kind("threads", handles.threads, handles.named_threads)
MAPPINGS: Final = Kind("mappings", handles.host_mappings, handles.named_host_mappings)


def stays_level(work: Callable[[], object], times: int, patience_s: float, what: str, *kinds: Kind) -> None:
    """Check the `growth` of each kind. The message for a left-over says what it is, and in which call it appeared."""
    grown = growth(work, times, patience_s, *(each.count for each in kinds))
    for kind, left in zip(kinds, grown, strict=True):
        if left:
            raise BrokenError(f"{what} left {left} {kind.words}{_origins(work, times, kind.listing, patience_s)}")


def _origins(work: Callable[[], object], times: int, listing: Listing, patience_s: float) -> str:
    """Repeat the work until it leaves something. Return each left-over with the call in which it appeared."""
    # Only after a leak was seen: a look around each call is slow. A failure of the work here is not a finding.
    if not listing():
        return ""   # this system has no such list
    deadline = time.monotonic() + min(patience_s, _LOOKS_S)
    with contextlib.suppress(Exception):
        for _ in range(times):
            if time.monotonic() > deadline:
                break
            before = listing()
            with watching(listing) as calls:
                work()
            if left := _left(listing, before, patience_s):
                return f". A later round left {_in_words(left, calls)}"
    return ""


def settled(count: Callable[[], int], patience_s: float) -> None:
    """Wait until the number stays the same for a moment, at most `_SETTLES_S`."""
    deadline, since, last = time.monotonic() + min(patience_s, _SETTLES_S), time.monotonic(), count()
    while (now := time.monotonic()) < deadline and now - since < _QUIET_S:
        if (found := count()) != last:
            since, last = now, found
        time.sleep(0.01)


def _left(listing: Listing, before: Mapping[Hashable, str], patience_s: float) -> dict[Hashable, str]:
    """Return what the list has in addition, after other threads had time to free it."""
    deadline = time.monotonic() + min(patience_s, _SETTLES_S)
    while True:
        now = listing()
        left = {each: now[each] for each in now.keys() - before.keys()}
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.01)


def _in_words(left: Mapping[Hashable, str], calls: Mapping[Hashable, str]) -> str:
    counted = Counter(f"{name}, which appeared {f'in the call {calls[each]}' if each in calls else 'outside the calls'}"
                      for each, name in left.items())
    shown = [f"{count} times {text}" if count > 1 else text for text, count in counted.most_common(_MOST_SHOWN)]
    more = len(counted) - len(shown)
    return "; ".join([*shown, *([f"and {more} more"] if more else [])])


def growth(work: Callable[[], object], times: int, patience_s: float, *counts: Callable[[], int]) -> list[int]:
    """Run `work` in one or two series. Return the growth of each count; 0 for a count that grows in one series only."""
    # The first series may fill a cache of the driver once. A count that grows in two successive series is a leak.
    grown = _series(work, times, patience_s, counts)
    if not any(grown):
        return grown
    again = _series(work, times, patience_s, counts)
    return [min(once, other) for once, other in zip(grown, again, strict=True)]


def _series(
    work: Callable[[], object], times: int, patience_s: float, counts: tuple[Callable[[], int], ...]
) -> list[int]:
    before = [each() for each in counts]
    for _ in range(times):
        work()
    deadline = time.monotonic() + min(patience_s, _SETTLES_S)
    while True:
        grown = [max(0, each() - old) for each, old in zip(counts, before, strict=True)]
        if not any(grown) or time.monotonic() > deadline:
            return grown
        time.sleep(0.001)
