"""The command line: ``xsem`` and ``python -m xsem``.

Exit status everywhere: 0 done; 1 the answer is bad; 2 usage; 3 the environment does not allow it (a device, driver or
package is missing, a result cannot be written); 130 after Ctrl-C; 141 when the reader of the output has gone.
"""

from __future__ import annotations

import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with its status."""
    try:
        status = _run()
        # The interpreter still has threads to join and modules to clear: from here an interrupt ends it in silence.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)


def _run() -> int:
    # Only now: Ctrl-C while they are loaded is Ctrl-C, too.
    from xsem.cli.status import NOT_TRIED
    from xsem.cli.streams import OutputLostError, finish, prepare

    prepare()
    try:
        from xsem.cli.app import run

        return finish(run())
    except OutputLostError as lost:
        return finish(NOT_TRIED, lost)
