"""The lock of `with` statements that Ctrl-C may interrupt."""

from __future__ import annotations

import sys
from threading import RLock

__all__ = ["Lock"]

if sys.version_info >= (3, 14):
    import _thread

    class Lock(_thread.RLock):
        """A re-entrant lock. Ctrl-C in a ``with`` statement leaves it as it was before the statement.

        From CPython 3.14 on, an interrupt can come after the call of ``__enter__`` and before the block. For a lock of
        ``threading``, nothing releases the lock then. CPython does not interrupt at the return of a Python function,
        so this ``__enter__`` either returns with the lock or releases it.
        """

        __slots__ = ()

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
