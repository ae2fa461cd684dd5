"""``xsem conformance compare``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import typer

from xsem.cli.text import printable
from xsem_conformance.compare import NotComparableError
from xsem_conformance.compare import compare as compare_reports

__all__ = ["compare"]


def compare(before: Path, after: Path) -> None:
    """Compare two reports. Exit: 0 no case is worse, 1 a case is worse, 2 the reports cannot be compared."""
    try:
        found = compare_reports(json.loads(before.read_text(encoding="utf-8")),
                                json.loads(after.read_text(encoding="utf-8")))
    except (OSError, KeyError, TypeError, ValueError, RecursionError, NotComparableError) as error:
        print(f"xsem: cannot compare: {printable(str(error))}", file=sys.stderr)
        raise typer.Exit(2) from error
    for title, lines in (("worse", found.worse), ("better", found.better), ("new", found.new), ("gone", found.gone)):
        for line in lines:
            print(f"{title}: {printable(line)}")
    print(f"{len(found.worse)} worse, {len(found.better)} better, {len(found.new)} new, {len(found.gone)} gone")
    raise typer.Exit(1 if found.worse else 0)
