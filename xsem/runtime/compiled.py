"""The choice of the compiled modules, which xsem can do without."""

from __future__ import annotations

import importlib
import os
from types import ModuleType

from xsem.runtime.subinterpreters import is_subinterpreter

__all__ = ["load"]


def load(name: str) -> ModuleType | None:
    """Return a compiled module; None if it is not there, or XSEM_PURE asks for pure Python."""
    # A compiled module can be loaded into one interpreter of a process, and that is the main one.
    if os.environ.get("XSEM_PURE", "0") not in {"", "0"} or is_subinterpreter():
        return None
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
