"""Several reports as one HTML page and as data for programs."""

from __future__ import annotations

import dataclasses
from typing import Any

from xsem_conformance.report.fleet import Change, Entry, Fleet
from xsem_conformance.report.pages import render
from xsem_conformance.report.summary import Deviation, HandleType
from xsem_conformance.report.words import MARKS, mark_of

__all__ = ["matrix_data", "matrix_html"]


def matrix_html(found: Fleet) -> str:
    """Return the page: an overview, the changes of each device, and each device with its deviations and quirks."""
    types = list(dict.fromkeys((type.kind, type.name) for each in found.entries for type in each.handle_types))
    overview = [(entry, [_cell(entry, *type) for type in types]) for entry in found.entries]
    return render("matrix.html.j2", fleet=found, types=types, overview=overview, marks=MARKS)


def _cell(entry: Entry, kind: str, name: str) -> tuple[str, str]:
    """Return the mark and the text of a handle type: whether the type works, and its worst deviation."""
    type = next((each for each in entry.handle_types if (each.kind, each.name) == (kind, name)), None)
    if type is None or not (type.declared or type.deviations):
        return "undeclared", MARKS["undeclared"].label
    marks = {type.mark(column) for column in ("imports", "synchronises")}
    marks |= {mark_of(each.cases[0]).name for each in type.deviations if each.level != "MUST"}
    worst = next(each for each in MARKS if each in marks)
    works = all("yes" in getattr(type, column).values() and "no" not in getattr(type, column).values()
                for column in ("imports", "synchronises"))
    return worst, ("yes" if worst == "met" else f"yes; {MARKS[worst].label}" if works else MARKS[worst].label)


def matrix_data(found: Fleet) -> dict[str, Any]:
    """Return the matrix for programs: lists, texts and booleans."""
    return {"devices": [_device(entry) for entry in found.entries],
            "changes": [_change(change) for change in found.changes]}


def _device(entry: Entry) -> dict[str, Any]:
    return {
        "file": entry.file, "device": entry.report["device"], "exporter": entry.report["exporter"],
        "date": entry.report["date"], "profile": entry.report["profile"], "status": entry.report["status"],
        "verdict": entry.verdict, "handle_types": [_type(type) for type in entry.handle_types],
        "deviates": [_deviation(each) for each in entry.deviations],
        "code_around": [{"advice": advice, "quirks": [
            {"name": each.name, "handle_types": each.types, "finding": each.finding} for each in found]}
            for advice, found in entry.code_around.items()],
    }


def _type(type: HandleType) -> dict[str, Any]:
    return {"kind": type.kind, "handle_type": type.name, "declared": type.declared, "imports": type.imports,
            "synchronises": type.synchronises, "waived": type.waived,
            "deviates": [_deviation(each) for each in type.deviations]}


def _deviation(each: Deviation) -> dict[str, Any]:
    return {"requirement": each.requirement, "level": each.level, "state": each.state, "text": each.text,
            "reason": each.reason, "until": each.until, "seen": each.seen,
            "cases": [case["key"] for case in each.cases]}


def _change(change: Change) -> dict[str, Any]:
    return {"device": change.after.name, "exporter": change.after.exporter,
            **{name: {"file": each.file, "driver": each.driver, "libraries": each.libraries,
                      "date": each.report["date"]}
               for name, each in (("before", change.before), ("after", change.after))},
            **{name: getattr(change.cases, name) for name in ("worse", "better", "new", "gone", "changed", "not_run")},
            "tables": {title: [dataclasses.asdict(row) for row in rows] for title, rows in change.tables.items()}}
