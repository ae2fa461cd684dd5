"""A wait for a state. The time is a deadline, and no measurement."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

__all__ = ["until"]

_BOUND_S = 100.0 if sys.platform == "win32" else 50.0   # processes start slowly under Wine


def until(condition: Callable[[], object], deadline_s: float = _BOUND_S) -> None:
    """Wait for what another thread or process does."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)
