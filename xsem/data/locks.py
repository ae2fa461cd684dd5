"""The lock of `with` statements: re-entrant, because a finalizer or a signal handler can take it on the same thread."""

from __future__ import annotations

import sys
from threading import RLock

__all__ = ["Lock"]

if sys.version_info >= (3, 14):
    import _thread

    class Lock(_thread.RLock):
        """`threading.RLock`, free again after Ctrl-C in a ``with`` statement."""

        __slots__ = ()

        # From CPython 3.14 on, an interrupt can come between the call of a C `__enter__` and the block, and nothing
        # releases the lock then. It does not come at the return of a Python function.
        def __enter__(self) -> bool:
            depth = self._recursion_count()   # of this thread; 0 if another thread holds the lock
            try:
                return self.acquire()
            except BaseException:
                if self._recursion_count() > depth:
                    self.release()
                raise

else:
    Lock = RLock
