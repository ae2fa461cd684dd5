"""Run the conformance suite on the simulation of Intel's driver: check each outcome, and that no false order passes."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.levelzero_outcomes import LIMIT_S, Outcomes, mistakes, outcomes, table
from support.levelzero_sim import level_zero_command
from support.paths import DRIVERS


@functools.cache
def found(mode: str) -> Outcomes:
    level_zero_command()   # skips the test if the loader is unavailable
    return outcomes(mode)


@pytest.mark.slow
@pytest.mark.timeout(2 * LIMIT_S)
@pytest.mark.parametrize("mode", ["intel", "fifo"])   # `make levelzero` also runs "lifo", for ten minutes
def test_outcome_of_each_case_matches_the_table(mode: str) -> None:
    assert mistakes(mode, found(mode)) == []


@pytest.mark.slow
@pytest.mark.timeout(2 * LIMIT_S)
def test_driver_lets_waits_through_so_that_the_check_proves_something() -> None:
    assert any(count for _, count in found("intel").cases.values())


def test_each_kind_of_difference_is_reported() -> None:
    same = Outcomes({key: (outcome, 0) for key, outcome in table("fifo").items()}, 0)
    assert mistakes("fifo", same) == []
    key = next(key for key, outcome in table("fifo").items() if outcome == "PASS")
    assert mistakes("fifo", Outcomes({**same.cases, key: ("FAIL", 0)}, 0)) == [f"{key}: FAIL, not PASS"]
    assert mistakes("fifo", Outcomes({**same.cases, "X": ("PASS", 0)}, 0)) == ["X: PASS, not in the table"]
    assert mistakes("fifo", Outcomes({each: same.cases[each] for each in same.cases if each != key}, 0)) == [
        f"{key}: not run, not PASS"]
    assert mistakes("fifo", Outcomes({**same.cases, key: ("PASS", 1)}, 0)) == [
        f"{key} passed while the driver let a wait through"]
    assert mistakes("fifo", same._replace(overlaps=2)) == ["2 calls on a list overlapped"]


def test_case_of_two_lists_is_undeclared_with_one_queue(tmp_path: Path) -> None:
    """The device then declares one independent list. XSEM-KILL-001 needs another list beside a pending wait."""
    cases = ("XSEM-KILL-001/timeline_semaphore_fd/host/-", "XSEM-KILL-001/opaque_fd/host/-")
    done = subprocess.run(
        [*level_zero_command(), sys.executable, str(DRIVERS / "conformance_outcomes.py"), "levelzero:0", *cases],
        env={**os.environ, "SIMZE_QUEUES": "1", "SIMZE_ENGINES": "1", "SIMZE_COUNTERS": str(tmp_path / "counters")},
        check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    ended = {line.split(" ")[1]: line.split(" ")[0] for line in done.stdout.splitlines()}
    assert ended == dict.fromkeys(cases, "UNSUPPORTED")
