"""Run tests on the simulated Level Zero driver, behind the real loader of a Debian release.

    @on_level_zero                                            # conforming, Debian 12's loader
    @on_level_zero(SIMZE_MODE="intel")                        # one process for all tests of the module with it
    @on_level_zero(LOADER="trixie", SIMZE_DEVICES="2")        # a newer release's loader
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, overload

import pytest

from support.paths import DRIVERS
from support.stand_in import DEADLINE_S, run_there

__all__ = [
    "FIFO", "HOST_FUNCTIONS", "INTEL", "LIFO",
    "build", "level_zero_command", "loader_folder", "on_level_zero", "release_of",
]

_RUN = DRIVERS / "run"
_CANNOT = 3
_USUAL = "bookworm"


def build(number: int) -> str:
    """Return the value of SIMZE_DRIVER_VERSION for a build of Intel's driver."""
    return str(1 << 24 | 6 << 16 | number)


INTEL = {"SIMZE_MODE": "intel"}
LIFO = {**INTEL, "SIMZE_CONTROLLER": "lifo", "SIMZE_DRIVER_VERSION": build(38645)}   # before 26.22
FIFO = {**INTEL, "SIMZE_CONTROLLER": "fifo", "SIMZE_DRIVER_VERSION": build(38646)}   # 26.22
HOST_FUNCTIONS = {**INTEL, "SIMZE_CONTROLLER": "host-functions", "SIMZE_DRIVER_VERSION": build(39758)}   # 26.35

F = TypeVar("F", bound=Callable[..., Any])


@functools.cache
def _missing(release: str) -> str | None:
    """Build the driver, fetch the loader of this release, and return what is missing."""
    if sys.platform != "linux":
        return "the simulated Level Zero driver needs Linux"
    ran = subprocess.run([*_prefix(release), "true"], check=False, capture_output=True, text=True, timeout=DEADLINE_S)
    if ran.returncode == _CANNOT:
        return ran.stderr.strip()
    assert ran.returncode == 0, ran.stderr
    return None


def _prefix(release: str) -> list[str]:
    return [str(_RUN), "levelzero", "--loader", release, "--"]


def level_zero_command(*command: str, loader: str = _USUAL) -> list[str]:
    """Return the command on the simulated driver. Skip the test if it is unavailable; in CI this is a failure."""
    missing = _missing(loader)
    if missing is not None:
        pytest.skip(missing)
    return [*_prefix(loader), *command]


def loader_folder(release: str) -> Path:
    """Return the folder of the loader of a release. Its ``include`` has the vendor's headers, except for bookworm.

    Skip the test if it is unavailable.
    """
    script = _RUN.with_name("levelzero-loader")
    ran = subprocess.run([str(script), release], check=False, capture_output=True, text=True, timeout=DEADLINE_S)
    if ran.returncode == _CANNOT:
        pytest.skip(ran.stderr.strip())
    assert ran.returncode == 0, ran.stderr
    return Path(ran.stdout.strip())


def release_of(settings: Mapping[str, str]) -> str:
    """Return the Debian release of the loader that the settings name."""
    return settings.get("LOADER", _USUAL)


def _place(settings: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    others = {name: value for name, value in os.environ.items() if not name.startswith(("SIMZE_", "ZE_", "ZEL_"))}
    return level_zero_command(loader=release_of(settings)), {**others, **settings}


@overload
def on_level_zero(test: F, /) -> F: ...
@overload
def on_level_zero(**environment: str) -> Callable[[F], F]: ...
def on_level_zero(test: Any = None, /, **environment: str) -> Any:
    """Run the test on the simulated driver, with these settings. LOADER names the release of the loader."""
    decorate = run_there("levelzero", _place, environment, slow=release_of(environment) != _USUAL)
    return decorate if test is None else decorate(test)
