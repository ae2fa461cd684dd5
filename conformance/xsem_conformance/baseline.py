"""Baselines: the expected failures and flakes of a device. They change a run's exit status, and never its verdict."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from xsem.cli.text import printable
from xsem_conformance import history, verdict
from xsem_conformance.outcomes import Outcome, Result
from xsem_conformance.profiles import Profile
from xsem_conformance.requirements import Requirement
from xsem_conformance.requirements import load as catalogue
from xsem_conformance.tables import read_tables

__all__ = ["BaselineError", "Compared", "Expected", "compare", "load", "status", "text_of", "unexplained"]

NOT_MET: Final = "not met"
SOMETIMES: Final = "sometimes"

_FAILED: Final = frozenset({Outcome.FAIL, Outcome.ERROR, Outcome.BLOCKED})
_LONGEST: Final = 200
_HEAD: Final = """\
# Expected failures of a device, for `xsem conformance run --baseline`. They do not make the device conform.
# `expected`: "not met", or "sometimes" for a failure that only some runs see. Give each entry its real reason.
"""


class BaselineError(ValueError):
    """The file is not a valid baseline."""


@dataclass(frozen=True)
class Expected:
    """One ``[[expected]]`` of a file."""

    name: str   # the key of a case, with * for any exporter, or the id of a requirement for all its cases
    expected: str   # NOT_MET or SOMETIMES
    reason: str

    def matches(self, key: str) -> bool:
        """Return whether the entry is about the case with this key."""
        return self.name in (key, _any_exporter(key), key.partition("/")[0])


@dataclass
class Compared:
    """The failures of a run beside a baseline."""

    expected: list[Result] = field(default_factory=list)   # failures that have an entry
    new: list[Result] = field(default_factory=list)        # failures that have none
    passing: list[Expected] = field(default_factory=list)  # NOT_MET, and every case that was tried passed
    unused: list[Expected] = field(default_factory=list)   # no case of this device that was tried


def _any_exporter(key: str) -> str:
    requirement, type, _, direction = key.split("/")
    return f"{requirement}/{type}/*/{direction}"


# ---- files
def load(path: Path) -> list[Expected]:
    """Read the entries of a file; an entry without a reason, or of a case that no device can have, is refused."""
    entries: list[Expected] = []
    for number, each in enumerate(read_tables(path, "expected", BaselineError), 1):
        try:
            entry = _entry(each)
        except BaselineError as error:
            raise BaselineError(f"{path}, entry {number}: {error}") from error
        if any(entry.name == other.name for other in entries):
            raise BaselineError(f"{path}, entry {number}: a second entry of {entry.name}")
        entries.append(entry)
    return entries


def _entry(fields: dict[str, Any]) -> Expected:
    names = [fields[each] for each in ("case", "requirement") if each in fields]
    if len(names) != 1 or not isinstance(names[0], str):
        raise BaselineError("either a case, ID/handle_type/exporter/direction, or a requirement is needed")
    if unknown := set(fields) - {"case", "requirement", "expected", "reason"}:
        raise BaselineError(f"unknown {', '.join(sorted(unknown))}")
    expected, reason = fields.get("expected"), fields.get("reason")
    if expected not in (NOT_MET, SOMETIMES):
        raise BaselineError(f'expected is "{NOT_MET}" or "{SOMETIMES}", not {expected!r}')
    if not isinstance(reason, str) or not reason.strip():
        raise BaselineError("a reason is needed")
    _check_name(names[0], whole="requirement" in fields)
    return Expected(names[0], expected, reason)


def _check_name(name: str, *, whole: bool) -> None:
    """Refuse a requirement without a check, or a case that no device can have."""
    from xsem_conformance.keys import possible  # imported here: it loads all checks

    if not whole and (name.count("/") != 3 or not all(name.split("/"))):
        raise BaselineError(f"case is ID/handle_type/exporter/direction, not {name!r}")
    requirement = name.partition("/")[0]
    if gone := history.load().gone.get(requirement):
        raise BaselineError(f"{requirement} is gone since suite {gone.last + 1}: {gone.reason}")
    if requirement not in catalogue().requirements or (whole and name != requirement):
        raise BaselineError(f"unknown requirement {requirement if not whole else name!r}; "
                            "`xsem conformance list` prints all")
    keys = possible(catalogue().requirements[requirement])
    if not keys:
        raise BaselineError(f"{requirement} has no case: a run of the suite does not check it")
    if not whole and _any_exporter(name) not in keys:
        raise BaselineError(f"unknown case {name!r}; the cases of this requirement are {', '.join(keys)}")


def text_of(entries: Iterable[Expected], compared: Compared, today: dt.date) -> str:
    """Return the content of a file for the next run: without the entries that pass, and with the new failures."""
    kept = [each for each in entries if each not in compared.passing]
    kept += [Expected(each.case.key, NOT_MET, f"seen on {today}: {' '.join(printable(each.seen).split())[:_LONGEST]}")
             for each in compared.new]
    return _HEAD + "".join(_written(each) for each in kept)


def _written(entry: Expected) -> str:
    kind = "case" if "/" in entry.name else "requirement"
    quoted = [json.dumps(printable(each), ensure_ascii=False) for each in (entry.name, entry.expected, entry.reason)]
    return f"\n[[expected]]\n{kind} = {quoted[0]}\nexpected = {quoted[1]}\nreason = {quoted[2]}\n"


# ---- a run
def compare(entries: Sequence[Expected], results: Sequence[Result], not_run: Iterable[str] = ()) -> Compared:
    """Compare the results with the entries. `not_run` holds the keys of the cases without a result."""
    found, unknown = Compared(), list(not_run)
    for result in results:
        if result.outcome in _FAILED:
            known = any(each.matches(result.case.key) for each in entries)
            (found.expected if known else found.new).append(result)
    for entry in entries:
        outcomes = {result.outcome for result in results if entry.matches(result.case.key)}
        if outcomes & _FAILED or any(map(entry.matches, unknown)):
            continue
        if Outcome.PASS not in outcomes:
            found.unused.append(entry)
        elif entry.expected == NOT_MET:
            found.passing.append(entry)
    return found


def status(
    compared: Compared, results: Sequence[Result], requirements: Sequence[Requirement], problems: Sequence[str]
) -> int:
    """Return the exit status of a run whose expected failures count as waived; `problems` are the unexplained ones."""
    return verdict.status(_as_waived(compared, results), requirements, problems)


def unexplained(
    compared: Compared, results: Sequence[Result], requirements: Sequence[Requirement], problems: Sequence[str],
    profile: Profile,
) -> list[str]:
    """Return the problems of a run without those of an area of the profile whose every case fails as expected."""
    waived = _as_waived(compared, results)
    explained = {*verdict.unmet(profile, requirements, results)} - {*verdict.unmet(profile, requirements, waived)}
    return [each for each in problems if each not in explained]


def _as_waived(compared: Compared, results: Sequence[Result]) -> list[Result]:
    covered = {each.case for each in compared.expected}
    return [dataclasses.replace(each, outcome=Outcome.WAIVED) if each.case in covered else each for each in results]
