"""Waivers are strict: each needs a reason, an end, and a failure."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from xsem_conformance.outcomes import Case, Outcome, Result
from xsem_conformance.waivers import Waiver, WaiverError, apply, concerned, load

TODAY = dt.date(2027, 1, 31)
GOOD = """
[[waiver]]
case = "XSEM-TL-001/timeline_semaphore_fd/vulkan/*"
reason = "the driver passes one value early: bug 12"
expires = 2027-01-31
"""


def waiver(case: str = "XSEM-TL-001/*/host/in", expires: dt.date = TODAY) -> Waiver:
    return Waiver(case, "bug 12", expires)


def result(key: str = "XSEM-TL-001/timeline_semaphore_fd/host/in", outcome: Outcome = Outcome.FAIL) -> Result:
    return Result(Case.from_key(key), outcome, "met early")


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.ERROR, Outcome.BLOCKED])
def test_failure_is_waived_with_its_reason_and_end(outcome: Outcome) -> None:
    failed, given = result(outcome=outcome), waiver()
    assert apply([given], [failed], TODAY) == []
    assert failed.outcome is Outcome.WAIVED
    assert failed.detail == "bug 12 (until 2027-01-31): met early"
    assert given.matched == [failed.case.key]


def test_only_matching_failures_are_waived() -> None:
    results = [result(), result("XSEM-TL-001/timeline_semaphore_fd/host/out"),
               result("XSEM-TL-001/timeline_semaphore_fd/vulkan/in"), result("XSEM-TL-0011/x/host/in")]
    assert apply([waiver()], results, TODAY) == []
    assert [each.outcome for each in results] == [Outcome.WAIVED, Outcome.FAIL, Outcome.FAIL, Outcome.FAIL]


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.UNSUPPORTED, Outcome.UNAVAILABLE])
def test_waiver_of_a_passing_case_is_stale(outcome: Outcome) -> None:
    other = result(outcome=outcome)
    (problem,) = apply([waiver()], [other], TODAY)
    assert "stale" in problem
    assert other.outcome is outcome


def test_waiver_without_a_matching_case_is_reported() -> None:
    (problem,) = apply([waiver("XSEM-TL-009/*/*/*")], [result()], TODAY)
    assert problem == "the waiver of XSEM-TL-009/*/*/* matches no case"


def test_waiver_is_not_stale_when_one_matching_case_fails() -> None:
    results = [result(), result("XSEM-TL-001/d3d12_fence/host/in", Outcome.PASS)]
    assert apply([waiver()], results, TODAY) == []
    assert [each.outcome for each in results] == [Outcome.WAIVED, Outcome.PASS]


def test_two_waivers_for_one_failure_are_not_stale() -> None:
    failed, wide, narrow = result(), waiver("XSEM-TL-001/*/*/*"), waiver()
    assert apply([wide, narrow], [failed], TODAY) == []
    assert failed.outcome is Outcome.WAIVED
    assert wide.matched == narrow.matched == [failed.case.key]


def test_waiver_of_a_race_allows_a_pass() -> None:
    race = Waiver("XSEM-TL-001/*/host/in", "bug 12", TODAY, sometimes=True)
    failed, passed = result(), result("XSEM-TL-001/d3d12_fence/host/in", Outcome.PASS)
    assert apply([race], [passed], TODAY) == []
    assert passed.outcome is Outcome.PASS
    assert apply([race], [failed], TODAY) == []
    assert failed.outcome is Outcome.WAIVED


def test_waiver_of_a_race_that_nothing_tested_is_stale() -> None:
    race = Waiver("XSEM-TL-001/*/host/in", "bug 12", TODAY, sometimes=True)
    (problem,) = apply([race], [result(outcome=Outcome.UNSUPPORTED)], TODAY)
    assert "stale" in problem


def test_waiver_holds_on_its_last_day_and_not_after() -> None:
    failed = result()
    (problem,) = apply([waiver(expires=TODAY - dt.timedelta(days=1))], [failed], TODAY)
    assert "ended on 2027-01-30" in problem
    assert failed.outcome is Outcome.FAIL
    assert apply([waiver()], [failed], TODAY) == []


def test_waiver_is_applied_once_when_results_come_one_by_one() -> None:
    failed, other = result(), result("XSEM-TL-001/timeline_semaphore_fd/host/out")
    given = waiver()
    assert apply([given], [failed], TODAY) == []
    assert apply([given], [failed, other], TODAY) == []
    assert failed.detail == "bug 12 (until 2027-01-31): met early"
    assert failed.seen == "met early"


def test_waiver_of_a_case_that_was_not_run_is_not_stale() -> None:
    passed, given = result("XSEM-TL-001/d3d12_fence/host/in", Outcome.PASS), waiver()
    assert apply([given], [passed], TODAY) != []
    assert apply([given], [passed], TODAY, ["XSEM-TL-001/timeline_semaphore_fd/host/in"]) == []
    assert apply([given], [], TODAY, ["XSEM-TL-001/timeline_semaphore_fd/host/in"]) == []


def test_part_of_the_suite_leaves_out_the_waivers_of_the_rest() -> None:
    mine, other = waiver(), waiver("XSEM-BUF-001/*/*/*", TODAY - dt.timedelta(days=9))
    assert concerned([mine, other], [], []) == [mine, other]
    assert concerned([mine, other], ["XSEM-TL"], []) == [mine]
    assert concerned([mine, other], [], ["XSEM-TL-001/timeline_semaphore_fd/host/in"]) == [mine]
    assert concerned([mine, other], [], ["XSEM-TL-001/timeline_semaphore_fd/host/out"]) == []


# ---- files
def test_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "waivers.toml"
    path.write_text(GOOD * 2)
    one, _ = load(path)
    assert (one.case, one.expires) == ("XSEM-TL-001/timeline_semaphore_fd/vulkan/*", TODAY)
    assert one.reason.endswith("bug 12")
    assert not one.sometimes
    path.write_text(GOOD + "sometimes = true\n")
    assert load(path)[0].sometimes
    path.write_text("")
    assert load(path) == []


@pytest.mark.parametrize(("text", "said"), [
    ("[[waiver]", "waivers.toml"),
    ("waiver = 3", "nothing else"),
    ('waiver = ["XSEM-TL-001/*/*/*"]', "nothing else"),
    (GOOD.replace("[[waiver]]", "[waiver]"), "nothing else"),
    (GOOD.replace("[[waiver]]", "[[waivers]]"), "nothing else"),
    (GOOD + "[[more]]\n", "nothing else"),
    (GOOD.replace("/vulkan/*", ""), "waiver 1: case is"),
    (GOOD.replace("case", "key"), "waiver 1: case is"),
    (GOOD.replace('"XSEM-TL-001/timeline_semaphore_fd/vulkan/*"', "1"), "waiver 1: case is"),
    (GOOD.replace("XSEM-TL-001/timeline_semaphore_fd/vulkan", "*/*/*"), "the id of one requirement"),
    (GOOD.replace("TL-001", "TL-*"), "the id of one requirement"),
    (GOOD.replace("TL-001", "TL-00?"), "the id of one requirement"),
    (GOOD.replace("TL-001", "TL-00[12]"), "the id of one requirement"),
    (GOOD.replace("the driver passes one value early: bug 12", " "), "a reason is needed"),
    (GOOD.replace("reason", "because"), "a reason is needed"),
    (GOOD.replace("2027-01-31", '"2027-01-31"'), "expires is a date"),
    (GOOD.replace("2027-01-31", "2027-01-31T00:00:00Z"), "expires is a date"),
    (GOOD.replace("expires = 2027-01-31", ""), "expires is a date"),
    (GOOD + "sometimes = 1\n", "sometimes is true or false"),
    (GOOD + "colour = 'red'\n", "unknown colour"),
    (GOOD + GOOD.replace("case", "key"), "waiver 2: case is"),
])
def test_malformed_waiver_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "waivers.toml"
    path.write_text(text)
    with pytest.raises(WaiverError) as caught:
        load(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WaiverError, match="gone"):
        load(tmp_path / "gone.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(WaiverError, match=r"bytes\.toml"):
        load(tmp_path / "bytes.toml")
