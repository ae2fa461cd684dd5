"""What the compiled file gives, if it is there: a lock and the counters of a queue in C, and the quick append."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from xsem.data import locks
from xsem.runtime.compiled import load

__all__ = ["AppendState", "EventFence", "Lock", "QuickAppend", "QuickQueue", "quick_append", "quick_barrier",
           "retire"]


class _AppendState:
    """What each append of a queue reads and changes. In the compiled file, the fields are fields of C."""

    __slots__ = ("due", "exposed", "failure", "given", "issued", "issuing", "last_wait", "recording", "seq")

    def __init__(self) -> None:
        self.seq = 0   # number of the last operation, appended or attempted
        self.issued = 0   # the driver has returned from all appends up to this number
        self.issuing = False   # the driver is in an append
        self.last_wait = 0   # the last operation that can hold the queue
        self.given = 0   # operations and markers given to the driver; `max_pending` counts both
        self.due = 0   # from this value of `given` on, an append marks, polls or is refused
        # A capture can begin on the queue, so each append queries the driver. Either the application has the native
        # handle, or the queue has waited for a borrowed event, which may belong to a capture.
        self.exposed = False
        self.recording: Any = None   # appends are recorded into this object, not executed
        self.failure: Any = None   # the DriverError of the queue's work; the rest of the work never runs


def _retire(operations: deque[tuple[Any, ...]], seq: int) -> None:
    """Drop the operations up to this number, which are the first ones."""
    drop = operations.popleft
    with contextlib.suppress(IndexError):
        while operations[0][0] <= seq:
            drop()


_append: Final = load("xsem.runtime._append")

AppendState: Final[Any] = _AppendState if _append is None else _append.AppendState
Lock: Final[Any] = locks.Lock if _append is None else locks.free_after_ctrl_c(_append.Lock)

retire: Final[Callable[[deque[tuple[Any, ...]], int], None]] = getattr(_append, "retire", _retire)

# None without the compiled file.
EventFence: Final[Any] = getattr(_append, "EventFence", None)
QuickAppend: Final[Any] = getattr(_append, "QuickAppend", None)
QuickQueue: Final[Any] = getattr(_append, "QuickQueue", None)
quick_append: Final[Callable[..., bool] | None] = getattr(_append, "quick_append", None)
"""Appends a wait or a signal that the queue has prepared, or returns False and has done nothing."""
quick_barrier: Final[Callable[..., bool] | None] = getattr(_append, "quick_barrier", None)
"""Appends a barrier, or returns False and has done nothing."""
