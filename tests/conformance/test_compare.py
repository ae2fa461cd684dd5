"""Comparison of two reports: worse, better, new and gone cases, two devices, and reports that are not comparable."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from support.paths import ROOT

from xsem_conformance.outcomes import Outcome
from xsem_conformance.report.compare import NotComparableError, compare, differences, same_device

KEY = "XSEM-TL-001/timeline_semaphore_fd/host/in"
ORDER = ["PASS", "WAIVED", "UNSUPPORTED", "UNAVAILABLE", "FAIL"]   # from best to worst
EQUALS = {"UNAVAILABLE": "BLOCKED", "FAIL": "ERROR", "UNSUPPORTED": "NOT_EXAMINED"}


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
    ("PASS", 0), ("WAIVED", 0), ("UNSUPPORTED", 0), ("NOT_EXAMINED", 0), ("UNAVAILABLE", 1), ("BLOCKED", 1),
    ("ERROR", 1), ("FAIL", 1)])
def test_new_case_is_worse_only_when_it_fails(outcome: str, worse: int) -> None:
    assert told(report(), report(c001=outcome)) == (worse, 0, 1 - worse, 0)


def test_missing_case_is_worse_when_it_passed_before() -> None:
    assert told(report(c001="PASS"), report()) == (1, 0, 0, 0)
    assert told(report(c001="FAIL", c002="UNSUPPORTED"), report()) == (0, 0, 0, 2)


def test_lines_name_the_case_and_both_outcomes() -> None:
    found = compare(report(c001="PASS", c002="FAIL"), report(c001="FAIL", c002="PASS"))
    assert found.worse == [f"{KEY}: PASS, now FAIL"]
    assert found.better == [f"{KEY.replace('001', '002')}: FAIL, now PASS"]


# ---- a report with a limit
ONLY = {"command": "xsem conformance run --only XSEM-TL-002 --only=XSEM-BIN", "partial": True}


def test_cases_that_a_selection_excludes_are_neither_gone_nor_worse() -> None:
    both, limited = report(c001="PASS", c002="PASS", c003="FAIL"), report(c002="PASS") | ONLY
    said = "not run in the {} report, because it was limited to --only XSEM-TL-002 --only XSEM-BIN"
    assert told(both, limited) == told(limited, both) == (0, 0, 0, 0)
    third = KEY.replace("001", "003")
    assert compare(both, limited).not_run == {said.format("second"): [f"{KEY}: PASS", f"{third}: FAIL"]}
    assert compare(limited, both).not_run == {said.format("first"): [f"{KEY}: PASS", f"{third}: FAIL"]}


def test_selected_case_that_is_missing_is_gone() -> None:
    limited = report() | {"command": f"xsem conformance run --case {KEY.replace('001', '002')}"}
    found = compare(report(c001="FAIL", c002="PASS"), limited)
    assert found.worse == [f"{KEY.replace('001', '002')}: PASS, now gone"]
    assert list(found.not_run.values()) == [[f"{KEY}: FAIL"]]


def test_case_that_a_limit_of_the_run_excluded_has_the_reason() -> None:
    limited = report() | {"not_run": [{"key": KEY, "reason": "3 cases failed"}]}
    found = compare(report(c001="PASS"), limited)
    assert found.not_run == {"not run in the second report: 3 cases failed": [f"{KEY}: PASS"]}
    assert (found.worse, found.undecided) == ([], True)


def test_case_that_only_another_profile_has_was_not_run() -> None:
    portable = report(c001="UNSUPPORTED") | {"profile": "portable"}
    portable["cases"][0]["detail"] = "not applicable to portable types alone: it needs opaque_fd of the exporter"
    full = report(c001="PASS", c002="PASS") | {"profile": "full"}
    for found in (compare(full, portable), compare(portable, full)):
        [(why, cases)] = found.not_run.items()
        assert why.endswith("because it was limited to the profile portable")
        assert len(cases) == 2
    assert told(full, portable) == told(portable, full) == (0, 0, 0, 0)
    assert told(portable, portable) == (0, 0, 0, 0)


# ---- one device or two
def subject(backend: str = "cuda", name: str = "A", uuid: str | None = None, exporter: str = "host") -> dict[str, Any]:
    return {"schema": 1, "device": {"backend": backend, "name": name, "uuid": uuid}, "exporter": {"backend": exporter},
            "cases": []}


@pytest.mark.parametrize(("other", "same"), [
    ({}, True), ({"name": "B"}, False), ({"name": "B", "uuid": "u"}, True), ({"uuid": "v"}, True),
    ({"backend": "opencl"}, False), ({"exporter": "vulkan"}, False), ({"name": "B", "uuid": "v"}, False),
])
def test_device_is_the_same_by_model_or_uuid(other: dict[str, str], same: bool) -> None:
    assert same_device(subject(uuid="u"), subject(**other)) is same


def test_reports_without_names_are_of_one_device() -> None:
    assert same_device(report(), report())


def test_reports_of_different_schemas_are_not_comparable() -> None:
    with pytest.raises(NotComparableError, match="differ in their schema: 1 and 2"):
        same_device(report(), report() | {"schema": 2})


@pytest.mark.parametrize("other", [[], "report", None, 3])
def test_file_that_is_not_a_report_is_not_comparable(other: Any) -> None:
    with pytest.raises(NotComparableError, match="not a report"):
        same_device(report(), other)
    with pytest.raises(NotComparableError, match="not a report"):
        same_device(other, report())


# ---- two devices: the committed reports
@pytest.fixture(scope="module")
def committed() -> dict[str, Any]:
    return {name: json.loads((ROOT / f"records/nvidia-h200/conformance-{name}.json").read_text())
            for name in ("cuda", "opencl", "vulkan")}


def test_two_vendors_make_a_table_of_differences(committed: dict[str, Any]) -> None:
    one, other = (copy.deepcopy(committed[name]) for name in ("cuda", "opencl"))
    assert not same_device(one, other)
    found = differences(one, other)
    assert (found.one, found.other) == ("cuda: NVIDIA H200 (cuda:0)", "opencl: NVIDIA H200 (opencl:0)")
    rows = {title: {row.what: (row.one, row.other) for row in rows} for title, rows in found.tables.items()}
    only_cuda = ("semaphore timeline_semaphore_fd", "semaphore host_timeline_fd", "memory host_memory_fd")
    assert rows["handle types"] == dict.fromkeys(
        only_cuda, ("declared: yes, imports: yes, synchronises: yes", "not declared"))
    assert rows["capabilities"]["needs_handover"] == ("no", "yes")
    assert rows["requirements with different results"] == {
        "XSEM-IMP-010 (SHOULD) memory opaque_fd": ("not met", "met"), "XSEM-ORD-013 (MUST)": ("met", "not examined"),
        "XSEM-ORD-014 (MUST)": ("met", "not examined")}
    assert rows["cases that apply to one device only"]["TL: timelines"] == ("27", "0")
    assert rows["quirks"]["Check of the allocation size: opaque_fd"][0] != rows["quirks"][
        "Check of the allocation size: opaque_fd"][1]
    del rows["cases that apply to one device only"]   # two numbers can be equal
    assert all(one != other for table in rows.values() for one, other in table.values())


def test_declared_limits_are_differences_of_capabilities_only(committed: dict[str, Any]) -> None:
    one, other = (copy.deepcopy(committed["cuda"]) for _ in range(2))
    for report, lists in ((one, 8), (other, 4)):
        report["capabilities"]["independent_lists"] = lists
    assert list(differences(one, other).tables) == ["capabilities"]


def test_device_does_not_differ_from_itself(committed: dict[str, Any]) -> None:
    assert differences(committed["cuda"], committed["cuda"]).tables == {}


def test_exporters_are_named_only_when_they_differ(committed: dict[str, Any]) -> None:
    other = copy.deepcopy(committed["cuda"])
    other["exporter"]["backend"] = "host"
    found = differences(committed["cuda"], other)
    assert (found.one, found.other) == (
        "cuda: NVIDIA H200 (cuda:0) with vulkan", "cuda: NVIDIA H200 (cuda:0) with host")
    assert [each.what for each in found.tables["verdict"]] == ["exporter"]


def test_report_without_newer_fields_still_compares(committed: dict[str, Any]) -> None:
    old = {key: value for key, value in committed["vulkan"].items()
           if key not in ("quirks", "refusals", "code", "capabilities", "command")}
    old["cases"] = [{key: value for key, value in case.items() if key != "kind"} for case in old["cases"]]
    assert "capabilities" in differences(committed["cuda"], old).tables
