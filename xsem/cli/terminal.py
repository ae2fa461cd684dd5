"""Text for terminals of any width, on the standard library alone: wrapped lines, tables, colours."""

# A line breaks only between words. A word that is longer than the terminal has a line of its own.

from __future__ import annotations

import itertools
import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["GLUE", "Screen", "columns", "listed", "screen", "table", "table_or_blocks", "wrap"]

GLUE: Final = "\xa0"   # a blank at which no line breaks; `printable` never returns it
_LEAST: Final = 20
_NARROW: Final = 100   # columns below which a table gives way to blocks
_BETWEEN: Final = 2


@dataclass(frozen=True)
class Screen:
    """Standard output."""

    width: int | None   # columns of the terminal; None for a file or a pipe, whose lines do not break
    coloured: bool

    def bold(self, text: str) -> str:
        """Return the text in bold type."""
        return self._styled(text, "1")

    def good(self, text: str) -> str:
        """Return the text in green."""
        return self._styled(text, "32")

    def bad(self, text: str) -> str:
        """Return the text in bold red."""
        return self._styled(text, "1;31")

    def dim(self, text: str) -> str:
        """Return the text in dim type."""
        return self._styled(text, "2")

    def _styled(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.coloured and text else text


def screen() -> Screen:
    """Return the width and the colours of standard output."""
    # NO_COLOR and a dumb terminal have no colours. FORCE_COLOR colours a file or a pipe, too.
    terminal = sys.stdout.isatty()
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    able = terminal and (sys.platform != "win32" or "WT_SESSION" in os.environ)
    return Screen(max(_LEAST, shutil.get_terminal_size().columns) if terminal else None,
                  not plain and (able or bool(os.environ.get("FORCE_COLOR"))))


def columns(text: str) -> int:
    """Return the number of columns of a line on a terminal."""
    return sum(0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
               for each in text)


def wrap(text: str, width: int | None, *, first: str = "", later: str = "") -> list[str]:
    """Return the lines of a text, the first after `first`, the others after `later`."""
    lines, line, empty = [], first, True
    for word in text.split(" "):
        if not empty and width is not None and columns(line) + 1 + columns(word) > width:
            lines.append(line)
            line, empty = later, True
        line += word if empty else f" {word}"
        empty = False
    return [each.replace(GLUE, " ") for each in (*lines, line)]


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], to: Screen, width: int | None) -> list[str] | None:
    """Return the lines of a table, or None if it does not fit. A cell can have several lines."""
    body = [tuple(row) for row in rows]
    by_column = list(zip(titles, *body, strict=True))
    least = [max(columns(word) for cell in cells for word in cell.replace("\n", " ").split(" ")) for cells in by_column]
    most = [max(columns(line) for cell in cells for line in cell.split("\n")) for cells in by_column]
    if width is None:
        widths = most
    else:
        room = width - _BETWEEN * (len(titles) - 1)
        if sum(least) > room:
            return None
        widths = _shared(least, most, room)
    found = [to.bold(line) for line in _row(titles, widths)]
    for row in body:
        lines = _row(row, widths)
        if len(lines) > 1 and row is not body[0]:
            found.append("")
        found += lines
    return found


def table_or_blocks(titles: Sequence[str], rows: Iterable[Sequence[str]], to: Screen, heads: int = 1) -> list[str]:
    """Return the lines of a table, or one block for each row on a narrow terminal, in a file and in a pipe.

    The first `heads` cells of a row are the first line of its block. A cell without a value, "-" or empty, has no line.
    """
    body = [tuple(row) for row in rows]
    lines = None if to.width is None or to.width < _NARROW else table(titles, body, to, to.width)
    if lines is not None:
        return lines
    column = max(map(columns, titles[heads:]), default=0)
    found: list[str] = []
    for row in body:
        first, *rest = wrap("  ".join(row[:heads]), to.width, later="  ")
        found += ["", to.bold(first), *rest]
        for title, cell in zip(titles[heads:], row[heads:], strict=True):
            for number, text in enumerate(cell.split("\n") if cell != "-" else ()):
                name = "" if number else title
                found += wrap(text, to.width, first=f"  {name}{' ' * (column - columns(name))}  ",
                              later=" " * (column + 4)) if text else []
    return found[1:]


def _shared(least: Sequence[int], most: Sequence[int], room: int) -> list[int]:
    """Share the room among the columns: those that lack little first, the others in equal parts."""
    widths, spare = list(least), room - sum(least)
    order = sorted(range(len(least)), key=lambda column: most[column] - least[column])
    for place, column in enumerate(order):
        more = min(most[column] - least[column], spare // (len(order) - place))
        widths[column] += more
        spare -= more
    return widths


def _row(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    parts = [[line for text in cell.split("\n") for line in wrap(text, width)]
             for cell, width in zip(cells, widths, strict=True)]
    return [
        (" " * _BETWEEN).join(text + " " * (width - columns(text))
                              for text, width in zip(line, widths, strict=True)).rstrip()
        for line in itertools.zip_longest(*parts, fillvalue="")
    ]


def listed(names: Sequence[str]) -> str:
    """Return names as an enumeration: "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
