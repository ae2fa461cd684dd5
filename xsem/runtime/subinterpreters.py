"""Refusal of subinterpreters, in which xsem does not work."""

from __future__ import annotations

from xsem._sources import is_subinterpreter
from xsem.errors import UnsupportedError

__all__ = ["check_main_interpreter"]


def check_main_interpreter() -> None:
    """Refuse a subinterpreter: Python aborts the process if a thread of xsem runs when a subinterpreter ends."""
    if is_subinterpreter():
        raise UnsupportedError(
            "xsem runs only in the main interpreter of a process, and this is a subinterpreter: its end would abort "
            "the process while a thread of xsem runs. Open the device in the main interpreter (mod_wsgi: "
            "WSGIApplicationGroup %{GLOBAL}) or in a process of its own", capability="subinterpreter",
            reason="subinterpreter")
