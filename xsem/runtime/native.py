"""The lock and the clock of the append path: the form in Python.

`native.pyx` is the same module in Cython. The lock and the clock of that form take a few nanoseconds. C code holds the
GIL, so the acquisition of a free lock makes no system call.
"""

from __future__ import annotations

from time import monotonic as now

from xsem.data.locks import Lock

__all__ = ["Lock", "now"]
