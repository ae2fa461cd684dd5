"""End a process that takes too long, and print the stacks of its threads."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
import traceback
from typing import Final

__all__ = ["end_after"]

_STUCK_S: Final = 1.0


def end_after(seconds: float) -> None:
    """End this process with status 1 after this many seconds, with the stack of each thread on stderr.

    A thread that holds the interpreter's lock prints the stacks. faulthandler reads the frames of running threads, and
    crashed on them once in some hundred runs. It is the fallback if a call into a driver keeps the lock.
    """
    faulthandler.enable()
    faulthandler.dump_traceback_later(seconds + _STUCK_S, exit=True)
    threading.Thread(target=_end, args=(seconds,), name="deadline", daemon=True).start()


def _end(seconds: float) -> None:
    time.sleep(seconds)
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    lines = [f"not done after {seconds:.1f} s\n"]
    for ident, frame in sys._current_frames().items():
        if ident != threading.get_ident():
            lines += [f"Thread {names.get(ident, ident)}:\n", *traceback.format_stack(frame)]
    os.write(2, "".join(lines).encode())
    os._exit(1)
