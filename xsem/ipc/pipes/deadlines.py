"""The time limit of one call about a pipe, and its turn among the calls of other threads."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from itertools import starmap
from typing import Final, Self

from xsem.data.handles import store
from xsem.errors import WaitTimeoutError
from xsem.runtime.timeouts import check_timeout

__all__ = ["Deadline", "Turn", "Turns"]

_RETRY_S: Final = 0.002
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


class Turns:
    """The right to transfer in one direction of a pipe, which one call at a time has."""

    def __init__(self) -> None:
        self.free: deque[None] = deque([None])


class Turn:
    """One call that transfers in one direction. The caller enters it twice: ``with turn, turn:``.

    The end of ``with`` gives the right back, also if Ctrl-C interrupts the inner exit.

    Parameters
    ----------
    turns : Turns
    deadline : Deadline
    why : str
        For the error after the time: what the call waits for.
    """

    def __init__(self, turns: Turns, deadline: Deadline, why: str) -> None:
        self._turns = turns
        self._deadline = deadline
        self._why = why
        self._held: list[None] = []

    def __enter__(self) -> Self:
        return self

    def take(self) -> float:
        """Take the right. Return 0, or the seconds after which to try again.

        Raises
        ------
        WaitTimeoutError
            ``timeout``.
        """
        with contextlib.suppress(IndexError):
            store(self._held, self._turns.free.pop)
            return 0.0
        left = self._deadline.left_s
        if left == 0.0:
            raise self._deadline.passed(self._why)
        return _RETRY_S if left is None else min(_RETRY_S, left)

    def wait(self) -> None:
        """Wait for the right.

        Raises
        ------
        WaitTimeoutError
            ``timeout``.
        """
        while pause_s := self.take():
            time.sleep(pause_s)

    def __exit__(self, *exc: object) -> None:
        if self._held:
            # As `store`: Ctrl-C takes effect before or after the move.
            self._turns.free.extend(starmap(self._held.pop, ((),)))
