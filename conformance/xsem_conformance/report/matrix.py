"""Several reports in Markdown: what each device did, and what it did with each handle type."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any, Final

from xsem_conformance.report.fleet import Entry, entries
from xsem_conformance.report.markdown import one_line
from xsem_conformance.report.summary import COLUMNS, Deviation, conclusion, deviations

__all__ = ["STALE", "matrix"]

STALE: Final = "stale"
_WIDTH: Final = 100


def matrix(reports: Mapping[str, Mapping[str, Any]], code: Mapping[str, str]) -> str:
    """Return a table of the devices, the list of their deviations, and for each device a table of its handle types.

    A handle type that is neither declared nor tried has no row.
    """
    lines = _head("Device", "Exporter", "Verdict", "Deviates", "Report")
    sections: list[str] = []
    by_requirement: dict[str, list[tuple[Entry, Deviation]]] = {}
    for entry in entries(reports):
        fresh = _fresh(entry.report, code)
        found = deviations(entry.report["cases"])
        name, exporter = one_line(entry.name), one_line(entry.exporter)
        lines.append(_row(name, exporter, one_line(conclusion(entry.report)), _deviates(found) if fresh else STALE,
                          f"[{entry.date}]({entry.file})"))
        sections += ["", f"## {name}, exporter {exporter}", "",
                     *_head("Handle type", *map(str.capitalize, COLUMNS), "Deviates")]
        for type in entry.handle_types:
            said = [type.said(column) for column in COLUMNS] + [_deviates(type.deviations)]
            sections.append(_row(f"{type.kind} `{type.name}`", *(said if fresh else [STALE] * len(said))))
        for each in found if fresh else ():
            by_requirement.setdefault(each.requirement, []).append((entry, each))
    return "\n".join([*lines, *_explained(by_requirement), *sections]) + "\n"


def _head(*titles: str) -> list[str]:
    return [_row(*titles), _row(*["---"] * len(titles))]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _deviates(found: Iterable[Deviation]) -> str:
    return ", ".join(f"`{each.requirement}` ({each.level}{', waived' if each.state == 'waived' else ''})"
                     for each in found) or "-"


def _explained(by_requirement: Mapping[str, list[tuple[Entry, Deviation]]]) -> list[str]:
    """Return an item for each deviating requirement: its sentence, the devices, and the reason of a waiver."""
    lines = []
    for requirement, found in sorted(by_requirement.items()):
        each = found[0][1]
        devices: dict[str, str] = {}
        for entry, one in found:
            device = entry.report["device"]
            devices[f"{one_line(device['backend'])} ({one_line(device['name'])})"] = (
                f"waived until {one.until}: {one_line(one.reason)}" if one.until else one.state)
        said: dict[str, list[str]] = {}
        for name, what in devices.items():
            said.setdefault(what, []).append(name)
        text = "; ".join(f"on {', '.join(names)} {what}" for what, names in said.items())
        item = f"- `{requirement}` ({each.level}): {one_line(each.text)} {text[:1].upper()}{text[1:]}."
        lines += textwrap.wrap(item, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return ["", *lines] if lines else []


def _fresh(report: Mapping[str, Any], code: Mapping[str, str]) -> bool:
    told = report.get("code")
    return told is not None and code.get(told["package"]) == told["sha256"]
