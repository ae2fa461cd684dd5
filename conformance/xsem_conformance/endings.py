"""A process of the suite ends with the one that started it, however that one ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

__all__ = ["end_with"]

_PR_SET_PDEATHSIG: Final = 1


def end_with(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it is gone; `parent` is that thread's process.

    The other end's closing of a pipe or socket tells it too, but not a process that hangs in a driver's call. Linux
    alone: elsewhere a runner that is killed may leave one behind.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)   # it went before the kernel was told
