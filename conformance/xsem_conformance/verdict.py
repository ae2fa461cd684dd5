"""What a run's exit status is.

0 everything that was declared holds, or is waived; 1 something is wrong with the device: a FAIL, an ERROR, a stale
waiver, a capability that the profile needs; 3 a MUST could not be tried (BLOCKED, UNAVAILABLE). 2 is for usage.
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
    """The exit status. A SHOULD that fails is in the report, and costs nothing; a run without cases shows nothing."""
    if not results and not problems:
        return NOT_TRIED
    levels = {each.id: each.level for each in requirements}
    binding = [result for result in results if levels.get(result.case.requirement, "MUST") == "MUST"]
    untried = any(result.outcome in _UNTRIED for result in binding)
    if any(result.outcome is Outcome.UNAVAILABLE for result in binding) and not any(
            result.outcome in _WRONG for result in binding):
        return NOT_TRIED   # the device is not there: its capabilities are not known to be missing
    if problems or any(result.outcome in _WRONG for result in binding):
        return BAD
    return NOT_TRIED if untried else GOOD


def lesser_failures(results: Sequence[Result], requirements: Sequence[Requirement]) -> int:
    """How many of the FAILs are of a SHOULD or a MAY, and cost nothing."""
    levels = {each.id: each.level for each in requirements}
    return sum(result.outcome is Outcome.FAIL and levels.get(result.case.requirement, "MUST") != "MUST"
               for result in results)


def unmet(profile: Profile, requirements: Sequence[Requirement], results: Sequence[Result]) -> list[str]:
    """Areas of the profile in which nothing at all has passed."""
    area = {each.id: each.area for each in requirements}
    ran = {area[result.case.requirement] for result in results if result.outcome in (Outcome.PASS, Outcome.WAIVED)}
    return [f"profile {profile.name}: nothing in the area {each} has passed" for each in sorted(profile.areas - ran)]


def counts(results: Sequence[Result]) -> dict[str, int]:
    """How many of each outcome, all outcomes named."""
    found = Counter(result.outcome for result in results)
    return {outcome.value: found[outcome] for outcome in Outcome}
