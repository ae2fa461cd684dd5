"""Why a report has no result of a case: the limits of its run, as far as the report has them."""

from __future__ import annotations

import itertools
from typing import Final

from xsem_conformance.report import older
from xsem_conformance.report.summary import Report

__all__ = ["Limits"]

_PORTABLE: Final = "portable"   # the profile that leaves out cases; every other profile tries all of them
_OTHER_TYPES: Final = "not applicable to portable types alone"


class Limits:
    """The limits of a report's run."""

    def __init__(self, report: Report) -> None:
        self._not_run = {each["key"]: each["reason"] for each in report.get("not_run", ())}
        self._cases = {case["key"]: case.get("detail", "") for case in report["cases"]}
        self._portable = report.get("profile") == _PORTABLE
        self._partial = older.partial(report)
        words = report.get("command", "").replace("=", " ").split()
        self._asked = [(name, value) for name, value in itertools.pairwise(words) if name in ("--only", "--case")]

    def excluded(self, key: str, other: Limits) -> str:
        """Return why the run has no result of a case that the run of `other` has; empty if no limit is the reason."""
        if not self._cases.get(key, _OTHER_TYPES).startswith(_OTHER_TYPES):
            return ""
        if key in self._not_run:
            return f": {self._not_run[key]}"
        if self._partial and not self._selects(key):
            asked = " ".join(f"{name} {value}" for name, value in self._asked) or "a part of the requirements"
            return f", because it was limited to {asked}"
        # A report of this profile contains the cases that need another type, but not those that need a UUID.
        if self._portable and not other._portable:
            return f", because it was limited to the profile {_PORTABLE}"
        return ""

    def _selects(self, key: str) -> bool:
        only, cases = ([value for name, value in self._asked if name == option] for option in ("--only", "--case"))
        return bool(only or cases) and (not only or key.startswith(tuple(only))) and (not cases or key in cases)
