"""The command line: ``xsem`` and ``python -m xsem``.

``xsem devices``, ``xsem doctor`` and ``xsem demo`` are here. ``xsem conformance`` comes from the conformance suite, by
the entry-point group ``xsem.commands``. The commands use the public names of xsem, its plugin registry and
``xsem.types``. The command line is the top layer: no other module of xsem imports it.

Exit status of every command:

- 0: success;
- 1: a bad result, or an error without another status;
- 2: a usage error, or an output path that the check before the work refuses;
- 3: the environment prevents a result: a missing device, driver or package, or a result that could not be written;
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
    from xsem.cli.standard_streams import OutputLostError, finish, prepare
    from xsem.cli.status import NOT_TRIED

    prepare()
    try:
        from xsem.cli.app import run

        return finish(run())
    except OutputLostError as lost:
        return finish(NOT_TRIED, lost)
