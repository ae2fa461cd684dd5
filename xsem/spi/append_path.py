"""Whether xsem uses its compiled part."""

from __future__ import annotations

import sys

__all__ = ["compiled"]


def compiled() -> bool:
    """Return whether the append path is compiled.

    Returns
    -------
    bool
        False: the append path is pure Python.
    """
    return "xsem.runtime._append" in sys.modules   # the import of xsem loads it where it is wanted
