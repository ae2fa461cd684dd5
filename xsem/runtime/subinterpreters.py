"""Refusal of subinterpreters, in which xsem does not work."""

from __future__ import annotations

import ctypes

from xsem.errors import UnsupportedError

__all__ = ["check_main_interpreter", "is_subinterpreter"]

# Prototypes of their own, because all modules share the attributes of ctypes.pythonapi.
_state = ctypes.PYFUNCTYPE(ctypes.c_void_p)
_current = _state(("PyInterpreterState_Get", ctypes.pythonapi))
_main = _state(("PyInterpreterState_Main", ctypes.pythonapi))


def is_subinterpreter() -> bool:
    """Return whether the calling interpreter is not the main interpreter of the process."""
    return bool(_current() != _main())


def check_main_interpreter() -> None:
    """Refuse a subinterpreter: Python aborts the process if a thread of xsem runs when a subinterpreter ends."""
    if is_subinterpreter():
        raise UnsupportedError(
            "xsem runs only in the main interpreter of a process, and this is a subinterpreter: its end would abort "
            "the process while a thread of xsem runs. Open the device in the main interpreter (mod_wsgi: "
            "WSGIApplicationGroup %{GLOBAL}) or in a process of its own", capability="subinterpreter",
            reason="subinterpreter")
