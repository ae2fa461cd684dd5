"""A report as one self-contained HTML page: no script, no network, light and dark."""

from __future__ import annotations

from importlib import resources
from typing import Any, Final

from xsem.cli.text import printable_lines

__all__ = ["html"]

_WORST_FIRST: Final = ("FAIL", "ERROR", "BLOCKED", "UNAVAILABLE", "WAIVED", "PASS", "UNSUPPORTED")
_MARKS: Final = {"FAIL": "✗", "ERROR": "!", "BLOCKED": "◼", "UNAVAILABLE": "?", "WAIVED": "~", "PASS": "✓",
                 "UNSUPPORTED": "·"}


def html(report: dict[str, Any]) -> str:
    """Return the page: verdict, matrix of handle types and areas, then every case, failures first."""
    import jinja2

    report = _shown(report)
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
                                     lstrip_blocks=True)
    text = resources.files("xsem_conformance.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    areas = sorted({case["area"] for case in report["cases"]})
    types = [("-", "-"), *dict.fromkeys((row["kind"], row["handle_type"]) for row in report["handle_types"])]
    rows = [(kind, type, [_cell(report, kind, type, area) for area in areas]) for kind, type in types]
    rows = [row for row in rows if any(cell is not None for cell in row[2])]
    # Rows with failures come first, then rows with the most tried cases.
    rows.sort(key=lambda row: (min(_WORST_FIRST.index(cell["worst"]) for cell in row[2] if cell is not None),
                               -sum(cell["tried"] for cell in row[2] if cell is not None)))
    groups = []
    for outcome in _WORST_FIRST:
        cases = [case for case in report["cases"] if case["outcome"] == outcome]
        if cases:
            groups.append({"outcome": outcome, "mark": _MARKS[outcome], "cases": cases,
                           "open": outcome not in ("PASS", "UNSUPPORTED")})
    return environment.from_string(text).render(report=report, areas=areas, rows=rows, groups=groups, marks=_MARKS)


def _shown(value: Any) -> Any:
    """Make all texts printable: HTML escapes do not cover control characters and bidirectional overrides."""
    if isinstance(value, str):
        return printable_lines(value)
    if isinstance(value, dict):
        return {key: _shown(each) for key, each in value.items()}
    return [_shown(each) for each in value] if isinstance(value, list) else value


def _cell(report: dict[str, Any], kind: str, type: str, area: str) -> dict[str, Any] | None:
    mine = [case for case in report["cases"]
            if case["handle_type"] == type and case["area"] == area and case["kind"] == kind]
    if not mine:
        return None
    outcomes = [case["outcome"] for case in mine]
    worst = min(outcomes, key=_WORST_FIRST.index)
    tried = sum(outcome != "UNSUPPORTED" for outcome in outcomes)
    return {"worst": worst, "mark": _MARKS[worst], "passed": outcomes.count("PASS"), "tried": tried,
            "first": next(case["key"] for case in mine if case["outcome"] == worst)}

