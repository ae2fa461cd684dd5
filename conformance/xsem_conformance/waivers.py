"""Waivers: failures that somebody knows of, each with a reason and an end."""

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
    """The file is not one of waivers."""


@dataclass
class Waiver:
    """One ``[[waiver]]``: `case` is a key, with ``*`` where any will do; it ends after the day `expires`."""

    case: str
    reason: str
    expires: dt.date
    matched: list[str] = field(default_factory=list)


def load(path: Path) -> list[Waiver]:
    """Read waivers.

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
        # A misspelled table must not be a file without waivers.
        raise WaiverError(f"{path}: it holds tables [[waiver]], and nothing else")
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
    """Turn failures that are waived into WAIVED; what is wrong with the waivers themselves.

    A waiver is strict: it must match a case that fails today, or it is stale.
    """
    problems = []
    # Of two waivers for one case both hold.
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
