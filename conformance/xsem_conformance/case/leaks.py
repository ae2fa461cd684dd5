"""Growth of a number, for example of threads, after repeated work."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Final

from xsem_conformance.case.polling import soon

__all__ = ["growth", "leaves_nothing"]

_SETTLES_S: Final = 2.0
"""Longest time for threads to end and for the frees of other threads."""


def growth(work: Callable[[], object], times: int, patience_s: float, *counts: Callable[[], int]) -> list[int]:
    """Run `work` in one or two series. Return the growth of each count; 0 for a count that grows in one series only."""
    # The first series may fill a cache of the driver once. A count that grows in two successive series is a leak.
    grown = _series(work, times, patience_s, counts)
    if not any(grown):
        return grown
    again = _series(work, times, patience_s, counts)
    return [min(once, other) for once, other in zip(grown, again, strict=True)]


def leaves_nothing(work: Callable[[], object], what: str, **counts: Callable[[], int]) -> None:
    """Run `work` twice, and check that no count is higher after the second run than before it."""
    # The first run does not count: a driver may keep descriptors and threads of its own after it.
    work()
    before = {name: each() for name, each in counts.items()}
    work()
    for name, each in counts.items():
        old = before[name]
        soon(functools.partial(_at_most, each, old), f"{what} leaves {name}", symptom=None)


def _at_most(count: Callable[[], int], old: int) -> bool:
    return count() <= old


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
