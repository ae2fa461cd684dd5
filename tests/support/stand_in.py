"""Run tests in separate processes, on a stand-in for a driver library.

A driver library is found when a process starts, and a test may crash the stand-in. A group of tests has one stand-in
and the same settings. The first test of a group runs the whole group in one process, and each test reports its own
outcome. In these processes this module is a pytest plugin that deselects tests of other groups.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from xml.etree import ElementTree as ET

import pytest

from support.paths import ROOT, TESTS

if sys.platform != "win32":
    import fcntl

__all__ = ["DEADLINE_S", "Place", "run_there"]

_GROUP = "XSEM_TEST_STAND_IN_GROUP"
# What tests/drivers/run reads. A group with another setting needs a process of its own, which the script starts.
_AT_START = {"LOADER", "SIMCL_DEVICES", "SIMCUDA_VERSION", "SIMZE_DRIVERS"}
# For a group; on Linux, below the faulthandler_timeout of pyproject.toml. Processes start slowly under Wine.
DEADLINE_S = 360 if sys.platform == "win32" else 120

F = TypeVar("F", bound=Callable[..., Any])

# Returns the prefix of the command and its environment; skips the test if the stand-in is unavailable.
Place = Callable[[Mapping[str, str]], tuple[list[str], dict[str, str]]]


def run_there(name: str, place: Place, settings: Mapping[str, str], *, slow: bool = False) -> Callable[[F], F]:
    """Return a decorator that runs the test in the group of this stand-in and these settings."""
    group = json.dumps([name, settings], sort_keys=True)

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> None:
            if os.environ.get(_GROUP) == group:
                function(*args, **kwargs)
            else:
                # Format: file, two colons, the test with its parameters, a blank, the phase.
                node = os.environ["PYTEST_CURRENT_TEST"].rsplit(" ", 1)[0].split("::", 1)[1]
                outcomes, output = _run_group(function.__globals__["__file__"], group, place)
                if node not in outcomes:
                    pytest.fail(f"{node} did not run on the stand-in:\n{output}", pytrace=False)
                if outcomes[node] is not None:
                    pytest.fail(f"on the stand-in:\n{outcomes[node]}", pytrace=False)

        wrapper.stand_in_group = group  # type: ignore[attr-defined]
        wrapper = pytest.mark.usefixtures("stand_in_groups")(wrapper)
        if slow:
            wrapper = pytest.mark.slow(wrapper)
        if _GROUP not in os.environ:
            wrapper = pytest.mark.timeout(DEADLINE_S + 10)(wrapper)
        return wrapper  # type: ignore[return-value]

    return decorate


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep only the tests of the group in its process."""
    group = os.environ.get(_GROUP)
    if group is not None:
        items[:] = [item for item in items if getattr(getattr(item, "function", None), "stand_in_group", None) == group]


_folder: Path
_marks: str
_owner: int


def share(folder: Path, marks: str, owner: int) -> None:
    """Keep outcomes in this folder until this process ends, and leave out the tests that these marks leave out."""
    global _folder, _marks, _owner
    _folder, _marks, _owner = folder, marks, owner


@functools.cache
def _run_group(module: str, group: str, place: Place) -> tuple[dict[str, str | None], str]:
    """Return the failure of each test, None for a pass, and the output. The other workers wait for the same."""
    kept = _folder / f"{hashlib.sha256(f'{module} {group}'.encode()).hexdigest()}.json"
    with kept.with_suffix(".lock").open("w") as lock:
        if sys.platform != "win32":   # there, tests run in one process
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            kept.write_text(json.dumps(_outcomes(module, group, place)))
        outcomes, output = json.loads(kept.read_text())
        return outcomes, output


def _outcomes(module: str, group: str, place: Place) -> tuple[dict[str, str | None], str]:
    with tempfile.TemporaryDirectory() as folder:
        report, said = Path(folder) / "report.xml", Path(folder) / "output"
        # With --capture=sys, the output of a driver is not lost if the driver ends the process.
        arguments = ["-q", "--capture=sys", "-p", "no:cacheprovider", "-p", "support.stand_in", "-p", "pytest_timeout",
                     "-o", f"faulthandler_timeout={DEADLINE_S - 20}", f"--junitxml={report}",
                     "-o", "junit_family=xunit2", "-m", _marks, module]
        run = _in_new_process if sys.platform == "win32" else _in_fork
        output = "" if run(group, place, arguments, said) else f"no end after {DEADLINE_S} s\n"
        output += said.read_text(encoding="utf-8", errors="replace")
        if not report.exists():
            return {}, output
        outcomes: dict[str, str | None] = {}
        for case in ET.parse(report).iter("testcase"):
            failures = [each for each in case if each.tag in ("failure", "error", "skipped")]
            name, why = case.attrib["name"], "\n".join(each.text or each.tag for each in failures)
            # The teardown of a failed test may fail too, as a separate case, often because of leftovers.
            outcomes[name] = "\n".join(filter(None, [outcomes.get(name), why])) or None
        return outcomes, output


def _command(place: Place, settings: Mapping[str, str], *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Return a command of Python on the stand-in, and its environment."""
    before, environment = place(settings)
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    # It needs one plugin of pytest. Options of this process, for example -n 4, do not apply there.
    environment = {name: value for name, value in environment.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return [*before, sys.executable, *arguments], environment


def _in_new_process(group: str, place: Place, arguments: list[str], output: Path) -> bool:
    """Run pytest, and return whether it ended in time."""
    command, environment = _command(place, json.loads(group)[1], "-m", "pytest", *arguments)
    with output.open("wb") as file:
        try:
            subprocess.run(command, env=environment | {_GROUP: group}, cwd=ROOT, check=False, stdout=file,
                           stderr=subprocess.STDOUT, timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            return False
    return True


def _in_fork(group: str, place: Place, arguments: list[str], output: Path) -> bool:
    """Run pytest in a fork of a process that has imported what all groups need, which takes longer than most groups."""
    name, settings = json.loads(group)
    at_start = {key: value for key, value in settings.items() if key in _AT_START}
    path = _folder / hashlib.sha256(json.dumps([name, at_start]).encode()).hexdigest()[:12]
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            command, environment = _command(place, at_start, "-m", "support.stand_in_server", str(path), str(_owner))
            log = path.with_suffix(".log")
            with log.open("wb") as file:
                started = subprocess.run(command, env=environment, cwd=ROOT, check=False, stdin=subprocess.DEVNULL,
                                         stdout=file, stderr=subprocess.STDOUT, timeout=DEADLINE_S)
            assert started.returncode == 0, log.read_text()
    output.touch()
    with socket.socket(socket.AF_UNIX) as there, there.makefile() as answer:
        there.settimeout(DEADLINE_S)
        there.connect(str(path))
        there.sendall(json.dumps([settings | {_GROUP: group}, arguments, str(output)]).encode() + b"\n")
        pid = int(answer.readline())
        try:
            answer.read()   # until its end
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            return False
        except ConnectionResetError:   # it crashed
            pass
    return True
