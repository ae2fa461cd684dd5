"""Ends of the processes of the suite: the end with the parent, and the stacks of a process that crashes or hangs."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
from typing import TYPE_CHECKING, Final

# For the type checker. Windows has another module in place of this one.
assert sys.platform != "win32" or not TYPE_CHECKING  # noqa: S101

__all__ = ["ASK_FOR_STACKS", "death", "dump_stacks_to", "end_with"]

ASK_FOR_STACKS: Final[int] = getattr(signal, "SIGUSR1", 0)
"""The signal that asks a process for its stacks. Windows lacks it, but can import the module."""
_PR_SET_PDEATHSIG: Final = 1


def end_with(parent: int) -> None:
    """Let the kernel kill this process when the thread that started it ends."""
    # A closed pipe or socket also tells the end of the parent, but not to a process that hangs in a driver call. The
    # function works only on Linux: elsewhere a killed runner may leave a process behind.
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)   # the parent ended before the call of prctl


def dump_stacks_to(fd: int) -> None:
    """Let this process write the stacks of its threads to a file when it crashes, and when `ASK_FOR_STACKS` arrives."""
    # The dump needs no lock of Python, and therefore also works while a driver call holds the lock of the interpreter.
    faulthandler.enable(fd)
    faulthandler.register(ASK_FOR_STACKS, fd)


def death(status: int) -> str:
    """Return the cause of an unexpected end of a process with this exit status."""
    return f"the process died: {signal.Signals(-status).name if status < 0 else f'status {status}'}"
