"""examples/app_tests.py: the tests of an application pass on the host device, and fail if the application is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.example_programs import EXAMPLES, changed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the host device needs Linux")


def run(folder: Path, program: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"XSEM_BACKENDS": "host", "APP_BACKEND": "host"}
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder),
         str(program)], cwd=folder, env=environment, timeout=50, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False)


def test_tests_of_an_application_pass_on_host(tmp_path: Path) -> None:
    done = run(tmp_path, EXAMPLES / "app_tests.py")
    assert (done.returncode, "2 passed" in done.stdout) == (0, True), done.stdout


@pytest.mark.slow
def test_wrong_application_fails_its_test(tmp_path: Path) -> None:
    program = changed(tmp_path, "app_tests", "image.__iadd__(1)", "image.__iadd__(2)")
    done = run(tmp_path, program)
    assert (done.returncode, "1 failed, 1 passed" in done.stdout) == (1, True), done.stdout
