"""The report as data: the content of the JSON file, by ``schema.json``."""

from __future__ import annotations

import dataclasses
import json
import platform
import sys
from collections.abc import Iterable
from importlib import metadata, resources
from typing import Any, Final

from xsem import spi
from xsem.types import Capabilities, DeviceInfo, MemoryHandleType, SemaphoreHandleType
from xsem_conformance import verdict
from xsem_conformance.case.context import IN, OUT
from xsem_conformance.outcomes import NONE, Outcome, Result
from xsem_conformance.report.summary import IMPORTS, SYNCHRONISES
from xsem_conformance.requirements import Requirement
from xsem_conformance.run.session import Run

__all__ = ["build", "check"]

SCHEMA: Final = 1


def build(run: Run, *, command: str, commit: str) -> dict[str, Any]:
    """Return all data of a run for the JSON file."""
    requirements = {each.id: each for each in run.requirements}
    cases = []
    for result in run.results:
        requirement = requirements[result.case.requirement]
        cases.append({
            "key": result.case.key,
            "requirement": requirement.id,
            "area": requirement.area,
            "level": requirement.level,
            "text": requirement.text,
            "clauses": list(requirement.clauses),
            "kind": _kind(result.case.handle_type, requirement),
            "handle_type": result.case.handle_type.rpartition(".")[2],
            "direction": result.case.direction,
            "outcome": result.outcome.value,
            "detail": result.detail,
            "seconds": result.seconds,
        })
    return {
        "schema": SCHEMA,
        "suite": metadata.version("xsem"),
        "spi": spi.SPI_VERSION,
        "date": run.began.isoformat(timespec="seconds"),
        "command": command,
        "commit": commit,
        "code": run.code,
        "platform": f"{sys.platform} {platform.release()} {platform.machine()}, Python {platform.python_version()}",
        "device": _device(run.device),
        "exporter": _device(run.exporter),
        "capabilities": None if run.capabilities is None else _capabilities(run.capabilities),
        "profile": run.profile.name,
        "status": run.status,
        "problems": list(run.problems),
        "counts": verdict.counts(run.results),
        "handle_types": list(_matrix(run)),
        "cases": cases,
        "refusals": [{"capability": each.case.requirement, "outcome": each.outcome.value, "detail": each.detail}
                     for each in run.refusals],
        "quirks": run.quirks,
    }


def check(report: dict[str, Any]) -> None:
    """Check a report against the schema.

    Raises
    ------
    ValueError
        The data do not match the schema.
    """
    import jsonschema

    text = resources.files("xsem_conformance.report").joinpath("schema.json").read_text(encoding="utf-8")
    try:
        jsonschema.validate(report, json.loads(text))
    except jsonschema.ValidationError as error:
        raise ValueError(f"not a report of schema {SCHEMA}: {error.json_path}: {error.message}") from error


def _device(info: DeviceInfo | None) -> dict[str, Any]:
    if info is None:
        return {"id": "", "backend": "", "name": "", "uuid": None, "driver_uuid": None, "driver_version": ""}
    return {
        "id": info.id,
        "backend": info.backend,
        "name": info.name,
        "uuid": None if info.uuid is None else str(info.uuid),
        "driver_uuid": None if info.driver_uuid is None else str(info.driver_uuid),
        "driver_version": info.driver_version,
    }


def _capabilities(capabilities: Capabilities) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in dataclasses.fields(capabilities):
        value = getattr(capabilities, field.name)
        found[field.name] = sorted(each.value for each in value) if isinstance(value, frozenset) else value
    return found


def _matrix(run: Run) -> Iterable[dict[str, Any]]:
    """Yield `declared`, `imports` and `synchronises` for each handle type and direction: drivers differ in each."""
    area = {each.id: each.area for each in run.requirements}
    requirements = {each.id: each for each in run.requirements}
    for kind, members in (("semaphore", SemaphoreHandleType), ("memory", MemoryHandleType)):
        for type in members:
            into: frozenset[Any] = (frozenset() if run.capabilities is None
                                    else getattr(run.capabilities, f"{kind}_import"))
            # An unmet SHOULD, for example an unchecked size, does not change `imports`.
            mine = [result for result in run.results if result.case.handle_type.rpartition(".")[2] == type.value
                    and requirements[result.case.requirement].level == "MUST"
                    and _kind(result.case.handle_type, requirements[result.case.requirement]) == kind]
            for direction in (IN, OUT):
                yield {
                    "kind": kind,
                    "handle_type": type.value,
                    "direction": direction,
                    "declared": type in into,
                    "imports": _verdict(each for each in mine if area[each.case.requirement] in IMPORTS),
                    "synchronises": _verdict(
                        each for each in mine if area[each.case.requirement] in SYNCHRONISES
                        and each.case.direction in (direction, "-")),
                }


def _kind(handle_type: str, requirement: Requirement) -> str:
    """Return "semaphore", "memory", or "-" for a case without a handle type."""
    if handle_type == NONE:
        return NONE
    kind, dot, _ = handle_type.partition(".")
    return kind if dot else requirement.per[0]


def _verdict(results: Iterable[Result]) -> str:
    outcomes = {result.outcome for result in results}
    if outcomes & {Outcome.FAIL, Outcome.ERROR}:
        return "no"
    if Outcome.WAIVED in outcomes:
        return "waived"
    if Outcome.PASS in outcomes:
        return "yes"
    return "not tried" if outcomes & {Outcome.BLOCKED, Outcome.UNAVAILABLE} else "-"
