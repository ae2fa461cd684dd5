"""Ends of the processes of the suite: the stacks of a process that crashes or hangs."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

from xsem_conformance.system.windows.statuses import death

# For the type checker. Every system can import this module, and only Windows can call its functions.
assert sys.platform == "win32" or not TYPE_CHECKING  # noqa: S101

__all__ = ["ask_for_stacks", "death", "dump_stacks_to", "end_with"]

_FOR_EVER: Final = 0xFFFFFFFF
_MODIFY: Final = 0x0002   # EVENT_MODIFY_STATE


def end_with(parent: int) -> None:
    """Do nothing: the job object of a worker ends its processes with the runner. See `launching`."""


def dump_stacks_to(fd: int) -> None:
    """Let this process write the stacks of its threads to a file when it crashes, and after `ask_for_stacks`."""
    # A thread of Python writes the stacks after a request. A driver call that holds the lock of the interpreter
    # therefore prevents the dump.
    faulthandler.enable(fd)
    kernel32 = _kernel32()
    asked = ctypes.c_void_p(kernel32.CreateEventW(None, False, False, _name(os.getpid())))

    def write() -> None:
        while kernel32.WaitForSingleObject(asked, _FOR_EVER) == 0:
            faulthandler.dump_traceback(fd)

    threading.Thread(target=write, daemon=True, name="stacks").start()


def ask_for_stacks(pid: int) -> None:
    """Ask a process for its stacks. The call has no effect on a process without `dump_stacks_to`."""
    kernel32 = _kernel32()
    event = kernel32.OpenEventW(_MODIFY, False, _name(pid))
    if event:
        kernel32.SetEvent(ctypes.c_void_p(event))
        kernel32.CloseHandle(ctypes.c_void_p(event))


def _name(pid: int) -> str:
    return f"Local\\xsem-stacks-{pid}"


def _kernel32() -> Any:
    kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
    kernel32.CreateEventW.restype = kernel32.OpenEventW.restype = ctypes.c_void_p
    return kernel32
