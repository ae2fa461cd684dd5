"""zink on SwiftShader for tests: OpenGL without a GPU or a display, on the Vulkan driver that exports to it."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

import pytest

from support import vulkan_sim
from support.paths import DRIVERS

_SCRIPT = DRIVERS / "zink"


@functools.cache
def _folder() -> Path | str:
    """Return the folder of zink, or the reason why it is unavailable."""
    return vulkan_sim.told_by(_SCRIPT, 200)   # the first call downloads 55 MB


def folder() -> Path:
    """Return the folder of zink. Skip the test if it or SwiftShader is unavailable; in CI this is a failure."""
    vulkan_sim.folder()
    found = _folder()
    if isinstance(found, str):
        pytest.skip(found)
    return found


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a process on zink. A process must start with it: its loaders read it once."""
    folder()
    # The script alone knows the variables. Its own shell adds to this environment nothing that a test needs.
    told = subprocess.run([str(_SCRIPT), "--", "env", "-0"], check=True, capture_output=True, text=True, timeout=50)
    return {**dict(each.split("=", 1) for each in told.stdout.split("\0") if each), **more}
