"""The command line: ``xsem`` and ``python -m xsem``.

Exit status everywhere: 0 done, 1 the answer is bad, 2 usage, 3 could not be tried; 130 after Ctrl-C.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with its status."""
    from xsem.cli.app import run

    sys.exit(run())
