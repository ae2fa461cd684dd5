"""Baselines: expected failures change the exit status of a run, and never its verdict."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import odd_backend
from support.command_line import called

from xsem.types import DeviceInfo
from xsem_conformance import history, verdict
from xsem_conformance.baseline import BaselineError, Compared, Expected, compare, load, status, text_of, unexplained
from xsem_conformance.history import Gone, History
from xsem_conformance.outcomes import Case, Outcome, Result, Waived
from xsem_conformance.profiles import profiles
from xsem_conformance.report.build import build, check
from xsem_conformance.report.junit import junit
from xsem_conformance.report.markdown import markdown
from xsem_conformance.report.summary import verdict_of
from xsem_conformance.requirements import load as catalogue
from xsem_conformance.run.session import Run
from xsem_host.device import CAPABILITIES as HOST

KEY = "XSEM-TL-001/timeline_semaphore_fd/host/in"
OUT = "XSEM-TL-001/timeline_semaphore_fd/host/out"
DEVICE = DeviceInfo(id="host:0", backend="host", index=0, name="A device")
TODAY = dt.date(2027, 1, 31)
GOOD = """
[[expected]]
case = "XSEM-TL-001/timeline_semaphore_fd/*/in"
expected = "not met"
reason = "the driver passes one value early: bug 12"
"""


def entry(name: str = KEY, expected: str = "not met") -> Expected:
    return Expected(name, expected, "bug 12")


def result(key: str = KEY, outcome: Outcome = Outcome.FAIL) -> Result:
    return Result(Case.from_key(key), outcome, "met early")


def ran(results: list[Result], entries: list[Expected] | None, **fields: Any) -> Run:
    given: dict[str, Any] = {"partial": True, "expected": entries} | fields
    return Run(DEVICE, DEVICE, HOST, profiles()["timeline"], list(catalogue().requirements.values()),
               dt.datetime(2027, 1, 31, 12, tzinfo=dt.UTC), results, **given)


def keys(found: Compared) -> tuple[list[str], list[str], list[str], list[str]]:
    return ([each.case.key for each in found.expected], [each.case.key for each in found.new],
            [each.name for each in found.passing], [each.name for each in found.unused])


# ---- comparison
@pytest.mark.parametrize("name", [KEY, "XSEM-TL-001/timeline_semaphore_fd/*/in", "XSEM-TL-001"])
@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.ERROR, Outcome.BLOCKED])
def test_failure_with_an_entry_is_expected(name: str, outcome: Outcome) -> None:
    assert keys(compare([entry(name)], [result(outcome=outcome)])) == ([KEY], [], [], [])


@pytest.mark.parametrize("name", [OUT, "XSEM-TL-001/timeline_semaphore_fd/cuda/in", "XSEM-TL-0010", "XSEM-TL-002"])
def test_failure_without_an_entry_is_new(name: str) -> None:
    assert keys(compare([entry(name)], [result()]))[:2] == ([], [KEY])


def test_entry_whose_cases_all_pass_is_to_be_removed() -> None:
    passed, failed = result(OUT, Outcome.PASS), result()
    assert keys(compare([entry("XSEM-TL-001")], [passed])) == ([], [], ["XSEM-TL-001"], [])
    assert keys(compare([entry("XSEM-TL-001")], [passed, failed])) == ([KEY], [], [], [])
    assert keys(compare([entry("XSEM-TL-001")], [passed], not_run=[KEY])) == ([], [], [], [])


def test_flake_may_pass_or_fail() -> None:
    for outcome, expected in ((Outcome.PASS, []), (Outcome.FAIL, [KEY])):
        assert keys(compare([entry(expected="sometimes")], [result(outcome=outcome)])) == (expected, [], [], [])


@pytest.mark.parametrize("results", [[], [result(outcome=Outcome.UNSUPPORTED)], [result(outcome=Outcome.WAIVED)]])
@pytest.mark.parametrize("expected", ["not met", "sometimes"])
def test_entry_without_a_tried_case_is_unused(results: list[Result], expected: str) -> None:
    assert keys(compare([entry(expected=expected)], results)) == ([], [], [], [KEY])


# ---- status and verdict
def test_only_expected_failures_give_status_0_and_no_conformance() -> None:
    run = ran([result(), result(OUT, Outcome.PASS)], [entry()])
    assert (run.status, run.exit_status) == (verdict.BAD, verdict.GOOD)
    report = build(run, command="", commit="")
    check(report)
    assert report["status"] == verdict.BAD
    assert report["baseline"] == {"status": 0, "expected": [KEY], "new": [], "passing": [], "unused": []}
    assert verdict_of(report) == ("does not meet the requirements that were tried; a part of timeline; "
                                  "1 requirement not met; the baseline expects 1 failed case")
    assert "exit status 0." in markdown(report)
    assert run.results[0].outcome is Outcome.FAIL


def test_new_failure_gives_status_1() -> None:
    run = ran([result(), result(OUT)], [entry()])
    assert (run.status, run.exit_status) == (verdict.BAD, verdict.BAD)


def test_new_failure_of_a_recommendation_changes_no_status() -> None:
    should = next(each.id for each in catalogue().requirements.values() if each.level == "SHOULD")
    run = ran([result(outcome=Outcome.PASS), result(f"{should}/-/host/-")], [])
    assert (run.exit_status, keys(compare([], run.results))[1]) == (verdict.GOOD, [f"{should}/-/host/-"])


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.PASS])
def test_run_without_a_baseline_has_the_status_of_its_verdict(outcome: Outcome) -> None:
    run = ran([result(outcome=outcome)], None)
    assert run.exit_status == run.status == (outcome is Outcome.FAIL)
    assert build(run, command="", commit="")["baseline"] is None


def test_incomplete_run_and_other_problems_keep_their_status() -> None:
    assert ran([result()], [entry()], not_run={Case.from_key(OUT): "a limit"}).exit_status == verdict.NOT_TRIED
    assert ran([result()], [entry()], problems=["the device lacks something"]).exit_status == verdict.BAD
    untried = ran([result(outcome=Outcome.UNAVAILABLE)], [entry()])
    assert untried.exit_status == verdict.NOT_TRIED


def test_area_whose_every_case_fails_as_expected_is_no_further_problem() -> None:
    profile, requirements = profiles()["timeline"], list(catalogue().requirements.values())
    areas = {each.area: each.id for each in requirements if each.subject != "facade"}
    results = [result(f"{areas[area]}/-/host/-", Outcome.FAIL if area == "TL" else Outcome.PASS)
               for area in profile.areas]
    problems = verdict.unmet(profile, requirements, results)
    assert len(problems) == 1
    expected = compare([entry(areas["TL"])], results)
    lacks = "profile timeline: declares none of semaphore_import:opaque_fd"
    assert unexplained(expected, results, requirements, [*problems, lacks], profile) == [lacks]
    assert unexplained(compare([], results), results, requirements, problems, profile) == problems
    assert status(expected, results, requirements, []) == verdict.GOOD
    assert status(expected, results, requirements, [lacks]) == verdict.BAD


def test_waived_failure_needs_no_entry() -> None:
    waived = result(outcome=Outcome.WAIVED)
    waived.waiver = Waived("bug", TODAY)
    assert keys(compare([], [waived]))[1] == []


def test_junit_skips_expected_failures_only() -> None:
    report = build(ran([result(), result(OUT)], [entry()]), command="", commit="")
    suite = ET.fromstring(junit(report))
    assert (suite.get("failures"), suite.get("skipped")) == ("1", "1")
    [skipped] = suite.findall("testcase/skipped")
    assert skipped.get("message") == "expected by the baseline, FAIL: met early"


# ---- files
def test_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "baseline.toml"
    path.write_text(GOOD + '[[expected]]\nrequirement = "XSEM-EVT-003"\nexpected = "sometimes"\nreason = "a race"\n')
    one, other = load(path)
    assert one == Expected("XSEM-TL-001/timeline_semaphore_fd/*/in", "not met",
                           "the driver passes one value early: bug 12")
    assert (other.name, other.expected) == ("XSEM-EVT-003", "sometimes")
    path.write_text("")
    assert load(path) == []


FACADE = next(each.id for each in catalogue().requirements.values() if each.subject == "facade")


@pytest.mark.parametrize(("text", "said"), [
    ("[[expected]", "baseline.toml"),
    ("expected = 3", "nothing else"),
    ('expected = ["XSEM-TL-001"]', "nothing else"),
    (GOOD.replace("[[expected]]", "[[waiver]]"), "nothing else"),
    (GOOD + "[[more]]\n", "nothing else"),
    (GOOD.replace("case", "key"), "entry 1: either a case"),
    (GOOD.replace('"XSEM-TL-001/timeline_semaphore_fd/*/in"', "1"), "entry 1: either a case"),
    (GOOD + 'requirement = "XSEM-TL-001"\n', "entry 1: either a case"),
    (GOOD.replace("/*/in", ""), "entry 1: case is ID/handle_type/exporter/direction"),
    (GOOD.replace("TL-001", "TL-999"), "unknown requirement 'XSEM-TL-999'"),
    (GOOD.replace("case", "requirement"), "unknown requirement"),
    (GOOD.replace("timeline_semaphore_fd", "opaque_fd"), "the cases of this requirement are XSEM-TL-001/"),
    (GOOD.replace("/in", "/up"), "unknown case"),
    (GOOD.replace("XSEM-TL-001/timeline_semaphore_fd/*/in", FACADE).replace("case", "requirement"), "has no case"),
    (GOOD.replace('"not met"', '"met"'), 'expected is "not met" or "sometimes"'),
    (GOOD.replace('expected = "not met"', ""), 'expected is "not met" or "sometimes"'),
    (GOOD.replace("the driver passes one value early: bug 12", " "), "a reason is needed"),
    (GOOD.replace("reason", "because"), "unknown because"),
    (GOOD.replace('reason = "the driver passes one value early: bug 12"', ""), "a reason is needed"),
    (GOOD + GOOD, "entry 2: a second entry"),
])
def test_malformed_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "baseline.toml"
    path.write_text(text)
    with pytest.raises(BaselineError) as caught:
        load(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BaselineError, match="gone"):
        load(tmp_path / "gone.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(BaselineError, match=r"bytes\.toml"):
        load(tmp_path / "bytes.toml")


def test_entry_of_a_removed_requirement_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "load", lambda: History({}, {}, {"XSEM-TL-999": Gone(1, "covered by another")}))
    path = tmp_path / "baseline.toml"
    path.write_text(GOOD.replace("TL-001", "TL-999"))
    with pytest.raises(BaselineError, match="XSEM-TL-999 is gone since suite 2: covered by another"):
        load(path)


def test_written_file_has_the_new_failures_and_not_the_passing_entries(tmp_path: Path) -> None:
    entries = [entry(), entry("XSEM-TL-002"), entry("XSEM-TL-003", "sometimes"), entry("XSEM-TL-004")]
    new = Result(Case.from_key(OUT), Outcome.FAIL, 'a "quote"\n\x1b[31m \ud800')
    path = tmp_path / "baseline.toml"
    path.write_text(text_of(entries, Compared(new=[new], passing=[entries[1]]), TODAY))
    assert [each.name for each in load(path)] == [KEY, "XSEM-TL-003", "XSEM-TL-004", OUT]
    assert load(path)[-1].reason.startswith('seen on 2027-01-31: a "quote" ')
    assert load(path)[0].reason == "bug 12"


# ---- the command
@pytest.mark.parametrize("text", ["[[expected]", GOOD.replace("TL-001", "TL-999")])
def test_bad_file_is_refused_before_the_device_is_opened(tmp_path: Path, text: str) -> None:
    path = tmp_path / "baseline.toml"
    path.write_text(text)
    done = called("conformance", "run", "--device", "nothing:7", "--baseline", path)
    assert done.exit_code == 2
    assert "--baseline" in done.stderr
    assert "baseline.toml" in done.stderr
    assert "nothing:7" not in done.stderr


@pytest.mark.parametrize("path", ["/proc/baseline.toml", "/nowhere/baseline.toml"])
def test_unwritable_baseline_is_refused_before_the_device_is_opened(path: str) -> None:
    done = called("conformance", "run", "--device", "nothing:7", "--write-baseline", path)
    assert done.exit_code == 2
    assert "--write-baseline" in done.stderr
    assert "nothing:7" not in done.stderr


@pytest.mark.slow
def test_part_of_the_suite_leaves_out_the_entries_of_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "baseline.toml"
    path.write_text(GOOD)
    for only, said in (("XSEM-BUF-006", False), ("XSEM-TL-001", True)):
        done = called("conformance", "run", "--only", only, "--baseline", path, "--write-baseline", tmp_path / only)
        assert done.exit_code == 0, done.output
        assert ("an expected failure passes, remove its entry: XSEM-TL-001" in done.stdout) is said
        assert "without a case that was tried" not in done.stdout
        assert [each.name for each in load(tmp_path / only)] == ([] if said else [load(path)[0].name])


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Any]:
    environment = odd_backend.installed(tmp_path, os.environ)

    def act(*options: str) -> Any:
        return subprocess.run(
            [sys.executable, "-m", "xsem", "conformance", "run", "--device", odd_backend.device("loses signals"),
             "--only", "XSEM-BIN-00", "--patience", "0.5", *options], capture_output=True, text=True, check=False,
            timeout=100, stdin=subprocess.DEVNULL, env=environment, cwd=tmp_path)

    return act


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_baseline_of_a_run_makes_the_next_run_end_with_0(run: Callable[..., Any], tmp_path: Path) -> None:
    first = run("--write-baseline", "baseline.toml")
    assert first.returncode == 1, first.stdout + first.stderr
    assert len(load(tmp_path / "baseline.toml")) >= 2
    again = run("--baseline", "baseline.toml", "--report", "out.json")
    assert again.returncode == 0, again.stdout + again.stderr
    last = again.stdout.splitlines()[-1]
    assert "does not meet the requirements" in last
    assert "the baseline expects" in last
    assert " 0 new, 0 to remove; exit status 0" in again.stdout
    report = json.loads((tmp_path / "out.json").read_text())
    check(report)
    assert (report["status"], report["baseline"]["status"], report["baseline"]["new"]) == (1, 0, [])


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_new_failure_and_passing_entry_are_said_and_written(run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(GOOD.replace(
        "XSEM-TL-001/timeline_semaphore_fd/*/in", "XSEM-BIN-004/opaque_fd/*/-"))
    done = run("--baseline", "a.toml", "--write-baseline", "b.toml")
    assert done.returncode == 1
    assert "new failure (MUST): XSEM-BIN-002/opaque_fd/host/out" in done.stdout
    assert "an expected failure passes, remove its entry: XSEM-BIN-004/opaque_fd/*/-" in done.stdout
    names = [each.name for each in load(tmp_path / "b.toml")]
    assert "XSEM-BIN-002/opaque_fd/host/out" in names
    assert not any("BIN-004" in name for name in names)
