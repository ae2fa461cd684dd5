"""Points: one-shot completions of a list's operations, and foreign events that look like them."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from typing import Any, Protocol

from xsem.errors import DriverError

__all__ = ["ForeignPoint", "HostPoint", "Waitable", "foreign"]


class Waitable(Protocol):
    """What a list can wait for."""

    def done(self) -> bool:
        """Whether it is reached; never blocks."""

    def wait(self, timeout_ns: int) -> bool:
        """Block until it is reached or the time is over."""


class HostPoint:
    """Reached by the list's worker, once; or failed, when it never will be."""

    __slots__ = ("_event", "_failure")

    def __init__(self) -> None:
        self._event = threading.Event()
        self._failure: DriverError | None = None

    def reach(self) -> None:
        """All work before it is done."""
        self._event.set()

    def fail(self, failure: DriverError) -> None:
        """Work before it failed."""
        self._failure = failure
        self._event.set()

    def done(self) -> bool:
        """Whether it was reached; raises if it never will be."""
        if not self._event.is_set():
            return False
        if self._failure is not None:
            raise repeated(self._failure)
        return True

    def wait(self, timeout_ns: int) -> bool:
        """Block until `done` has an answer, or the time is over."""
        self._event.wait(timeout_ns / 1e9)
        return self.done()


class ForeignPoint:
    """A threading.Event or a concurrent.futures.Future of the application's."""

    def __init__(self, native: threading.Event | Future[Any]) -> None:
        self._native = native

    def done(self) -> bool:
        """Whether the event is set, or the future has a result, an exception or was cancelled."""
        return self._native.is_set() if isinstance(self._native, threading.Event) else self._native.done()

    def wait(self, timeout_ns: int) -> bool:
        """Block until it is, or the time is over."""
        if isinstance(self._native, threading.Event):
            return self._native.wait(timeout_ns / 1e9)
        deadline = time.monotonic() + timeout_ns / 1e9
        settled = threading.Event()
        self._native.add_done_callback(lambda _: settled.set())
        return settled.wait(max(0.0, deadline - time.monotonic()))


def foreign(native: object) -> ForeignPoint:
    """Wrap a foreign event.

    Raises
    ------
    TypeError
        It is neither.
    """
    if not isinstance(native, threading.Event | Future):
        raise TypeError("host takes a threading.Event or a concurrent.futures.Future")
    return ForeignPoint(native)


def repeated(failure: DriverError) -> DriverError:
    """The same failure for one more caller: a shared exception would gather everybody's traceback."""
    again = DriverError(failure.message, reason=failure.reason, from_earlier_work=failure.from_earlier_work,
                        backend=failure.backend)
    again.__cause__ = failure.__cause__
    return again
