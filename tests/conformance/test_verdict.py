"""The exit status of a run, for every outcome at every level."""

from __future__ import annotations

import pytest

from xsem.types import Capabilities, MemoryHandleType, SemaphoreHandleType
from xsem_conformance import verdict
from xsem_conformance.outcomes import Case, Outcome, Result
from xsem_conformance.profiles import Profile, profiles
from xsem_conformance.requirements import AREAS, Level, Requirement

LEVELS: dict[str, Level] = {"BIN": "MUST", "TL": "SHOULD", "BUF": "MAY", "ORD": "MUST"}
REQUIREMENTS = [Requirement(id=f"XSEM-{area}-001", level=level, subject="device", text="It does.")
                for area, level in LEVELS.items()]
OF_LEVEL = {each.level: each.id for each in reversed(REQUIREMENTS)}
ALWAYS = [Result(Case("XSEM-ORD-001"), Outcome.PASS)]


def status(*results: tuple[str, Outcome], problems: tuple[str, ...] = ()) -> int:
    made = [Result(Case(name, f"type{number}"), outcome) for number, (name, outcome) in enumerate(results)]
    return verdict.status([*ALWAYS, *made], REQUIREMENTS, problems)


@pytest.mark.parametrize(("outcome", "expected"), [
    (Outcome.PASS, 0), (Outcome.UNSUPPORTED, 0), (Outcome.WAIVED, 0), (Outcome.FAIL, 1), (Outcome.ERROR, 1),
    (Outcome.BLOCKED, 3), (Outcome.UNAVAILABLE, 3),
])
def test_one_must_decides_the_status(outcome: Outcome, expected: int) -> None:
    assert status(("XSEM-BIN-001", outcome)) == expected


@pytest.mark.parametrize("level", ["SHOULD", "MAY"])
@pytest.mark.parametrize("outcome", Outcome)
def test_should_and_may_do_not_change_the_status(level: Level, outcome: Outcome) -> None:
    assert status((OF_LEVEL[level], outcome)) == 0


@pytest.mark.parametrize("other", [Outcome.BLOCKED, Outcome.UNAVAILABLE])
@pytest.mark.parametrize("wrong", [Outcome.FAIL, Outcome.ERROR])
def test_wrong_outcome_outweighs_an_untried_one(wrong: Outcome, other: Outcome) -> None:
    assert status(("XSEM-BIN-001", other), ("XSEM-BIN-001", wrong)) == 1


def test_problem_outside_the_cases_is_bad() -> None:
    assert status(problems=("profile core: declares none of x",)) == 1
    assert status(("XSEM-BIN-001", Outcome.BLOCKED), problems=("a stale waiver",)) == 1


def test_missing_device_gives_status_3() -> None:
    assert status(("XSEM-BIN-001", Outcome.UNAVAILABLE), problems=("gone cannot be opened",)) == 3


def test_case_of_an_unknown_requirement_binds() -> None:
    assert status(("XSEM-NEW-001", Outcome.FAIL)) == 1


def test_run_without_cases_proves_nothing() -> None:
    assert verdict.status([], REQUIREMENTS, []) == verdict.NOT_TRIED
    assert verdict.status([], REQUIREMENTS, ["a stale waiver"]) == verdict.BAD


def test_area_without_a_pass_is_named() -> None:
    profile = Profile("core", "text", (), frozenset({"BIN", "TL", "ORD", "WBS"}))
    results = [
        Result(Case("XSEM-BIN-001"), Outcome.PASS), Result(Case("XSEM-BIN-001", "x"), Outcome.UNSUPPORTED),
        Result(Case("XSEM-TL-001"), Outcome.WAIVED), Result(Case("XSEM-ORD-001"), Outcome.UNSUPPORTED),
        Result(Case("XSEM-BUF-001"), Outcome.FAIL),   # not in the profile
    ]
    # The area WBS has no cases.
    assert verdict.unmet(profile, REQUIREMENTS, results) == [
        "profile core: nothing in the area ORD has passed", "profile core: nothing in the area WBS has passed"]


def test_all_outcomes_are_counted() -> None:
    results = [Result(Case("XSEM-BIN-001"), each) for each in (Outcome.PASS, Outcome.PASS, Outcome.FAIL)]
    found = verdict.counts(results)
    assert found == {each.value: 0 for each in Outcome} | {"PASS": 2, "FAIL": 1}
    assert list(found) == [each.value for each in Outcome]


def test_failures_of_should_and_may_are_counted_separately() -> None:
    results = [Result(Case(OF_LEVEL[level]), outcome) for level in ("MUST", "SHOULD", "MAY") for outcome in Outcome]
    assert verdict.lesser_failures(results, REQUIREMENTS) == 2
    assert verdict.lesser_failures([Result(Case("XSEM-NEW-001"), Outcome.FAIL)], REQUIREMENTS) == 0


# ---- profiles
S, M = SemaphoreHandleType, MemoryHandleType


@pytest.mark.parametrize("name", ["core", "timeline", "memory", "full"])
def test_device_without_capabilities_meets_no_profile(name: str) -> None:
    lacking = profiles()[name].lacking(Capabilities())
    assert len(lacking) == {"core": 1, "timeline": 2, "memory": 2, "full": 3}[name]
    assert all(each.startswith(f"profile {name}: declares none of ") for each in lacking)


@pytest.mark.parametrize(("name", "declared", "lacks"), [
    ("core", Capabilities(semaphore_import=frozenset({S.OPAQUE_FD})), 0),
    ("core", Capabilities(memory_import=frozenset({M.OPAQUE_FD})), 1),
    ("timeline", Capabilities(semaphore_import=frozenset({S.OPAQUE_FD})), 1),
    ("timeline", Capabilities(semaphore_import=frozenset({S.D3D12_FENCE})), 0),
    ("memory", Capabilities(semaphore_import=frozenset({S.TIMELINE_SEMAPHORE_FD})), 1),
    ("memory", Capabilities(semaphore_import=frozenset({S.SYNC_FD}), memory_import=frozenset({M.DMABUF_FD})), 0),
    ("full", Capabilities(semaphore_import=frozenset({S.SYNC_FD}), memory_import=frozenset({M.DMABUF_FD})), 1),
])
def test_one_of_several_capabilities_is_enough(name: str, declared: Capabilities, lacks: int) -> None:
    assert len(profiles()[name].lacking(declared)) == lacks


def test_profiles_build_on_each_other_and_name_known_areas() -> None:
    found = profiles()
    assert list(found) == ["core", "timeline", "memory", "full"]
    for each in found.values():
        assert each.areas <= AREAS.keys()
        assert each.areas >= found["core"].areas
    assert found["full"].areas >= found["memory"].areas | found["timeline"].areas
