"""Interleaved repetitions, and their medians."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

__all__ = ["Figure", "Series", "figure", "interleaved", "percentiles", "rounds"]

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Figure:
    """The median of the repetitions, and the 10th and 90th percentile."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Series:
    """One measurement of several ways in turn."""

    group: str   # for example "signal"
    label: str   # for example "64 semaphores"
    size: int   # number of semaphores, objects or bytes; 1 for frames and round trips
    unit: Literal["us", "ns", "GB/s"]   # time per operation, or bandwidth
    ways: dict[str, Figure]
    repetitions: int

    def ratio(self, way: str, to: str) -> float | None:
        """Return the ratio of two medians. If one way was not measured, return None."""
        if way not in self.ways or to not in self.ways:
            return None
        return self.ways[way].median / self.ways[to].median

    def as_json(self) -> dict[str, Any]:
        """Return the series as a JSON object for the record."""
        return asdict(self)


def rounds(ways: Mapping[str, Callable[[], _Answer]], repetitions: int) -> dict[str, list[_Answer]]:
    """Run each way once per repetition. Each round starts with another way. The first round does not count."""
    answers: dict[str, list[_Answer]] = {name: [] for name in ways}
    names = list(ways)
    for repetition in range(repetitions + 1):
        turn = repetition % len(names)
        for name in names[turn:] + names[:turn]:
            found = ways[name]()
            if repetition:
                answers[name].append(found)
    return answers


def interleaved(ways: Mapping[str, Callable[[], float]], repetitions: int) -> dict[str, Figure]:
    """Run the ways in `rounds`, and return the figure of each way."""
    return {name: figure(samples) for name, samples in rounds(ways, repetitions).items()}


def figure(samples: list[float]) -> Figure:
    """Return the median and the percentiles of samples."""
    if len(samples) < 2:
        return Figure(samples[0], samples[0], samples[0])
    tenths = statistics.quantiles(samples, n=10, method="inclusive")
    return Figure(statistics.median(samples), tenths[0], tenths[-1])


def percentiles(samples: list[float]) -> dict[str, float]:
    """Return the median and the 99th percentile."""
    ordered = sorted(samples)
    return {"p50": statistics.median(ordered), "p99": ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]}
