"""User code that needs no GPU runs unchanged on the host device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import TESTS

SCENARIOS = TESTS / "typing"


def run(folder: Path, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(SCENARIOS), "XSEM_BACKENDS": "host", "APP_BACKEND": "host"}
    done = subprocess.run([sys.executable, "-W", "error", *arguments], cwd=folder, env=environment, timeout=50,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="the host device needs Linux")
def test_tests_of_an_application_pass_on_host(tmp_path: Path) -> None:
    printed = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path),
                  str(SCENARIOS / "app_tests.py"))
    assert "2 passed" in printed
