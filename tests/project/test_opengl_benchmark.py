"""The benchmark of OpenGL says what it lacks. `records` has what it measures, which needs a GPU."""

from __future__ import annotations

import os
import subprocess
import sys

from support.paths import ROOT


def test_machine_without_cuda_is_not_measured() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "benchmarks" / "opengl.py")], check=False, timeout=60,
                          env=os.environ | {"XSEM_BACKENDS": "host"}, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert line.startswith("opengl: ")
    assert "cuda" in line
