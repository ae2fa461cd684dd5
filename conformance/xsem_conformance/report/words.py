"""The marks of the pages: sign, label, meaning and rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from xsem_conformance import verdict

__all__ = ["MARKS", "Mark", "mark_of"]


@dataclass(frozen=True)
class Mark:
    """The mark of a page for the cases of one outcome at one level."""

    name: str   # the class in the style of the page, and the value in its filter
    sign: str
    label: str
    meaning: str


# From worst to best. MUST, SHOULD and MAY have separate marks, because only a MUST changes the verdict.
_MARKS: Final = (
    Mark("fail", "✗", "requirement not met", "A MUST is not met, or the driver crashed or hung: the device does not "
         "conform."),
    Mark("error", "!", "error", "The case ended with an exception that the suite does not expect. If the requirement "
         "is a MUST, the device does not conform."),
    Mark("untried", "?", "not tried", "The device declares the capability, but the exporter or the machine cannot "
         "provide an object or an ability; or the device cannot be opened."),
    Mark("waived", "~", "waived", "The case failed, and a waiver with a reason and a last day covers it."),
    Mark("should", "△", "recommendation not met", "A SHOULD is not met. The verdict does not change."),
    Mark("may", "◇", "option used wrongly", "A MAY shows a behaviour that every device must avoid. The verdict does "
         "not change."),
    Mark("met", "✓", "met", "The requirement is met. For a MAY, the case reports the observation."),
    Mark("undeclared", "·", "not declared", "The device does not declare the capability (UNSUPPORTED), and xsem "
         "refuses its use. Such a case does not change the verdict; only a profile can need the capability."),
    Mark("unexamined", "○", "not examined", "The backend does not implement the hook of the case (SuiteHooks), or the "
         "exporter does not create its object. Such a case does not change the verdict."),
)
MARKS: Final[Mapping[str, Mark]] = {mark.name: mark for mark in _MARKS}
_OTHER: Final = {"met": "met", "error": "error", "waived": "waived", "not declared": "undeclared",
                 "not examined": "unexamined"}
_NOT_MET: Final = {"SHOULD": "should", "MAY": "may"}


def mark_of(case: Mapping[str, Any]) -> Mark:
    """Return the mark of a case; BLOCKED, UNAVAILABLE and an outcome of a later suite count as not tried."""
    state = verdict.state(case["outcome"])
    if state == "not met":
        return MARKS[_NOT_MET.get(case["level"], "fail")]
    return MARKS[_OTHER.get(state, "untried")]
