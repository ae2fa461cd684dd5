"""Which cases there are for a device with what it declares, and which of them can be run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from xsem.types import Capabilities, Kind, MemoryHandleType, SemaphoreHandleType
from xsem_conformance.bench import IN, OUT
from xsem_conformance.checks import Check
from xsem_conformance.outcomes import NONE, Case
from xsem_conformance.requirements import Requirement, missing

__all__ = ["Planned", "plan"]


@dataclass(frozen=True)
class Planned:
    """A case, and what it lacks.

    Attributes
    ----------
    requirement : Requirement
    missing : str
        The capability that is needed and not declared, as `xsem_conformance.refusals` takes it where the driver can be
        asked, else in words; empty where the case is to be run.
    """

    case: Case
    requirement: Requirement
    check: Check
    missing: str


def plan(
    requirements: Iterable[Requirement], checks: Mapping[str, Check], capabilities: Capabilities, exporter: str
) -> list[Planned]:
    """Every case of every requirement of a device or backend that has a check, in the order of the requirements."""
    found = []
    for requirement in requirements:
        if requirement.subject == "facade" or requirement.id not in checks:
            continue
        directions = (IN, OUT) if requirement.direction else (NONE,)
        for type in _types(requirement):
            for direction in directions:
                case = Case(requirement.id, type, exporter if requirement.exporter else NONE, direction)
                found.append(Planned(case, requirement, checks[requirement.id],
                                     missing(requirement, capabilities, type)))
    return found


def _types(requirement: Requirement) -> list[str]:
    if requirement.handle_type == "":
        return [NONE]
    if requirement.handle_type == "memory":
        return [each.value for each in MemoryHandleType]
    kinds = {"semaphore": set(Kind), "binary": {Kind.BINARY}, "timeline": {Kind.TIMELINE}}[requirement.handle_type]
    return [each.value for each in SemaphoreHandleType if each.kind in kinds]
