"""The command line: ``xsem`` and ``python -m xsem``.

Exit status everywhere: 0 done, 1 the answer is bad, 2 usage, 3 could not be tried; 130 after Ctrl-C.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with its status."""
    try:
        # Loading typer takes long enough for a Ctrl-C to fall into it.
        from xsem.cli.app import run

        sys.exit(run())
    except KeyboardInterrupt:
        sys.exit(130)
