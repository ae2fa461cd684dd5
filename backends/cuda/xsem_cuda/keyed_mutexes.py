"""Keyed-mutex waits with `timeout_ms`, and the assignment of a CUDA_ERROR_TIMEOUT to them."""

# The driver returns this code once, from the next call on any queue and thread. That call had no effect, so xsem
# repeats it. xsem marks every pending wait with an expired timeout as failed, because the work behind it ran without
# the mutex. The queue of a failed wait stays failed. None of this is measured on Windows. The stand-in driver follows
# the notes of the driver API: a call "may also return error codes from previous, asynchronous launches".

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Final

from xsem.errors import DriverError
from xsem.spi import Lock
from xsem_cuda.codes import TIMEOUT

__all__ = ["KeyedWait", "check_acquired", "forget", "timed_out"]

_EARLY_S: Final = 0.05
"""Tolerance in seconds, for a driver's clock ahead of the host's clock. Timers on Windows have steps of 16 ms."""

_lock: Final = Lock()  # re-entrant: a signal handler of the application can append
_pending: Final[set[KeyedWait]] = set()


class KeyedWait:
    """One append of keyed-mutex waits with a timeout in milliseconds."""

    __slots__ = ("_timeout_s", "among_others", "deadline", "failed", "pending")

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_s = timeout_ms / 1e3   # the shortest timeout of the append
        self.deadline = math.inf   # the earliest expiry; infinite before `begin`
        self.pending = True  # still True after a failure: the queue stays failed
        self.failed = False
        self.among_others = False   # several waits expired with one code

    def begin(self) -> None:
        """Start the timeout. The driver has accepted the wait."""
        self.deadline = time.monotonic() + self._timeout_s - _EARLY_S
        with _lock:
            _pending.add(self)


def timed_out() -> bool:
    """Mark the expired waits after CUDA_ERROR_TIMEOUT, and return whether the caller must repeat its call."""
    now = time.monotonic()
    with _lock:
        late = [wait for wait in _pending if wait.deadline <= now]
        _pending.difference_update(late)
    for wait in late:
        wait.among_others = len(late) > 1
        wait.failed = True
    return bool(late)


def forget(waits: Sequence[KeyedWait]) -> None:
    """Forget waits that are done, or all waits of a closed queue."""
    with _lock:
        _pending.difference_update(waits)


def check_acquired(waits: Sequence[KeyedWait]) -> None:
    """Drop these completed waits, and check that none of them failed."""
    forget(waits)
    for wait in waits:
        if wait.failed:
            causes = ("several waits with a timeout were pending, and the driver does not say which timeout expired",)
            raise DriverError(
                "a keyed mutex was not released within timeout_ms, and the work behind the wait ran without it",
                reason="mutex_timeout", from_earlier_work=True, call="cuWaitExternalSemaphoresAsync", code=TIMEOUT,
                code_name="CUDA_ERROR_TIMEOUT", likely_causes=causes if wait.among_others else (),
            )
        wait.pending = False
