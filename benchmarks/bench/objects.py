"""Cost of a signal and an import, by the number of live objects."""

# At each number, cuda.bindings is measured beside both, so that effects of many objects in the driver, and of a
# changing speed of the processor, do not count as costs of xsem.

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Final

import xsem
from bench.imports import fd_of, import_documented
from bench.rig import Rig, check
from bench.timing import Series, interleaved
from bench.ways import REUSED, XSEM, Way, ways

__all__ = ["BESIDE", "IMPORT", "IMPORT_DOCUMENTED", "NUMBERS", "measure"]

NUMBERS: Final = (1, 10, 100, 1000, 10000)
_QUICK_NUMBERS: Final = (1, 10, 100)
IMPORT: Final = "d: xsem, import and release until gone"
IMPORT_DOCUMENTED: Final = "b: cuda.bindings, import and destroy"
BESIDE: Final = {XSEM: REUSED, IMPORT: IMPORT_DOCUMENTED}


def measure(rig: Rig) -> Iterator[Series]:
    """Measure microseconds of a signal, and of an import with its release, beside live semaphores."""
    calls, repetitions = (20, 3) if rig.quick else (200, 21)
    shared = rig.shared(1)
    all_ways = ways(rig, shared, "signal")
    alive: list[xsem.Semaphore] = []
    with shared[0].there.export(for_device=rig.device) as desc:
        imports, fd = max(1, calls // 10), fd_of(desc)

        def import_and_release() -> float:
            began = perf_counter()
            for _ in range(imports):
                rig.device.import_semaphore(desc).release()
            rig.drain()
            return (perf_counter() - began) / imports * 1e6

        def import_and_destroy() -> float:
            began = perf_counter()
            for _ in range(imports):
                check(rig.driver.cuDestroyExternalSemaphore(import_documented(rig.driver, fd)))
            return (perf_counter() - began) / imports * 1e6

        try:
            for number in _QUICK_NUMBERS if rig.quick else NUMBERS:
                rig.drain()
                while len(alive) < number - 1:   # the signalled semaphore is alive, too
                    alive.append(rig.device.import_semaphore(desc))
                asked: dict[str, Callable[[], float]] = {
                    name: partial(_signal, rig, all_ways[name], calls) for name in (REUSED, XSEM)
                }
                asked[IMPORT] = import_and_release
                asked[IMPORT_DOCUMENTED] = import_and_destroy
                found = interleaved(asked, repetitions)
                yield Series("live objects", f"{number:,} alive", number, "us", found, repetitions)
        finally:
            for each in alive:
                each.release()
            with suppress(xsem.XsemError):   # an earlier error has priority
                rig.settle()
    shared[0].release()


def _signal(rig: Rig, way: Way, calls: int) -> float:
    seconds = way(rig.values(calls), calls)
    rig.settle()
    return seconds / calls * 1e6
