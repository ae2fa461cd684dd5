"""Several reports as one Markdown table: device x handle type, declared, imports, synchronises and deviates."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any, Final

from xsem_conformance.report.fleet import Entry, entries
from xsem_conformance.report.markdown import one_line
from xsem_conformance.report.summary import COLUMNS, Deviation, HandleType, conclusion

__all__ = ["STALE", "matrix"]

STALE: Final = "stale"
_WIDTH: Final = 100


def matrix(reports: Mapping[str, Mapping[str, Any]], code: Mapping[str, str]) -> str:
    """Return the table, and the list of its deviations. A handle type that is neither declared nor tried has no row."""
    lines = ["| Device | Exporter | Handle type | Declared | Imports | Synchronises | Deviates | Report |",
             "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    deviations: dict[str, list[tuple[Entry, Deviation]]] = {}
    for entry in entries(reports):
        fresh = _fresh(entry.report, code)
        first = [one_line(entry.name), one_line(entry.exporter)]
        last = f"[{entry.date}]({entry.file}): {one_line(conclusion(entry.report))}"
        for type in entry.handle_types:
            said = [type.said(column) for column in COLUMNS] + [_deviates(type)]
            cells = [*first, f"{type.kind} `{type.name}`", *(said if fresh else [STALE] * len(said)), last]
            lines.append(f"| {' | '.join(cells)} |")
        if fresh:
            for each in [*entry.deviations, *(one for type in entry.handle_types for one in type.deviations)]:
                deviations.setdefault(each.requirement, []).append((entry, each))
    return "\n".join([*lines, *_explained(deviations)]) + "\n"


def _deviates(type: HandleType) -> str:
    return ", ".join(f"`{each.requirement}` ({each.level}{', waived' if each.state == 'waived' else ''})"
                     for each in type.deviations) or "-"


def _explained(deviations: Mapping[str, list[tuple[Entry, Deviation]]]) -> list[str]:
    """Return an item for each deviating requirement: its sentence, the devices, and the reason of a waiver."""
    lines = []
    for requirement, found in sorted(deviations.items()):
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
