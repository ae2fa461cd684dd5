"""Runs tests on the stand-in for libcuda: the real cuda-python over ``tests/simdrivers``.

    @on_stand_in                                   # one process for all such tests of a module
    @on_stand_in(SIMCUDA_DEVICES="2")              # one process for all tests of the module with this setting

The driver library is found when a process starts, and a test may bring the stand-in down. So the tests run in processes
of their own: the first one asked for runs all of its group there, and each reports its own outcome. In those processes
this module is a plugin of pytest, which leaves out what is not of the group.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, overload
from xml.etree import ElementTree as ET

import pytest

__all__ = ["on_stand_in", "stand_in_environment"]

_RUN = Path(__file__).parent / "simdrivers" / "run"
_NO_COMPILER = 3
_GROUP = "XSEM_TEST_STAND_IN_GROUP"
_DEADLINE_S = 120  # for a group; below the faulthandler_timeout of pyproject.toml

F = TypeVar("F", bound=Callable[..., Any])


@functools.cache
def _library(version: str) -> Path | str:
    """The folder that holds the library of this version, which is built first; or why there is none."""
    if sys.platform != "linux":
        return "the stand-in for libcuda needs Linux"
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        return "cuda-bindings is not installed"
    ran = subprocess.run([str(_RUN), "cuda", "--where"], env={**os.environ, "SIMCUDA_VERSION": version}, check=False,
                         capture_output=True, text=True, timeout=_DEADLINE_S)
    if ran.returncode == _NO_COMPILER:
        return ran.stderr
    assert ran.returncode == 0, ran.stderr
    return Path(ran.stdout.strip())


def stand_in_environment(**environment: str) -> dict[str, str]:
    """For a process on the stand-in. Skips the test where it cannot be had, which CI takes for a failure."""
    folder = _library(environment.get("SIMCUDA_VERSION", os.environ.get("SIMCUDA_VERSION", "")))
    if isinstance(folder, str):
        pytest.skip(folder)
    before = os.environ.get("LD_LIBRARY_PATH")
    return {**os.environ, "LD_LIBRARY_PATH": f"{folder}:{before}" if before else str(folder), **environment}


@overload
def on_stand_in(test: F, /) -> F: ...
@overload
def on_stand_in(**environment: str) -> Callable[[F], F]: ...
def on_stand_in(test: Any = None, /, **environment: str) -> Any:
    """Run the test on the stand-in, in an environment."""
    group = json.dumps(environment, sort_keys=True)

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> None:
            if os.environ.get(_GROUP) == group:
                function(*args, **kwargs)
            else:
                # It reads: file, two colons, the test with its parameters, a blank, the phase.
                node = os.environ["PYTEST_CURRENT_TEST"].rsplit(" ", 1)[0].split("::", 1)[1]
                outcomes, output = _run_group(function.__globals__["__file__"], group)
                if node not in outcomes:
                    pytest.fail(f"{node} did not run on the stand-in:\n{output}", pytrace=False)
                if outcomes[node] is not None:
                    pytest.fail(f"on the stand-in:\n{outcomes[node]}", pytrace=False)

        wrapper.stand_in_group = group  # type: ignore[attr-defined]
        if _GROUP not in os.environ:
            wrapper = pytest.mark.timeout(_DEADLINE_S + 10)(wrapper)
        return wrapper  # type: ignore[return-value]

    return decorate if test is None else decorate(test)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In a process of a group: its tests alone."""
    group = os.environ.get(_GROUP)
    if group is not None:
        items[:] = [item for item in items if getattr(getattr(item, "function", None), "stand_in_group", None) == group]


@functools.cache
def _run_group(module: str, group: str) -> tuple[dict[str, str | None], str]:
    """Each test's failure, or None for those that passed; and all that was printed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "cuda_sim",
                   "-o", f"faulthandler_timeout={_DEADLINE_S - 20}", f"--junitxml={report}",
                   "-o", "junit_family=xunit2", module]
        path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**stand_in_environment(**json.loads(group)), _GROUP: group, "PYTHONPATH": path}
        environment.pop("PYTEST_CURRENT_TEST", None)
        try:
            ran = subprocess.run(command, env=environment, cwd=Path(__file__).parent.parent, check=False,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_DEADLINE_S)
            output = ran.stdout
        except subprocess.TimeoutExpired as error:
            output = f"no end after {_DEADLINE_S} s\n{error.stdout!r}"
        if not report.exists():
            return {}, output
        outcomes: dict[str, str | None] = {}
        for case in ET.parse(report).iter("testcase"):
            failures = [each for each in case if each.tag in ("failure", "error", "skipped")]
            outcomes[case.attrib["name"]] = "\n".join(each.text or each.tag for each in failures) if failures else None
        return outcomes, output
