"""The exit status of a run, for every outcome at every level."""

from __future__ import annotations

import functools
import os

import pytest

from xsem.types import Capabilities, MemoryHandleType, SemaphoreHandleType
from xsem_conformance import verdict
from xsem_conformance.outcomes import Case, Failure, Outcome, Result
from xsem_conformance.profiles import Profile, profiles
from xsem_conformance.requirements import AREAS, Level, Requirement, System

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


@pytest.mark.parametrize("level", ["MUST", "SHOULD", "MAY"])
def test_case_that_ends_its_process_is_bad_at_every_level(level: Level) -> None:
    case = Case(OF_LEVEL[level], "type")
    dead = Result(case, Outcome.FAIL, failure=Failure(died=True))
    assert verdict.status([*ALWAYS, dead], REQUIREMENTS, ()) == 1
    tally = verdict.Tally.of_results([*ALWAYS, dead], (), REQUIREMENTS)
    assert verdict.sentence(1, "core", tally).endswith("; the process died in 1 case")
    waived = Result(case, Outcome.WAIVED, failure=Failure(died=True))
    assert verdict.status([*ALWAYS, waived], REQUIREMENTS, ()) == 0
    assert "died" not in verdict.sentence(0, "core", verdict.Tally.of_results([*ALWAYS, waived], (), REQUIREMENTS))


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


@pytest.mark.parametrize("level", ["MUST", "SHOULD", "MAY"])
@pytest.mark.parametrize("outcome", [Outcome.UNSUPPORTED, Outcome.NOT_EXAMINED, Outcome.BLOCKED, Outcome.UNAVAILABLE])
def test_run_without_a_tried_case_proves_nothing(level: Level, outcome: Outcome) -> None:
    name = "XSEM-BIN-001" if level == "MUST" else OF_LEVEL[level]
    results = [Result(Case(name, "type"), outcome)]
    assert verdict.status(results, REQUIREMENTS, []) == verdict.NOT_TRIED
    tally = verdict.Tally.of_results(results, (), REQUIREMENTS)
    said = verdict.sentence(verdict.NOT_TRIED, "core", tally, partial=True)
    untried = level == "MUST" and outcome in (Outcome.BLOCKED, Outcome.UNAVAILABLE)
    assert said == ("conformance to core not decided; "
                    f"{'1 requirement could not be tried' if untried else 'no case was tried'}")


def test_area_without_a_pass_is_named() -> None:
    profile = Profile("core", "text", (), frozenset({"BIN", "TL", "ORD", "WBS"}))
    results = [
        Result(Case("XSEM-BIN-001"), Outcome.PASS), Result(Case("XSEM-BIN-001", "x"), Outcome.UNSUPPORTED),
        Result(Case("XSEM-TL-001"), Outcome.WAIVED), Result(Case("XSEM-ORD-001"), Outcome.UNSUPPORTED),
        Result(Case("XSEM-BUF-001"), Outcome.FAIL),   # not in the profile
    ]
    # The area WBS has no cases.
    assert verdict.unmet(profile, REQUIREMENTS, results) == [
        "profile core: no case in the area ORD (ordering) has passed",
        "profile core: no case in the area WBS (wait before signal) has passed"]


def test_area_of_another_system_is_not_necessary() -> None:
    profile = Profile("core", "text", (), frozenset({"FORK"}))
    here: System
    there: System
    here, there = ("nt", "posix") if os.name == "nt" else ("posix", "nt")
    fork = functools.partial(Requirement, id="XSEM-FORK-002", level="MUST", subject="device", text="It does.")
    facade = Requirement(id="XSEM-FORK-001", level="MUST", subject="facade", text="It does.")
    results = [Result(Case("XSEM-FORK-002"), Outcome.UNSUPPORTED)]
    assert verdict.unmet(profile, [facade, fork(systems=(there,))], results) == []
    assert verdict.unmet(profile, [facade, fork(systems=(here,))], results) == [
        "profile core: no case in the area FORK (fork) has passed"]


def test_all_outcomes_are_counted() -> None:
    results = [Result(Case("XSEM-BIN-001"), each) for each in (Outcome.PASS, Outcome.PASS, Outcome.FAIL)]
    found = verdict.counts(results)
    assert found == {each.value: 0 for each in Outcome} | {"PASS": 2, "FAIL": 1}
    assert list(found) == [each.value for each in Outcome]


# ---- totals and words
def tally(*cases: tuple[str, str], refusals: tuple[str, ...] = ()) -> verdict.Tally:
    """Return the totals of cases: level and outcome, each of another requirement."""
    return verdict.Tally.of_cases([(level, f"{level}-{number}", outcome)
                                   for number, (level, outcome) in enumerate(cases)], refusals)


def test_totals_keep_the_levels_apart() -> None:
    found = tally(*((level, each.value) for level in ("MUST", "SHOULD", "MAY") for each in Outcome), ("MUST", "FAIL"))
    assert found.states == list(verdict.STATES.values())
    assert [found.total(level, ["not met"]) for level in ("MUST", "SHOULD", "MAY")] == [2, 1, 1]
    assert found.total() == 3 * len(Outcome) + 1 == sum(found.total(level) for level in found.rows)
    assert sum(found.total(states=[each]) for each in found.states) == found.total()
    assert verdict.STATES.keys() == {each.value for each in Outcome}


