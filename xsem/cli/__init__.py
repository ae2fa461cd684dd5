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

import _thread
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any, Final

__all__ = ["main"]

_PAUSE_S: Final = 0.05
_interrupts: list[int] = []
"""The signals whose handler has run."""


def main() -> None:
    """Run the command line and exit with its status."""
    sys.unraisablehook = _report
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        status = _run()
        # The interpreter now joins threads and clears modules. With SIG_DFL, Ctrl-C ends it without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, and count it for `_deliver`."""
    _interrupts.append(number)
    signal.default_int_handler(number, frame)


def _report(unraisable: Any) -> None:
    """Report an exception that Python ignores, as in a finalizer; but Ctrl-C there is delivered again."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        _thread.start_new_thread(_deliver, (threading.get_ident(), len(_interrupts)))
    else:
        sys.__unraisablehook__(unraisable)


def _deliver(thread: int, interrupts: int) -> None:
    """Send Ctrl-C to a thread that is in `_report`, until its handler has run."""
    while len(_interrupts) == interrupts and signal.getsignal(signal.SIGINT) is _interrupt:
        # Python ignores an exception in `_report`, too. A signal just before a blocking call does not end that call.
        if not _is_in_report(thread):
            if hasattr(signal, "pthread_kill"):
                signal.pthread_kill(thread, signal.SIGINT)
            else:
                _thread.interrupt_main()
        time.sleep(_PAUSE_S)


def _is_in_report(thread: int) -> bool:
    frame = sys._current_frames().get(thread)
    while frame is not None and frame.f_code is not _report.__code__:
        frame = frame.f_back
    return frame is not None


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
