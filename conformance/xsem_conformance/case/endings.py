"""End a process of the suite together with its parent process, for any end of the parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

__all__ = ["end_with"]

_PR_SET_PDEATHSIG: Final = 1


def end_with(parent: int) -> None:
    """Let the kernel kill this process when the thread that started it ends.

    A closed pipe or socket also tells the end of the parent, but not to a process that hangs in a driver call. The
    function works only on Linux: elsewhere a killed runner may leave a process behind.

    Parameters
    ----------
    parent : int
        The id of the process of that thread.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)   # the parent ended before the call of prctl
