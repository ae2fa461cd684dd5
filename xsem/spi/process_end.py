"""The end of a process whose drivers would not let it end."""

from __future__ import annotations

import ctypes
import sys

__all__ = ["skip_exit_handlers"]


def skip_exit_handlers() -> bool:
    """Let the process end without the C library's exit handlers that are registered now, also those of drivers.

    Call it in a function of `atexit`, if a driver's exit handler would not return. The process keeps its exit status.
    Python's own end, and handlers of `atexit`, run as usual.

    Returns
    -------
    bool
        False: the C library cannot do it. Only glibc can.

    Examples
    --------
    >>> atexit.register(skip_exit_handlers)  # doctest: +SKIP
    """
    if sys.platform == "win32":
        return False
    system = ctypes.CDLL(None)
    if not hasattr(system, "on_exit"):
        return False
    system.fflush(None)
    system.on_exit(system._exit, None)   # it gets the exit status, and is called before all earlier handlers
    return True
