"""``xsem conformance matrix``."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from xsem.cli.files import write_file
from xsem.cli.options import flag
from xsem.cli.text import printable
from xsem_conformance import verdict
from xsem_conformance.cli.output_files import check_packages, check_place
from xsem_conformance.cli.reading import add_command, print_json, print_table, print_text, read_report
from xsem_conformance.report.fleet import Fleet, fleet
from xsem_conformance.report.matrix_page import matrix_data, matrix_html
from xsem_conformance.report.pages import shown
from xsem_conformance.report.summary import COLUMNS

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    parser = add_command(
        commands, "matrix", _matrix,
        "Show several reports: devices, handle types, deviations, quirks to handle, and changes between reports.",
        "Exit: 0 shown, 2 a report cannot be read or the page cannot be written, 3 a package is missing.")
    parser.add_argument("reports", type=Path, nargs="+", metavar="REPORT",
                        help="Reports of `xsem conformance run --report`.")
    parser.add_argument("--html", type=Path, metavar="PATH", help="Write the matrix as an HTML page.")


def _matrix(asked: argparse.Namespace) -> int:
    html = asked.html
    if html is not None:   # before the work
        check_place("--html", html)
        check_packages(["jinja2"])
    try:
        found = fleet({name: shown(read_report(path)) for name, path in _names(asked.reports).items()})
        data = matrix_data(found)
        if html is not None:
            write_file(html, matrix_html(found).encode(errors="replace"))
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        print(f"xsem: cannot write the matrix: {printable(_said(error))}", file=sys.stderr)
        return verdict.USAGE
    if flag(asked, "json"):
        print_json({"schema": 1} | data)
    elif html is not None:
        counted = f"{_count(len(found.entries), 'device')}, {_count(len(found.changes), 'change')}"
        print(printable(str(html) if flag(asked, "quiet") else f"written: {html} ({counted})"))
    else:
        _print_verdicts(found)
        if not flag(asked, "quiet"):
            _print_tables(found)
    return verdict.GOOD


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _names(paths: list[Path]) -> dict[str, Path]:
    """Return the files by name. If several files have the same name, return these files by path."""
    often = Counter(path.name for path in paths)
    return {path.name if often[path.name] == 1 else str(path): path for path in paths}


def _said(error: BaseException) -> str:
    return f"the field {error} of a report is missing" if isinstance(error, KeyError) else str(error)


def _print_tables(found: Fleet) -> None:
    types = [(entry.name, entry.exporter, type) for entry in found.entries for type in entry.handle_types]
    print_table("handle types", ("device", "exporter", "handle type", *COLUMNS, "deviates"), [
        (name, exporter, f"{type.kind} {type.name}", *(type.said(column) for column in COLUMNS),
         type.deviates)
        for name, exporter, type in types], heads=3)
    print_table("quirks to handle", ("device", "what to do", "reason"), [
        (entry.name, advice, "; ".join(each.text for each in why))
        for entry in found.entries for advice, why in entry.code_around.items()], heads=2)


def _print_verdicts(found: Fleet) -> None:
    for entry in found.entries:
        print_text(f"{entry.file}: {entry.name} with {entry.exporter}: {entry.verdict}")
    for change in found.changes:
        print_text(f"{change.after.name} with {change.after.exporter}: driver {change.before.driver} "
                   f"({change.before.file}), then {change.after.driver} ({change.after.file}): "
                   f"{change.cases.verdict}: {change.cases.counted}")
