"""OpenGL of a real GPU, with an application's own context."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.gpu import needs_gpu
from support.paths import TESTS

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(150)]


def program(name: str, *arguments: str) -> str:
    """Run a program of the tests to its end, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", name, *arguments], check=False, capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}"})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", ["binary", "timeline"])
@pytest.mark.parametrize("draws_on", ["vulkan:0", "cuda:0"])
def test_frames_go_both_ways_in_the_applications_context(draws_on: str, kind: str) -> None:
    needs_gpu("opengl", "vulkan")
    assert program("support.gl_frames", draws_on, kind, "500") == "done\n"


@pytest.mark.slow
def test_a_wait_that_is_pending_for_a_minute_is_unharmed() -> None:
    needs_gpu("opengl", "vulkan")
    assert program("support.gl_pending", "60") == "done\n"
