"""The lock of `with` statements: re-entrant, because a finalizer or a signal handler can take it on the same thread."""

from __future__ import annotations

import sys
from threading import RLock
from typing import Any

__all__ = ["Lock", "free_after_ctrl_c"]


def free_after_ctrl_c(base: Any) -> Any:
    """Return a class of re-entrant locks, free again after Ctrl-C in a ``with`` statement."""
    if sys.version_info < (3, 14):
        return base

    # From CPython 3.14 on, an interrupt can come between the call of a C `__enter__` and the block, and nothing
    # releases the lock then. It does not come at the return of a Python function.
    class Lock(base):  # type: ignore[misc]
        __slots__ = ()

        def __enter__(self) -> bool:
            depth = self._recursion_count()   # of this thread; 0 if another thread holds the lock
            try:
                return bool(self.acquire())
            except BaseException:
                if self._recursion_count() > depth:
                    self.release()
                raise

    return Lock


if sys.version_info >= (3, 14):
    import _thread

    Lock = free_after_ctrl_c(_thread.RLock)
else:
    Lock = RLock
