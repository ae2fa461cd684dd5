"""The choice of the Python sources in place of the compiled modules beside them.

The environment variable XSEM_PURE requests the sources. A subinterpreter gets them, too: a compiled module can be
loaded into one interpreter of a process, and the main interpreter could not import it afterwards.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Sequence
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType

__all__ = ["is_subinterpreter", "wanted"]

# Prototypes of their own, because all modules share the attributes of ctypes.pythonapi.
_state = ctypes.PYFUNCTYPE(ctypes.c_void_p)
_current = _state(("PyInterpreterState_Get", ctypes.pythonapi))
_main = _state(("PyInterpreterState_Main", ctypes.pythonapi))


class _Sources:
    """A finder of the sources of xsem and its backends. By default, Python prefers a compiled module."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if path is None or not name.startswith(("xsem.", "xsem_")):
            return None
        found = (_finder(folder).find_spec(name) for folder in path)
        return next((spec for spec in found if spec is not None), None)


@functools.cache
def _finder(folder: str) -> FileFinder:
    """Return the finder of a folder. A finder reads the folder once, and again after a change."""
    return FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES))


def is_subinterpreter() -> bool:
    """Return whether the calling interpreter is not the main interpreter of the process."""
    return bool(_current() != _main())


def wanted() -> bool:
    """Return whether XSEM_PURE requests the sources."""
    return os.environ.get("XSEM_PURE", "0") not in {"", "0"}


if wanted() or is_subinterpreter():
    sys.meta_path.insert(0, _Sources)
