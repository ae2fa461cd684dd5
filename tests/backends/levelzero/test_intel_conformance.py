"""Run the conformance suite on the simulation of Intel's driver: check each outcome, and that no false order passes."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.levelzero_sim import level_zero_command
from support.paths import DRIVERS

FOLDER = DRIVERS
LIMIT_S = 140   # below the faulthandler_timeout of pyproject.toml


def run(*only: str) -> dict[str, tuple[str, int]]:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "SIMZE_MODE": "intel", "SIMZE_COUNTERS": str(Path(folder) / "counters")}
        script = str(FOLDER / "conformance_outcomes.py")
        command = level_zero_command(sys.executable, script, "levelzero:0", *only)
        ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LIMIT_S, env=environment)
    assert ran.returncode == 0, ran.stderr
    lines = [line.split(" ") for line in ran.stdout.splitlines()]
    return {key: (outcome, sum(map(int, through))) for outcome, key, *through in lines}


def table() -> dict[str, str]:
    lines = [line.split(" ") for line in (FOLDER / "levelzero_intel.txt").read_text().splitlines()]
    return {key: outcome for outcome, key in lines}


@functools.cache
def outcomes() -> dict[str, tuple[str, int]]:
    """Return for each case the outcome, and the number of waits that the driver let through during the case."""
    found, wanted = run(), table()
    # On a busy machine a late operation looks like a blocked one: such a case runs once more.
    other = [key for key, (outcome, _) in found.items() if outcome != wanted.get(key)]
    return {**found, **run(*other)} if 0 < len(other) < 10 else found


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 5)
def test_outcome_of_each_case_matches_the_table() -> None:
    assert {key: outcome for key, (outcome, _) in outcomes().items()} == table()


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 5)
def test_no_case_passes_when_the_driver_lets_a_wait_through() -> None:
    through = {key: outcome for key, (outcome, count) in outcomes().items() if count}
    assert through, "the driver let no wait through, so this test proves nothing"
    assert [key for key, outcome in through.items() if outcome == "PASS"] == []
