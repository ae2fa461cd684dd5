"""File descriptors and threads of this process."""

from __future__ import annotations

import os
import threading
from typing import Final

__all__ = ["Identity", "count", "duplicate", "identity", "is_open", "threads"]

Identity = tuple[int, int]

_TASKS: Final = "/proc/self/task"
_FILES: Final = "/proc/self/fd"


def duplicate(number: int) -> int:
    """Return a duplicate of the descriptor. The caller closes it."""
    return os.dup(number)


def identity(number: int) -> Identity | None:
    """Return the identity of the file behind a number, or None if the number is closed."""
    try:
        found = os.fstat(number)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_open(number: int) -> bool:
    """Return whether a number is open."""
    return identity(number) is not None


def count() -> int:
    """Return the number of open descriptors, or 0 on a system without /proc/self/fd."""
    return len(os.listdir(_FILES)) if os.path.isdir(_FILES) else 0


def threads() -> int:
    """Return the number of threads of this process, or of Python's threads on a system without /proc."""
    return len(os.listdir(_TASKS)) if os.path.isdir(_TASKS) else threading.active_count()
