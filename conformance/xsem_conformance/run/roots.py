"""Faults that fail many cases: each has a basic case that shows it, and the cases that follow from it.

A root is found by a failed case of a basic requirement. Another failed case follows from the root if it saw one of the
root's symptoms, and if it made the calls and used the handle types of the root.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from xsem_conformance.outcomes import WRONG, Failure, Result, Symptom

__all__ = ["MISSING", "Root", "consequences", "saw"]

MISSING: Final = frozenset({Symptom.NOT_DONE, Symptom.BARRIER_NOT_DONE, Symptom.NOT_MET, Symptom.OTHER_VALUE})
"""An awaited result did not come."""


@dataclass(frozen=True)
class Root:
    """A fault that fails many cases."""

    name: str                       # the fault as a clause
    requirements: frozenset[str]    # their failures show the fault
    shown_by: Symptom
    symptoms: frozenset[Symptom]    # of the cases that follow
    side: str = ""                  # the side that sees the fault; empty: any
    calls: tuple[str, ...] = ()     # beginnings of the device's methods, of which the case made one; empty: any
    typed: bool = False             # a case follows only with a handle type for which the fault was shown


_IMPORTS: Final = frozenset({"XSEM-IMP-001"})
# In the order of the search: without fences, neither signals nor copies are seen as done.
_ROOTS: Final = (
    Root("fences of the device are not reached", frozenset({"XSEM-LIFE-007", "XSEM-EVT-010"}),
         Symptom.BARRIER_NOT_DONE, MISSING),
    Root("signals of the device do not meet waits of the exporter", _IMPORTS, Symptom.NOT_MET, MISSING, "exporter",
         ("append_signal", "prepared"), typed=True),
    Root("signals of the exporter do not meet waits of the device", _IMPORTS, Symptom.NOT_MET, MISSING, "device",
         ("append_wait", "prepared"), typed=True),
    Root("the device and the exporter do not read each other's bytes", _IMPORTS, Symptom.OTHER_BYTES,
         frozenset({Symptom.OTHER_BYTES}), "",
         ("append_copy", "append_fill", "map_buffer", "append_region_copy", "append_image")),
)


def consequences(results: Sequence[Result]) -> list[tuple[Root, list[Result]]]:
    """Return the roots that the results show, each with its cases. The first case of each root shows it."""
    # A case belongs to one root. A case that hung or died, or that did not fail, belongs to no root.
    left = list(results)
    found = []
    for root in _ROOTS:
        heads = [each for each in left if each.case.requirement in root.requirements and saw(each, root.shown_by)
                 and root.side in ("", _evidence(each).side)]
        types = {each.case.handle_type.rpartition(".")[2] for each in heads}
        if heads:
            mine = [*heads, *(each for each in left if each not in heads and _follows(each, root, types))]
            found.append((root, mine))
            left = [each for each in left if each not in mine]
    return found


def saw(result: Result, *symptoms: Symptom) -> bool:
    """Return whether a failed case saw one of these symptoms."""
    return result.outcome in WRONG and _evidence(result).symptom in symptoms


def _evidence(result: Result) -> Failure:
    return result.failure or Failure()


def _follows(result: Result, root: Root, types: set[str]) -> bool:
    failure = _evidence(result)
    return (saw(result, *root.symptoms) and _made(failure, root.calls)
            and (not root.typed or not failure.calls or not types.isdisjoint(failure.handle_types)))


def _made(failure: Failure, calls: tuple[str, ...]) -> bool:
    mine = [each.method for each in failure.calls if each.by == "device"]
    # Without the calls of the device, the log cannot contradict: its driver is compiled, or the log left calls out.
    return not calls or not mine or failure.left_out > 0 or any(each.startswith(calls) for each in mine)
