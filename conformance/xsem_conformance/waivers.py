"""Waivers: known failures, each with a reason and an expiry date."""

from __future__ import annotations

import datetime as dt
import fnmatch
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xsem_conformance.outcomes import Outcome, Result

__all__ = ["Waiver", "WaiverError", "apply", "load"]

_WAIVABLE = frozenset({Outcome.FAIL, Outcome.ERROR, Outcome.BLOCKED})


class WaiverError(ValueError):
    """The file is not a valid file of waivers."""


@dataclass
class Waiver:
    """One ``[[waiver]]`` of a file.

    Attributes
    ----------
    case : str
        A key of a case; ``*`` matches any text.
    reason : str
        The reason of the failure.
    expires : date
        The last day of the waiver.
    matched : list of str
        Keys of the failed cases that the waiver matched.
    """

    case: str
    reason: str
    expires: dt.date
    matched: list[str] = field(default_factory=list)


def load(path: Path) -> list[Waiver]:
    """Read the waivers of a file.

    Raises
    ------
    WaiverError
        The file cannot be read, or a waiver lacks its case, reason or last day.
    """
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WaiverError(f"{path}: {error}") from error
    listed = read.pop("waiver", [])
    if read or not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        # A misspelled table name must not result in a file without waivers.
        raise WaiverError(f"{path}: only tables [[waiver]] are allowed, nothing else")
    waivers = []
    for number, each in enumerate(listed, 1):
        case, reason, expires = each.get("case"), each.get("reason"), each.get("expires")
        if not isinstance(case, str) or case.count("/") != 3:
            raise WaiverError(f"{path}, waiver {number}: case is ID/handle_type/exporter/direction, not {case!r}")
        if not isinstance(reason, str) or not reason.strip():
            raise WaiverError(f"{path}, waiver {number}: a reason is needed")
        if not isinstance(expires, dt.date) or isinstance(expires, dt.datetime):   # every datetime is a date
            raise WaiverError(f"{path}, waiver {number}: expires is a date, as 2027-01-31")
        unknown = set(each) - {"case", "reason", "expires"}
        if unknown:
            raise WaiverError(f"{path}, waiver {number}: unknown {', '.join(sorted(unknown))}")
        waivers.append(Waiver(case, reason, expires))
    return waivers


def apply(waivers: Sequence[Waiver], results: Sequence[Result], today: dt.date) -> list[str]:
    """Change waived failures to WAIVED; return the problems of the waivers themselves.

    A waiver is strict: a waiver without a case that fails today is stale.
    """
    problems = []
    # Two waivers for one case both count as matched.
    failed = {result.case.key for result in results if result.outcome in _WAIVABLE}
    for waiver in waivers:
        if waiver.expires < today:
            problems.append(f"the waiver of {waiver.case} ended on {waiver.expires}")
            continue
        hits = [result for result in results if fnmatch.fnmatchcase(result.case.key, waiver.case)]
        if not hits:
            problems.append(f"the waiver of {waiver.case} matches no case")
        for result in hits:
            if result.case.key in failed:
                result.outcome = Outcome.WAIVED
                result.detail = f"{waiver.reason} (until {waiver.expires}): {result.detail}"
                waiver.matched.append(result.case.key)
        if hits and not waiver.matched:
            problems.append(f"the waiver of {waiver.case} is stale: nothing that it matches fails")
    return problems
