"""Facts of reports from before the field that has them, as the committed ones: there only a text tells them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["partial", "suite_version", "times", "waiver"]

_WAIVED: Final = re.compile(r"(?P<reason>.*) \(until (?P<until>\d{4}-\d\d-\d\d)\): ", re.DOTALL)
_REPEATED: Final = re.compile(r", (\d+) times$")


def waiver(case: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the reason and the last day of the waiver of a case."""
    if "waiver" in case or case["outcome"] != "WAIVED":
        return case.get("waiver")
    found = _WAIVED.match(case["detail"])
    return None if found is None else found.groupdict()


def times(call: Mapping[str, Any]) -> int:
    """Return the number of equal calls of an entry."""
    if "times" in call:
        return int(call["times"])
    found = _REPEATED.search(call["call"])
    return int(found[1]) if found else 1


def suite_version(report: Mapping[str, Any]) -> int:
    """Return the version of the suite of a report: 1 for a report without a number."""
    return int(report.get("suite_version", 1))


def partial(report: Mapping[str, Any]) -> bool:
    """Return whether a run tried only a part of the requirements."""
    found = report.get("partial")
    return any(f" {each}" in report.get("command", "") for each in ("--only", "--case")) if found is None else found
