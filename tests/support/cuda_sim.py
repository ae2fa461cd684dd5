"""Run tests on the stand-in for libcuda: the real cuda-python over ``tests/drivers``.

    @on_stand_in                                   # one process for all such tests of a module
    @on_stand_in(SIMCUDA_DEVICES="2")              # one process for all tests of the module with this setting
"""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, overload

import pytest

from support.paths import DRIVERS
from support.stand_in import DEADLINE_S, run_there

__all__ = ["on_stand_in", "stand_in_environment"]

_RUN = DRIVERS / "run"
_NO_COMPILER = 3

F = TypeVar("F", bound=Callable[..., Any])


@functools.cache
def _library(version: str) -> Path | str:
    """Build the library of this version and return its folder, or the reason why it cannot be built."""
    if sys.platform == "win32":   # one library for all versions
        found = Path(os.environ["SYSTEMROOT"], "System32", "nvcuda.dll")
        there = found.exists() and b"simcuda_fail" in found.read_bytes()
        return found.parent if there else "the stand-in for nvcuda.dll is missing: run tests/drivers/nvcuda"
    if sys.platform != "linux":
        return "the stand-in for libcuda needs Linux or Wine"
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        return "cuda-bindings is not installed"
    ran = subprocess.run([str(_RUN), "cuda", "--where"], env={**os.environ, "SIMCUDA_VERSION": version}, check=False,
                         capture_output=True, text=True, timeout=DEADLINE_S)
    if ran.returncode == _NO_COMPILER:
        return ran.stderr
    assert ran.returncode == 0, ran.stderr
    return Path(ran.stdout.strip())


def stand_in_environment(**environment: str) -> dict[str, str]:
    """Return the environment of a process on the stand-in. Skip the test without it; CI takes this as a failure."""
    folder = _library(environment.get("SIMCUDA_VERSION", os.environ.get("SIMCUDA_VERSION", "")))
    if isinstance(folder, str):
        pytest.skip(folder)
    if sys.platform == "win32":
        return {**os.environ, **environment}
    before = os.environ.get("LD_LIBRARY_PATH")
    return {**os.environ, "LD_LIBRARY_PATH": f"{folder}:{before}" if before else str(folder), **environment}


def _place(settings: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    return [], stand_in_environment(**settings)


@overload
def on_stand_in(test: F, /) -> F: ...
@overload
def on_stand_in(**environment: str) -> Callable[[F], F]: ...
def on_stand_in(test: Any = None, /, **environment: str) -> Any:
    """Run the test on the stand-in, with these settings."""
    decorate = run_there("cuda", _place, environment, slow="SIMCUDA_VERSION" in environment)   # an older driver
    return decorate if test is None else decorate(test)
