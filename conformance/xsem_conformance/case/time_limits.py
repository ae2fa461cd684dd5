"""Time limits of waits: a wait that is not met returns when its timeout elapses, neither early nor late."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from xsem_conformance.outcomes import BrokenError, expect

__all__ = ["TRIES", "TimedWait", "at_once"]

TRIES: Final = 10
"""Tries of a call whose best time counts: a busy machine delays some of them."""
_AT_ONCE_S: Final = 0.1
"""Longest time of a call that returns at once. Such a call of a driver takes microseconds."""
_TIMEOUT_S: Final = 0.05
_LEAST_S: Final = 0.03
"""Shortest time of a wait that times out. The timers of Windows have ticks of 16 ms."""
_LONGEST_S: Final = _TIMEOUT_S + 0.1


class TimedWait:
    """A wait with a timeout of 50 ms, which notes the times of its unmet calls."""

    def __init__(self, wait: Callable[[int], bool], what: str) -> None:
        self._wait = wait
        self._what = what
        self._took: list[float] = []

    def __call__(self) -> bool:
        """Wait once. Return whether the wait is met."""
        began = time.monotonic()
        if self._wait(int(_TIMEOUT_S * 1e9)):
            return True
        self._took.append(time.monotonic() - began)
        return False

    def in_time(self) -> bool:
        """Return whether one of the calls did not return late. Fail if one of them returned early."""
        for each in self._took:
            expect(each >= _LEAST_S, f"{self._what} with a timeout of {_TIMEOUT_S} s returns unmet after {each:.3f} s")
        return any(each < _LONGEST_S for each in self._took)

    def check(self) -> None:
        """Fail if the calls returned early, or all of them late."""
        expect(self.in_time(), f"{self._what} with a timeout of {_TIMEOUT_S} s takes longer than its timeout: "
                               f"{min(self._took, default=0):.3f} s, the best of {len(self._took)} tries")


def at_once(call: Callable[[], object], what: str) -> None:
    """Check that a call returns at once in the best of its tries."""
    least = float("inf")
    for _ in range(TRIES):
        began = time.monotonic()
        call()
        least = min(least, time.monotonic() - began)
        if least < _AT_ONCE_S:
            return
    raise BrokenError(f"{what} does not return at once: it took {least:.3f} s, the best of {TRIES} tries")
