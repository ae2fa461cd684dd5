"""``xsem trace show``."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any, Final

from xsem.cli.files import CannotWriteError, check_writable, write_file
from xsem.cli.options import flag
from xsem.cli.status import DONE, UsageError
from xsem.cli.terminal import GLUE, Screen, screen, table, wrap
from xsem.cli.text import printable
from xsem.cli.trace.chain import chain
from xsem.cli.trace.matching import match
from xsem.cli.trace.merged import merged
from xsem.cli.trace.page import page
from xsem.cli.trace.reading import read
from xsem.cli.trace.summary import summary
from xsem.cli.trace.tables import Table, headlines, tables

__all__ = ["run"]

_WIDE: Final = 160   # a file or a pipe has no width
_SHORT: Final = 30


def run(asked: Namespace) -> int:
    """Print the summary of the traces, and write the page and the merged trace if they are asked for."""
    outputs = {"--html": asked.html, "--merged": asked.merged}
    for option, path in outputs.items():
        if path is not None:
            _check(option, path, asked.files)
    trace = read(asked.files)
    match(trace)
    steps = chain(trace)
    facts = summary(trace, steps)
    if asked.html is not None:
        write_file(asked.html, page(trace, steps, facts).encode())
    if asked.merged is not None:
        write_file(asked.merged, merged(trace))
    if flag(asked, "json"):
        print(json.dumps(facts, indent=1))
    else:
        _print(facts, screen(), quiet=flag(asked, "quiet"))
        for path in filter(None, outputs.values()):
            print(f"written: {printable(str(path))}")
    return DONE


def _check(option: str, path: Path, files: list[Path]) -> None:
    if path in files:
        raise UsageError(option, f"{printable(str(path))} is also a file to read")
    try:
        check_writable(path)
    except CannotWriteError as error:
        raise UsageError(option, printable(error.message)) from error


def _print(facts: dict[str, Any], to: Screen, *, quiet: bool) -> None:
    for sentence in headlines(facts):
        print("\n".join(wrap(sentence, to.width, later="  ")))
    for each in () if quiet else tables(facts):
        print(f"\n{to.bold(each.title)}")
        # Short cells, such as the name of a list, do not break.
        rows = [tuple(cell.replace(" ", GLUE) if len(cell) <= _SHORT else cell for cell in row) for row in each.rows]
        lines = table(each.columns, rows, to, to.width or _WIDE)
        for line in lines if lines is not None else _blocks(each, to):
            print(line)


def _blocks(each: Table, to: Screen) -> list[str]:
    """Return one block of lines for each row, for a narrow terminal."""
    return [line for row in each.rows for number, (title, cell) in enumerate(zip(each.columns, row, strict=True))
            for line in wrap(f"{title}: {cell or '-'}".replace("\n", "; "), to.width,
                             first="  " if number else "- ", later="      ")]
