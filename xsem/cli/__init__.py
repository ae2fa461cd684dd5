"""The command line: ``xsem`` and ``python -m xsem``."""

# `xsem devices`, `xsem doctor` and `xsem demo` are here. `xsem conformance` comes from the conformance suite, by the
# entry-point group `xsem.commands`. No other module of xsem imports the command line.

from __future__ import annotations

import signal
import sys
from typing import Any, Final

__all__ = ["main"]

_PAUSE_S: Final = 0.05


def main() -> None:
    """Run the command line and exit with its status."""
    sys.unraisablehook = _ignored
    try:
        status = _run()
        # The interpreter now joins threads and clears modules. With SIG_DFL, Ctrl-C ends it without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)


def _ignored(unraisable: Any) -> None:
    """Report an exception that Python ignores, as in a finalizer; but Ctrl-C comes again."""
    if sys.platform != "win32" and issubclass(unraisable.exc_type, KeyboardInterrupt):
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, _PAUSE_S)   # later, because Python ignores an exception here, too
    else:
        sys.__unraisablehook__(unraisable)


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
