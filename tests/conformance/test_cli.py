"""`xsem conformance`: its output, its files and its exit status."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import odd_backend, twins_backend
from support.command_line import called
from support.paths import ROOT

from xsem.cli.status import UsageError
from xsem_conformance import verdict
from xsem_conformance.case.quirks import QUIRKS
from xsem_conformance.cli.output_files import OutputFiles, _asked
from xsem_conformance.history import SUITE_VERSION
from xsem_conformance.outcomes import Case, Outcome, Result
from xsem_conformance.profiles import profiles
from xsem_conformance.report.build import check
from xsem_conformance.requirements import load
from xsem_conformance.suite import all_checks

Run = Callable[..., Any]
ONE = ("--only", "XSEM-BUF-006")
LEAST = 200
"""Passes of host against host; it does not fall."""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    environment = odd_backend.installed(tmp_path, os.environ)

    def act(*options: str, device: str = "host:0", timeout: float = 50, **more: str) -> Any:
        return subprocess.run(
            [sys.executable, "-m", "xsem", "conformance", "run", "--device", device, *options], capture_output=True,
            text=True, check=False, timeout=timeout, stdin=subprocess.DEVNULL, env=environment | more, cwd=tmp_path,
        )

    return act


def run_here(*options: str, device: str = "host:0") -> tuple[int, str]:
    """Run it in this process, without odd devices. Return status and output."""
    ended = called("conformance", "run", "--device", device, *options)
    return ended.exit_code, ended.output


def odd(way: str) -> dict[str, str]:
    return {"device": odd_backend.device(way)}


def counts(output: str) -> dict[str, int]:
    """Return the outcomes with a count above zero in the totals."""
    lines = output.splitlines()
    (head,) = [line for line in lines if line.split()[:2] == ["cases", "met"]]
    (total,) = [line for line in lines if line.startswith("total ")]
    titles = re.split(r"  +", head.strip())
    outcomes = {title: outcome for outcome, title in verdict.STATES.items()}
    numbers = dict(zip(titles, map(int, total.split()[1:]), strict=True))
    assert [line for line in lines if line.startswith("conformance of ")], output
    assert numbers.pop("cases") == sum(numbers.values())
    return {outcomes[title]: count for title, count in numbers.items() if count}


# ---- the exporter
@pytest.mark.slow
def test_bare_exporter_is_the_one_with_the_devices_uuid(tmp_path: Path) -> None:
    report = tmp_path / "out.json"
    done = with_twins(tmp_path, "--device", "other:0", "--exporter", "twins", "--only", "XSEM-DISC-003",
                      "--no-quirks", "--report", str(report))
    assert done.returncode == 0, done.stdout + done.stderr
    written = json.loads(report.read_text())
    assert (written["device"]["id"], written["exporter"]["id"]) == ("other:0", "twins:1")
    assert written["device"]["uuid"] == written["exporter"]["uuid"]


@pytest.mark.slow
@pytest.mark.parametrize("exporter", ["twins:0", "other:1"])
def test_exporter_of_another_device_is_reported_in_one_line(tmp_path: Path, exporter: str) -> None:
    done = with_twins(tmp_path, "--device", "other:0", "--exporter", exporter)
    assert done.returncode == 3
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith(f"xsem: {exporter} exports from another device than other:0")


def with_twins(folder: Path, *options: str) -> Any:
    return subprocess.run([sys.executable, "-m", "xsem", "conformance", "run", *options], capture_output=True,
                          text=True, check=False, timeout=50, stdin=subprocess.DEVNULL, cwd=folder,
                          env=twins_backend.installed(folder))


# ---- a whole run
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_host_conforms_and_all_reports_are_written(run: Run, tmp_path: Path) -> None:
    # The pytest configuration of the author has no effect.
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --nonsense\n")
    done = run("--exporter", "host", "--profile", "timeline", "--report", "out.json", "--html", "out.html",
               "--markdown", "out.md", "--junit", "out.xml", "--commit", "0123abc", timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    verdict_line = lines.index("conformance of host:0 with host: conforms to timeline")
    assert lines[verdict_line + 1].split()[:2] == ["cases", "met"]   # the figures are after the words
    found = counts(done.stdout)
    assert found.keys() == {"PASS", "UNSUPPORTED"}
    assert found["PASS"] >= LEAST
    assert re.search(r"^  25 of \d+$", done.stdout, re.MULTILINE)   # the progress is shown
    report = json.loads((tmp_path / "out.json").read_text())
    check(report)
    assert {name: count for name, count in report["counts"].items() if count} == found
    assert (report["status"], report["commit"], report["profile"]) == (0, "0123abc", "timeline")
    assert report["code"]["package"] == "xsem_host"
    assert report["device"]["id"] == "host:0"
    assert "--profile timeline" in report["command"]
    assert {each["outcome"] for each in report["refusals"]} == {"UNSUPPORTED"}
    assert report["quirks"].keys() == QUIRKS.keys()
    assert not [each for each in report["quirks"].values() if isinstance(each, dict) and "not_known" in each]
    keys = [each["key"] for each in report["cases"]]
    page = (tmp_path / "out.html").read_text()
    assert all(f'id="{key}"' in page for key in keys)
    assert "conforms" in page
    assert "exit status 0" in (tmp_path / "out.md").read_text()
    assert [each.get("name") for each in ET.parse(tmp_path / "out.xml").getroot().findall("testcase")] == keys


def test_command_in_the_report_omits_output_paths() -> None:
    asked = ["conformance", "run", "--report", "/a/b.json", "--device", "host", "--html=/c.html", "--junit", "x"]
    assert _asked(asked) == ["conformance", "run", "--device", "host"]


@pytest.mark.slow
def test_device_that_declares_nothing_does_not_conform(run: Run) -> None:
    done = run("--profile", "core", **odd("declares nothing"))
    assert done.returncode == 1
    assert "profile core: declares none of semaphore_import:opaque_fd" in done.stdout
    assert "profile core: no case in the area IMP (import) has passed" in done.stdout
    assert counts(done.stdout).keys() == {"PASS", "UNSUPPORTED"}   # all declared capabilities work


# ---- the status
@pytest.mark.variants
@pytest.mark.parametrize(("way", "status", "found"), [
    ("answers wrongly", 1, {"FAIL": 1}), ("raises", 1, {"ERROR": 1}), ("does not open", 3, {"UNAVAILABLE": 1}),
    ("breaks when opened", 3, {"UNAVAILABLE": 1}),
])
def test_one_case_decides_the_status(run: Run, way: str, status: int, found: dict[str, int]) -> None:
    done = run(*ONE, **odd(way))
    assert (done.returncode, counts(done.stdout)) == (status, found), done.stdout + done.stderr
    if "UNAVAILABLE" in found:
        said = "the device is gone" if way == "does not open" else "RuntimeError: no such thing"
        assert f"{odd_backend.device(way)} cannot be opened: {said}" in done.stdout
    else:
        (name,) = found
        assert f"  {name} XSEM-BUF-006/-/host/-: " in done.stdout   # printed immediately


@pytest.mark.variants
@pytest.mark.parametrize(("device", "said"), [
    ("nothing:0", "the backend 'nothing' is not installed"), ("host:9", "no device of 'host' has index 9")])
def test_missing_device_is_unavailable(device: str, said: str) -> None:
    status, output = run_here(*ONE, device=device)
    assert (status, counts(output)) == (3, {"UNAVAILABLE": 1})
    assert said in output


@pytest.mark.slow
def test_exporter_with_one_of_the_capabilities_blocks_only_the_other_cases(run: Run) -> None:
    done = run("--exporter", odd_backend.device("exports only memory"), "--only", "XSEM-LIST-002", "--only",
               "XSEM-ORD-001", *ONE)
    assert done.returncode == 3
    assert counts(done.stdout).keys() >= {"PASS", "BLOCKED"}
    said = "BLOCKED XSEM-ORD-001/opaque_fd/odd/in: the exporter does not declare semaphore_export:opaque_fd"
    assert said in done.stdout


@pytest.mark.slow
def test_undeclared_capability_is_unsupported(run: Run) -> None:
    done = run("--only", "XSEM-TL-004", **odd("well"))
    assert done.returncode == 0
    assert counts(done.stdout).keys() == {"PASS", "UNSUPPORTED"}


@pytest.mark.slow
def test_partial_run_asks_only_for_refusals_of_its_cases(run: Run, tmp_path: Path) -> None:
    done = run("--only", "XSEM-TL-001", "--report", "out.json", **odd("well"))
    assert done.returncode == 0, done.stdout
    asked = {each["capability"] for each in json.loads((tmp_path / "out.json").read_text())["refusals"]}
    assert asked
    assert all(each.startswith("semaphore_import:") for each in asked)   # undeclared capabilities of its cases


@pytest.mark.slow
def test_failed_should_is_shown_and_keeps_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xsem_conformance.run.session.result",
                        lambda _workers, planned, *_: Result(
                            planned.case, Outcome.FAIL, f"it takes any size: {planned.case.requirement[5:8]}"))
    status, output = run_here("--only", "XSEM-IMP-010", "--only", "XSEM-BUF-006")
    assert status == 1   # one of them is a MUST
    assert re.search(r"  FAIL \(SHOULD\) XSEM-IMP-010/\S+/host/-: it takes any size", output)
    assert "  FAIL XSEM-BUF-006/-/host/-: it takes any size" in output
    assert ("does not meet the requirements that were tried; a part of core; 1 requirement not met; "
            "1 recommendation not met (3 cases)\n") in output
    assert run_here("--only", "XSEM-IMP-010")[0] == 0


@pytest.mark.slow
def test_observation_of_a_may_is_in_the_report(tmp_path: Path) -> None:
    status, _ = run_here("--only", "XSEM-TL-006", "--report", str(tmp_path / "out.json"))
    found = {each["detail"] for each in json.loads((tmp_path / "out.json").read_text())["cases"]
             if each["outcome"] == "PASS"}
    assert (status, found) == (0, {"after a signal of 5 and one of 3 the timeline is at 3"})


@pytest.mark.slow
def test_requirement_without_a_check_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xsem_conformance.run.session.all_checks", dict)
    status, output = run_here(*ONE)
    assert (status, counts(output)) == (3, {})


@pytest.mark.slow
def test_driver_text_cannot_control_the_terminal(run: Run) -> None:
    done = run(*ONE, **odd("raises"), PYTHONIOENCODING="ascii")
    assert done.returncode == 1, done.stderr
    assert "\x1b" not in done.stdout
    assert "no such thing: \\ufffd[31m \\u2717" in done.stdout
    assert counts(done.stdout) == {"ERROR": 1}


@pytest.mark.slow
def test_reports_replace_links_and_are_written_atomically(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [tmp_path / name for name in ("out.json", "out.html", "out.md", "out.xml")]
    (tmp_path / "mine").write_text("mine")
    for path in places:
        path.symlink_to("mine")
    options = [each for option, path in zip(("--report", "--html", "--markdown", "--junit"), places, strict=True)
               for each in (option, str(path))]
    assert run_here(*ONE, *options)[0] == 0
    assert (tmp_path / "mine").read_text() == "mine"
    assert not [path for path in places if path.is_symlink()]
    for path in places:
        path.write_text("old")
    replace = os.replace

    def full(old: Path, new: Path) -> None:
        if new == places[0]:
            raise OSError(28, "No space left on device")
        replace(old, new)

    monkeypatch.setattr(os, "replace", full)
    status, output = run_here(*ONE, *options)
    assert status == 3   # the device conforms, but one report is missing
    assert f"{places[0]} cannot be written: No space left on device" in output
    assert counts(output) == {"PASS": 1}
    assert [path.read_text() == "old" for path in places] == [True, False, False, False]
    assert sorted(os.listdir(tmp_path)) == ["mine", "out.html", "out.json", "out.md", "out.xml"]


# ---- waivers
@pytest.mark.variants
@pytest.mark.parametrize(("case", "expires", "said"), [
    ("XSEM-BUF-006/*/*/*", "2020-01-01", "ended on 2020-01-01"),
    ("XSEM-BUF-006/opaque_fd/*/*", "2999-01-01", "matches no case"),
    ("XSEM-BUF-006/*/*/*", "2999-01-01", "stale"),
])
def test_invalid_waiver_gives_a_bad_status(tmp_path: Path, case: str, expires: str, said: str) -> None:
    path = tmp_path / "waivers.toml"
    path.write_text(f'[[waiver]]\ncase = "{case}"\nreason = "bug 12"\nexpires = {expires}\n')
    status, output = run_here(*ONE, "--waivers", str(path))
    assert status == 1
    assert said in output
    assert counts(output) == {"PASS": 1}


@pytest.mark.slow
def test_part_of_the_suite_ignores_waivers_of_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "waivers.toml"
    path.write_text('[[waiver]]\ncase = "XSEM-BUF-005/*/*/*"\nreason = "bug 12"\nexpires = 2020-01-01\n')
    status, output = run_here(*ONE, "--waivers", str(path))
    assert (status, counts(output)) == (0, {"PASS": 1})


@pytest.mark.slow
def test_failed_refusal_is_waived_with_its_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xsem_conformance.run.session.refusal",
                        lambda _workers, name: Result(Case(name), Outcome.FAIL, "the device did it"))
    status, output = run_here("--only", "XSEM-TL-004")
    assert status == 1
    assert re.search(r"FAIL XSEM-TL-004/\w+/host/-: the device did it", output)   # the first of one cause
    path = tmp_path / "waivers.toml"
    path.write_text('[[waiver]]\ncase = "XSEM-TL-004/*/*/*"\nreason = "bug 12"\nexpires = 2999-01-01\n')
    status, output = run_here("--only", "XSEM-TL-004", "--waivers", str(path))
    assert status == 0, output
    assert counts(output)["WAIVED"] > 1


# ---- usage
@pytest.mark.slow
def test_malformed_device_name_is_a_usage_error(run: Run) -> None:
    for options, device in ((ONE, "host:x"), ((*ONE, "--exporter", "a:b:c"), "host:0")):
        done = run(*options, device=device)
        assert done.returncode == 2
        assert "a device is named like" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("arguments", "said"), [
    (["run", "--profile", "all"], "'all' is not one of core, timeline, memory, full"),
    (["run", "--only", "XSEM-NOPE"], "no requirement's id begins with 'XSEM-NOPE'"),
    (["run", "--waivers", "gone.toml"], "gone.toml"),
    (["run", "--html", "gone/out.html"], "cannot be written"),
    (["run", "--report", "."], "cannot be written"),
    (["run", "--junit", "/dev/full"], "not an ordinary file"),
    (["run", "--markdown", "/proc/out.md"], "cannot be written"),
    (["run", "--report", "out", "--html", "out"], "out is also the file of --report"),
    (["run", "--only", ""], "no requirement's id begins with ''"),
    (["run", "--patience", "0"], "--patience"),
    (["show", "XSEM-NOPE-001"], "unknown requirement 'XSEM-NOPE-001'"),
    (["list", "--profile", "all"], "'all' is not one of core, timeline, memory, full"),
    (["matrix"], "the following arguments are required: REPORT"),
    (["list", "--area", "NOPE"], "'NOPE' is not one of DISC"),
    (["compare", "one.json"], "compare"),
    (["examine"], "examine"),
])
def test_wrong_usage_ends_with_2(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("xsem_conformance.run.session.run", lambda *_args, **_named: pytest.fail("it ran"))
    ended = called("conformance", *arguments)
    assert ended.exit_code == 2, ended.output
    assert said in ended.output


def unload(without: pytest.MonkeyPatch, package: str) -> None:
    for loaded in [name for name in sys.modules if name.partition(".")[0] == package]:
        without.delitem(sys.modules, loaded)


def test_missing_report_package_is_reported_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xsem_conformance.run.session.run", lambda *_args, **_named: pytest.fail("it ran"))
    # jsonschema needs referencing.
    for lacks, package, option in (("jsonschema", "jsonschema", "--report"), ("referencing", "jsonschema", "--report"),
                                   ("jinja2", "jinja2", "--html")):
        with monkeypatch.context() as without:
            unload(without, package)
            without.setitem(sys.modules, lacks, None)
            status, output = run_here(option, str(tmp_path / "out"))
        assert status == 3
        assert f"the output needs {package}: pip install 'xsem[conformance]'" in " ".join(output.split())


def test_malformed_waivers_are_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xsem_conformance.run.session.run", lambda *_args, **_named: pytest.fail("it ran"))
    path = tmp_path / "waivers.toml"
    path.write_text('[[waiver]]\ncase = "XSEM-BUF-006/*/*/*"\nexpires = 2999-01-01\n')
    ended = called("conformance", "run", "--waivers", str(path))
    assert ended.exit_code == 2
    assert "a reason is needed" in ended.output


# ---- list and show
def test_list_has_every_requirement_and_how_it_is_checked() -> None:
    ended = called("conformance", "list")
    assert ended.exit_code == 0
    rows = {line.split()[0]: line.split()[1:3] for line in ended.output.splitlines()[1:-1]}
    listed = load().requirements
    assert ended.output.splitlines()[-1].startswith(f"{len(listed)} requirements of suite {SUITE_VERSION}; checked by ")
    assert rows.keys() == listed.keys()
    for name, (level, how) in rows.items():
        assert level == listed[name].level
        assert how == ("facade" if listed[name].subject == "facade" else "run" if name in all_checks() else "-")


def test_list_of_an_area_has_only_that_area() -> None:
    ended = called("conformance", "list", "--area", "TL")
    assert ended.exit_code == 0
    names = [line.split()[0] for line in ended.output.splitlines()[1:-1]]
    assert names == [each.id for each in load().requirements.values() if each.area == "TL"]


@pytest.mark.slow
def test_show_prints_the_clauses_and_the_check() -> None:
    listed = load()
    for name, each in listed.requirements.items():
        ended = called("conformance", "show", name)
        assert ended.exit_code == 0
        assert ended.output.startswith(f"{name} ({each.level}, {each.subject}): {each.text}")
        assert all(f"{clause}: {listed.clauses[clause].gist}" in ended.output for clause in each.clauses)
        assert (each.capability or "") in ended.output
        assert ("$type is " in ended.output) == ("$type" in (each.capability or ""))
        assert ("  check: " in ended.output) == (name in all_checks())


def test_list_of_a_profile_has_its_areas() -> None:
    for name, profile in profiles().items():
        ended = called("conformance", "list", "--profile", name)
        assert [line.split()[0] for line in ended.output.splitlines()[1:-1]] == [
            each.id for each in load().requirements.values() if each.area in profile.areas]
    both = called("conformance", "list", "--profile", "core", "--area", "TL")
    assert both.output == f"0 requirements of suite {SUITE_VERSION}\n"


def test_list_and_show_give_json() -> None:
    listed = json.loads(called("conformance", "list", "--area", "BIN", "--json").output)
    assert listed["schema"] == 1
    for each in listed["requirements"]:
        found = load().requirements[each["id"]]
        how = "facade" if found.subject == "facade" else "run" if found.id in all_checks() else "none"
        assert (each["level"], each["text"], each["area"], each["checked"]) == (found.level, found.text, "BIN", how)
        assert [clause["id"] for clause in each["clauses"]] == list(found.clauses)
        assert json.loads(called("conformance", "show", each["id"], "--json").output) == {"schema": 1} | each


def test_show_explains_a_profile() -> None:
    profile = profiles()["full"]
    output = called("conformance", "show", "full").output
    assert output.startswith(f"full: {profile.text}\n  needs: semaphore_import:opaque_fd or ")
    assert output.count("  needs: ") == len(profile.capabilities)
    found = json.loads(called("conformance", "show", "full", "--json").output)
    assert {each["area"] for each in found["areas"]} == profile.areas
    for each in found["areas"]:
        levels = [level for level in ("MUST", "SHOULD", "MAY") for one in load().requirements.values()
                  if (one.area, one.level) == (each["area"], level) and one.subject != "facade"]
        assert Counter(levels) == Counter({level: each[level] for level in ("MUST", "SHOULD", "MAY") if each[level]})
        assert f"  {each['area']:8} {each['name']:26} {each['MUST']:4}" in output


# ---- compare
@pytest.fixture
def reports(tmp_path: Path) -> Callable[..., Any]:
    def act(before: Any, after: Any) -> Any:
        for name, what in (("before.json", before), ("after.json", after)):
            (tmp_path / name).write_text(what if isinstance(what, str) else json.dumps(what))
        return called("conformance", "compare", str(tmp_path / "before.json"), str(tmp_path / "after.json"))

    return act


def _report(backend: str = "cuda", **outcomes: str) -> dict[str, Any]:
    return {"schema": 1, "device": {"backend": backend}, "exporter": {"backend": "host"},
            "cases": [{"key": f"XSEM-TL-001/x/host/{name}", "outcome": outcome} for name, outcome in outcomes.items()]}


@pytest.mark.parametrize(("before", "after", "status", "said"), [
    (_report(a="PASS"), _report(a="PASS"), 0, "the second report is not worse: 0 worse, 0 better, 0 new, 0 gone"),
    (_report(a="FAIL"), _report(a="PASS"), 0, "better: XSEM-TL-001/x/host/a: FAIL, now PASS"),
    (_report(), _report(a="PASS"), 0, "new: XSEM-TL-001/x/host/a: new, PASS"),
    (_report(a="UNSUPPORTED"), _report(), 0, "gone: XSEM-TL-001/x/host/a: UNSUPPORTED, now gone"),
    (_report(a="PASS"), _report(a="FAIL"), 1, "worse: XSEM-TL-001/x/host/a: PASS, now FAIL"),
    (_report(a="PASS", b="FAIL"), _report(b="PASS"), 1, "the second report is worse: 1 worse, 1 better, 0 new, 0 gone"),
    (_report(a="PASS", b="FAIL"), _report() | {"command": "run --only XSEM-BIN"}, 3,
     "not decided whether the second report is worse: 0 worse, 0 better, 0 new, 0 gone; 2 not run in the second"),
    (_report(a="FAIL"), _report() | {"command": "run --only XSEM-BIN"}, 0, "limited to --only XSEM-BIN"),
    (_report(), "{", 2, "cannot compare"),
    (_report(), "[]", 2, "not a report"),
    (_report(), "[" * 100_000, 2, "cannot compare"),
    (_report(), _report() | {"schema": "a\x1b[2J\nb"}, 2, "differ in their schema: 1 and a�[2J b"),
    ({}, {}, 2, "cannot compare"),
    (_report(a="PASS"), _report(a="OK"), 2, "cannot compare"),
    (_report(), _report() | {"cases": 3}, 2, "cannot compare"),
])
def test_compare_ends_with_0_to_3(
    reports: Callable[..., Any], before: Any, after: Any, status: int, said: str
) -> None:
    ended = reports(before, after)
    assert ended.exit_code == status, ended.output
    assert said in ended.output


REPORTS = sorted((ROOT / "records").glob("*/conformance-*.json"))


def in_words(*arguments: Any) -> tuple[int, str]:
    ended = called("conformance", *arguments)
    return ended.exit_code, ended.output


def test_compare_of_two_vendors_is_a_table() -> None:
    status, output = in_words("compare", *REPORTS[:2])
    assert status == 0
    assert output.startswith("two devices, neither worse nor better: cuda: NVIDIA H200 (cuda:0) and "
                             "opencl: NVIDIA H200 (opencl:0); ")
    status, output = in_words("compare", *REPORTS[:2], "--json")
    found = json.loads(output)
    assert (status, found["schema"], found["same_device"]) == (0, 1, False)
    assert found["tables"]["capabilities"][0].keys() == {"what", "one", "other"}


def test_compare_of_one_device_gives_json(tmp_path: Path) -> None:
    for name, outcome in (("before", "PASS"), ("after", "FAIL")):
        (tmp_path / f"{name}.json").write_text(json.dumps(_report(a=outcome)))
    status, output = in_words("compare", tmp_path / "before.json", tmp_path / "after.json", "--json")
    assert status == 1
    assert json.loads(output) == {"schema": 1, "same_device": True, "better": [], "new": [], "gone": [], "changed": [],
                                  "not_run": {}, "undecided": False,
                                  "worse": ["XSEM-TL-001/x/host/a: PASS, now FAIL"]}


# ---- matrix
def test_matrix_shows_devices_handle_types_and_advice() -> None:
    status, output = in_words("matrix", *REPORTS)
    assert status == 0
    assert ("\n\nvulkan: NVIDIA H200  vulkan  memory opaque_fd\n  declared      yes\n  imports       yes\n"
            "  synchronises  yes\n  deviates      no\n") in output
    assert "Name memory in acquire= and release=" in output
    assert output.startswith("conformance-cuda.json: cuda: NVIDIA H200 with vulkan: conforms to full; 1 requirement")


def test_matrix_gives_json_and_a_page(tmp_path: Path) -> None:
    status, output = in_words("matrix", *REPORTS, "--json", "--html", tmp_path / "out.html")
    assert status == 0
    found = json.loads(output)
    assert (found["schema"], found["changes"]) == (1, [])
    assert [each["file"] for each in found["devices"]] == [each.name for each in REPORTS]
    assert found["devices"][0]["handle_types"][0]["waived"]["synchronises"] == ["XSEM-BIN-004"]
    assert (tmp_path / "out.html").read_text().startswith("<!doctype html>")


def test_matrix_says_what_it_wrote(tmp_path: Path) -> None:
    page = tmp_path / "out.html"
    status, output = in_words("matrix", *REPORTS, "--html", page)
    assert (status, output.splitlines()[-1]) == (0, f"written: {page} ({len(REPORTS)} devices, 0 changes)")
    assert in_words("matrix", REPORTS[0], "--html", page, "--quiet") == (0, f"{page}\n")


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"cases": []}', '{"cases": 3}', "[" * 100_000])
def test_matrix_refuses_a_file_that_is_not_a_report(tmp_path: Path, text: str) -> None:
    (tmp_path / "out.json").write_text(text)
    status, output = in_words("matrix", tmp_path / "out.json", "--html", tmp_path / "out.html")
    assert status == 2
    assert output.startswith("xsem: cannot write the matrix: ")
    assert not (tmp_path / "out.html").exists()


def test_matrix_checks_the_page_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status, output = in_words("matrix", tmp_path / "gone.json", "--html", tmp_path / "gone" / "out.html")
    assert status == 2
    assert "cannot be written" in output
    for lacks in ("jinja2", "markupsafe"):   # jinja2 needs markupsafe
        with monkeypatch.context() as without:
            unload(without, "jinja2")
            without.setitem(sys.modules, lacks, None)
            status, output = in_words("matrix", tmp_path / "gone.json", "--html", tmp_path / "out.html")
        assert status == 3
        assert "the output needs jinja2: pip install 'xsem[conformance]'" in output


def test_files_with_one_name_keep_their_folders(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    shutil.copy(REPORTS[0], tmp_path / "other" / REPORTS[0].name)
    status, output = in_words("matrix", REPORTS[0], tmp_path / "other" / REPORTS[0].name, REPORTS[1], "--json")
    assert status == 0
    assert sorted(each["file"] for each in json.loads(output)["devices"]) == sorted(
        [str(REPORTS[0]), str(tmp_path / "other" / REPORTS[0].name), REPORTS[1].name])


def test_compare_of_a_missing_file_ends_with_2(tmp_path: Path) -> None:
    ended = called("conformance", "compare", str(tmp_path / "gone.json"), str(tmp_path / "gone.json"))
    assert ended.exit_code == 2
    assert "gone.json" in ended.output


def test_one_file_for_two_reports_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is also the file of --report"):
        OutputFiles({"--report": tmp_path / "out", "--html": tmp_path / ".." / tmp_path.name / "out"}).check()
