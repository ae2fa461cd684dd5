"""Plan the cases of a device and an exporter from their declared capabilities, and name those that cannot run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from xsem.types import Capabilities, SemaphoreHandleType
from xsem_conformance.case.context import OUT
from xsem_conformance.checks import Check
from xsem_conformance.expressions import HandleType, parse
from xsem_conformance.outcomes import NONE, Case
from xsem_conformance.requirements import Requirement, applies

__all__ = ["Planned", "Surroundings", "no_common_type", "only_portable", "plan"]


@dataclass(frozen=True)
class Surroundings:
    """The environment of the device under test."""

    exporter: str
    capabilities: Capabilities   # of the exporter
    exporter_uuid: bool   # the exporter's device has a UUID
    second_device: bool   # the device's backend has another device
    portable: bool = False   # only portable types are shared, because the exporter may be another device


@dataclass(frozen=True)
class Planned:
    """A case, and the reason why it cannot run, if there is one."""

    case: Case
    requirement: Requirement
    check: Check
    # The capability that the device does not declare; empty if the device declares all. The form is that of
    # `xsem_conformance.case.refusals` if the suite can call the capability, otherwise a text.
    undeclared: str = ""
    inapplicable: str = ""   # the reason why the requirement does not apply here; empty if it applies
    # The capability that the exporter does not declare, as a text; empty if the exporter declares all.
    blocked: str = ""


def plan(
    requirements: Iterable[Requirement], checks: Mapping[str, Check], capabilities: Capabilities, around: Surroundings
) -> list[Planned]:
    """Return every case of each device or backend requirement with a check, in the order of the requirements."""
    found = []
    for requirement in requirements:
        if requirement.subject == "facade" or requirement.id not in checks:
            continue
        if any(not getattr(around, need) for need in requirement.needs):
            continue   # the case does not exist here
        types: tuple[HandleType | None, ...] = requirement.candidates or (None,)
        for type in types:
            declared = applies(requirement, capabilities, type)
            if not declared and requirement.capability.startswith("not "):
                continue   # it concerns undeclared types, and this type is declared
            for direction in requirement.directions or (NONE,):
                early = around.capabilities.wait_before_signal
                if requirement.area == "WBS" and direction == OUT and type not in early:
                    continue   # the exporter does not allow its wait before the signal
                named = NONE if type is None else _name(type, requirement)
                case = Case(requirement.id, named, around.exporter, direction)
                lacks = "" if parse(requirement.exporter)(around.capabilities, type) else _missing(
                    requirement.exporter, around.capabilities, type)
                found.append(Planned(
                    case, requirement, checks[requirement.id],
                    inapplicable=_inapplicable(requirement, type, lacks, around),
                    undeclared="" if declared else _missing(requirement.capability, capabilities, type),
                    blocked=f"the exporter does not declare {lacks}" if lacks else ""))
    return found


def _inapplicable(requirement: Requirement, type: HandleType | None, lacks: str, around: Surroundings) -> str:
    if not requirement.on_this_system:
        return f"not applicable on this system: it needs {' or '.join(requirement.systems)}"
    if around.portable and requirement.exporter and type is not None and not type.portable:
        return f"not applicable to portable types alone: it needs {type.value} of the exporter"
    return f"not applicable to portable types alone: it needs {lacks}" if lacks and around.portable else ""


def only_portable(capabilities: Capabilities) -> Capabilities:
    """Return the capabilities of an exporter without the objects that belong to its device."""
    return dataclasses.replace(
        capabilities, semaphore_export=frozenset(each for each in capabilities.semaphore_export if each.portable),
        memory_export=frozenset(each for each in capabilities.memory_export if each.portable))


def no_common_type(importer: Capabilities, exporter: Capabilities) -> str:
    """Return the reason why no object of the exporter can be imported, as a text without a subject; otherwise empty."""
    # One common handle type is enough: the cases of the other types are then BLOCKED. A device without imports needs no
    # exporter.
    # By kind: a semaphore type and a memory type of one name are equal, because both enumerations are strings.
    if exporter.semaphore_export & importer.semaphore_import or exporter.memory_export & importer.memory_import:
        return ""
    if not (importer.semaphore_import or importer.memory_import):
        return ""
    return (f"it declares the export of {_listed(exporter.semaphore_export, exporter.memory_export)}, but the device "
            f"imports {_listed(importer.semaphore_import, importer.memory_import)}")


def _listed(semaphores: Iterable[HandleType], memory: Iterable[HandleType]) -> str:
    kinds = [f"{kind} {', '.join(sorted(each.value for each in types))}"
             for kind, types in (("semaphores", semaphores), ("memory", memory)) if types]
    return " and ".join(kinds) or "no type"


def _name(type: HandleType, requirement: Requirement) -> str:
    # opaque_fd and opaque_win32 name semaphore and memory types. If a requirement covers both, the name adds the kind.
    if len(requirement.per) < 2:
        return str(type.value)
    return f"{'semaphore' if isinstance(type, SemaphoreHandleType) else 'memory'}.{type.value}"


def _missing(whole: str, capabilities: Capabilities, type: HandleType | None) -> str:
    # The suite calls the first missing capability, and the report names this capability.
    missing = whole if " or " in whole else next(
        factor.strip() for factor in whole.split(" and ") if not parse(factor)(capabilities, type))
    if type is None:
        return missing
    missing = missing.replace("$type", type.value)
    if missing.startswith(("import:", "export:")):
        return f"{'semaphore' if isinstance(type, SemaphoreHandleType) else 'memory'}_{missing}"
    return missing
