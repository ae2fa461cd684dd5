"""xsem on unmodified PoCL, which imports nothing, and on the simulated OpenCL device, with host as the exporter.

    @on_pocl                                     # the CPU device, none of the extensions
    @on_pocl(POCL_DEVICES="pthread pthread")     # two of them; one process for all tests of the module with it
    @on_opencl                                   # of opencl_sim: PoCL made to look like a GPU that imports
"""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar, overload

import pytest

from support.importer import BOUND_S, PAGE, Pair, driver_of, fd_of, list_of, pair, soon
from support.stand_in import run_there
from xsem.types import MemoryHandleType, SemaphoreHandleType

__all__ = [
    "BINARY", "BOUND_S", "MEMORY", "PAGE", "Pair", "driver_of", "fd_of", "list_of", "on_pocl", "opened",
    "pocl_environment", "soon",
]

BINARY = SemaphoreHandleType.OPAQUE_FD
MEMORY = MemoryHandleType.OPAQUE_FD

F = TypeVar("F", bound=Callable[..., Any])


def _pocl_missing() -> str | None:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "PoCL's package is for Linux on x86-64"
    for name in ("pyopencl", "pocl_binary_distribution"):
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed"
    return None


def _own_drivers_only() -> dict[str, str]:
    """Return an environment without the user's OpenCL settings, and without the drivers of this machine."""
    others = {name: value for name, value in os.environ.items()
              if not name.startswith(("SIMCL_", "OPENCL_", "OCL_ICD_", "POCL_"))}
    found = importlib.util.find_spec("pyopencl")
    assert found is not None
    assert found.submodule_search_locations is not None
    # The PoCL package puts its library next to the loader of pyopencl, with a file that names it.
    return {**others, "OCL_ICD_VENDORS": str(Path(found.submodule_search_locations[0]) / ".libs" / "pocl.icd")}


def pocl_environment(**more: str) -> dict[str, str]:
    """Return the environment of a process with only PoCL. Skip the test without PoCL; CI takes it as a failure."""
    missing = _pocl_missing()
    if missing is not None:
        pytest.skip(missing)
    return {**_own_drivers_only(), **more}


def _pocl(settings: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    return [], pocl_environment(**settings)


@overload
def on_pocl(test: F, /) -> F: ...
@overload
def on_pocl(**environment: str) -> Callable[[F], F]: ...
def on_pocl(test: Any = None, /, **environment: str) -> Any:
    """Run the test on PoCL, with these settings."""
    decorate = run_there("pocl", _pocl, environment)
    return decorate if test is None else decorate(test)


def opened(device: str = "opencl:0", *, native: object | None = None) -> AbstractContextManager[Pair]:
    return pair(device, BINARY, native)
