"""Text from drivers, files and plugins, made safe to show: names, versions, messages.

A driver chooses the name of its device. A control character in it steers the terminal, a bidirectional override changes
the order in which a line is read, and a newline forges a line of xsem's own.
"""

from __future__ import annotations

__all__ = ["printable", "printable_lines"]


def printable(text: str) -> str:
    """Return the text as one line: runs of white space are one blank, characters that are not printable are U+FFFD.

    Not printable are the C0 and C1 controls (with them every escape sequence), the bidirectional and other format
    characters, surrogates, and what Unicode has not assigned.
    """
    return _replaced(" ".join(text.split()))


def printable_lines(text: str) -> str:
    """Return the same with its lines kept, for places that show several."""
    return "\n".join(_replaced(line.replace("\t", " ")) for line in text.splitlines())


def _replaced(line: str) -> str:
    return "".join(each if each.isprintable() else "\ufffd" for each in line)
