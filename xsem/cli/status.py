"""Exit statuses, and errors in words."""

from __future__ import annotations

import sys
from typing import Final

from xsem.errors import XsemError

__all__ = ["BAD_ANSWER", "DONE", "NOT_TRIED", "USAGE", "tell"]

DONE: Final = 0
BAD_ANSWER: Final = 1
USAGE: Final = 2
NOT_TRIED: Final = 3


def tell(error: XsemError) -> None:
    """Print an error to stderr: what, why, what to look at."""
    print(f"xsem: {error.message} [{error.reason}]", file=sys.stderr)
    if error.call is not None:
        print(f"  {error.call} returned {error.code_name} ({error.code})", file=sys.stderr)
    for cause in error.likely_causes:
        print(f"  likely: {cause}", file=sys.stderr)
