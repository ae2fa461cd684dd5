"""The aims, beside the measured results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from bench.copies import DIRECTIONS, MAPPED, PLAIN
from bench.frames import BARRIER, BINARY, EVENT, NEW_EVENT, STREAM, WAIT_EVENT
from bench.objects import BESIDE
from bench.timing import Series
from bench.ways import DOCUMENTED, PREPARED, REUSED, XSEM

__all__ = ["Aim", "aims"]

# Group and label of a series, and the largest accepted ratio of xsem to cuda.bindings with reused parameters.
_BESIDE_BINDINGS: Final = (
    ("signal", "1 semaphore", 1.6), ("wait", "1 semaphore", 1.6), ("frame", EVENT, 3.0), ("frame", NEW_EVENT, 3.0),
    ("frame", WAIT_EVENT, 3.0), ("frame", STREAM, 3.0), ("frame", BARRIER, 4.0), ("frame", BINARY, 2.0),
    ("round trip", "host, device, host", 1.08),
)
# "Flat": the variation of a ratio of medians between two rounds of measurements.
_FLAT: Final = 1.10


@dataclass(frozen=True)
class Aim:
    """A ratio of two medians, and its limit; `found` is None if one of the medians could not be measured."""

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


def aims(found: Sequence[Series]) -> list[Aim]:
    """Return all aims, from the series of one run."""
    by_name = {(each.group, each.label): each for each in found}

    def ratio(group: str, label: str, way: str, to: str) -> float | None:
        series = by_name.get((group, label))
        return None if series is None else series.ratio(way, to)

    listed = [
        *(Aim(f"{group}, {label}: xsem / cuda.bindings, params reused", limit, False, ratio(group, label, XSEM, REUSED))
          for group, label, limit in _BESIDE_BINDINGS),
        *(Aim(f"{count} signals: xsem prepared / cuda.bindings, params reused", 1.1, False,
              ratio("signal", f"{count} semaphores", PREPARED, REUSED)) for count in (8, 64)),
        Aim("import of a semaphore: xsem / cuda.bindings", 1.4, False,
            ratio("import", "semaphore", XSEM, DOCUMENTED)),
        *(Aim(f"copy, {direction}: mapped / plain", 0.98, True, ratio("copy", direction, MAPPED, PLAIN))
          for direction in DIRECTIONS),
    ]
    live = [each for each in found if each.group == "live objects"]
    for way, beside in BESIDE.items() if live else ():
        ratios = [each.ratio(way, beside) for each in live]
        known = [each for each in ratios if each is not None]
        worst = max(known) / known[0] if len(known) == len(ratios) else None
        numbers = f"{live[0].size:,} to {live[-1].size:,}"
        listed.append(Aim(f"{numbers} live objects, dearest / first, each / {beside}: {way}", _FLAT, False, worst))
    return listed
