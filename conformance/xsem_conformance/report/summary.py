"""The content of a report for each handle type: declared, imports, synchronises, deviates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from xsem_conformance import verdict
from xsem_conformance.outcomes import with_output
from xsem_conformance.report import older

__all__ = [
    "COLUMNS", "IMPORTS", "SYNCHRONISES", "Deviation", "HandleType", "Report", "conclusion", "deviations",
    "device_name", "handle_types", "tally", "verdict_of",
]

Report = Mapping[str, Any]

COLUMNS: Final = ("declared", "imports", "synchronises")
"""The questions about a handle type that `HandleType.said` answers."""

# Areas that decide whether a handle type imports, and areas that decide whether it synchronises.
IMPORTS: Final = frozenset({"IMP", "OWN"})
SYNCHRONISES: Final = frozenset({"BIN", "TL", "ORD", "WBS", "PROC", "BATCH", "BUF"})

UNKNOWN: Final = "unknown"
"""The value of a field that is missing in an older report."""


@dataclass
class Deviation:
    """One requirement that a device does not meet, with all its cases."""

    requirement: str
    level: str
    area: str
    text: str
    state: str   # the worst of the cases: not met, error or waived
    reason: str = ""   # of the waiver; empty without a waiver
    until: str = ""
    cases: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def words(self) -> str:
        """The level and the state, for example "requirement waived until 2027-05-31"."""
        noun = {"MUST": "requirement", "SHOULD": "recommendation", "MAY": "option"}.get(self.level, self.level)
        state = "ended with an error" if self.state == "error" else self.state
        return f"{noun} {state}{f' until {self.until}' if self.until else ''}"

    @property
    def seen(self) -> list[str]:
        """The observed behaviour of the cases, without duplicates."""
        return list(dict.fromkeys(map(_seen, self.cases)))


@dataclass
class HandleType:
    """One handle type of a device."""

    kind: str   # "semaphore" or "memory"
    name: str
    declared: bool | None   # whether the device declares the import; None: unknown
    # "yes", "no", "waived", "not tried" or "-" for each direction. A direction with passed and waived cases has the
    # value "yes". `waived` names the exceptions.
    imports: dict[str, str] = field(default_factory=dict)
    synchronises: dict[str, str] = field(default_factory=dict)
    # For "imports" and "synchronises" the requirements with a waived case.
    waived: dict[str, list[str]] = field(default_factory=dict)
    deviations: list[Deviation] = field(default_factory=list)

    @property
    def mentioned(self) -> bool:
        """Whether the device declares the type, deviates with the type, or has tried an import of the type."""
        return bool(self.declared or self.deviations) or any(each != "-" for each in self.imports.values())

    def said(self, column: str) -> str:
        """Return a cell: "yes", "in: yes, out: no", or "yes, except XSEM-BIN-004 (waived)"."""
        if column == "declared":
            return {True: "yes", False: "no"}.get(self.declared, UNKNOWN)   # type: ignore[arg-type]
        values: dict[str, str] = getattr(self, column)
        text = _both(values)
        waived = self.waived.get(column)
        return f"{text}, except {', '.join(waived)} (waived)" if waived and "yes" in values.values() else text

    @property
    def deviates(self) -> str:
        """The requirements of the deviations with their levels and states; "no" without deviations."""
        return ", ".join(f"{each.requirement} ({each.level}, {each.state})" for each in self.deviations) or "no"

    def mark(self, column: str) -> str:
        """Return the name of the mark of a cell: see `xsem_conformance.report.words`."""
        values = set(getattr(self, column).values())
        if "no" in values:
            return "fail"
        if "waived" in values or self.waived.get(column):
            return "waived"
        if values == {"yes"}:
            return "met"
        return "untried" if values & {"not tried", UNKNOWN} else "undeclared"


def handle_types(report: Report) -> list[HandleType]:
    """Return the handle types that a device declares, has tried or deviates with, in the order of the report."""
    found: dict[tuple[str, str], HandleType] = {}
    for row in report["handle_types"]:
        type = found.setdefault((row["kind"], row["handle_type"]),
                                HandleType(row["kind"], row["handle_type"], row.get("declared")))
        for column, areas in (("imports", IMPORTS), ("synchronises", SYNCHRONISES)):
            said = row.get(column, UNKNOWN)
            if said == "waived":
                mine = [case for case in _cases(report, type)
                        if case["level"] == "MUST" and case["area"] in areas
                        and (column == "imports" or case["direction"] in (row["direction"], "-"))]
                names = list(dict.fromkeys(case["requirement"] for case in mine if case["outcome"] == "WAIVED"))
                type.waived[column] = list(dict.fromkeys([*type.waived.get(column, ()), *names]))
                if any(case["outcome"] == "PASS" for case in mine):
                    said = "yes"
            getattr(type, column)[row["direction"]] = said
    for type in found.values():
        type.deviations = deviations(_cases(report, type))
    return [type for type in found.values() if type.mentioned]


def _cases(report: Report, type: HandleType) -> list[Mapping[str, Any]]:
    return [case for case in report["cases"]
            if case["handle_type"] == type.name and case.get("kind", UNKNOWN) in (type.kind, UNKNOWN)]


_WORST: Final = ("not met", "error", "waived")


def deviations(cases: Iterable[Mapping[str, Any]]) -> list[Deviation]:
    """Return the unmet requirements of these cases: MUST first, and in each level the waived requirements last."""
    found: dict[str, Deviation] = {}
    for case in cases:
        state = verdict.state(case["outcome"])
        if state not in _WORST:
            continue
        each = found.setdefault(case["requirement"], Deviation(
            case["requirement"], case["level"], case["area"], case["text"], state))
        each.cases.append(case)
        each.state = min(each.state, state, key=_WORST.index)
        waiver = older.waiver(case)
        if waiver is not None:
            each.reason, each.until = waiver["reason"], waiver["until"]
    levels = {level: place for place, level in enumerate(verdict.LEVELS)}
    return sorted(found.values(), key=lambda each: (
        levels.get(each.level, len(levels)), _WORST.index(each.state), each.requirement))


def _seen(case: Mapping[str, Any]) -> str:
    failure = case.get("failure")
    return with_output(failure["seen"], failure.get("printed", "")) if failure else case["detail"]


def tally(report: Report) -> verdict.Tally:
    """Return the totals of a report."""
    cases = [(case["level"], case["requirement"], case["outcome"]) for case in report["cases"]]
    missing = [(case["level"], case["requirement"], verdict.NOT_RUN) for case in report.get("not_run", ())]
    made = verdict.Tally.of_cases([*cases, *missing], [each["outcome"] for each in report.get("refusals", ())])
    made.died = sum(_died(case) for case in report["cases"])
    return made


def _died(case: Mapping[str, Any]) -> bool:
    failure = case.get("failure") or {}
    return verdict.state(case["outcome"]) in ("not met", "error") and bool(failure.get("died"))


def verdict_of(report: Report) -> str:
    """Return the verdict of a report as a sentence."""
    return "; ".join(text for _, text in _clauses(report))


def conclusion(report: Report) -> str:
    """Return the first clause of the verdict, and the clauses about waivers."""
    return "; ".join(text for state, text in _clauses(report) if state in ("", "waived"))


def _clauses(report: Report) -> list[tuple[str, str]]:
    return verdict.clauses(report["status"], report["profile"], tally(report), problems=len(report["problems"]),
                           partial=older.partial(report), expected=_expected(report))


def _expected(report: Report) -> int | None:
    found = report.get("baseline")
    return None if found is None else len(found["expected"])


def device_name(report: Report) -> str:
    """Return the backend and the name of the device: ``cuda: NVIDIA H200``."""
    device = report["device"]
    return ": ".join(each for each in (device.get("backend", ""), device.get("name", "")) if each) or "no device"


def _both(said: Mapping[str, str]) -> str:
    """Return one value if both directions have the same value, otherwise the value of each direction."""
    if len(set(said.values())) == 1:
        return next(iter(said.values()))
    return ", ".join(f"{direction}: {what}" for direction, what in said.items())
