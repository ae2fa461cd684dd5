"""Input and output of the commands on reports: read reports, and print tables and JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from xsem.cli.console import console as new_console
from xsem.cli.text import printable

__all__ = ["Json", "print_json", "print_table", "read_report"]

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

_WIDE = 160


def read_report(path: Path) -> dict[str, Any]:
    """Read a report.

    Raises
    ------
    OSError, ValueError, RecursionError
        The file cannot be read, or is not a report. The message names the file.
    """
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if not isinstance(report, dict) or "cases" not in report:
        raise ValueError(f"{path} is not a report of `xsem conformance run`")
    return report


def print_json(data: object) -> None:
    """Print data as JSON."""
    json.dump(data, sys.stdout, indent=1)
    print()


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table. Without a terminal, the table has a fixed width."""
    console = new_console()
    if not console.is_terminal:
        console = new_console(width=_WIDE)
    table = Table(*(Column(printable(each), overflow="fold") for each in columns), title=title, title_justify="left")
    for row in rows:
        table.add_row(*(printable(each) for each in row))
    console.print(table)
