"""Faults that fail many cases: each has a basic case that shows it, and the cases that follow from it.

A root is found by a failed case of a basic requirement. Another failed case follows from the root if it saw the same
kind of symptom, and if its log contains the calls and the handle types of the root.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from xsem_conformance.outcomes import WRONG, Call, Failure, Result

__all__ = ["Root", "closed_twice", "consequences", "is_missing"]

_MISSING: Final = re.compile(
    r"was not done|was(?: not|n't) met|neither of .* met|did not run|timeline is at|device reads \d+$"
    r"|\b(?:is|are) (?:not|never) (?:done|reached|met)|does not (?:reach|meet)")
_BYTES: Final = re.compile(r"\bread|bytes|\bcop(?:y|ies)\b|\bshows\b|has [0-9a-f]{8}|does not see")
_TWICE: Final = re.compile(r"a second time|closed (?:the|another) file")


@dataclass(frozen=True)
class Root:
    """A fault that fails many cases.

    Attributes
    ----------
    name : str
        The fault as a clause.
    requirements : frozenset of str
        The requirements whose failure shows the fault.
    shows : re.Pattern
        The start of the observation in a case of these requirements that shows the fault.
    symptom : re.Pattern
        A part of the observation of a case that follows from the fault.
    calls : tuple of str
        The device's calls, of which the case made one; empty if the calls do not matter.
    typed : bool
        Whether the case must use a handle type for which the fault was shown.
    """

    name: str
    requirements: frozenset[str]
    shows: re.Pattern[str]
    symptom: re.Pattern[str]
    calls: tuple[str, ...] = ()
    typed: bool = False


_IMPORTS: Final = frozenset({"XSEM-IMP-001"})
# In the order of the search: without fences, neither signals nor copies are seen as done.
_ROOTS: Final = (
    Root("fences of the device are not reached", frozenset({"XSEM-LIFE-007", "XSEM-EVT-010"}),
         re.compile("a barrier is (?:not|never) done"), _MISSING),
    Root("signals of the device do not meet waits of the exporter", _IMPORTS,
         re.compile("exporter: a wait for the signal of device was not done"), _MISSING,
         ("append_signal", "prepared"), typed=True),
    Root("signals of the exporter do not meet waits of the device", _IMPORTS,
         re.compile("device: a wait for the signal of exporter was not done"), _MISSING,
         ("append_wait", "prepared"), typed=True),
    Root("the device and the exporter do not read each other's bytes", _IMPORTS,
         re.compile("(?:device|exporter) reads other bytes"), _BYTES,
         ("append_copy", "append_fill", "map_buffer", "append_region_copy", "append_image")),
)


def consequences(results: Sequence[Result]) -> list[tuple[Root, list[Result]]]:
    """Return the roots that the results show, each with its cases. The first case of each root shows it.

    A case belongs to one root. A case that hung or died, or that did not fail, belongs to no root.
    """
    left = [each for each in results if each.outcome in WRONG and not _ended_in_a_call(each)]
    found = []
    for root in _ROOTS:
        heads = [each for each in left if each.case.requirement in root.requirements and root.shows.match(each.seen)]
        types = {each.case.handle_type.rpartition(".")[2] for each in heads}
        if heads:
            mine = [*heads, *(each for each in left if each not in heads and _follows(each, root, types))]
            found.append((root, mine))
            left = [each for each in left if each not in mine]
    return found


def is_missing(result: Result) -> bool:
    """Return whether an awaited result did not come."""
    return result.outcome in WRONG and not _ended_in_a_call(result) and _MISSING.search(result.seen) is not None


def closed_twice(result: Result) -> bool:
    """Return whether the case saw that the driver closes a handle twice."""
    return result.outcome in WRONG and not _ended_in_a_call(result) and _TWICE.search(result.seen) is not None


def _ended_in_a_call(result: Result) -> bool:
    failure = result.failure or Failure()
    return bool(failure.hung_in) or failure.died


def _follows(result: Result, root: Root, types: set[str]) -> bool:
    failure = result.failure or Failure()
    return (root.symptom.search(result.seen) is not None and _made(failure, root.calls)
            and (not root.typed or _uses(failure.calls, types)))


def _made(failure: Failure, calls: tuple[str, ...]) -> bool:
    mine = [each.text for each in failure.calls if each.by == "device"]
    # Without the calls of the device, the log cannot contradict: its driver is compiled, or the log left calls out.
    return not calls or not mine or failure.left_out > 0 or any(each.startswith(calls) for each in mine)


def _uses(calls: Sequence[Call], types: set[str]) -> bool:
    return not calls or any(f"SemaphoreDesc({type})" in each.text or f"create_semaphore({type}," in each.text
                            for each in calls for type in types)
