"""What the commands share: their parsers, the reading of reports, text, tables and JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from xsem.cli import terminal
from xsem.cli.text import printable

__all__ = ["add_command", "print_json", "print_table", "print_text", "read_report"]


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


def print_text(text: str, indent: int = 0) -> None:
    """Print a text, on a terminal in lines of its width."""
    print("\n".join(terminal.wrap(printable(text), terminal.screen().width, first=" " * indent,
                                  later=" " * (indent + 2))))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], heads: int = 1) -> None:
    """Print a table with its title, or as blocks (`terminal.table_or_blocks`)."""
    to = terminal.screen()
    titles, body = [printable(each) for each in columns], [[printable(each) for each in row] for row in rows]
    print(f"\n{to.bold(f'{title}:')}\n")
    print("\n".join(terminal.table_or_blocks(titles, body, to, heads)))
