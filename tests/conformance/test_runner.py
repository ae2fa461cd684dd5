"""A hang or a crash fails one case, and leaves no process and no open file."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import odd_backend
from support.plugin_folder import write_plugin
from support.waiting import until

import xsem_host.device
from xsem_conformance import backend_code, verdict
from xsem_conformance.case.holding import TOO_SOON
from xsem_conformance.outcomes import Case, Outcome, Result
from xsem_conformance.profiles import profiles
from xsem_conformance.requirements import load
from xsem_conformance.run import process, session
from xsem_conformance.run.hangs import Hangs
from xsem_conformance.run.process import UnavailableError, WorkerProcess
from xsem_conformance.run.runner import DiedError, Workers

ASKED = Case("XSEM-BUF-006", exporter="host")       # asks the driver for its dlpack_device
PLAIN = Case("XSEM-CAP-001", exporter="host")       # needs only the device
SHARED = Case("XSEM-LIST-002", "timeline_semaphore_fd", exporter="host")     # also needs the process of the exporter
LONG_S = 30.0


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in odd_backend.installed(tmp_path, os.environ).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)   # for a possible core dump
    return tmp_path


def workers(way: str, exporter: str = "host:0") -> Workers:
    return Workers(odd_backend.device(way), exporter)


def ended(pid: int) -> bool:
    """Return whether the process is gone, or is a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


@contextlib.contextmanager
def clock_starts_when(state: Callable[[], object]) -> Iterator[None]:
    """Start the runner's deadlines when this holds: on a busy machine a process starts late."""
    real = WorkerProcess.answer

    def answer(worker: Any, timeout_s: float, hangs: Any = None) -> Any:
        until(state)
        return real(worker, timeout_s, hangs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WorkerProcess, "answer", answer)
        yield


def opens(folder: Path, count: int = 1) -> bool:
    """Return whether `count` processes have begun to open one of the devices."""
    return (folder / "odd.log").exists() and len(odd_backend.opened(folder)) >= count


def test_cases_run_in_one_process_that_ends_with_the_runner(folder: Path) -> None:
    with workers("well", odd_backend.device("well")) as running:
        for case in (ASKED, PLAIN, SHARED, ASKED):
            result = running.run(case, LONG_S)
            assert (result.case, result.outcome, result.detail) == (case, Outcome.PASS, "")
            assert result.seconds > 0
        device, exporter = odd_backend.opened(folder)
        assert not ended(device)
        assert not ended(exporter)
    assert ended(device)
    until(lambda: ended(exporter))


def test_hanging_case_fails_and_next_case_gets_a_new_process(folder: Path) -> None:
    with workers("hangs", odd_backend.device("well")) as running:
        assert running.run(SHARED, LONG_S).outcome is Outcome.PASS
        device, exporter = odd_backend.opened(folder)
        with clock_starts_when(lambda: _hangs(running)):
            result = running.run(ASKED, 0.5)
        assert result.outcome is Outcome.FAIL
        assert result.detail.startswith("hangs: no result after 0.5 s")
        assert result.detail.endswith("the device hangs: <script>\x1b[0m")
        assert result.seconds >= 0.5
        # Its resources are gone with it, and so is the process of the exporter.
        assert ended(device)
        until(lambda: ended(exporter))
        assert running.run(PLAIN, LONG_S).outcome is Outcome.PASS
        third = odd_backend.opened(folder)[2]
        assert third not in (device, exporter)
    assert ended(third)


def test_exporter_that_hangs_ends_with_the_case(folder: Path) -> None:
    with workers("well", odd_backend.device("hangs in exports")) as running:
        assert running.run(PLAIN, LONG_S).outcome is Outcome.PASS
        with clock_starts_when(lambda: opens(folder, 2)):
            result = running.run(SHARED, 0.5)
        assert result.outcome is Outcome.FAIL
        assert result.detail.startswith("hangs: ")
        _, exporter = odd_backend.opened(folder)
        try:
            until(lambda: ended(exporter))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(exporter, signal.SIGKILL)


