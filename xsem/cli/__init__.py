"""The command line: ``xsem`` and ``python -m xsem``.

Exit status of every command:

- 0: done;
- 1: the answer is bad;
- 2: usage, also an output path that the check before the work refuses;
- 3: the environment prevents an answer: a missing device, driver or package, or a failed write of a result;
- 130: Ctrl-C;
- 141: the reader of the output closed its end.
"""

from __future__ import annotations

import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with its status."""
    try:
        status = _run()
        # The interpreter now joins threads and clears modules. With SIG_DFL, Ctrl-C ends it without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)


def _run() -> int:
    # These imports are inside the function, so that `main` also catches Ctrl-C during them.
    from xsem.cli.status import NOT_TRIED
    from xsem.cli.streams import OutputLostError, finish, prepare

    prepare()
    try:
        from xsem.cli.app import run

        return finish(run())
    except OutputLostError as lost:
        return finish(NOT_TRIED, lost)
