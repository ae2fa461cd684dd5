"""The verdict of a run: the exit status, the totals by level, and the sentence.

0: every declared capability works, or its failure is waived. 1: a FAIL or an ERROR of a MUST, a process that died in a
case of any level or in the measurement of quirks, a stale waiver, or a missing capability of the profile. 2: wrong
usage. 3: a MUST could not be tried (BLOCKED, UNAVAILABLE), or no case was tried at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from xsem_conformance.outcomes import UNOBSERVED, WRONG, Outcome, Result
from xsem_conformance.profiles import Profile
from xsem_conformance.requirements import AREAS, Requirement

__all__ = [
    "BAD", "GOOD", "LEVELS", "NOT_EXAMINED", "NOT_RUN", "NOT_TRIED", "STATES", "USAGE", "Tally",
    "clauses", "counts", "lines", "sentence", "state", "status", "unmet",
]

GOOD: Final = 0
BAD: Final = 1
USAGE: Final = 2
NOT_TRIED: Final = 3

_UNTRIED: Final = frozenset({Outcome.BLOCKED, Outcome.UNAVAILABLE})

STATES: Final[Mapping[str, str]] = {
    "PASS": "met", "FAIL": "not met", "ERROR": "error", "WAIVED": "waived", "BLOCKED": "blocked",
    "UNAVAILABLE": "unavailable", "UNSUPPORTED": "not declared", "NOT_EXAMINED": "not examined",
}
"""The name of each outcome in a table of totals, in the order of the columns."""
_UNTRIED_STATES: Final = ("blocked", "unavailable")
_NOT_TRIED_STATES: Final = (*_UNTRIED_STATES, *(STATES[each.value] for each in UNOBSERVED))
_ALWAYS: Final = ("met", "not met", "not declared")   # columns of every table, also without cases
NOT_RUN: Final = "not run"
"""The state of a planned case without a result."""
LEVELS: Final = ("MUST", "SHOULD", "MAY")
NOT_EXAMINED: Final = ("not examined (NOT_EXAMINED): the backend does not implement the hook of the case (SuiteHooks), "
                       "or the exporter does not create its object. Such a case does not change the verdict")


def status(results: Sequence[Result], requirements: Sequence[Requirement], problems: Sequence[str]) -> int:
    """Return the exit status."""
    # A failed SHOULD does not change the status, unless its process died: no driver may end the application's process.
    # A run in which no case was tried has the status NOT_TRIED, for example because the device does not declare what
    # the cases need. A profile that needs an undeclared capability is a problem.
    if not problems and all(result.outcome in UNOBSERVED | _UNTRIED for result in results):
        return NOT_TRIED
    levels = {each.id: each.level for each in requirements}
    binding = [result for result in results
               if levels.get(result.case.requirement, "MUST") == "MUST" or _died(result)]
    untried = any(result.outcome in _UNTRIED for result in binding)
    if any(result.outcome is Outcome.UNAVAILABLE for result in binding) and not any(
            result.outcome in WRONG for result in binding):
        return NOT_TRIED   # the device did not open: its capabilities are not known
    if problems or any(result.outcome in WRONG for result in binding):
        return BAD
    return NOT_TRIED if untried else GOOD


def _died(result: Result) -> bool:
    return result.outcome in WRONG and result.failure is not None and result.failure.died


def unmet(profile: Profile, requirements: Sequence[Requirement], results: Sequence[Result]) -> list[str]:
    """Return a message for each area of the profile in which no case passed or is waived."""
    # An area is not necessary if all its requirements for devices need another system.
    tried = [each for each in requirements if each.subject != "facade"]
    elsewhere = {each.area for each in tried} - {each.area for each in tried if each.on_this_system}
    area = {each.id: each.area for each in requirements}
    ran = {area[result.case.requirement] for result in results if result.outcome in (Outcome.PASS, Outcome.WAIVED)}
    return [f"profile {profile.name}: no case in the area {each} ({AREAS[each]}) has passed"
            for each in sorted(profile.areas - elsewhere - ran)]


def counts(results: Sequence[Result]) -> dict[str, int]:
    """Return the number of results for every outcome, also for outcomes without results."""
    found = Counter(result.outcome for result in results)
    return {outcome.value: found[outcome] for outcome in Outcome}


def state(outcome: str) -> str:
    """Return the name of an outcome in `STATES`. An unknown outcome of a later suite keeps its name."""
    return STATES.get(outcome, outcome)


@dataclass
class Tally:
    """The totals of a run, separate for MUST, SHOULD and MAY."""

    rows: dict[str, Counter[str]] = field(default_factory=dict)   # by level and state
    # By level and state. One requirement can have many cases.
    requirements: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    # The undeclared capabilities that the suite called, and those that xsem refused. The calls are not cases.
    called: int = 0
    refused: int = 0
    # The cases that ended their process and are not waived. Each of them also counts in its state.
    died: int = 0

    @classmethod
    def of_cases(cls, cases: Iterable[tuple[str, str, str]], refusals: Sequence[str]) -> Tally:
        """Return the totals of cases ``(level, requirement, outcome)`` and of the refusals, given as outcomes."""
        made = cls({level: Counter() for level in LEVELS}, called=len(refusals),
                   refused=sum(each == Outcome.UNSUPPORTED.value for each in refusals))
        for level, requirement, outcome in cases:
            made.rows.setdefault(level, Counter())[state(outcome)] += 1
            made.requirements.setdefault((level, state(outcome)), set()).add(requirement)
        return made

    @classmethod
    def of_results(
        cls, results: Iterable[Result], refusals: Iterable[Result], requirements: Iterable[Requirement],
        not_run: Iterable[tuple[str, str]] = (),
    ) -> Tally:
        """Return the totals of a run; `not_run` holds the level and the requirement of each case without a result."""
        levels = {each.id: each.level for each in requirements}
        results = list(results)
        cases = [(levels.get(each.case.requirement, "MUST"), each.case.requirement, each.outcome.value)
                 for each in results]
        made = cls.of_cases([*cases, *((*each, NOT_RUN) for each in not_run)],
                            [each.outcome.value for each in refusals])
        made.died = sum(map(_died, results))
        return made

    @property
    def states(self) -> list[str]:
        """The states of the columns: first the names of `STATES`, then the unknown outcomes of a later suite."""
        occur = {each for row in self.rows.values() for each in row}
        return [*(each for each in STATES.values() if each in occur or each in _ALWAYS),
                *sorted(occur - set(STATES.values()))]

    @property
    def table(self) -> list[tuple[str, list[int]]]:
        """The rows of the totals, with the row "total" as the last: the number of cases, then those in each state."""
        return [(level or "total", [self.total(level), *(self.total(level, [each]) for each in self.states)])
                for level in (*self.rows, "")]

    @property
    def scope(self) -> str:
        """How many cases apply to the device; empty if all do."""
        others = self.total(states=[STATES["UNSUPPORTED"]])
        mine = self.total() - others
        return "" if not others else (
            f"{mine} {'case applies' if mine == 1 else 'cases apply'} to this device; {others} "
            f"{'is' if others == 1 else 'are'} for handle types and abilities that it does not declare (UNSUPPORTED), "
            f"which does not count against it: only a profile can need them")

    def total(self, level: str = "", states: Sequence[str] = ()) -> int:
        """Return the number of cases of a level and of some states; by default of all levels and states."""
        return sum(count for name, found in self.rows.items() if level in ("", name)
                   for each, count in found.items() if not states or each in states)


def sentence(status: int, profile: str, tally: Tally, *, problems: int = 0, partial: bool = False,
             expected: int | None = None) -> str:
    """Return the verdict as a sentence, for example "conforms to full; 2 recommendations not met (4 cases)"."""
    return "; ".join(text for _, text in clauses(status, profile, tally, problems=problems, partial=partial,
                                                 expected=expected))


def clauses(
    status: int, profile: str, tally: Tally, *, problems: int = 0, partial: bool = False, expected: int | None = None
) -> list[tuple[str, str]]:
    """Return the clauses of the sentence, each with the state of its cases; the first clause has no state."""
    # `expected` is the number of failed cases that the baseline expects; None without a baseline.
    said = {
        (GOOD, False): f"conforms to {profile}", (BAD, False): f"does not conform to {profile}",
        (GOOD, True): f"meets the requirements that were tried; a part of {profile}",
        (BAD, True): f"does not meet the requirements that were tried; a part of {profile}",
    }.get((status, partial), f"conformance to {profile} not decided")
    missing = tally.total(states=[NOT_RUN])
    untried = status == NOT_TRIED and not tally.total("MUST", _UNTRIED_STATES) and (
        tally.total() == tally.total(states=_NOT_TRIED_STATES))
    found = [
        ("", said),
        ("not met", _said(tally, "MUST", ["not met"], "requirement", "not met")),
        ("error", _said(tally, "MUST", ["error"], "requirement", "ended with an error")),
        ("untried", "no case was tried" if untried else ""),
        ("untried", _said(tally, "MUST", _UNTRIED_STATES, "requirement", "could not be tried")),
        ("waived", _said(tally, "MUST", ["waived"], "requirement", "waived")),
        ("not met", _said(tally, "SHOULD", ["not met"], "recommendation", "not met")),
        ("waived", _said(tally, "SHOULD", ["waived"], "recommendation", "waived")),
        ("not met", _said(tally, "MAY", ["not met"], "option", "used wrongly")),
        ("died", f"the process died in {tally.died} {_plural('case', tally.died)}" if tally.died else ""),
        (NOT_RUN, f"{missing} {_plural('case', missing)} not run" if missing else ""),
        ("problems", f"{problems} {_plural('problem', problems)} outside the cases" if problems else ""),
        ("baseline", f"the baseline expects {expected} failed {_plural('case', expected)}" if expected else ""),
    ]
    return [(state, text) for state, text in found if text]


def _said(tally: Tally, level: str, states: Sequence[str], noun: str, verb: str) -> str:
    cases = tally.total(level, states)
    names: set[str] = set().union(*(tally.requirements.get((level, each), ()) for each in states))
    text = f"{len(names)} {_plural(noun, len(names))} {verb}"
    return "" if not cases else text if cases == len(names) else f"{text} ({cases} cases)"


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"


def lines(tally: Tally, verdict: str, subject: str) -> list[str]:
    """Return the verdict and the totals for a terminal; the first line is the verdict."""
    rows = [["", "cases", *tally.states], *([name, *map(str, counts)] for name, counts in tally.table)]
    columns = list(zip(*rows, strict=True))
    aligned = [[each.rjust(max(map(len, column))) for each in column] for column in columns]
    aligned[0] = [each.ljust(max(map(len, columns[0]))) for each in columns[0]]
    made = ["  ".join(row) for row in zip(*aligned, strict=True)]
    if tally.scope:
        made.append(tally.scope)
    if tally.total(states=["not examined"]):
        made.append(NOT_EXAMINED)
    if tally.called:
        refused = "each" if tally.refused == tally.called else tally.refused
        made.append(f"the suite called {tally.called} undeclared capabilities, and xsem refused {refused} of them")
    return [f"conformance of {subject}: {verdict}", *made]
