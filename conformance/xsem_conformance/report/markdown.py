"""A report as Markdown, for an issue or a wiki."""

from __future__ import annotations

import re
from typing import Any, Final

from xsem.cli.text import printable
from xsem_conformance.backend_code import libraries_in_words

__all__ = ["markdown", "one_line"]

_WORST_FIRST: Final = ("FAIL", "ERROR", "BLOCKED", "UNAVAILABLE", "WAIVED", "UNSUPPORTED", "PASS")

# Emphasis, code, links and images, cells, strikethrough, mathematics. A single "_" inside a word is not markup.
_INLINE: Final = re.compile(r"[\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])")
# Markup at the start of an item: headings, other items, quotes, underlines of headings.
_START: Final = re.compile(r"^(\d+(?=[.)](?: |$))|)([-+#=>.)])")


def markdown(report: dict[str, Any]) -> str:
    """Return the verdict, the handle types, the cases that did not pass, and the number of passes in each area."""
    device, exporter = report["device"], report["exporter"]
    lines = [
        f"# Conformance of {': '.join(_said(device, 'id', 'name')) or 'a device that could not be opened'}",
        "",
        (f"{''.join(f'{each}, ' for each in _said(device, 'driver_version'))}"
         f"against {': '.join(_said(exporter, 'id', 'name')) or 'an exporter that could not be opened'}, "
         f"profile {report['profile']}, {report['date'][:10]}, exit status {report['status']}."),
        "",
        f"Vendor libraries: {one_line(libraries_in_words(report))}.",
        "",
        ", ".join(f"{count} {name}" for name, count in report["counts"].items() if count) + ".",
        "",
    ]
    lines += [f"- {one_line(each)}" for each in report["problems"]]
    lines += ["", "| Handle type | Direction | Declared | Imports | Synchronises |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {row['kind']} {row['handle_type']} | {row['direction']} | {'yes' if row['declared'] else 'no'} | "
              f"{row['imports']} | {row['synchronises']} |"
              for row in report["handle_types"] if row["declared"] or row["imports"] != "-"]
    bad = [case for case in report["cases"] if case["outcome"] not in ("PASS", "UNSUPPORTED")]
    if bad:
        lines += ["", "## Not passed", ""]
        for case in sorted(bad, key=lambda each: (_WORST_FIRST.index(each["outcome"]), each["key"])):
            lines.append(f"- **{case['outcome']}** `{case['key']}` ({case['level']}): {case['text']} "
                         f"{one_line(case['detail'])}")
    lines += ["", "## By area", "", "| Area | Passed | Of |", "| --- | --- | --- |"]
    areas = sorted({case["area"] for case in report["cases"]})
    for area in areas:
        mine = [case for case in report["cases"] if case["area"] == area and case["outcome"] != "UNSUPPORTED"]
        if mine:
            lines.append(f"| {area} | {sum(case['outcome'] == 'PASS' for case in mine)} | {len(mine)} |")
    lines += ["", "## Quirks", ""]
    lines += [f"- {one_line(name)}: {one_line(str(value))}" for name, value in report["quirks"].items()]
    return "\n".join(lines) + "\n"


def one_line(text: str) -> str:
    """Escape a driver's text for one line of Markdown: it contains no markup and starts no other item or cell."""
    escaped = _INLINE.sub(r"\\\g<0>", printable(text).replace("&", "&amp;").replace("<", "&lt;"))
    return _START.sub(r"\1\\\2", escaped)


def _said(about: dict[str, Any], *fields: str) -> list[str]:
    """Return the known fields: a device that could not be opened has none, and some drivers report no version."""
    return [one_line(about[field]) for field in fields if about[field]]
