"""``xsem conformance compare``."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

from xsem.cli.options import flag
from xsem.cli.status import BAD_ANSWER, DONE, NOT_TRIED, USAGE
from xsem.cli.text import printable
from xsem_conformance.cli.reading import add_command, print_json, print_table, print_text, read_report
from xsem_conformance.report import compare as reports

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    parser = add_command(
        commands, "compare", _compare,
        "Compare two reports: worse and better cases of one device, or tables of differences of two devices.",
        "Exit: 0 no case is worse, or the reports are of two devices; 1 a case is worse; 2 the reports cannot be "
        "compared; 3 no case is worse, but one that passed was not run in the second report, because of a limit.")
    parser.add_argument("before", type=Path, metavar="BEFORE", help="A report of `xsem conformance run --report`.")
    parser.add_argument("after", type=Path, metavar="AFTER", help="A later report, or one of another device.")


def _compare(asked: argparse.Namespace) -> int:
    try:
        one, other = read_report(asked.before), read_report(asked.after)
        same = reports.same_device(one, other)
        found = reports.compare(one, other) if same else reports.differences(one, other)
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        print(f"xsem: cannot compare: {printable(str(error))}", file=sys.stderr)
        return USAGE
    quiet = flag(asked, "quiet")
    if flag(asked, "json"):
        print_json({"schema": 1, "same_device": same} | dataclasses.asdict(found))
    elif isinstance(found, reports.Comparison):
        _print_lines(found, quiet=quiet)
    else:
        _print_tables(found, quiet=quiet)
    if isinstance(found, reports.Differences):
        return DONE
    return BAD_ANSWER if found.worse else NOT_TRIED if found.undecided else DONE


def _print_lines(found: reports.Comparison, *, quiet: bool) -> None:
    print_text(f"{found.verdict}: {found.counted}")
    for title, lines in (("worse", found.worse), ("better", found.better), ("new", found.new), ("gone", found.gone),
                         ("changed", found.changed)):
        for line in () if quiet else lines:
            print_text(f"{title}: {line}")


def _print_tables(found: reports.Differences, *, quiet: bool) -> None:
    differences = sum(map(len, found.tables.values()))
    print_text(f"two devices, neither worse nor better: {found.one} and {found.other}; {differences} differences")
    for title, rows in () if quiet else found.tables.items():
        print_table(title, ("", found.one, found.other), [(row.what, row.one, row.other) for row in rows])
