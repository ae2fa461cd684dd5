"""tools/gpu-records: it counts the steps that passed, and keeps the output of failed steps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a bash script")

SCRIPT = ROOT / "tools" / "gpu-records"


def ran(folder: Path, python: str, *arguments: str) -> tuple[int, list[str]]:
    """Return status and lines, with a shell script in place of Python."""
    stand_in = folder / "python"
    stand_in.write_text(f"#!/bin/sh\n{python}\n")
    stand_in.chmod(0o755)
    environment = {**os.environ, "PYTHON": str(stand_in)}
    done = subprocess.run([str(SCRIPT), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT, env=environment, timeout=50, check=False)
    return done.returncode, done.stdout.splitlines()


def test_all_steps_pass(tmp_path: Path) -> None:
    status, lines = ran(tmp_path, 'echo "$*"', "0123abc", str(tmp_path / "out"))
    assert (status, lines[-1]) == (0, "13 passed, 0 failed")   # this machine has no second GPU
    assert all("0123abc" in line for line in lines if "--commit" in line)
    assert sum("--commit" in line for line in lines) == 12   # an example takes no commit
    assert list((tmp_path / "out").iterdir()) == []


def test_failed_step_is_counted_and_its_output_is_kept(tmp_path: Path) -> None:
    command = 'case "$*" in *stress.json*) echo why; exit 1;; esac'
    status, lines = ran(tmp_path, command, "0123abc", str(tmp_path / "out"))
    assert (status, lines[-1]) == (1, "12 passed, 1 failed")
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["stress.log"]
    assert (tmp_path / "out" / "stress.log").read_text() == "why\n"


def test_only_named_steps_run(tmp_path: Path) -> None:
    status, lines = ran(tmp_path, 'echo "$*"', "0123abc", str(tmp_path / "out"), "join", "conformance-cuda")
    assert (status, lines[-1]) == (0, "2 passed, 0 failed")
    assert sum("status 0" in line for line in lines) == 2


@pytest.mark.parametrize("arguments", [[], ["0123abc"], ["0123abc", "out", "more"]])
def test_wrong_arguments_are_refused_before_any_step(tmp_path: Path, arguments: list[str]) -> None:
    status, lines = ran(tmp_path, f"touch {tmp_path}/run", *arguments)
    assert (status, len(lines), lines[0].partition(",")[0]) == (2, 1, "usage: tools/gpu-records COMMIT FOLDER [STEP …]")
    assert not (tmp_path / "run").exists()
