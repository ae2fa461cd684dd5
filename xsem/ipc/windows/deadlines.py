"""The time limit of one call about a pipe, and its turn among the calls of other threads."""

from __future__ import annotations

import time
from typing import Final, TypeAlias

from xsem.errors import WaitTimeoutError
from xsem.runtime.timeouts import check_timeout

__all__ = ["Deadline", "Turn", "Turns"]

_RETRY_S: Final = 0.002
_LONGEST_S: Final = 1e9


class Deadline:
    """The time limit of one call in seconds; None: no limit."""

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
    """The place of one call in the queue for one direction of a pipe, which it leaves by ``turns.pop(turn, None)``."""

    # A lock would not do: its holder can wait in an event loop, and on Windows Ctrl-C does not end a wait for a lock.
    def __init__(self, turns: Turns, deadline: Deadline, why: str) -> None:
        self._turns = turns
        self._deadline = deadline
        self._why = why   # for the error after the time: what the call waits for

    def take(self) -> float:
        """Return 0 if the call may transfer now, or the seconds after which to try again."""
        self._turns[self] = None
        if list(self._turns)[0] is self:   # noqa: RUF015 - an iterator fails if another thread changes the dict
            return 0.0
        left = self._deadline.left_s
        if left == 0.0:
            raise self._deadline.passed(self._why)
        return _RETRY_S if left is None else min(_RETRY_S, left)

    def wait(self) -> None:
        """Wait until the call may transfer."""
        while pause_s := self.take():
            time.sleep(pause_s)


Turns: TypeAlias = dict[Turn, None]
"""The calls that want to transfer in one direction, as a set that keeps the order. The first of them may."""
