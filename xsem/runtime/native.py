"""The lock and the clock of the append path: the form in Python."""

# `native.pyx` is the same module in Cython. The lock and the clock of that form take a few nanoseconds, because C code
# holds the GIL and so the acquisition of a free lock makes no system call. On Linux, `perf_counter` is the monotonic
# clock. On Windows it distinguishes operations of one moment, where `monotonic` of Python 3.12 and older advances only
# every 16 ms.

from __future__ import annotations

from time import perf_counter as now

from xsem.data.locks import Lock

__all__ = ["Lock", "now"]
