"""Waits for keyed mutexes that end after `timeout_ms`, and which of them a CUDA_ERROR_TIMEOUT is about.

The driver returns that code once, from whatever call comes next, of whatever list and thread. The call has done nothing
and is made again; the waits that can have run out are marked as failed, and with them their lists: their work went on
without the mutex. Nothing of this was measured on Windows; the stand-in does as the driver API's notes say ("may also
return error codes from previous, asynchronous launches").
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from typing import Final

from xsem.errors import DriverError

__all__ = ["KeyedWait", "check_acquired", "forget", "timed_out"]

TIMEOUT: Final = 909
_EARLY_S: Final = 0.05
"""A driver's clock can be ahead of ours: Windows' timers count in 16 ms."""

_lock: Final = threading.RLock()  # re-entrant: a signal handler of the application's may append
_pending: Final[set[KeyedWait]] = set()


class KeyedWait:
    """One wait with a timeout.

    Parameters
    ----------
    timeout_ms : int
        The shortest of its batch.
    """

    __slots__ = ("_timeout_s", "among_others", "deadline", "failed", "pending")

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_s = timeout_ms / 1e3
        self.deadline = math.inf
        self.pending = True  # or failed: a list with a failed wait stays failed
        self.failed = False
        self.among_others = False

    def begin(self) -> None:
        """The driver has it: it can run out from now on."""
        self.deadline = time.monotonic() + self._timeout_s - _EARLY_S
        with _lock:
            _pending.add(self)


def timed_out() -> bool:
    """A call returned CUDA_ERROR_TIMEOUT: whether it is about a wait of ours, and the call is to be made again."""
    now = time.monotonic()
    with _lock:
        late = [wait for wait in _pending if wait.deadline <= now]
        _pending.difference_update(late)
    for wait in late:
        wait.among_others = len(late) > 1
        wait.failed = True
    return bool(late)


def forget(waits: Sequence[KeyedWait]) -> None:
    """Their list is closed."""
    with _lock:
        _pending.difference_update(waits)


def check_acquired(waits: Sequence[KeyedWait]) -> None:
    """All these waits are over, and no call has told of a timeout: forget them.

    Raises
    ------
    DriverError
        ``mutex_timeout``: one of them has failed.
    """
    forget(waits)
    for wait in waits:
        if wait.failed:
            causes = ("several waits with a timeout were pending, and the driver does not say which one ran out",)
            raise DriverError(
                "a keyed mutex was not released within timeout_ms, and the work behind the wait ran without it",
                reason="mutex_timeout", from_earlier_work=True, call="cuWaitExternalSemaphoresAsync", code=TIMEOUT,
                code_name="CUDA_ERROR_TIMEOUT", likely_causes=causes if wait.among_others else (),
            )
        wait.pending = False
