"""Names, versions and messages from drivers, files and plugins, made safe for display."""

# A driver chooses the name of its device. In such a text, a control character can control the terminal, a bidirectional
# override changes the visible order of a line, and a newline can imitate a line of xsem.

from __future__ import annotations

__all__ = ["printable", "printable_lines"]


def printable(text: str) -> str:
    """Return the text as one line: each run of white space becomes one blank, each unprintable character U+FFFD."""
    # Unprintable characters are the C0 and C1 controls, the bidirectional and other format characters, surrogates, and
    # unassigned code points. Escape sequences begin with a control character, so none of them remains.
    return _replaced(" ".join(text.split()))


def printable_lines(text: str) -> str:
    """Return the text with unprintable characters replaced and its lines kept, for output of several lines."""
    return "\n".join(_replaced(line.replace("\t", " ")) for line in text.splitlines())


def _replaced(line: str) -> str:
    return "".join(each if each.isprintable() else "\ufffd" for each in line)
