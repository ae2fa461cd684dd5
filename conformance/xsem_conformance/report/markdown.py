"""A report as Markdown, for an issue or a wiki."""

from __future__ import annotations

import re
from typing import Any, Final

from xsem.cli.text import printable
from xsem_conformance.backend_code import libraries_in_words
from xsem_conformance.outcomes import UNOBSERVED
from xsem_conformance.report.failure_text import failure_items, others
from xsem_conformance.report.quirk_words import quirks
from xsem_conformance.report.summary import COLUMNS, handle_types, tally, verdict_of
from xsem_conformance.requirements import AREAS
from xsem_conformance.verdict import NOT_EXAMINED

__all__ = ["markdown", "one_line"]

_WORST_FIRST: Final = ("FAIL", "ERROR", "BLOCKED", "UNAVAILABLE", "WAIVED", "NOT_EXAMINED", "UNSUPPORTED", "PASS")

_CALLS: Final = 12
_STACK: Final = 16

# Emphasis, code, links and images, cells, strikethrough, mathematics. A single "_" inside a word is not markup.
_INLINE: Final = re.compile(r"[\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])")
# Markup at the start of an item: headings, other items, quotes, underlines of headings.
_START: Final = re.compile(r"^(\d+(?=[.)](?: |$))|)([-+#=>.)])")


def markdown(report: dict[str, Any]) -> str:
    """Return the verdict, the handle types, the cases that did not pass, and the number of passes in each area."""
    device, exporter = report["device"], report["exporter"]
    suite = f"suite {report['suite_version']}, " if "suite_version" in report else ""   # not in older reports
    status = (report.get("baseline") or report)["status"]
    lines = [
        f"# Conformance of {': '.join(_said(device, 'id', 'name')) or 'a device that could not be opened'}",
        "",
        (f"{''.join(f'{each}, ' for each in _said(device, 'driver_version'))}"
         f"against {': '.join(_said(exporter, 'id', 'name')) or 'an exporter that could not be opened'}, "
         f"profile {report['profile']}, {report['date'][:10]}, "
         f"{suite}exit status {status}."),
        "",
        f"**{one_line(verdict_of(report))}**",
        "",
        f"Vendor libraries: {one_line(libraries_in_words(report))}.",
        "",
    ]
    if report.get("incomplete"):
        lines += [f"**Incomplete**: {one_line(report['incomplete'])}.", ""]
    lines += [f"- {one_line(each)}" for each in report["problems"]]
    lines += ["", "| Handle type | Declared | Imports | Synchronises | Deviates |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {' | '.join([f'{type.kind} {type.name}', *map(type.said, COLUMNS), type.deviates])} |"
              for type in handle_types(report)]
    lines += ["", *_totals(report)]
    lines += _not_passed(report)
    lines += ["", "## By area", "", "| Area | Met | Of |", "| --- | --- | --- |"]
    areas = sorted({case["area"] for case in report["cases"]})
    for area in areas:
        mine = [case for case in report["cases"] if case["area"] == area and case["outcome"] not in UNOBSERVED]
        if mine:
            met = sum(case["outcome"] == "PASS" for case in mine)
            lines.append(f"| {area}: {AREAS.get(area, area)} | {met} | {len(mine)} |")
    lines += ["", "## Quirks", ""]
    lines += [f"- {one_line(f'{each.title}: {each.text}. {each.advice}')}" for each in quirks(report)]
    return "\n".join(lines) + "\n"


def _totals(report: dict[str, Any]) -> list[str]:
    """Return the number of cases in each state by level: only a MUST changes the verdict."""
    totals = tally(report)
    lines = [f"| Level | Cases | {' | '.join(totals.states)} |", "| --- " * (len(totals.states) + 2) + "|"]
    lines += [f"| {name} | {' | '.join(map(str, counts))} |" for name, counts in totals.table]
    notes = [*filter(None, [totals.scope]), *([NOT_EXAMINED] if "not examined" in totals.states else [])]
    return [*lines, "", " ".join(f"{each[0].upper()}{each[1:]}." for each in notes)]


def _not_passed(report: dict[str, Any]) -> list[str]:
    """Return an item for each cause, with the evidence and the cases. Without causes, return an item for each case."""
    cases = {case["key"]: case for case in report["cases"] if case["outcome"] not in {"PASS", *UNOBSERVED}}
    if not cases:
        return []
    lines = ["", "## Not passed", ""]
    for cause in report.get("causes", []):
        first = cases[cause["first"]]
        lines.append(_item(first))
        if len(cause["cases"]) > 1:
            lines.append(f"  - {len(cause['cases'])} cases: {one_line(others(cause))}")
        if cause["summary"] not in first["detail"]:
            lines.append(f"  - cause: {one_line(cause['summary'])}")
        # The item already contains the requirement's sentence.
        lines += [f"  {'  ' * depth}- {one_line(text.strip())}"
                  for depth, text in failure_items(first, calls=_CALLS, stack=_STACK)[1:]]
        if len(cause["cases"]) > 1:
            lines += ["  - <details><summary>All cases</summary>",
                      *(f"    `{key}`" for key in cause["cases"]), "    </details>"]
        for key in cause["cases"]:
            del cases[key]
    lines += [_item(case) for case in sorted(
        cases.values(), key=lambda each: (_WORST_FIRST.index(each["outcome"]), each["key"]))]
    return lines


def _item(case: dict[str, Any]) -> str:
    return (f"- **{case['outcome']}** `{case['key']}` ({case['level']}): {case['text']} "
            f"{one_line(case['detail'])}")


def one_line(text: str) -> str:
    """Escape a driver's text for one line of Markdown: it contains no markup and starts no other item or cell."""
    escaped = _INLINE.sub(r"\\\g<0>", printable(text).replace("&", "&amp;").replace("<", "&lt;"))
    return _START.sub(r"\1\\\2", escaped)


def _said(about: dict[str, Any], *fields: str) -> list[str]:
    """Return the known fields: a device that could not be opened has none, and some drivers report no version."""
    return [one_line(about[field]) for field in fields if about[field]]
