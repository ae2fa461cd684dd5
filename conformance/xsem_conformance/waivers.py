"""Waivers: known failures, each with a reason and an expiry date."""

from __future__ import annotations

import datetime as dt
import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xsem_conformance.outcomes import Outcome, Result, Waived
from xsem_conformance.tables import read_tables

__all__ = ["Waiver", "WaiverError", "apply", "concerned", "load"]

_WAIVABLE = frozenset({Outcome.FAIL, Outcome.ERROR, Outcome.BLOCKED})


class WaiverError(ValueError):
    """The file is not a valid file of waivers."""


@dataclass
class Waiver:
    """One ``[[waiver]]`` of a file."""

    case: str   # a key; ``*`` matches any text, but not in the id of the requirement
    reason: str
    expires: dt.date   # the last day of the waiver
    sometimes: bool = False   # the failure is a race: the case fails in some runs and passes in others
    matched: list[str] = field(default_factory=list)   # keys of failed cases

    @property
    def requirement(self) -> str:
        """The id of the requirement."""
        return self.case.partition("/")[0]

    def matches(self, key: str) -> bool:
        """Return whether the waiver covers the case with this key."""
        return fnmatch.fnmatchcase(key, self.case)


def load(path: Path) -> list[Waiver]:
    """Read the waivers of a file."""
    waivers = []
    for number, each in enumerate(read_tables(path, "waiver", WaiverError), 1):
        case, reason, expires = each.get("case"), each.get("reason"), each.get("expires")
        if not isinstance(case, str) or case.count("/") != 3:
            raise WaiverError(f"{path}, waiver {number}: case is ID/handle_type/exporter/direction, not {case!r}")
        if set(case.partition("/")[0]) & set("*?["):
            # A wildcard in the id would waive also failures of other requirements, and later failures.
            raise WaiverError(f"{path}, waiver {number}: case begins with the id of one requirement, without "
                              f"wildcards, not {case!r}")
        if not isinstance(reason, str) or not reason.strip():
            raise WaiverError(f"{path}, waiver {number}: a reason is needed")
        if not isinstance(expires, dt.date) or isinstance(expires, dt.datetime):   # every datetime is a date
            raise WaiverError(f"{path}, waiver {number}: expires is a date, as 2027-01-31")
        sometimes = each.get("sometimes", False)
        if not isinstance(sometimes, bool):
            raise WaiverError(f"{path}, waiver {number}: sometimes is true or false, not {sometimes!r}")
        unknown = set(each) - {"case", "reason", "expires", "sometimes"}
        if unknown:
            raise WaiverError(f"{path}, waiver {number}: unknown {', '.join(sorted(unknown))}")
        waivers.append(Waiver(case, reason, expires, sometimes))
    return waivers


def concerned(waivers: Sequence[Waiver], only: Sequence[str], cases: Sequence[str]) -> list[Waiver]:
    """Return the waivers of a part of the suite. The other waivers are neither used nor stale in this run."""
    return [each for each in waivers
            if (not only or each.requirement.startswith(tuple(only)))
            and (not cases or any(each.matches(key) for key in cases))]


def apply(
    waivers: Sequence[Waiver], results: Sequence[Result], today: dt.date, not_run: Iterable[str] = ()
) -> list[str]:
    """Change waived failures to WAIVED. Return the problems of the waivers themselves."""
    # A waiver without a failed case is stale. A waiver with `sometimes` is not stale if a matching case passed.
    # `not_run` holds the keys of the cases without a result. The waivers of these cases are not stale. A later call
    # with more results is possible.
    problems = []
    # Two waivers for one case both count as matched, and so does a waiver that was applied before.
    failed = {result.case.key for result in results if result.outcome in _WAIVABLE or result.waiver}
    unknown = list(not_run)
    for waiver in waivers:
        if waiver.expires < today:
            problems.append(f"the waiver of {waiver.case} ended on {waiver.expires}")
            continue
        hits = [result for result in results if waiver.matches(result.case.key)]
        if any(waiver.matches(key) for key in unknown):
            pass
        elif not hits:
            problems.append(f"the waiver of {waiver.case} matches no case")
        elif waiver.sometimes and any(result.outcome is Outcome.PASS for result in hits):
            pass
        elif not any(result.case.key in failed for result in hits):
            problems.append(f"the waiver of {waiver.case} is stale: no case that matches it fails")
        for result in hits:
            if result.case.key in failed:
                result.outcome = Outcome.WAIVED
                result.waiver = Waived(waiver.reason, waiver.expires)
                waiver.matched.append(result.case.key)
    return problems
