"""Timeouts of host waits. A wait runs in slices, so that Ctrl-C works."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from xsem.errors import BadArgumentError

__all__ = ["DEFAULT_TIMEOUT_S", "FOREVER_S", "check_timeout", "wait_in_slices"]

DEFAULT_TIMEOUT_S: Final = 30.0
"""Default timeout of every host wait, in seconds. A timeout of None means no limit."""

SLICE_NS: Final = 50_000_000
FOREVER_S: Final = 1e9


def check_timeout(timeout_s: float | None) -> None:
    """Refuse a timeout that is neither None nor a duration in seconds."""
    if timeout_s is None:
        return
    # `not … >= 0` also refuses NaN. math.isnan() would raise for an int beyond the range of float.
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s >= 0:
        raise BadArgumentError(f"timeout_s is seconds >= 0 or None, not {timeout_s!r}", reason="bad_timeout")


def wait_in_slices(wait: Callable[[int], bool], timeout_s: float | None) -> bool:
    """Call ``wait(nanoseconds)`` until it returns True, or return False after the timeout; None means no limit."""
    # Python runs signal handlers only between the slices, so a long wait in the driver would not see Ctrl-C.
    if timeout_s is None or timeout_s > FOREVER_S:
        while not wait(SLICE_NS):
            pass
        return True
    deadline = time.monotonic_ns() + int(timeout_s * 1e9)
    while True:
        left = max(0, deadline - time.monotonic_ns())
        if wait(min(SLICE_NS, left)):
            return True
        if time.monotonic_ns() >= deadline:
            return False
