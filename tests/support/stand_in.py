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


def share(folder: Path, marks: str) -> None:
    """Keep outcomes in this folder, and leave out the tests that these marks leave out."""
    global _folder, _marks
    _folder, _marks = folder, marks


@functools.cache
def _run_group(module: str, group: str, place: Place) -> tuple[dict[str, str | None], str]:
    """Return the failure of each test, None for a pass, and the output. One worker runs a group, and the others wait."""
    kept = _folder / f"{hashlib.sha256(f'{module} {group}'.encode()).hexdigest()}.json"
    with kept.with_suffix(".lock").open("w") as lock:
        if sys.platform != "win32":   # there, tests run in one process
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            kept.write_text(json.dumps(_outcomes(module, group, place)))
        outcomes, output = json.loads(kept.read_text())
        return outcomes, output


def _outcomes(module: str, group: str, place: Place) -> tuple[dict[str, str | None], str]:
    before, environment = place(json.loads(group)[1])
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        # With --capture=sys, the output of a driver is not lost if the driver ends the process.
        command = [*before, sys.executable, "-m", "pytest", "-q", "--capture=sys", "-p", "no:cacheprovider",
                   "-p", "support.stand_in", "-p", "pytest_timeout", "-o", f"faulthandler_timeout={DEADLINE_S - 20}",
                   f"--junitxml={report}", "-o", "junit_family=xunit2", "-m", _marks, module]
        path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        # It needs one plugin of pytest. Options of this process, for example -n 4, do not apply there.
        environment = {name: value for name, value in environment.items() if not name.startswith("PYTEST_")}
        environment |= {_GROUP: group, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        try:
            ran = subprocess.run(command, env=environment, cwd=ROOT, check=False,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DEADLINE_S)
            output = ran.stdout
        except subprocess.TimeoutExpired as error:
            output = f"no end after {DEADLINE_S} s\n{error.stdout!r}"
        if not report.exists():
            return {}, output
        outcomes: dict[str, str | None] = {}
        for case in ET.parse(report).iter("testcase"):
            failures = [each for each in case if each.tag in ("failure", "error", "skipped")]
            name, said = case.attrib["name"], "\n".join(each.text or each.tag for each in failures)
            # The teardown of a failed test may fail too, as a separate case, often because of leftovers.
            outcomes[name] = "\n".join(filter(None, [outcomes.get(name), said])) or None
        return outcomes, output
