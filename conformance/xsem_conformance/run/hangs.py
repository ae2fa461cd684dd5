"""Calls that hang: the longest duration of a call, and the calls that no further case makes."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

__all__ = ["MOST_HANGS", "Hangs", "group", "in_words"]

MOST_HANGS: Final = 3
"""Number of cases in a row that hang in one call, after which no case makes the call."""
_PATIENCES: Final = 1.5
"""A check waits at most one patience inside a call. A call of 1.5 times this duration therefore hangs."""
_LEAST_S: Final = 3.0
_APPENDS: Final = frozenset({"wait", "signal", "write", "read", "occupy"})
_OPENS: Final = ("exporter: about", "second process: about")
"""The first call of a process. It also includes the start of the process and the opening of its device."""


class Hangs:
    """The calls that hung in a run, shared by all its workers."""

    # A call hangs if it takes longer than 1.5 times the patience, at least 3 s. After a hang, the limit of the call is
    # 3 s. After `most` cases in a row that hung in the call, no case makes the call. A case in which the call returns
    # ends the row.

    def __init__(self, patience_s: float, most: int = MOST_HANGS) -> None:
        self._patience_s = patience_s
        self._most = most
        self._lock = threading.Lock()
        self._in_a_row: defaultdict[str, list[str]] = defaultdict(list)
        self._hung: set[str] = set()

    def limit_s(self, call: str) -> float | None:
        """Return the limit of a call, given as `Call.name`; None if the call has only the deadline of the case."""
        if call in _OPENS:
            return None
        with self._lock:
            if group(call) in self._hung:
                return _LEAST_S
        return max(_LEAST_S, _PATIENCES * self._patience_s)

    def hung(self, call: str, key: str) -> None:
        """Record that a case hung in a call."""
        with self._lock:
            self._hung.add(group(call))
            self._in_a_row[call].append(key)

    def ended(self, calls: Iterable[str]) -> None:
        """Record the returned calls of a case that ended without a hang."""
        with self._lock:
            for each in calls:
                if not self._most or len(self._in_a_row.get(each, ())) < self._most:
                    self._in_a_row.pop(each, None)

    def skipped(self) -> dict[str, str]:
        """Return the calls that no further case makes, each with the reason."""
        if not self._most:
            return {}
        with self._lock:
            return {call: f"it needs {in_words(call)}, which hung in {len(keys)} cases: {', '.join(keys[:3])}"
                    for call, keys in self._in_a_row.items() if len(keys) >= self._most}


def in_words(call: str) -> str:
    """Return a `Call.name` as a part of a sentence."""
    return call.replace(": ", ", ")


def group(call: str) -> str:
    """Return a name for calls with one probable reason of a hang. All appends of the device have one name."""
    by, _, name = call.partition(": ")
    if (by == "device" and name.startswith(("append_", "prepared"))) or (by == "second process" and name in _APPENDS):
        return "device: append"
    return call
