"""Points: one-shot completions of a list's operations, and foreign events that look like them."""

from __future__ import annotations

import contextlib
import copy
import threading
import time
from _thread import LockType, allocate_lock
from collections import deque
from concurrent.futures import Future
from typing import Any, Final, Protocol

from xsem.errors import DriverError, XsemError

__all__ = ["EventPoint", "FuturePoint", "HostPoint", "Waitable", "foreign", "repeated"]

_LOOK_S: Final = 0.001


class Waitable(Protocol):
    """What a list can wait for."""

    def done(self) -> bool:
        """Whether it is reached; never blocks. Raises if it never will be."""

    def wait(self, timeout_ns: int) -> bool:
        """Block until `done` has an answer, or the time is over."""


class HostPoint:
    """Reached by the list's worker, once; or failed, when it never will be.

    Not a `threading.Event`: Python code takes the event's lock, and a KeyboardInterrupt there leaves it locked. Here
    each waiter has its own lock, which `reach` and `fail` release. A lock that a KeyboardInterrupt leaves behind
    affects no other waiter.
    """

    __slots__ = ("_failure", "_settled", "_waiters")

    def __init__(self) -> None:
        self._failure: XsemError | None = None
        self._settled = False
        self._waiters: deque[LockType] = deque()

    def reach(self) -> None:
        """All work before it is done."""
        self._settled = True
        self._wake()

    def fail(self, failure: XsemError) -> None:
        """Work before it failed, or was dropped."""
        if not self._settled:
            self._failure = failure
            self._settled = True
        self._wake()

    def _wake(self) -> None:
        while True:
            try:
                waiter = self._waiters.popleft()
            except IndexError:
                return
            waiter.release()

    def done(self) -> bool:
        """Whether it was reached; raises if it never will be."""
        if not self._settled:
            return False
        if self._failure is not None:
            raise repeated(self._failure)
        return True

    def wait(self, timeout_ns: int) -> bool:
        """Block until `done` has an answer, or the time is over."""
        if not self._settled:
            waiter = allocate_lock()
            waiter.acquire()
            self._waiters.append(waiter)
            # Second check: a point that was settled in between has not seen this waiter.
            if not self._settled and not waiter.acquire(timeout=_seconds(timeout_ns)):
                with contextlib.suppress(ValueError):  # just woken
                    self._waiters.remove(waiter)
        return self.done()


class EventPoint:
    """A threading.Event of the application's."""

    def __init__(self, native: threading.Event) -> None:
        self._native = native

    def done(self) -> bool:
        """Whether it is set."""
        return self._native.is_set()

    def wait(self, timeout_ns: int) -> bool:
        """Block until it is, or the time is over."""
        if threading.current_thread() is not threading.main_thread():
            return self._native.wait(_seconds(timeout_ns))
        # A KeyboardInterrupt inside `Event.wait` can leave the event locked, and then the application's set() hangs.
        deadline = time.monotonic_ns() + timeout_ns
        while not self._native.is_set():
            left_ns = deadline - time.monotonic_ns()
            if left_ns <= 0:
                return False
            time.sleep(min(_LOOK_S, _seconds(left_ns)))
        return True


class FuturePoint:
    """A concurrent.futures.Future of the application's; reached by a result, failed by an exception."""

    def __init__(self, native: Future[Any]) -> None:
        self._native = native
        self._settled = HostPoint()
        # Once, and not in every slice of every wait: a future keeps its callbacks until it is settled.
        native.add_done_callback(self._settle)

    def _settle(self, _: Future[Any]) -> None:
        self._settled.reach()

    def done(self) -> bool:
        """Whether the future has its result; raises if it never will."""
        if not self._native.done():
            return False
        if self._native.cancelled():
            raise DriverError("the future that was to be waited for was cancelled", reason="work_failed",
                              from_earlier_work=True)
        error = self._native.exception(0)
        if error is not None:
            raise DriverError(f"the future that was to be waited for raised {type(error).__name__}: {error}",
                              reason="work_failed", from_earlier_work=True) from error
        return True

    def wait(self, timeout_ns: int) -> bool:
        """Block until it has, or the time is over."""
        self._settled.wait(timeout_ns)
        return self.done()


def foreign(native: object) -> Waitable:
    """Wrap a foreign event.

    Raises
    ------
    TypeError
        It is neither.
    """
    if isinstance(native, threading.Event):
        return EventPoint(native)
    if isinstance(native, Future):
        return FuturePoint(native)
    raise TypeError(f"host takes a threading.Event or a concurrent.futures.Future, not {type(native).__name__}")


def repeated(failure: XsemError) -> XsemError:
    """The same failure for one more caller: a shared exception would gather everybody's traceback."""
    again = copy.copy(failure)
    again.__cause__ = failure.__cause__
    return again


def _seconds(timeout_ns: int) -> float:
    return min(max(0, timeout_ns) / 1e9, threading.TIMEOUT_MAX)
