"""`tools/windows/check` with stand-ins for Wine: when it passes, when it fails, and when it starts pytest once more."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.paths import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tools/windows/check is a program for Linux")

PASSES = "echo '...  [100%]'; echo '3 passed in 1.00s'"
FAILS = "echo '..F  [100%]'; echo '1 failed, 2 passed in 1.00s'; exit 1"
IS_KILLED = "echo '..'"   # the status is 0, because the Wine server is killed, too
HANGS = "echo '..'; exec sleep 1000"
FAILS_AND_HANGS = "echo '..F'; exec sleep 1000"

EXPECTED = 'expected: status 0, and a last line with "N passed"'
CHECK = (ROOT / "tools" / "windows" / "check").read_text()
VERDICTS = {device: f"echo '{total}'; echo '{verdict}'; exit {status}" for device, status, total, verdict in re.findall(
    r'must_have_said conform-(\w+) (\d) \\\n +"(total[^"]+)" "([^"]+)"', CHECK)}
RUN = f"""\
case "$*" in
    *pytest*) echo >>starts; source "pytest-$(wc -l <starts)" ;;
    *--version*) echo "xsem 1.2.3" ;;
    *devices*) echo "host:0" ;;
    *doctor*) echo "to use NVIDIA GPUs (cuda): install the NVIDIA driver"
              echo "install Intel's GPU driver, which has the loader"; echo "ok  sections: available" ;;
    *--without-wait*) echo "demo: 120 frames, 120 stale, 0 errors, as expected" ;;
    *demo*) echo "demo: 120 frames, 0 stale, 0 errors" ;;
    *cuda:0*) {VERDICTS["cuda"]} ;;
    *host:0*) {VERDICTS["host"]} ;;
esac
"""


def check(folder: Path, runs: Sequence[str], limit_s: int) -> tuple[int, str, int]:
    """Run the check in `folder`. The n-th start of pytest runs the n-th script of `runs`.

    Returns the exit status, the output, and the number of starts of pytest.
    """
    stand_ins = {"tools/windows/check": CHECK, "tools/windows/run": f"#!/usr/bin/env bash\n{RUN}",
                **dict.fromkeys(("tests/drivers/nvcuda", "tests/drivers/windows-dll", "bin/wineserver"), "#!/bin/sh\n")}
    for name, text in stand_ins.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    (folder / "build" / "windows").mkdir(parents=True)
    (folder / "xsem").mkdir()
    (folder / "xsem" / "__init__.py").write_text('__version__ = "1.2.3"\n')
    for number, text in enumerate(runs, start=1):
        (folder / f"pytest-{number}").write_text(text)
    ran = subprocess.run([folder / "tools" / "windows" / "check", str(limit_s)], check=False, timeout=200, text=True,
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         env=os.environ | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"})
    return ran.returncode, ran.stdout, len((folder / "starts").read_text().splitlines())


def test_check_passes_with_the_number_of_tests(tmp_path: Path) -> None:
    status, said, starts = check(tmp_path, [PASSES], limit_s=150)
    assert (status, starts) == (0, 1), said
    assert said.splitlines()[-1].startswith("windows: 10 steps passed")
    assert said.splitlines()[-1].endswith(" 3 tests")


@pytest.mark.parametrize("run", [FAILS, IS_KILLED], ids=["a test fails", "killed"])
def test_check_fails_without_a_second_run(tmp_path: Path, run: str) -> None:
    status, said, starts = check(tmp_path, [run, PASSES], limit_s=150)
    assert (status, starts) == (1, 1), said
    assert EXPECTED in said


@pytest.mark.slow
def test_check_passes_if_the_second_run_passes_after_a_hang(tmp_path: Path) -> None:
    status, said, starts = check(tmp_path, [HANGS, PASSES], limit_s=10)
    assert (status, starts) == (0, 2), said
    assert "windows: pytest still runs after 10 s" in said


@pytest.mark.slow
@pytest.mark.parametrize(("runs", "starts", "ends_with"), [
    pytest.param([HANGS, HANGS], 2, 124, id="the second run hangs"),
    pytest.param([HANGS, FAILS], 2, 1, id="the second run fails"),
    pytest.param([FAILS_AND_HANGS, PASSES], 1, 124, id="a test failed before the hang"),
])
def test_check_fails_after_a_hang(tmp_path: Path, runs: Sequence[str], starts: int, ends_with: int) -> None:
    status, said, started = check(tmp_path, runs, limit_s=5)
    assert (status, started) == (1, starts), said
    assert f"ended with status {ends_with}; {EXPECTED}" in said
