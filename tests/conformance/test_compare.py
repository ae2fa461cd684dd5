"""Comparison of two reports: worse, better, new and gone cases, and reports that are not comparable."""

from __future__ import annotations

from typing import Any

import pytest

from xsem_conformance.compare import NotComparableError, compare
from xsem_conformance.outcomes import Outcome

KEY = "XSEM-TL-001/timeline_semaphore_fd/host/in"
ORDER = ["PASS", "WAIVED", "UNSUPPORTED", "UNAVAILABLE", "FAIL"]   # from best to worst
EQUALS = {"UNAVAILABLE": "BLOCKED", "FAIL": "ERROR"}


def report(**outcomes: str) -> dict[str, Any]:
    return {
        "schema": 1, "device": {"backend": "cuda"}, "exporter": {"backend": "host"},
        "cases": [{"key": KEY.replace("001", name.lstrip("c")), "outcome": outcome}
                  for name, outcome in outcomes.items()],
    }


def told(before: dict[str, Any], after: dict[str, Any]) -> tuple[int, int, int, int]:
    found = compare(before, after)
    return len(found.worse), len(found.better), len(found.new), len(found.gone)


@pytest.mark.parametrize("after", ORDER)
@pytest.mark.parametrize("before", ORDER)
def test_every_change_of_an_outcome_is_better_or_worse(before: str, after: str) -> None:
    worse = ORDER.index(after) > ORDER.index(before)
    better = ORDER.index(after) < ORDER.index(before)
    assert told(report(c001=before), report(c001=after)) == (worse, better, 0, 0)


@pytest.mark.parametrize(("one", "other"), EQUALS.items())
def test_outcomes_of_one_rank_are_equal(one: str, other: str) -> None:
    assert told(report(c001=one), report(c001=other)) == (0, 0, 0, 0)
    assert told(report(c001=other), report(c001="PASS")) == (0, 1, 0, 0)
    assert {*ORDER, *EQUALS.values()} == {each.value for each in Outcome}


@pytest.mark.parametrize(("outcome", "worse"), [
    ("PASS", 0), ("WAIVED", 0), ("UNSUPPORTED", 0), ("UNAVAILABLE", 1), ("BLOCKED", 1), ("ERROR", 1), ("FAIL", 1)])
def test_new_case_is_worse_only_when_it_fails(outcome: str, worse: int) -> None:
    assert told(report(), report(c001=outcome)) == (worse, 0, 1 - worse, 0)


def test_missing_case_is_worse_when_it_passed_before() -> None:
    assert told(report(c001="PASS"), report()) == (1, 0, 0, 0)
    assert told(report(c001="FAIL", c002="UNSUPPORTED"), report()) == (0, 0, 0, 2)


def test_lines_name_the_case_and_both_outcomes() -> None:
    found = compare(report(c001="PASS", c002="FAIL"), report(c001="FAIL", c002="PASS"))
    assert found.worse == [f"{KEY}: PASS, now FAIL"]
    assert found.better == [f"{KEY.replace('001', '002')}: FAIL, now PASS"]


@pytest.mark.parametrize(("what", "other"), [
    ("schema", {"schema": 2}), ("backend", {"device": {"backend": "opencl"}}),
    ("exporter", {"exporter": {"backend": "vulkan"}}),
])
def test_reports_of_different_things_are_not_comparable(what: str, other: dict[str, Any]) -> None:
    with pytest.raises(NotComparableError, match=f"differ in their {what}"):
        compare(report(), report() | other)


@pytest.mark.parametrize("other", [[], "report", None, 3])
def test_file_that_is_not_a_report_is_not_comparable(other: Any) -> None:
    with pytest.raises(NotComparableError, match="not a report"):
        compare(report(), other)
    with pytest.raises(NotComparableError, match="not a report"):
        compare(other, report())
