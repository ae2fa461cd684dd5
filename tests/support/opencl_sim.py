"""Run tests on the simulated OpenCL device: PoCL behind pyopencl's loader, with the layer between them.

    @on_opencl                                  # one process for all such tests of a module
    @on_opencl(SIMCL_DEVICES="2")               # one process for all tests of the module with this setting
"""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

import pytest

from support.paths import DRIVERS
from support.stand_in import DEADLINE_S, run_there

__all__ = ["on_opencl", "opencl_command", "opencl_environment"]

_RUN = DRIVERS / "run"
_NO_COMPILER = 3

F = TypeVar("F", bound=Callable[..., Any])


@functools.cache
def _missing() -> str | None:
    """Build the layer, and return what is missing."""
    if sys.platform != "linux":
        return "the simulated OpenCL device needs Linux"
    for module, package in (("pyopencl", "pyopencl"), ("pocl_binary_distribution", "pocl-binary-distribution")):
        if importlib.util.find_spec(module) is None:
            return f"{package} is not installed"
    ran = subprocess.run([str(_RUN), "opencl", "--", "true"], check=False, capture_output=True, text=True,
                         timeout=DEADLINE_S)
    if ran.returncode == _NO_COMPILER:
        return ran.stderr.strip()
    assert ran.returncode == 0, ran.stderr
    return None


def opencl_command(*command: str) -> list[str]:
    """Return the command on the simulated device. Skip the test if it is unavailable; in CI this is a failure."""
    missing = _missing()
    if missing is not None:
        pytest.skip(missing)
    return [str(_RUN), "opencl", "--", *command]


def opencl_environment(**settings: str) -> dict[str, str]:
    """Return an environment with only these OpenCL settings."""
    others = {name: value for name, value in os.environ.items()
              if not name.startswith(("SIMCL_", "POCL_", "OPENCL_LAYERS", "OCL_ICD_"))}
    return {**others, **settings}


def _place(settings: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    return opencl_command(), opencl_environment(**settings)


@overload
def on_opencl(test: F, /) -> F: ...
@overload
def on_opencl(**environment: str) -> Callable[[F], F]: ...
def on_opencl(test: Any = None, /, **environment: str) -> Any:
    """Run the test on the simulated device, with these settings."""
    decorate = run_there("opencl", _place, environment)
    return decorate if test is None else decorate(test)
