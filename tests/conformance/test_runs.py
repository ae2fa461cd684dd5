"""`xsem conformance run` on devices that hang, fail or end: its limits, its reports as they grow, and one case."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import odd_backend
from support.waiting import until

from xsem_conformance.report.build import check
from xsem_conformance.requirements import load

Run = Callable[..., Any]
APPEND = ("--only", "XSEM-BIN-002", "--only", "XSEM-TL-001", "--no-quirks", "--jobs", "1")
HANGS = "XSEM-BUF-006/-/host/-"


@pytest.fixture
def start(tmp_path: Path) -> Run:
    environment = odd_backend.installed(tmp_path, os.environ)

    def act(way: str, *options: str) -> Any:
        return subprocess.Popen(
            [sys.executable, "-m", "xsem", "conformance", "run", "--device", odd_backend.device(way), *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, env=environment,
            cwd=tmp_path)

    return act


@pytest.fixture
def run(start: Run) -> Run:
    def act(way: str, *options: str) -> Any:
        started = start(way, *options)
        try:
            said, wrong = started.communicate(timeout=100)
        finally:
            started.kill()
            started.wait()
        return subprocess.CompletedProcess(started.args, started.returncode, said, wrong)

    return act


def read(folder: Path, name: str = "out.json") -> Any:
    report = json.loads((folder / name).read_text())
    check(report)
    return report


# ---- hangs
@pytest.mark.slow
@pytest.mark.timeout(110)
def test_hang_in_an_append_names_the_call_and_the_line_and_stops_the_others(run: Run, tmp_path: Path) -> None:
    done = run("blocks in appends", "--patience", "0.5", "--max-hangs", "1", "--report", "out.json", "--junit",
               "out.xml", "--markdown", "out.md", *APPEND)
    assert done.returncode == 1, done.stdout + done.stderr
    report = read(tmp_path)
    case = next(each for each in report["cases"] if each["outcome"] == "FAIL")
    found = case["failure"]
    assert re.match(r"hangs: .*device, append_\w+ does not return", case["detail"])
    assert found["calls"][-1]["call"].startswith("append_")
    assert found["calls"][-1]["seconds"] is None
    assert any(each["by"] == "exporter" for each in found["calls"])
    assert "odd_backend.py" in found["frames"][-1]["file"]
    assert found["calls"][-1]["call"].startswith(found["frames"][-1]["function"] + "(")
    assert f"in {found['frames'][-1]['function']}" in found["stack"]
    assert str(tmp_path) not in found["stack"]
    assert found["repeat"].endswith(f"--case {case['key']} --debug")
    # The other cases need the call, too.
    assert not report["complete"]
    assert {each["requirement"] for each in report["not_run"]} == {"XSEM-TL-001"}
    assert all(re.match(r"it needs device, append_\w+, which hung in 1 cases: XSEM-", each["reason"])
               for each in report["not_run"])
    assert f"incomplete: {report['incomplete']}" in done.stdout
    for form in ("out.xml", "out.md"):
        text = (tmp_path / form).read_text()
        assert "not run" in text
        assert "append" in text
    skipped = [each for each in ET.parse(tmp_path / "out.xml").getroot()
               if "not run: " in str(ET.tostring(each))]
    assert len(skipped) == len(report["not_run"])


def test_hang_costs_one_case_only(run: Run, tmp_path: Path) -> None:
    done = run("hangs", "--patience", "0.1", "--only", "XSEM-BUF-006", "--only", "XSEM-CAP-001", "--report", "out.json")
    report = read(tmp_path)
    assert {each["key"]: each["outcome"] for each in report["cases"]} == {
        HANGS: "FAIL", "XSEM-CAP-001/-/host/-": "PASS"}
    assert report["complete"]
    assert done.returncode == 1
    [failed] = [each for each in report["cases"] if each["outcome"] == "FAIL"]
    assert failed["failure"]["calls"][-1] == {
        "by": "device", "call": "dlpack_device()", "seconds": None, "times": 1}
    assert failed["failure"]["frames"][-1]["function"] == "dlpack_device"
    assert "1. FAIL in 1 case, first" in done.stdout
    assert "at odd_backend.py:" in done.stdout or "odd_backend.py:" in done.stdout


def test_dead_process_leaves_its_last_call_and_its_stack(run: Run, tmp_path: Path) -> None:
    run("aborts", "--only", "XSEM-BUF-006", "--report", "out.json")
    [case] = [each for each in read(tmp_path)["cases"] if each["outcome"] == "FAIL"]
    found = case["failure"]
    assert found["seen"].startswith("the process died: SIGABRT")
    assert found["calls"][-1]["call"] == "dlpack_device()"
    assert "Fatal Python error: Aborted" in found["stack"]
    assert found["frames"][-1]["function"] == "dlpack_device"


@pytest.mark.slow
def test_exception_of_the_backend_shows_its_lines(run: Run, tmp_path: Path) -> None:
    done = run("raises in appends", "--report", "out.json", "--patience", "1", *APPEND)
    report = read(tmp_path)
    failed = [each for each in report["cases"] if each["outcome"] == "ERROR"]
    assert len(failed) > 1
    assert [each["function"] for each in failed[0]["failure"]["frames"]] == ["append_signal", "_raise"]
    assert "(odd_backend.py:" in failed[0]["detail"] or "odd_backend.py:" in failed[0]["detail"]
    assert ".py:" not in done.stdout.replace("odd_backend.py:", "")   # no line of the suite
    # One cause, printed once.
    [cause] = report["causes"]
    assert cause["cases"] == [each["key"] for each in failed]
    assert done.stdout.count("  ERROR XSEM") == 1


@pytest.mark.slow
def test_lost_signals_are_one_cause_with_the_setup_of_its_first_case(run: Run, tmp_path: Path) -> None:
    done = run("loses signals", "--patience", "0.25", "--no-quirks", "--report", "out.json", "--only", "XSEM-IMP-001",
               "--only", "XSEM-BIN-00", "--only", "XSEM-TL", "--only", "XSEM-EVT-00")
    report = read(tmp_path)
    [cause] = report["causes"]
    assert len({key.partition("/")[0] for key in cause["cases"]}) > 8
    assert cause["summary"].startswith("signals of the device do not meet waits of the exporter: exporter: a wait for")
    assert done.stdout.count("  FAIL ") == 1   # in the progress, too
    case = next(each for each in report["cases"] if each["key"] == cause["first"])
    assert case["requirement"] == "XSEM-IMP-001"
    assert "create_semaphore(" in " ".join(each["call"] for each in case["failure"]["calls"][:4])


# ---- limits
@pytest.mark.slow
def test_no_case_begins_after_max_failures(run: Run, tmp_path: Path) -> None:
    done = run("raises in appends", "--max-failures", "1", "--patience", "1", "--report", "out.json", *APPEND)
    report = read(tmp_path)
    assert (done.returncode, report["counts"]["ERROR"]) == (1, 1)
    assert report["not_run"]
    assert {each["reason"] for each in report["not_run"]} == {"1 cases failed"}
    assert not [each for each in report["problems"] if "stale" in each]


@pytest.mark.slow
def test_time_limit_ends_a_hanging_case_and_never_conforms(run: Run, tmp_path: Path) -> None:
    began = time.monotonic()
    done = run("hangs", "--time-limit", "5", "--only", "XSEM-BUF-006", "--report", "out.json")
    assert time.monotonic() - began < 90   # its own deadline is 30 s, and a busy machine starts processes late
    report = read(tmp_path)
    assert (done.returncode, report["status"], report["complete"]) == (3, 3, False)
    assert [each["key"] for each in report["not_run"]] == [HANGS]
    assert report["incomplete"] == "1 of 1 cases were not run: the time limit of the run was reached"


@pytest.mark.variants
@pytest.mark.timeout(110)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_ended_run_leaves_a_report_of_what_ran(start: Run, tmp_path: Path, how: signal.Signals) -> None:
    started = start("hangs", "--only", "XSEM-BUF-006", "--only", "XSEM-CAP-001", "--report", "out.json", "--html",
                    "out.html", "--junit", "out.xml", "--jobs", "1")
    try:
        until((tmp_path / "out.xml").exists, deadline_s=90)   # the last file; CAP-001 has passed
        started.send_signal(how)
        started.communicate(timeout=60)
    finally:
        started.kill()
        started.wait()
    report = read(tmp_path)
    assert [each["key"] for each in report["cases"]] == ["XSEM-CAP-001/-/host/-"]
    assert [each["key"] for each in report["not_run"]] == [HANGS]
    assert (report["status"], report["complete"]) == (3, False)
    assert report["incomplete"] == "1 of 2 cases were not run: the run was ended"
    assert started.returncode != 0


# ---- the exporter
@pytest.mark.variants
@pytest.mark.parametrize(("way", "said"), [
    ("breaks when opened", "RuntimeError: no such thing"), ("does not open", "the device is gone"),
    ("dies when opened", "the process died: SIGABRT"),
    ("is killed by exports", "the process dies during the creation of a semaphore"),
    ("declares nothing", "it declares the export of no type, but the device imports semaphores host_timeline_fd, "),
])
def test_unusable_exporter_is_one_sentence_before_the_first_case(
    run: Run, tmp_path: Path, way: str, said: str
) -> None:
    name = odd_backend.device(way)
    done = run("well", "--exporter", name, "--only", "XSEM-BUF-006", "--report", "out.json")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"xsem: the exporter {name} cannot be used: ")
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr
    assert not (tmp_path / "out.json").exists()


# ---- one case
@pytest.mark.slow
def test_one_case_runs_by_its_key(run: Run, tmp_path: Path) -> None:
    done = run("well", "--case", HANGS, "--report", "out.json")
    assert (done.returncode, [each["key"] for each in read(tmp_path)["cases"]]) == (0, [HANGS])
    unknown = run("well", "--case", "XSEM-BUF-006/opaque_fd/host/-")
    assert unknown.returncode == 2
    assert HANGS in unknown.stderr


@pytest.mark.slow
def test_debug_runs_the_case_in_the_foreground(run: Run, tmp_path: Path) -> None:
    done = run("raises", "--case", HANGS, "--debug")
    assert done.returncode == 1
    assert "device: dlpack_device()" in done.stderr
    assert "Traceback" in done.stderr
    assert "in _raise" in done.stderr
    assert f"ERROR {HANGS}: RuntimeError: no such thing" in done.stdout
    assert run("well", "--case", HANGS, "--debug").stdout.startswith(f"PASS {HANGS}")
    assert run("well", "--debug").returncode == 2


# ---- several workers
@pytest.mark.slow
def test_results_of_several_workers_are_in_the_order_of_the_plan(run: Run, tmp_path: Path) -> None:
    for jobs in ("1", "3"):
        done = run("well", "--jobs", jobs, "--only", "XSEM-CAP", "--only", "XSEM-BUF", "--report", f"out{jobs}.json")
        assert done.returncode == 0, done.stdout + done.stderr
    one, three = (read(tmp_path, f"out{jobs}.json") for jobs in ("1", "3"))
    assert [(each["key"], each["outcome"]) for each in one["cases"]] == [
        (each["key"], each["outcome"]) for each in three["cases"]]
    order = {name: place for place, name in enumerate(load().requirements)}
    places = [order[each["requirement"]] for each in three["cases"]]
    assert places == sorted(places)
    assert one["refusals"] == three["refusals"]
    # A look and the workers of each run, and a second process in each worker with a case that needs one.
    assert len(odd_backend.opened(tmp_path)) - (2 + 1 + 3) in (2, 3, 4)
