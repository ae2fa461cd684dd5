"""Ends of the processes of the suite: the end with the parent, and the stacks of a process that crashes or hangs."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
from typing import Final

__all__ = ["ASK_FOR_STACKS", "dump_stacks_to", "end_with"]

ASK_FOR_STACKS: Final = getattr(signal, "SIGUSR1", None)
"""The signal that asks a process for its stacks; None on Windows."""
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


def dump_stacks_to(fd: int) -> None:
    """Let this process write the stacks of its threads to a file when it crashes, and when `ASK_FOR_STACKS` arrives.

    The dump needs no lock of Python, and therefore also works while a driver call holds the lock of the interpreter.
    """
    faulthandler.enable(fd)
    if sys.platform != "win32" and ASK_FOR_STACKS is not None:
        faulthandler.register(ASK_FOR_STACKS, fd)