@pytest.mark.variants
@pytest.mark.parametrize(("way", "said"), [
    ("aborts", "the process died: SIGABRT"), ("is killed", "the process died: SIGKILL"),
    ("exits", "the process died: status 5"),
])
def test_case_that_ends_the_process_fails_with_the_cause(folder: Path, way: str, said: str) -> None:
    with workers(way, odd_backend.device("well")) as running:
        assert running.run(SHARED, LONG_S).outcome is Outcome.PASS
        device, exporter = odd_backend.opened(folder)
        result = running.run(ASKED, LONG_S)
        assert result.outcome is Outcome.FAIL
        assert result.detail.startswith(f"{said}; it printed:\n")
        assert f"the device {way}" in result.detail
        assert len(result.detail) < 2200   # the end of the output, not all 5,000 characters
        assert ended(device)
        until(lambda: ended(exporter))
        assert running.run(PLAIN, LONG_S).outcome is Outcome.PASS
        assert odd_backend.opened(folder)[2] not in (device, exporter)


@pytest.mark.variants
@pytest.mark.parametrize(("way", "outcome", "said"), [
    ("raises", Outcome.ERROR, "RuntimeError: no such thing"),
    ("refuses", Outcome.FAIL, "DriverError: the device is gone"),
    ("is unsupported", Outcome.FAIL, "declared, but refused: odd devices have none"),
    ("answers wrongly", Outcome.FAIL, "(0, 0) is not a DLPack device"),
])
def test_case_after_a_failed_case_gets_a_new_process(
    folder: Path, way: str, outcome: Outcome, said: str
) -> None:
    with workers(way) as running:
        result = running.run(ASKED, LONG_S)
        assert result.outcome is outcome
        assert result.detail.startswith(said)
        # A failed case may leave pending waits, which would block the next case.
        assert running.run(PLAIN, LONG_S).outcome is Outcome.PASS
        assert running.run(PLAIN, LONG_S).outcome is Outcome.PASS
        first, _second = odd_backend.opened(folder)
        assert ended(first)


@pytest.mark.slow
def test_case_after_a_spoiling_case_gets_a_new_process(folder: Path) -> None:
    with workers("well") as running:
        for spoils in (False, True, False):
            assert running.run(ASKED, LONG_S, spoils=spoils).outcome is Outcome.PASS
        first, second = odd_backend.opened(folder)
        assert ended(first)
        assert not ended(second)


@pytest.mark.slow
def test_check_says_whether_it_spoils_the_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = next(each for each in session.survey("host:0", "host:0", list(load().requirements.values())).cases
                   if each.case.requirement == "XSEM-IMP-004")
    assert planned.check.spoils
    seen: list[bool] = []

    def run(_case: Case, _deadline_s: float, *, spoils: bool) -> object:
        seen.append(spoils)
        return Result(planned.case, Outcome.PASS, "")

    with workers("well") as running:
        monkeypatch.setattr(running, "run", run)
        session.result(running, planned, {})
    assert seen == [True]


@pytest.mark.slow
def test_exporter_that_dies_fails_only_its_case(folder: Path) -> None:
    with workers("well", odd_backend.device("is killed by exports")) as running:
        result = running.run(SHARED, LONG_S)
        assert result.outcome is Outcome.ERROR
        assert "exporter's process does not answer" in result.detail
        assert running.run(PLAIN, LONG_S).outcome is Outcome.PASS
        device, exporter, again = odd_backend.opened(folder)
        assert ended(exporter)
        assert ended(device)
        assert not ended(again)


@pytest.mark.variants
@pytest.mark.parametrize("exporter", ["nothing:0", odd_backend.device("does not open")])
def test_exporter_that_cannot_be_opened_blocks_its_cases(exporter: str) -> None:
    with workers("well", exporter) as running:
        result = running.run(SHARED, LONG_S)
        assert result.outcome is Outcome.BLOCKED
        assert result.detail.startswith(f"the exporter {exporter} cannot be opened: ")
        assert running.run(PLAIN, LONG_S).outcome is Outcome.PASS


@pytest.mark.slow
def test_process_killed_from_outside_fails_the_case(folder: Path) -> None:
    with workers("well") as running:
        assert running.run(PLAIN, LONG_S).outcome is Outcome.PASS
        (device,) = odd_backend.opened(folder)
        os.kill(device, signal.SIGKILL)
        until(lambda: ended(device))
        result = running.run(PLAIN, LONG_S)
        assert (result.outcome, result.detail) == (Outcome.FAIL, "the process died: SIGKILL")
        assert running.run(PLAIN, LONG_S).outcome is Outcome.PASS


# ---- devices that cannot be opened
@pytest.mark.variants
@pytest.mark.parametrize(("way", "said"), [
    ("does not open", "the device is gone"), ("breaks when opened", "no such thing"),
    ("dies when opened", "about to die"),
])
def test_device_that_cannot_be_opened_is_unavailable(folder: Path, way: str, said: str) -> None:
    with workers(way) as running:
        for _ in range(2):   # once more, for the next case
            with pytest.raises(UnavailableError, match=said):
                running.run(PLAIN, LONG_S)
    first, second = odd_backend.opened(folder)
    assert ended(first)
    assert ended(second)


