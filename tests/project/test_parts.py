"""The counts of the work of an append: on the stand-in for libcuda, with valgrind."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.cuda_sim import stand_in_environment
from support.paths import ROOT

import parts
from bench.ways import REUSED, XSEM
from xsem.spi import compiled

PROFILE = """\
events: Ir
ob=/lib/libpython3.so
fn=loop
10 100
cfn=append
calls=2 0
10 5000
ob=/x/xsem/runtime/_append.so
fn=append
20 30
cfn=PyEval_SaveThread
calls=1 0
20 70
cfn=cuSignalExternalSemaphoresAsync
calls=1 0
20 900
ob=/x/cuda/bindings/driver.so
fn=signal
30 7
ob=/lib/libcuda.so.1
fn=cuSignalExternalSemaphoresAsync
40 500
cfn=cuInside
calls=1 0
40 400
fn=cuInside
50 400
ob=/lib/libpython3.so
fn=PyEval_SaveThread
60 70
"""


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(ROOT / "benchmarks" / "parts.py"), *arguments], check=False, timeout=200,
                          env=stand_in_environment(**environment), capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)


def test_each_instruction_counts_at_one_place() -> None:
    assert parts.by_place(PROFILE) == {"driver": 900, "GIL": 70, "xsem": 30, "bindings": 7, "interpreter": 100}


def test_valgrind_is_needed() -> None:
    done = run(PATH="/nowhere")
    assert (done.returncode, done.stderr) == (3, "parts: valgrind is not installed\n")


@pytest.mark.slow
@pytest.mark.timeout(210)
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_signal_is_counted(tmp_path: Path) -> None:
    done = run("--only", "signal", "--json", str(tmp_path / "out.json"))
    if not compiled():
        assert (done.returncode, done.stderr) == (3, "parts: xsem is not compiled here: make compiled\n")
        return
    assert done.returncode == 0, done.stderr
    [row] = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert 0 < row["pure"]["files"] <= row["pure"]["python"] < 100
    ours, theirs = row["compiled"][XSEM], row["compiled"][REUSED]
    assert all(ours[place] > 0 for place in ("driver", "GIL", "xsem", "interpreter"))
    assert all(theirs[place] > 0 for place in ("driver", "GIL", "bindings", "interpreter"))
    assert theirs["xsem"] == 0
    assert parts.page(json.loads((tmp_path / "out.json").read_text())) in done.stdout
