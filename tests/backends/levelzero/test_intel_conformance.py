"""Run the conformance suite on the simulation of Intel's driver: what is not met, and that no false order passes."""

from __future__ import annotations

import functools

import pytest
from support.levelzero_outcomes import EXPECTED, LIMIT_S, Case, Outcomes, mistakes, outcomes, run
from support.levelzero_sim import level_zero_command


@functools.cache
def found(mode: str) -> Outcomes:
    level_zero_command()   # skips the test if the loader is unavailable
    return outcomes(mode)


@pytest.mark.slow
@pytest.mark.timeout(2 * LIMIT_S)
# `make levelzero` also runs "lifo", for ten minutes.
@pytest.mark.parametrize("mode", ["intel", "fifo", "host_functions"])
def test_no_other_case_fails_and_no_false_order_passes(mode: str) -> None:
    assert mistakes(mode, found(mode)) == []


@pytest.mark.slow
@pytest.mark.timeout(2 * LIMIT_S)
def test_driver_lets_waits_through_so_that_the_check_proves_something() -> None:
    assert any(case.through for case in found("intel").cases.values())


def test_each_kind_of_mistake_is_reported() -> None:
    expected = EXPECTED["lifo"]
    same = {**{f"X-{number}": Case("PASS") for number in range(expected.met)},
            **{key: Case("FAIL") for key in expected.not_met},
            "refused": Case("FAIL", 0, f"BusyError: {expected.refusal}")}
    assert mistakes("lifo", Outcomes(same, 0)) == []
    for other, words in (
        ({"X-0": Case("ERROR", 0, "why")}, ["X-0: ERROR: why", f"{expected.met - 1} cases met, not {expected.met}"]),
        ({expected.not_met[0]: Case("PASS")}, [f"{expected.not_met[0]}: PASS: "]),
        ({"X-0": Case("PASS", 1)}, ["X-0 passed while the driver let a wait through"]),
    ):
        assert mistakes("lifo", Outcomes({**same, **other}, 0)) == words
    key = expected.not_met[0]
    assert mistakes("lifo", Outcomes({each: same[each] for each in same if each != key}, 0)) == [f"{key}: not run"]
    assert mistakes("lifo", Outcomes(same, 2)) == ["2 calls on a list overlapped"]


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
    assert {key: case.outcome for key, case in ended.cases.items()} == wanted
