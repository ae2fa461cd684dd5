"""Compare two reports: each case of one device, or the tables of differences of two devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from xsem_conformance import history, verdict
from xsem_conformance.backend_code import libraries_in_words
from xsem_conformance.report import older
from xsem_conformance.report.limits import Limits
from xsem_conformance.report.quirk_words import quirks
from xsem_conformance.report.summary import COLUMNS, HandleType, Report, device_name, handle_types, verdict_of
from xsem_conformance.requirements import AREAS

__all__ = ["Comparison", "Difference", "Differences", "NotComparableError", "compare", "differences", "same_device"]

# From best to worst. UNSUPPORTED is worse than PASS: a supported capability has disappeared. NOT_EXAMINED is, too: a
# hook has disappeared.
_RANK: Final = {"PASS": 0, "WAIVED": 1, "UNSUPPORTED": 2, "NOT_EXAMINED": 2, "UNAVAILABLE": 3, "BLOCKED": 3, "ERROR": 4,
                "FAIL": 4}


class NotComparableError(ValueError):
    """The reports have different schemas, or one value is not a report."""


@dataclass
class Comparison:
    """Lines for the reader."""

    worse: list[str] = field(default_factory=list)
    better: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)   # only in the first report
    new: list[str] = field(default_factory=list)   # only in the second report
    changed: list[str] = field(default_factory=list)   # worse, but another suite has another requirement of that id
    not_run: dict[str, list[str]] = field(default_factory=dict)   # the cases that a limit of one report excluded, by it
    undecided: bool = False   # one of them passed in the first report

    @property
    def verdict(self) -> str:
        """The comparison in words."""
        return ("the second report is worse" if self.worse
                else "not decided whether the second report is worse" if self.undecided
                else "the second report is not worse")

    @property
    def counted(self) -> str:
        """The comparison in figures."""
        changed = f", {len(self.changed)} of a changed requirement" if self.changed else ""
        return (f"{len(self.worse)} worse, {len(self.better)} better, {len(self.new)} new, {len(self.gone)} gone"
                f"{changed}" + "".join(f"; {len(cases)} {why}" for why, cases in self.not_run.items()))


@dataclass(frozen=True)
class Difference:
    """One row of a table of differences: the name of the value, and the two values in words."""

    what: str
    one: str
    other: str


@dataclass(frozen=True)
class Differences:
    """The differences of two devices."""

    one: str
    other: str
    # The rows for each title: the verdict, handle types, capabilities, requirements with different results, the number
    # of cases that apply to one device only, quirks. A title without rows is absent.
    tables: dict[str, list[Difference]]


def same_device(one: Report, other: Report) -> bool:
    """Return whether two reports are of one device, or of two devices of one model with one backend and exporter."""
    if not (isinstance(one, Mapping) and isinstance(other, Mapping)):
        raise NotComparableError("one of the two files is not a report")
    if one.get("schema") != other.get("schema"):
        raise NotComparableError(
            f"the reports differ in their schema: {one.get('schema')} and {other.get('schema')}")
    if one["device"]["backend"] != other["device"]["backend"]:
        return False
    if one["exporter"]["backend"] != other["exporter"]["backend"]:
        return False
    names = [each["device"].get("name") for each in (one, other)]
    uuids = [each["device"].get("uuid") for each in (one, other)]
    return names[0] == names[1] or (uuids[0] is not None and uuids[0] == uuids[1])


def compare(before: Report, after: Report) -> Comparison:
    """Compare two reports of one device. A missing case is worse if it passed in the first report, without a limit."""
    # A case is not worse if its requirement came, changed or went between the suites of the two reports.
    found = Comparison()
    first, second = Limits(before), Limits(after)
    suites = _Suites(before, after)
    old = {case["key"]: case["outcome"] for case in before["cases"]}
    new = {case["key"]: case["outcome"] for case in after["cases"]}
    for key in sorted(old.keys() | new.keys()):
        if key in old and (why := second.excluded(key, first)):
            found.not_run.setdefault(f"not run in the second report{why}", []).append(f"{key}: {old[key]}")
            found.undecided |= old[key] == "PASS"
        elif key in new and (why := first.excluded(key, second)):
            found.not_run.setdefault(f"not run in the first report{why}", []).append(f"{key}: {new[key]}")
        elif key not in new:
            place = found.worse if old[key] == "PASS" else found.gone
            _add(found, place, f"{key}: {old[key]}, now gone", suites.between(key))
        elif key not in old:
            place = found.worse if _RANK[new[key]] > 2 else found.new
            _add(found, place, f"{key}: new, {new[key]}", suites.between(key))
        elif _RANK[new[key]] != _RANK[old[key]]:
            place = found.worse if _RANK[new[key]] > _RANK[old[key]] else found.better
            _add(found, place, f"{key}: {old[key]}, now {new[key]}", suites.between(key))
    return found


def _add(found: Comparison, place: list[str], line: str, why: str) -> None:
    """Add a line to its place, or a worse case to another place if `why`, the history of its requirement, says so."""
    if place is found.worse and why:
        place = found.new if why.startswith("came") else found.gone if why.startswith("gone") else found.changed
    place.append(f"{line}; {why}" if why else line)


class _Suites:
    """The suites of two reports."""

    def __init__(self, before: Report, after: Report) -> None:
        self._versions = older.suite_version(before), older.suite_version(after)
        # A report without a number is of suite 1, or of a later state without a number, which its texts tell.
        same = [{(case["requirement"], case["level"], " ".join(case["text"].split())) for case in each["cases"]
                 if "text" in case} for each in (before, after)]
        unnumbered = "suite_version" not in before or "suite_version" not in after
        self._equal = {name for name, _, _ in same[0] & same[1]} if unnumbered else set[str]()

    def between(self, key: str) -> str:
        """Say what became of the requirement of a case between the two suites; empty if it is the same."""
        name = key.partition("/")[0]
        return "" if name in self._equal else history.load().between(name, *self._versions)


# ---- two devices
_ABSENT: Final = "-"


def differences(one: Report, other: Report) -> Differences:
    """Compare two devices, also with different backends and exporters. Equal values have no row."""
    both = (one, other)
    requirements, only = _requirements(*both)
    tables = {
        "verdict": _rows([{"verdict": verdict_of(each), "exporter": each["exporter"]["backend"],
                           "driver": each["device"]["driver_version"] or "unknown",
                           "vendor libraries": libraries_in_words(each)} for each in both]),
        "handle types": _rows([_types(each) for each in both], "not declared"),
        "capabilities": _rows([_capabilities(each) for each in both]),
        "requirements with different results": requirements,
        "cases that apply to one device only": only,
        # A quirk of a handle type that only one device has is not a separate difference.
        "quirks": [row for row in _rows([_quirks(each) for each in both]) if _ABSENT not in (row.one, row.other)],
    }
    return Differences(_named(one, both), _named(other, both),
                       {title: rows for title, rows in tables.items() if rows})


def _named(report: Report, both: tuple[Report, Report]) -> str:
    exporters = {each["exporter"]["backend"] for each in both}
    text = f"{device_name(report)} ({report['device'].get('id') or 'no device'})"
    return text if len(exporters) == 1 else f"{text} with {report['exporter']['backend'] or 'no exporter'}"


def _rows(values: Iterable[Mapping[str, str]], absent: str = _ABSENT) -> list[Difference]:
    first, second = values
    return [Difference(key, first.get(key, absent), second.get(key, absent)) for key in {**first, **second}
            if first.get(key, absent) != second.get(key, absent)]


def _types(report: Report) -> dict[str, str]:
    return {f"{type.kind} {type.name}": ", ".join(_cells(type)) for type in handle_types(report)}


def _cells(type: HandleType) -> list[str]:
    if not type.declared:
        return [f"declared: {type.said('declared')}"]
    return [f"{column}: {type.said(column)}" for column in COLUMNS]


def _capabilities(report: Report) -> dict[str, str]:
    declared = report.get("capabilities")
    if declared is None:
        return {}
    said = {True: "yes", False: "no", None: "unknown"}
    return {name: ", ".join(value) or "none" if isinstance(value, list)
            else said[value] if value is None or isinstance(value, bool) else str(value)
            for name, value in declared.items()}


def _quirks(report: Report) -> dict[str, str]:
    # The capabilities have a separate table.
    return {f"{each.title}: {type}" if type else each.title: each.finding for each in quirks(report)
            if not each.declared for type in each.types or ("",)}


def _requirements(one: Report, other: Report) -> tuple[list[Difference], list[Difference]]:
    """Return the cases with different results, and the number of cases in each area that apply to one device."""
    first, second = _results(one), _results(other)
    differ, applying = [], dict[str, list[int]]()
    for key in dict.fromkeys((*first, *second)):
        states = [each.get(key, "not declared") for each in (first, second)]
        if states[0] == states[1]:
            continue
        if "not declared" not in states:
            differ.append(Difference(" ".join(part for part in key if part != "-"), *states))
            continue
        area = key[0].split("-")[1]
        applying.setdefault(area, [0, 0])[states.index("not declared") ^ 1] += 1
    return differ, [Difference(f"{area}: {AREAS[area]}" if area in AREAS else area, *map(str, count))
                    for area, count in applying.items()]


def _results(report: Report) -> dict[tuple[str, ...], str]:
    """Return the state of each case by requirement, level, handle type and direction: exporters may differ."""
    found: dict[tuple[str, ...], str] = {}
    for case in report["cases"]:
        kind = case["kind"] if case.get("kind", "-") != "-" else ""
        what = f"{kind} {case['handle_type']}".strip()
        found[case["requirement"], f"({case['level']})", what, case["direction"]] = verdict.state(case["outcome"])
    return found
