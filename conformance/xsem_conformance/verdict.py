"""The exit status of a run.

0: every declared capability works, or its failure is waived. 1: a FAIL, an ERROR, a stale waiver, or a missing
capability of the profile. 2: wrong usage. 3: a MUST could not be tried (BLOCKED, UNAVAILABLE).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from xsem_conformance.outcomes import Outcome, Result
from xsem_conformance.profiles import Profile
from xsem_conformance.requirements import Requirement

__all__ = ["BAD", "GOOD", "NOT_TRIED", "USAGE", "counts", "lesser_failures", "status", "unmet"]

GOOD: Final = 0
BAD: Final = 1
USAGE: Final = 2
NOT_TRIED: Final = 3

_WRONG: Final = frozenset({Outcome.FAIL, Outcome.ERROR})
_UNTRIED: Final = frozenset({Outcome.BLOCKED, Outcome.UNAVAILABLE})


def status(results: Sequence[Result], requirements: Sequence[Requirement], problems: Sequence[str]) -> int:
    """Return the exit status.

    A failed SHOULD is in the report and does not change the status. A run without cases and problems proves nothing.
    """
    if not results and not problems:
        return NOT_TRIED
    levels = {each.id: each.level for each in requirements}
    binding = [result for result in results if levels.get(result.case.requirement, "MUST") == "MUST"]
    untried = any(result.outcome in _UNTRIED for result in binding)
    if any(result.outcome is Outcome.UNAVAILABLE for result in binding) and not any(
            result.outcome in _WRONG for result in binding):
        return NOT_TRIED   # the device did not open: its capabilities are not known
    if problems or any(result.outcome in _WRONG for result in binding):
        return BAD
    return NOT_TRIED if untried else GOOD


def lesser_failures(results: Sequence[Result], requirements: Sequence[Requirement]) -> int:
    """Return the number of FAILs of a SHOULD or a MAY: they do not change the status."""
    levels = {each.id: each.level for each in requirements}
    return sum(result.outcome is Outcome.FAIL and levels.get(result.case.requirement, "MUST") != "MUST"
               for result in results)


def unmet(profile: Profile, requirements: Sequence[Requirement], results: Sequence[Result]) -> list[str]:
    """Return a message for each area of the profile without a passed or waived case."""
    area = {each.id: each.area for each in requirements}
    ran = {area[result.case.requirement] for result in results if result.outcome in (Outcome.PASS, Outcome.WAIVED)}
    return [f"profile {profile.name}: nothing in the area {each} has passed" for each in sorted(profile.areas - ran)]


def counts(results: Sequence[Result]) -> dict[str, int]:
    """Return the number of results for every outcome, zeros included."""
    found = Counter(result.outcome for result in results)
    return {outcome.value: found[outcome] for outcome in Outcome}