@pytest.mark.variants
@pytest.mark.parametrize(("code", "said", "patience_s"), [
    ("import time; time.sleep(1000)",
     r"import of the plugin of 'bad' does not end within 0\.5 s \(--patience\), in <module> \(.*\.py, line 1\)$", 0.5),
    ("import os; os.kill(os.getpid(), 11)",
     r"import of the plugin of 'bad': the process died: SIGSEGV, in <module> \(.*bad_plugin\.py, line 1\)$", LONG_S),
    ("import os; os._exit(0)", "the import of the plugin of 'bad': the process died: status 0$", LONG_S),
    ("raise SystemExit(0)", r"the plugin 'bad' of bad 1\.0 cannot be used: SystemExit: 0$", LONG_S),
    ("import os; print('text', flush=True); os.write(1, b'\\xff')",
     r"the plugin 'bad' of bad 1\.0 cannot be used: its module has no @hookimpl", LONG_S),
], ids=["hangs", "crashes", "ends", "exits", "prints"])
def test_plugin_that_fails_at_import_is_named(
    folder: Path, code: str, said: str, patience_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_OPEN_S", 0.1)
    monkeypatch.setenv("XSEM_BACKENDS", "bad,host,odd")
    write_plugin(folder, "bad", code)
    with pytest.raises(UnavailableError, match=said):
        process.look("bad:0", patience_s=patience_s)
    assert process.look("host:0").info.id == "host:0"   # the plugin is not imported


def test_device_that_hangs_when_opened_is_unavailable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_OPEN_S", 0.1)
    name = odd_backend.device("hangs when opened")
    with Workers(name, "host:0", 0.5) as running, clock_starts_when(lambda: opens(folder)), pytest.raises(
            UnavailableError,
            match=rf"the opening of {name} does not end within 0\.5 s \(--patience\), in wait \(.*threading.py"):
        running.run(PLAIN, LONG_S)
    assert all(ended(each) for each in odd_backend.opened(folder))


@pytest.mark.variants
@pytest.mark.parametrize(("way", "said"), [
    ("does not open", "the device is gone"), ("breaks when opened", "RuntimeError: no such thing"),
    ("dies when opened", "the process died: SIGABRT, in open ("),
    ("hangs when opened", "does not end within 0.5 s"),
])
def test_survey_ends_its_processes_when_a_device_cannot_open(
    folder: Path, way: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_OPEN_S", 0.1)
    requirements = [each for each in load().requirements.values() if each.id == ASKED.requirement]
    with clock_starts_when(lambda: opens(folder)):
        found = session.survey(odd_backend.device(way), odd_backend.device(way), requirements,
                               0.5 if way.startswith("hangs") else LONG_S)
    assert (found.device, found.exporter, found.capabilities) == (None, None, None)
    assert said in found.unavailable
    assert all(ended(each) for each in odd_backend.opened(folder))
    assert os.getpid() not in odd_backend.opened(folder)


def test_look_returns_the_facts_of_the_device(folder: Path) -> None:
    about = process.look(odd_backend.device("well"), with_code=True)
    assert (about.info.id, about.second, about.package) == (odd_backend.device("well"), True, "odd_backend")
    assert about.code == {"package": "odd_backend",
                          "sha256": backend_code.digest(Path(odd_backend.__file__)), "libraries": []}
    assert about.capabilities == xsem_host.device.CAPABILITIES
    (pid,) = odd_backend.opened(folder)
    assert pid != os.getpid()
    assert ended(pid)
    assert process.look("host:0").code is None
    with pytest.raises(UnavailableError) as caught:
        process.look("host:x")
    assert caught.value.usage


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
@pytest.mark.parametrize("way", ["hangs", "hangs in exports"])
def test_killed_runner_ends_hanging_processes(folder: Path, way: str) -> None:
    device, exporter, case = ("hangs", "host:0", ASKED) if way == "hangs" else ("well", "hangs in exports", SHARED)
    device = odd_backend.device(device)
    exporter = odd_backend.device(exporter) if exporter != "host:0" else exporter
    program = (f"from xsem_conformance.run.runner import Workers\nfrom xsem_conformance.outcomes import Case\n"
               f"with Workers({device!r}, {exporter!r}) as running:\n"
               f"    running.run(Case({case.requirement!r}, {case.handle_type!r}, exporter='host'), 60)\n")
    running = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.DEVNULL)
    expected = 1 if way == "hangs" else 2
    try:
        until(lambda: (folder / "odd.log").exists() and len(odd_backend.opened(folder)) == expected, deadline_s=20)
        until(lambda: all(sleeping(each) for each in odd_backend.opened(folder)), deadline_s=20)
    finally:
        running.kill()
        running.wait()
    until(lambda: all(ended(each) for each in odd_backend.opened(folder)))


def sleeping(pid: int) -> bool:
    """Return whether it sleeps."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


# ---- refusals and quirks
@pytest.mark.variants
@pytest.mark.parametrize("way", ["well", "is killed by imports"])
@pytest.mark.parametrize("name", [
    "semaphore_import:sync_fd", "semaphore_export:sync_fd", "memory_import:dmabuf_fd", "memory_export:dmabuf_fd",
    "feature:recording",
])
def test_undeclared_capability_is_refused_before_the_driver(way: str, name: str) -> None:
    with workers(way) as running:
        result = running.refusal(name)
    assert (result.case.requirement, result.outcome, result.detail) == (
        name, Outcome.UNSUPPORTED, "not declared; refused")


def test_crash_while_a_refusal_is_asked_fails() -> None:
    with workers("is killed by imports") as running:
        result = running.refusal("feature:host_signal")   # it needs a semaphore, which is imported first
        assert (result.outcome, result.detail) == (Outcome.FAIL, "the process died: SIGKILL")
        assert result.case.requirement == "feature:host_signal"


@pytest.mark.slow
def test_crash_during_the_quirks_is_reported() -> None:
    with workers("is killed by imports") as running:
        with pytest.raises(DiedError, match="the process died: SIGKILL"):
            running.quirks()
        assert running.run(PLAIN, LONG_S).outcome is Outcome.PASS


def test_crash_during_the_quirks_fails_the_run() -> None:
    found = session.Run(None, None, None, profiles()["core"], [], dt.datetime.now(dt.UTC),
                        [Result(PLAIN, Outcome.PASS, "")])
    work = session._Work(found, [], [], [], lambda *_: None, LONG_S, 0, Hangs(LONG_S, 0), 0.0)
    with workers("is killed by imports") as running:
        work.act(running, session._QUIRKS)
    assert found.problems == ["the measurement of quirks: the process died: SIGKILL"]
    assert (found.status, found.quirks) == (verdict.BAD, {"problem": "the process died: SIGKILL"})


# ---- Ctrl-C
def test_interrupt_in_a_hanging_case_ends_its_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    close, graces = WorkerProcess.close, []

    def closed(worker: Any, *, grace_s: float) -> int:
        graces.append(grace_s)
        return close(worker, grace_s=grace_s)

    monkeypatch.setattr(WorkerProcess, "close", closed)

    def interrupt(is_there: Callable[[], bool]) -> None:
        until(is_there)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with workers("hangs") as running:
        assert running.run(PLAIN, LONG_S).outcome is Outcome.PASS
        (device,) = odd_backend.opened(folder)
        waits = threading.Thread(target=interrupt, args=(lambda: _hangs(running),))
        waits.start()
        with pytest.raises(KeyboardInterrupt), running:
            running.run(ASKED, 60)
        waits.join()
    assert ended(device)
    assert graces == [0]   # the runner does not wait for a hanging process


def _hangs(running: Workers) -> bool:
    worker = running._worker
    return worker is not None and worker._said.size() > 5000


@pytest.mark.parametrize(("answers", "tried"), [
    (["BLOCKED", "PASS"], 2), (["BLOCKED"] * 5, 3), (["PASS"], 1), (["OTHER"], 1),
], ids=["once", "always", "never", "another reason"])
def test_case_whose_time_was_too_short_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, answers: list[str], tried: int
) -> None:
    asked: list[str] = []

    def result(_workers: Workers, case: Case, _key: str, _deadline_s: float) -> Result:
        asked.append(answers[len(asked)])
        seen = {"BLOCKED": f"a wait could not be watched: {TOO_SOON}", "OTHER": "no such exporter"}.get(asked[-1], "")
        return Result(case, Outcome.PASS if asked[-1] == "PASS" else Outcome.BLOCKED, seen)

    monkeypatch.setattr(Workers, "_result", result)
    assert workers("well").run(PLAIN, LONG_S).outcome.value == ("PASS" if answers[-1] == "PASS" else "BLOCKED")
    assert len(asked) == tried
