"""A report as one HTML page in light and dark colours. A small script is the filter; the page needs no script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from xsem_conformance.outcomes import UNOBSERVED
from xsem_conformance.report.failure_text import duration
from xsem_conformance.report.pages import render, shown
from xsem_conformance.report.quirk_words import quirks
from xsem_conformance.report.summary import deviations, handle_types, tally, verdict_of
from xsem_conformance.report.words import MARKS, mark_of
from xsem_conformance.requirements import AREAS, load
from xsem_conformance.verdict import NOT_RUN

__all__ = ["html"]

_ORDER = tuple(MARKS)
_OPEN = frozenset({"fail", "error", "untried"})


def html(report: dict[str, Any]) -> str:
    """Return the page: verdict, handle types, totals, causes, deviations, areas, quirks, and all cases."""
    report = shown(report)
    types = handle_types(report)
    return render(
        "report.html.j2", report=report, verdict=verdict_of(report), types=types, tally=tally(report),
        deviations=[(each, mark_of(each.cases[0])) for each in deviations(report["cases"])],
        areas=_areas(report, types),
        quirks=quirks(report), groups=_groups(report["cases"]), marks=MARKS, not_run=NOT_RUN, duration=duration,
        failures={case["key"]: case["failure"] for case in report["cases"] if case.get("failure")})


def _areas(report: Mapping[str, Any], types: Iterable[Any]) -> dict[str, Any]:
    """Return the table of areas and handle types, and the types that the device neither declares nor has tried."""
    columns = [("-", "-"), *((each.kind, each.name) for each in types)]
    rest = dict.fromkeys((case["kind"], case["handle_type"]) for case in report["cases"])
    others = [each for each in rest if each not in columns]
    rows = []
    for area in dict.fromkeys((*AREAS, *(case["area"] for case in report["cases"]))):
        mine = [case for case in report["cases"] if case["area"] == area]
        if mine:
            rows.append((area, AREAS.get(area, area), [_cell(mine, *each) for each in columns]))
    hidden = [case for case in report["cases"] if (case["kind"], case["handle_type"]) in others]
    return {"columns": columns, "rows": rows, "others": [" ".join(each) for each in others],
            "met": sum(case["outcome"] == "PASS" for case in hidden),
            "undeclared": sum(case["outcome"] in UNOBSERVED for case in hidden), "hidden": len(hidden)}


def _cell(cases: Iterable[Mapping[str, Any]], kind: str, type: str) -> dict[str, Any] | None:
    mine = [case for case in cases if (case["kind"], case["handle_type"]) == (kind, type)]
    if not mine:
        return None
    worst = min(mine, key=lambda case: _ORDER.index(mark_of(case).name))
    return {"mark": mark_of(worst), "first": worst["key"], "met": sum(case["outcome"] == "PASS" for case in mine),
            "tried": sum(case["outcome"] not in UNOBSERVED for case in mine)}


def _groups(cases: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the cases by mark and requirement, from the worst mark to the best. Only bad marks are open."""
    found: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in _ORDER}
    for case in cases:
        requirement = found[mark_of(case).name].setdefault(case["requirement"], {
            "id": case["requirement"], "level": case["level"], "area": AREAS.get(case["area"], case["area"]),
            "text": case["text"], "clauses": [_clause(each) for each in case["clauses"]], "cases": []})
        requirement["cases"].append(case)
    return [{"mark": MARKS[name], "requirements": list(requirements.values()), "open": name in _OPEN,
             "count": sum(len(each["cases"]) for each in requirements.values())}
            for name, requirements in found.items() if requirements]


def _clause(name: str) -> tuple[str, str]:
    """Return a clause and its subject. A clause of another version of the suite has a text that says so."""
    known = load().clauses.get(name)
    return name, "not in this version of the suite" if known is None else f"{known.gist} ({known.source})"
