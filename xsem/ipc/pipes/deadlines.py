"""The time limit of one call about a pipe, and its turn among the calls of other threads."""

from __future__ import annotations

import threading
import time
from typing import Final

from xsem.errors import WaitTimeoutError
from xsem.runtime.timeouts import check_timeout, wait_in_slices

__all__ = ["Deadline", "Turn"]

_LONGEST_S: Final = 1e9


class Deadline:
    """The time limit of one call.

    Parameters
    ----------
    timeout_s : float or None
        Seconds; None: no limit.

    Raises
    ------
    BadArgumentError
        ``bad_timeout``.
    """

    def __init__(self, timeout_s: float | None) -> None:
        check_timeout(timeout_s)
        self.timeout_s = timeout_s
        self._end = None if timeout_s is None else time.monotonic() + min(timeout_s, _LONGEST_S)

    @property
    def left_s(self) -> float | None:
        """Seconds that are left; None: no limit."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def passed(self, why: str) -> WaitTimeoutError:
        """Return the error for the end of the time."""
        return WaitTimeoutError(f"{why} for {self.timeout_s:g} s")


class Turn:
    """The right to transfer in one direction of a pipe, within the time limit."""

    def __init__(self, lock: threading.Lock, deadline: Deadline, why: str) -> None:
        self._lock = lock
        self._deadline = deadline
        self._why = why

    def __enter__(self) -> None:
        left = self._deadline.left_s
        # A wait of `Lock.acquire` ends early for Ctrl-C only if it has a limit.
        if not wait_in_slices(lambda timeout_ns: self._lock.acquire(timeout=timeout_ns / 1e9), left):
            raise self._deadline.passed(self._why)

    def __exit__(self, *exc: object) -> None:
        self._lock.release()
