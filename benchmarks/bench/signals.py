"""Cost of a signal and a wait, for 1, 8 and 64 semaphores."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from bench.rig import Rig, Shared
from bench.timing import Series, interleaved
from bench.ways import Way, What, ways

__all__ = ["COUNTS", "measure"]

COUNTS: Final = (1, 8, 64)


def measure(rig: Rig) -> Iterator[Series]:
    """Measure signals, then waits for reached values."""
    calls, repetitions = (20, 3) if rig.quick else (200, 41)
    for what in ("signal", "wait"):
        for count in COUNTS:
            yield _one(rig, what, count, calls, repetitions)


def _one(rig: Rig, what: What, count: int, calls: int, repetitions: int) -> Series:
    shared = rig.shared(count)
    if what == "wait":
        # The waits use the values up to `calls`. The timelines have reached these values.
        rig.values(calls)
        rig.commands.append_signal([each.here for each in shared], [rig.value] * count)
        rig.settle()
    asked = {name: partial(_repetition, rig, shared, what, way, calls) for name, way in ways(rig, shared, what).items()}
    found = interleaved(asked, repetitions)
    for each in shared:
        each.release()
    return Series(what, f"{count} semaphore{'s' * (count > 1)}", count, "us", found, repetitions)


def _repetition(rig: Rig, shared: list[Shared], what: What, way: Way, calls: int) -> float:
    """Return the microseconds per call. After signals, check that the exporter has the last value."""
    first = rig.values(calls) if what == "signal" else 1
    seconds = way(first, calls)
    rig.settle()
    if what == "signal":
        for each in shared:
            if each.there.value() != rig.value:
                raise AssertionError(f"signalled was {rig.value}, the exporter has {each.there.value()}")
    return seconds / calls * 1e6
