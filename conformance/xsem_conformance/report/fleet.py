"""Several reports as data: devices, their handle types with deviations, and the changes between two reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from xsem_conformance.backend_code import libraries_in_words
from xsem_conformance.report.compare import Comparison, Difference, compare, differences, same_device
from xsem_conformance.report.quirk_words import Quirk, quirks
from xsem_conformance.report.summary import (
    Deviation,
    HandleType,
    Report,
    deviations,
    device_name,
    handle_types,
    verdict_of,
)

__all__ = ["Change", "Entry", "Fleet", "entries", "fleet"]


@dataclass
class Entry:
    """One device with one exporter, in its newest report."""

    file: str
    report: Report
    handle_types: list[HandleType]   # that the device declares, has tried or deviates with
    deviations: list[Deviation]   # of the device itself, without a handle type
    code_around: dict[str, list[Quirk]]   # for each advice to an application, the quirks and limits that are its reason

    @property
    def name(self) -> str:
        """The device."""
        return device_name(self.report)

    @property
    def exporter(self) -> str:
        """The backend of the exporter."""
        return self.report["exporter"].get("backend") or "no exporter"

    @property
    def driver(self) -> str:
        """The version of the device's driver."""
        return self.report["device"].get("driver_version") or "unknown"

    @property
    def libraries(self) -> str:
        """The vendor's libraries, with their versions in the names."""
        return libraries_in_words(self.report)

    @property
    def date(self) -> str:
        """The day of the report."""
        return str(self.report["date"])[:10]

    @property
    def verdict(self) -> str:
        """The verdict as a sentence."""
        return verdict_of(self.report)


@dataclass
class Change:
    """Two reports of one device, for example before and after a driver update."""

    before: Entry
    after: Entry
    cases: Comparison
    # The differences of the verdict, the handle types, the capabilities and the quirks.
    tables: dict[str, list[Difference]] = field(default_factory=dict)


@dataclass
class Fleet:
    """The newest report of each device, and the changes between the reports of one device."""

    entries: list[Entry]
    changes: list[Change]


def entries(reports: Mapping[str, Report]) -> list[Entry]:
    """Return an entry for each report, ordered by device, exporter and date."""
    made = [Entry(file, report, handle_types(report),
                  deviations(case for case in report["cases"] if case["handle_type"] == "-"), _advised(report))
            for file, report in reports.items()]
    return sorted(made, key=lambda each: (each.name, each.exporter, str(each.report["date"]), each.file))


def fleet(reports: Mapping[str, Report]) -> Fleet:
    """Return the matrix of these reports."""
    # A report replaces an older report of the same device if the driver, the backend or the suite differs. Two machines
    # with the same model and the same software both have an entry. Two reports are of the same device if their UUIDs
    # are equal. Without UUIDs, the backend, the exporter and the name must be equal.
    found: list[Entry] = []
    changes: list[Change] = []
    for entry in entries(reports):
        older = next((each for each in reversed(found) if _replaces(entry, each)), None)
        if older is None:
            found.append(entry)
            continue
        found[found.index(older)] = entry
        changes.append(_change(older, entry))
    return Fleet(found, changes)


def _replaces(new: Entry, old: Entry) -> bool:
    if not same_device(old.report, new.report) or _software(old.report) == _software(new.report):
        return False
    uuids = {each.report["device"].get("uuid") for each in (old, new)}
    return len(uuids) == 1


def _software(report: Report) -> tuple[Any, ...]:
    """Return the versions that an update changes. A field that is missing in an older report is None."""
    return (report["device"].get("driver_version"), report["device"].get("driver_uuid"), report.get("code"),
            report.get("suite"), report.get("suite_version"))


def _change(before: Entry, after: Entry) -> Change:
    cases = compare(before.report, after.report)
    tables = differences(before.report, after.report).tables
    kept = {title: rows for title, rows in tables.items()
            if title in ("verdict", "handle types", "capabilities", "quirks")}
    return Change(before, after, cases, kept)


def _advised(report: Report) -> dict[str, list[Quirk]]:
    found: dict[str, list[Quirk]] = {}
    for each in quirks(report):
        if each.advice:
            found.setdefault(each.advice, []).append(each)
    return found
