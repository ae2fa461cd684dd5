"""The keys of all cases that any device can have."""

from __future__ import annotations

from xsem.types import SemaphoreHandleType
from xsem_conformance.outcomes import NONE
from xsem_conformance.requirements import Requirement
from xsem_conformance.suite import all_checks

__all__ = ["possible"]


def possible(requirement: Requirement) -> list[str]:
    """Return the keys of the cases of a requirement on any device, with * for the exporter; none without a check."""
    if requirement.subject == "facade" or requirement.id not in all_checks():
        return []
    two = len(requirement.per) > 1   # as in planning: the name of a type has its kind only then
    types = [f"{'semaphore' if isinstance(each, SemaphoreHandleType) else 'memory'}.{each.value}" if two else each.value
             for each in requirement.candidates] or [NONE]
    return [f"{requirement.id}/{type}/*/{direction}" for type in types
            for direction in requirement.directions or (NONE,)]
