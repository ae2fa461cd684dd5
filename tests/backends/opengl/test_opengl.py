"""OpenGL on zink: frames with an application's own context, and what OpenGL itself would not refuse."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.opengl_sim import environment
from support.paths import TESTS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="zink is taken from Debian's packages")


@pytest.mark.parametrize("options", [[], ["without-checks"]], ids=["", "without-checks"])
def test_frames_go_both_ways_in_the_applications_context(options: list[str]) -> None:
    pytest.importorskip("OpenGL", reason="PyOpenGL is not installed")
    env = environment()
    done = subprocess.run(
        [sys.executable, "-m", "support.gl_frames", "vulkan:0", "binary", "60", *options], check=False,
        capture_output=True, text=True, timeout=100,
        env={**env, "PYTHONPATH": f"{TESTS}:{env.get('PYTHONPATH', '')}"})
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
