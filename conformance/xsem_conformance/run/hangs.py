"""Calls that hang: how long a case may stay in a call, and when a call is not made any more."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

__all__ = ["MOST_HANGS", "Hangs", "group"]

MOST_HANGS: Final = 3
"""After so many cases in a row that hang in one call, the call is not made any more."""
_PATIENCES: Final = 1.5
"""Checks wait for one patience inside a call, so a longer call hangs."""
_LEAST_S: Final = 3.0
_APPENDS: Final = frozenset({"wait", "signal", "write", "read", "occupy"})
_OPENS: Final = ("exporter: about", "second process: about")
"""The first call of a process also starts it and opens its device."""


class Hangs:
    """The calls that hung in a run, shared by all its workers.

    A call hangs if it takes longer than one and a half patience. Once a call has hung, a case that makes it again waits
    3 s. After `most` cases in a row that hung in it, no case makes it any more. A case that comes to its end with this
    call ends the row.

    Parameters
    ----------
    patience_s : float
        Seconds until an expected result counts as missing.
    most : int
        As described; 0 for no limit.
    """

    def __init__(self, patience_s: float, most: int = MOST_HANGS) -> None:
        self._patience_s = patience_s
        self._most = most
        self._lock = threading.Lock()
        self._in_a_row: defaultdict[str, list[str]] = defaultdict(list)
        self._hung: set[str] = set()

    def limit_s(self, call: str) -> float | None:
        """Return the longest duration of a call, given as `Call.name`; None if only the deadline of the case counts."""
        if call in _OPENS:
            return None
        with self._lock:
            if group(call) in self._hung:
                return _LEAST_S
        return max(_LEAST_S, _PATIENCES * self._patience_s)

    def hung(self, call: str, key: str) -> None:
        """Note that a case hung in a call."""
        with self._lock:
            self._hung.add(group(call))
            self._in_a_row[call].append(key)

    def ended(self, calls: Iterable[str]) -> None:
        """Note the calls of a case that came to its end."""
        with self._lock:
            for each in calls:
                if not self._most or len(self._in_a_row.get(each, ())) < self._most:
                    self._in_a_row.pop(each, None)

    def skipped(self) -> dict[str, str]:
        """Return the calls that no case makes any more, each with the reason."""
        if not self._most:
            return {}
        with self._lock:
            return {call: f"it needs {call.replace(': ', ', ')}, which hung in {len(keys)} cases: {', '.join(keys[:3])}"
                    for call, keys in self._in_a_row.items() if len(keys) >= self._most}


def group(call: str) -> str:
    """Return the calls that probably hang for one reason: all appends of the device under test, in any process."""
    by, _, name = call.partition(": ")
    if (by == "device" and name.startswith(("append_", "prepared"))) or (by == "second process" and name in _APPENDS):
        return "device: append"
    return call
