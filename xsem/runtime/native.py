"""The lock of the append path, and its clock. This is the form in Python.

`native.pyx` is the same module in Cython. Its lock and its clock take a few nanoseconds: while C code holds the GIL,
a free lock needs no operation of the system.
"""

from __future__ import annotations

from threading import RLock as Lock
from time import monotonic as now

__all__ = ["Lock", "now"]
