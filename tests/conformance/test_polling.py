"""Polls of conditions that must not be met."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from xsem_conformance.case.case_participant import stay_pending
from xsem_conformance.case.polling import SETTLE_S, never, none_of
from xsem_conformance.outcomes import BrokenError


@pytest.fixture
def polls(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Replace the clock: each sleep takes its time at once. Return the number of sleeps."""
    now, count = [0.0], itertools.count()

    def sleep(seconds: float) -> None:
        now[0] += seconds
        next(count)

    monkeypatch.setattr("xsem_conformance.case.polling.time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    return lambda: next(count)


def after(polls: int) -> Callable[[], bool]:
    """Return a condition that is met at the poll with this number."""
    left = itertools.count()
    return lambda: next(left) >= polls


def test_each_of_several_conditions_is_watched_for_the_whole_time(polls: Callable[[], int]) -> None:
    seen = [0, 0]

    def unmet(place: int) -> bool:
        seen[place] += 1
        return False

    none_of((lambda: unmet(0), "one"), (lambda: unmet(1), "two"))
    count = polls()
    assert count * (SETTLE_S / 10) >= SETTLE_S * 0.99
    assert seen == [count, count]


@pytest.mark.parametrize(("conditions", "said"), [
    ([(after(3), "one"), (after(9), "two")], "one"), ([(after(99), "one"), (after(9), "two")], "two")])
def test_condition_that_is_met_fails_with_its_text(
    polls: Callable[[], int], conditions: list[tuple[Callable[[], bool], str]], said: str
) -> None:
    with pytest.raises(BrokenError, match=said):
        none_of(*conditions)
    with pytest.raises(BrokenError, match="alone"):
        never(after(1), "alone")


def test_nothing_to_watch_takes_no_time(polls: Callable[[], int]) -> None:
    none_of()
    assert polls() == 0


def test_lists_of_two_participants_must_stay_pending(polls: Callable[[], int]) -> None:
    idle = [cast("Any", SimpleNamespace(name=name, done=lambda number, at=at: number == at))
            for name, at in (("device", 7), ("exporter", 8))]
    stay_pending((idle[0], 1, "a wait"), (idle[1], 1, "a signal"))
    with pytest.raises(BrokenError, match="exporter: a signal was done before its signal"):
        stay_pending((idle[0], 1, "a wait"), (idle[1], 8, "a signal"))
