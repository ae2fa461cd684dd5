"""The command of a child process with the same packages as this process."""

from __future__ import annotations

import os
import sys

__all__ = ["python"]


def python() -> list[str]:
    """Return the first words of the command of a Python process that imports the same xsem as this one."""
    # `python -m` and `python -c` search the current folder first. In a clone of xsem, a child of the script `xsem`
    # would mix the modules of the clone with the installed backends. So `-P`, if this process does not search that
    # folder.
    try:
        current = os.getcwd()
    except FileNotFoundError:   # the folder was removed
        return [sys.executable, "-P"]
    searched = any(os.path.realpath(folder or current) == os.path.realpath(current) for folder in sys.path)
    return [sys.executable] if searched else [sys.executable, "-P"]
