"""The aims, beside the measured results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from bench.copies import DIRECTIONS, MAPPED, PLAIN
from bench.frames import BARRIER, BINARY, EVENT, HANDOVER, NEW_EVENT, STREAM, WAIT_EVENT
from bench.images import BY_HAND
from bench.images import DIRECTIONS as IMAGE_DIRECTIONS
from bench.imports import UNTIL_GONE
from bench.objects import BESIDE
from bench.timing import Series
from bench.waits import BESIDE as BESIDE_WAITS
from bench.waits import NONE_PENDING, SIX_PENDING
from bench.ways import C_LOOP, DOCUMENTED, REUSED, XSEM

__all__ = ["Aim", "aims"]

# Group and label of a series, and the largest accepted ratio of xsem to cuda.bindings with reused parameters. The first
# limit is for the compiled part, the second limit for pure Python.
_BESIDE_BINDINGS: Final = (
    ("signal", "1 semaphore", 1.0, 4.0), ("wait", "1 semaphore", 1.0, 4.0), ("frame", EVENT, 1.3, 4.0),
    ("frame", NEW_EVENT, 1.3, 4.0), ("frame", WAIT_EVENT, 1.4, 6.0), ("frame", STREAM, 1.4, 4.0),
    ("frame", BARRIER, 2.0, 6.0), ("frame", BINARY, 1.0, 4.0), ("round trip", "host, device, host", 1.03, 1.08),
)
_BATCHES: Final = (1.3, 4.0)
_IMPORT: Final = (1.25, 1.4)
_UNTIL_GONE: Final = (1.3, 1.5)
_HANDOVER: Final = (1.1, 1.3)
# The ratio of medians is flat within its variation between two rounds of measurements.
_FLAT: Final = (1.05, 1.10)


@dataclass(frozen=True)
class Aim:
    """A ratio of medians and its limit. `found` is None if a median is missing."""

    text: str
    limit: float
    at_least: bool
    found: float | None

    @property
    def met(self) -> bool | None:
        """Whether the result meets the limit."""
        if self.found is None:
            return None
        return self.found >= self.limit if self.at_least else self.found <= self.limit

    def as_json(self) -> dict[str, Any]:
        """Return the aim as a JSON object for the record."""
        return {**asdict(self), "met": self.met}

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        if self.found is None:
            return f"-    {self.text}: {sign} {self.limit:.2f}, not measured"
        return f"{'met ' if self.met else 'OPEN'} {self.text}: {sign} {self.limit:.2f}, found {self.found:.2f}"


def aims(found: Sequence[Series], *, compiled: bool) -> list[Aim]:
    """Return all aims with the results of one process. `compiled` selects the limits."""
    by_name = {(each.group, each.label): each for each in found}

    def median(group: str, label: str, way: str) -> float | None:
        series = by_name.get((group, label))
        return series.ways[way].median if series is not None and way in series.ways else None

    def most(text: str, limits: tuple[float, float], one: float | None, other: float | None) -> Aim:
        return Aim(text, limits[0] if compiled else limits[1], False, _ratio(one, other))

    def of_one(text: str, limits: tuple[float, float], group: str, label: str, way: str, to: str) -> Aim:
        return most(text, limits, median(group, label, way), median(group, label, to))

    listed = [
        *(of_one(f"{group}, {label}: xsem / cuda.bindings, params reused", (with_it, without), group, label, XSEM,
                 REUSED)
          for group, label, with_it, without in _BESIDE_BINDINGS),
        *(of_one(f"{count} signals: xsem / cuda.bindings, params reused", _BATCHES, "signal",
                 f"{count} semaphores", XSEM, REUSED) for count in (8, 64)),
        # The two series have different times, so the calls of cuda.bindings in each cancel a change of the clock rate.
        most("signal that hands over memory / signal, each xsem / cuda.bindings, params reused", _HANDOVER,
             _ratio(median("frame", HANDOVER, XSEM), median("frame", HANDOVER, REUSED)),
             _ratio(median("signal", "1 semaphore", XSEM), median("signal", "1 semaphore", REUSED))),
        of_one("import of a semaphore: xsem / cuda.bindings", _IMPORT, "import", "semaphore", XSEM, DOCUMENTED),
        most("import and release of a semaphore until gone: xsem / cuda.bindings", _UNTIL_GONE,
             _sum(median("import", "semaphore", XSEM), median("release", "semaphore", UNTIL_GONE)),
             _sum(median("import", "semaphore", DOCUMENTED), median("release", "semaphore", DOCUMENTED))),
        *(Aim(f"copy, {direction}: mapped / plain", 0.98, True,
              _ratio(median("copy", direction, MAPPED), median("copy", direction, PLAIN))) for direction in DIRECTIONS),
        *(Aim(f"image copy, {direction}: append_copy / cuMemcpy2DAsync", 0.95, True,
              _ratio(median("image copy", direction, "append_copy"), median("image copy", direction, BY_HAND)))
          for direction in IMAGE_DIRECTIONS),
        most("copies: beside 6 pending waits / beside none", _FLAT, median("waits", BESIDE_WAITS, SIX_PENDING),
             median("waits", BESIDE_WAITS, NONE_PENDING)),
    ]
    if compiled:
        listed += [of_one(f"{what}, 1 semaphore: xsem / C loop", (1.5, 1.5), what, "1 semaphore", XSEM, C_LOOP)
                   for what in ("signal", "wait")]
    live = [each for each in found if each.group == "live objects"]
    for way, beside in BESIDE.items() if live else ():
        ratios = [each.ratio(way, beside) for each in live]
        known = [each for each in ratios if each is not None]
        worst = max(known) / known[0] if len(known) == len(ratios) else None
        numbers = f"{live[0].size:,} to {live[-1].size:,}"
        listed.append(most(f"{numbers} live objects, dearest / first, each / {beside}: {way}", _FLAT, worst, 1.0))
    return listed


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def _ratio(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one / other