def test_totals_of_a_run_count_cases_and_refusals_separately() -> None:
    results = [Result(Case(OF_LEVEL[level]), Outcome.FAIL) for level in ("MUST", "SHOULD", "SHOULD")]
    refusals = [Result(Case("feature:image"), each) for each in (Outcome.UNSUPPORTED, Outcome.FAIL)]
    found = verdict.Tally.of_results(results, refusals, REQUIREMENTS, not_run=[("MAY", "XSEM-BUF-001")])
    assert (found.total(), found.called, found.refused) == (4, 2, 1)
    assert found.requirements["SHOULD", "not met"] == {OF_LEVEL["SHOULD"]}
    assert found.total("MAY", [verdict.NOT_RUN]) == 1
    assert verdict.Tally.of_results([Result(Case("XSEM-NEW-001"), Outcome.FAIL)], [], REQUIREMENTS).total("MUST") == 1


def test_outcome_of_a_later_suite_has_a_column() -> None:
    assert tally(("MUST", "PONDERED")).states == ["met", "not met", "not declared", "PONDERED"]


@pytest.mark.parametrize(("status", "cases", "said"), [
    (0, [("MUST", "PASS")], "conforms to full"),
    (0, [("MUST", "PASS"), ("SHOULD", "FAIL"), ("SHOULD", "FAIL")], "conforms to full; 2 recommendations not met"),
    (0, [("MUST", "WAIVED"), ("MAY", "FAIL")], "conforms to full; 1 requirement waived; 1 option used wrongly"),
    (1, [("MUST", "FAIL"), ("MUST", "ERROR")],
     "does not conform to full; 1 requirement not met; 1 requirement ended with an error"),
    (3, [("MUST", "BLOCKED"), ("MUST", "UNAVAILABLE")],
     "conformance to full not decided; 2 requirements could not be tried"),
    (0, [("MUST", "UNSUPPORTED"), ("SHOULD", "BLOCKED")], "conforms to full"),
    (1, [("MUST", verdict.NOT_RUN)], "does not conform to full; 1 case not run"),
])
def test_verdict_is_a_sentence(status: int, cases: list[tuple[str, str]], said: str) -> None:
    assert verdict.sentence(status, "full", tally(*cases)) == said


def test_sentence_counts_requirements_and_names_their_cases() -> None:
    found = verdict.Tally.of_cases([("SHOULD", "XSEM-IMP-004", "FAIL")] * 3, ())
    assert verdict.sentence(0, "core", found) == "conforms to core; 1 recommendation not met (3 cases)"


def test_sentence_names_problems_and_a_partial_run() -> None:
    assert verdict.sentence(1, "core", tally(), problems=2) == (
        "does not conform to core; 2 problems outside the cases")
    for status, said in ((0, "meets the requirements that were tried"), (1, "does not meet the requirements"),
                         (3, "conformance to core not decided")):
        assert verdict.sentence(status, "core", tally(), partial=True).startswith(said)


def test_lines_are_a_table_whose_totals_add_up() -> None:
    found = tally(("MUST", "PASS"), ("MUST", "UNSUPPORTED"), ("SHOULD", "FAIL"), ("MAY", "WAIVED"),
                  refusals=("UNSUPPORTED", "FAIL"))
    said, head, *rows = verdict.lines(found, "conforms to full", "cuda:0 with vulkan")[:6]
    assert said == "conformance of cuda:0 with vulkan: conforms to full"
    assert head.split("  ")[-1] == "not declared"
    assert len({len(line) for line in (head, *rows)}) == 1
    numbers = [[int(each) for each in row.split()[1:]] for row in rows]
    assert [sum(column) for column in zip(*numbers[:3], strict=True)] == numbers[3] == [4, 1, 1, 1, 1]
    rest = verdict.lines(found, "conforms to full", "cuda:0 with vulkan")[6:]
    assert rest == [found.scope, "the suite called 2 undeclared capabilities, and xsem refused 1 of them"]


def test_undeclared_cases_are_told_as_the_scope_of_the_device() -> None:
    assert tally(*[("MUST", "PASS")] * 215, *[("MAY", "UNSUPPORTED")] * 615).scope == (
        "215 cases apply to this device; 615 are for handle types and abilities that it does not declare "
        "(UNSUPPORTED), which does not count against it: only a profile can need them")
    assert tally(("MUST", "FAIL"), ("MUST", "UNSUPPORTED")).scope.startswith("1 case applies to this device; 1 is for ")
    assert tally(("MUST", "PASS")).scope == ""


def test_lines_explain_only_what_occurs() -> None:
    assert len(verdict.lines(tally(("MUST", "PASS")), "conforms", "x")) == 6


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
    assert list(found) == ["core", "timeline", "memory", "full", "portable"]
    for name, each in found.items():
        assert each.areas <= AREAS.keys()
        assert each.areas >= found["core"].areas or name == "portable"   # a device may have no other objects
        assert each.portable is (name == "portable")
    assert found["full"].areas >= found["memory"].areas | found["timeline"].areas
