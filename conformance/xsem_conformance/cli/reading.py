"""What the commands share: their parsers, the reading of reports, tables and JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from xsem.cli import terminal
from xsem.cli.text import printable

__all__ = ["add_command", "print_json", "print_table", "read_report"]

_WIDE = 160


def add_command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], text: str, more: str = ""
) -> argparse.ArgumentParser:
    """Add a command and its function to the parser of ``xsem conformance``."""
    found: argparse.ArgumentParser = commands.add_parser(name, help=text, description=f"{text} {more}".strip())
    found.set_defaults(run=run)
    return found


def read_report(path: Path) -> dict[str, Any]:
    """Read a report."""
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
    """Print a table. On a terminal that is too narrow for the table, print one block of lines for each row."""
    to = terminal.screen()
    width = _WIDE if to.width is None else to.width
    titles, body = [printable(each) for each in columns], [[printable(each) for each in row] for row in rows]
    print(to.bold(title))
    lines = terminal.table(titles, body, to, width)
    for line in lines if lines is not None else _blocks(titles, body, width):
        print(line)
    print()


def _blocks(titles: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    for row in rows:
        for title, cell in zip(titles, row, strict=True):
            yield from terminal.wrap(f"{title}: {cell}" if title else cell, width, first="  ", later="      ")
        yield ""
