"""The report as data: the content of the JSON file, by ``schema.json``."""

from __future__ import annotations

import dataclasses
import inspect
import json
import platform
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata, resources
from typing import Any, Final

from xsem import spi
from xsem.types import Capabilities, DeviceInfo, MemoryHandleType, SemaphoreHandleType
from xsem_conformance import verdict
from xsem_conformance.case.context import IN, OUT
from xsem_conformance.history import SUITE_VERSION
from xsem_conformance.outcomes import NONE, WRONG, Failure, Outcome, Result
from xsem_conformance.report.summary import IMPORTS, SYNCHRONISES
from xsem_conformance.requirements import Requirement
from xsem_conformance.run.causes import Cause, causes
from xsem_conformance.run.session import Run
from xsem_conformance.suite import all_checks

__all__ = ["build", "case_of", "check", "repeat"]

SCHEMA: Final = 1


def build(run: Run, *, command: str, commit: str) -> dict[str, Any]:
    """Return all data of a run for the JSON file."""
    requirements = {each.id: each for each in run.requirements}
    folded = causes(run.results)
    cause_of = {result.case.key: number for number, cause in enumerate(folded, 1) for result in cause.results}
    cases = [_case(run, requirements[each.case.requirement], each, cause_of.get(each.case.key))
             for each in run.results]
    return {
        "schema": SCHEMA,
        "suite_version": SUITE_VERSION,
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
        "baseline": _baseline(run),
        "problems": list(run.problems),
        "counts": verdict.counts(run.results),
        "handle_types": list(_matrix(run, requirements)),
        "cases": cases,
        "causes": [_cause(number, each) for number, each in enumerate(folded, 1)],
        "partial": run.partial,
        "complete": not run.not_run,
        "incomplete": run.incomplete,
        "not_run": [{"key": case.key, "requirement": case.requirement, "area": requirements[case.requirement].area,
                     "level": requirements[case.requirement].level, "reason": reason}
                    for case, reason in run.not_run.items()],
        "seconds": run.seconds,
        "refusals": [{"capability": each.case.requirement, "outcome": each.outcome.value, "detail": each.detail}
                     for each in run.refusals],
        "quirks": run.quirks,
    }


def case_of(run: Run, result: Result, cause: int | None) -> dict[str, Any]:
    """Return the entry of a result. `cause` is the number of its cause; None for a case that did not fail."""
    return _case(run, next(each for each in run.requirements if each.id == result.case.requirement), result, cause)


def _case(run: Run, requirement: Requirement, result: Result, cause: int | None) -> dict[str, Any]:
    return {
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
        "waiver": None if result.waiver is None else {
            "reason": result.waiver.reason, "until": result.waiver.until.isoformat()},
        "seconds": result.seconds,
        "failure": None if cause is None else _failure(run, result, requirement, cause),
    }


def _baseline(run: Run) -> dict[str, Any] | None:
    compared = run.compared
    if compared is None:
        return None
    return {"status": run.exit_status, "expected": [each.case.key for each in compared.expected],
            "new": [each.case.key for each in compared.new], "passing": [each.name for each in compared.passing],
            "unused": [each.name for each in compared.unused]}


def repeat(run: Run, key: str) -> str:
    """Return the command that repeats a case in the foreground."""
    exporter = key.split("/")[2] if run.exporter is None else run.exporter.id
    device = "" if run.device is None else f" --device {run.device.id}"
    profile = f" --profile {run.profile.name}" if run.profile.portable else ""   # it decides which types are shared
    return f"xsem conformance run{device} --exporter {exporter}{profile} --case {key} --debug"


def _cause(number: int, cause: Cause) -> dict[str, Any]:
    return {
        "number": number,
        "outcome": cause.outcome.value,
        "summary": cause.summary,
        "requirement": cause.results[0].case.requirement,
        "first": cause.results[0].case.key,
        "cases": [each.case.key for each in cause.results],
    }


def _failure(run: Run, result: Result, requirement: Requirement, cause: int) -> dict[str, Any]:
    found = result.failure or Failure()
    checked = all_checks().get(requirement.id)
    return {
        "done": "" if checked is None else " ".join((inspect.getdoc(checked.run) or "").partition("\n\n")[0].split()),
        "expected": requirement.text,
        "seen": result.seen,
        "printed": result.printed,
        "calls": [{"by": each.by, "call": each.text, "seconds": each.seconds, "times": each.times}
                  for each in found.calls],
        "first_calls": found.first_calls if found.left_out else 0,
        "earlier_calls": found.left_out,
        "frames": [dataclasses.asdict(each) for each in found.frames],
        "stack": found.stack,
        "died": found.died,
        "symptom": found.symptom and found.symptom.value,
        "side": found.side,
        "repeat": repeat(run, result.case.key),
        "cause": cause,
    }


def check(report: dict[str, Any]) -> None:
    """Check a report against the schema."""
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
        # Formats and flags of images are names, not members of an enum.
        found[field.name] = (sorted(getattr(each, "value", each) for each in value) if isinstance(value, frozenset)
                             else value)
    return found


def _matrix(run: Run, requirements: Mapping[str, Requirement]) -> Iterable[dict[str, Any]]:
    """Yield `declared`, `imports` and `synchronises` for each handle type and direction: drivers differ in each."""
    for kind, members in (("semaphore", SemaphoreHandleType), ("memory", MemoryHandleType)):
        for type in members:
            into: frozenset[Any] = (frozenset() if run.capabilities is None
                                    else getattr(run.capabilities, f"{kind}_import"))
            # An unmet SHOULD, for example an unchecked size, does not change `imports`.
            # A requirement of exports says nothing about imports of the type.
            mine = [result for result in run.results if result.case.handle_type.rpartition(".")[2] == type.value
                    and requirements[result.case.requirement].level == "MUST"
                    and "import:$type" in requirements[result.case.requirement].capability
                    and _kind(result.case.handle_type, requirements[result.case.requirement]) == kind]
            for direction in (IN, OUT):
                yield {
                    "kind": kind,
                    "handle_type": type.value,
                    "direction": direction,
                    "declared": type in into,
                    "imports": _verdict(each for each in mine if requirements[each.case.requirement].area in IMPORTS),
                    "synchronises": _verdict(
                        each for each in mine if requirements[each.case.requirement].area in SYNCHRONISES
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
    if outcomes & WRONG:
        return "no"
    if Outcome.WAIVED in outcomes:
        return "waived"
    if Outcome.PASS in outcomes:
        return "yes"
    return "not tried" if outcomes & {Outcome.BLOCKED, Outcome.UNAVAILABLE} else "-"
