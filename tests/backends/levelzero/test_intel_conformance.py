"""Run the conformance suite on the simulation of Intel's driver: check each outcome, and that no false order passes."""

from __future__ import annotations

import functools

import pytest
from support.levelzero_outcomes import LIMIT_S, Outcomes, mistakes, outcomes, run, table
from support.levelzero_sim import level_zero_command


@functools.cache
def found(mode: str) -> Outcomes:
    level_zero_command()   # skips the test if the loader is unavailable
    return outcomes(mode)


@pytest.mark.slow
@pytest.mark.timeout(2 * LIMIT_S)
# `make levelzero` also runs "lifo", for ten minutes.
@pytest.mark.parametrize("mode", ["intel", "fifo", "host_functions"])
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
    assert mistakes("fifo", Outcomes({**same.cases, "X": ("PASS", 0)}, 0)) == ["X: PASS, not UNSUPPORTED"]
    assert mistakes("fifo", Outcomes({each: same.cases[each] for each in same.cases if each != key}, 0)) == [
        f"{key}: not run"]
    assert mistakes("fifo", Outcomes({**same.cases, key: ("PASS", 1)}, 0)) == [
        f"{key} passed while the driver let a wait through"]
    assert mistakes("fifo", same._replace(overlaps=2)) == ["2 calls on a list overlapped"]


@pytest.mark.slow
def test_one_queue_has_one_independent_list() -> None:
    """XSEM-KILL-001 needs another list beside a pending wait. XSEM-DEV-005 does not."""
    level_zero_command()   # skips the test if the loader is unavailable
    wanted = {
        "XSEM-KILL-001/timeline_semaphore_fd/host/-": "UNSUPPORTED", "XSEM-KILL-001/opaque_fd/host/-": "UNSUPPORTED",
        "XSEM-DEV-005/semaphore.timeline_semaphore_fd/host/-": "PASS",
        "XSEM-DEV-005/semaphore.opaque_fd/host/-": "PASS",
    }
    ended = run("one_queue", "bookworm", *wanted)
    assert {key: outcome for key, (outcome, _) in ended.cases.items()} == wanted
