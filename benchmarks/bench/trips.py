"""Time of a round trip: the host signals, the device waits and signals, and the host waits for the device."""

# The host signals and waits with calls of the exporter, which are the same for each way.

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter

from bench.rig import Rig, Shared
from bench.timing import Series, interleaved
from bench.ways import Way, ways

__all__ = ["measure"]


def measure(rig: Rig) -> Iterator[Series]:
    """Measure microseconds of a round trip."""
    trips, repetitions = (5, 3) if rig.quick else (100, 21)
    shared = rig.shared(1)
    signals, waits = ways(rig, shared, "signal"), ways(rig, shared, "wait")
    asked: dict[str, Callable[[], float]] = {
        name: partial(_repetition, rig, shared[0], waits[name], signals[name], trips)
        for name in signals if name in waits
    }
    rig.drain()
    found = interleaved(asked, repetitions)
    shared[0].release()
    yield Series("round trip", "host, device, host", 1, "us", found, repetitions)


def _repetition(rig: Rig, shared: Shared, wait: Way, signal: Way, trips: int) -> float:
    there = shared.there
    began = perf_counter()
    for _ in range(trips):
        value = rig.values(2)
        wait(value, 1)
        signal(value + 1, 1)
        there.host_signal(value)
        there.host_wait(value + 1)
    seconds = perf_counter() - began
    rig.settle()
    return seconds / trips * 1e6
