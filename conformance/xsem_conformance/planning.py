"""Which cases there are for a device and an exporter with what they declare, and which of them can be run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from xsem.types import Capabilities, SemaphoreHandleType
from xsem_conformance.checks import Check
from xsem_conformance.context import OUT
from xsem_conformance.expressions import HandleType, parse
from xsem_conformance.outcomes import NONE, Case
from xsem_conformance.requirements import Requirement, applies

__all__ = ["Planned", "Surroundings", "plan"]


@dataclass(frozen=True)
class Surroundings:
    """What there is beside the device under test.

    Attributes
    ----------
    exporter : str
        Its backend.
    capabilities : Capabilities
        What the exporter declares.
    exporter_uuid, second_device : bool
        Whether the exporter's device has a UUID, and whether the device's backend has another device.
    """

    exporter: str
    capabilities: Capabilities
    exporter_uuid: bool
    second_device: bool


@dataclass(frozen=True)
class Planned:
    """A case, and what it lacks.

    Attributes
    ----------
    undeclared : str
        The capability that the device does not declare, as `xsem_conformance.refusals` takes it where the driver can be
        asked, else in words; empty where the case is to be run.
    blocked : str
        What the exporter cannot give.
    """

    case: Case
    requirement: Requirement
    check: Check
    undeclared: str = ""
    blocked: str = ""


def plan(
    requirements: Iterable[Requirement], checks: Mapping[str, Check], capabilities: Capabilities, around: Surroundings
) -> list[Planned]:
    """Every case of every requirement of a device or backend that has a check, in the order of the requirements."""
    found = []
    for requirement in requirements:
        if requirement.subject == "facade" or requirement.id not in checks:
            continue
        if any(not getattr(around, need) for need in requirement.needs):
            continue   # there is nothing to ask
        types: tuple[HandleType | None, ...] = requirement.candidates or (None,)
        for type in types:
            declared = applies(requirement, capabilities, type)
            if not declared and requirement.capability.startswith("not "):
                continue   # it is about what is not declared, and this is
            for direction in requirement.directions or (NONE,):
                early = around.capabilities.wait_before_signal
                if requirement.area == "WBS" and direction == OUT and type not in early:
                    continue   # the exporter's wait may not come first: there is nothing to ask
                named = NONE if type is None else _name(type, requirement)
                case = Case(requirement.id, named, around.exporter, direction)
                found.append(Planned(
                    case, requirement, checks[requirement.id],
                    undeclared="" if declared else _missing(requirement.capability, capabilities, type),
                    blocked="" if parse(requirement.exporter)(around.capabilities, type) else
                    f"the exporter does not declare {_missing(requirement.exporter, around.capabilities, type)}"))
    return found


def _name(type: HandleType, requirement: Requirement) -> str:
    # opaque_fd and opaque_win32 are semaphores and memory: where a requirement is about both, the case says which.
    if len(requirement.per) < 2:
        return str(type.value)
    return f"{'semaphore' if isinstance(type, SemaphoreHandleType) else 'memory'}.{type.value}"


def _missing(whole: str, capabilities: Capabilities, type: HandleType | None) -> str:
    # The first that is missing: the driver is asked for that one, and the report names it.
    missing = whole if " or " in whole else next(
        factor.strip() for factor in whole.split(" and ") if not parse(factor)(capabilities, type))
    if type is None:
        return missing
    missing = missing.replace("$type", type.value)
    if missing.startswith(("import:", "export:")):
        return f"{'semaphore' if isinstance(type, SemaphoreHandleType) else 'memory'}_{missing}"
    return missing
