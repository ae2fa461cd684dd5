"""Fences: one-shot completions of a queue's operations, and borrowed events with the same interface."""

from __future__ import annotations

import copy
import threading
import time
from _thread import allocate_lock
from concurrent.futures import Future
from typing import Any, Final, Protocol

from xsem.errors import BadArgumentError, DriverError, XsemError

__all__ = ["EventFence", "FutureFence", "HostFence", "Waitable", "foreign", "repeated"]

_LOOK_S: Final = 0.001


class Waitable(Protocol):
    """A fence or a borrowed event: a queue can wait for it."""

    def done(self) -> bool:
        """Return whether it is reached, without blocking; raise if it will never be reached."""

    def wait(self, timeout_ns: int) -> bool:
        """Block until it is reached or failed, or the timeout expires; then return or raise as `done` does."""


class HostFence:
    """The fence of one operation. The queue's worker settles it once: reached, or failed."""

    __slots__ = ("_failure", "_gate", "_settled", "at")

    def __init__(self) -> None:
        self._failure: XsemError | None = None
        self._settled = False
        self.at: float | None = None   # when it was settled, as time.perf_counter() says
        # Locked until the fence is settled. Not a `threading.Event`, because Ctrl-C in its `wait` can leave the lock
        # inside it locked, and then the worker's `set` would hang.
        self._gate = allocate_lock()
        self._gate.acquire()

    def reach(self) -> None:
        """Settle the fence: the operation and all work before it are done."""
        self.at = time.perf_counter()
        self._settled = True
        self._gate.release()

    def fail(self, failure: XsemError) -> None:
        """Settle the fence with an error: the operation, or work before it, failed or was dropped."""
        self._failure = failure
        self.reach()

    def done(self) -> bool:
        """Return whether the fence is reached; raise its failure."""
        if not self._settled:
            return False
        if self._failure is not None:
            raise repeated(self._failure)
        return True

    def wait(self, timeout_ns: int) -> bool:
        """Block until the fence is settled or the timeout expires; then return or raise as `done` does."""
        if not self._settled and self._gate.acquire(timeout=_seconds(timeout_ns)):
            self._gate.release()   # lets the next waiter through
        return self.done()


class EventFence:
    """A borrowed `threading.Event` of the application."""

    def __init__(self, native: threading.Event) -> None:
        self._native = native

    def done(self) -> bool:
        """Return whether the event is set."""
        return self._native.is_set()

    def wait(self, timeout_ns: int) -> bool:
        """Block until the event is set or the timeout expires; return whether it is set."""
        if threading.current_thread() is not threading.main_thread():
            return self._native.wait(_seconds(timeout_ns))
        # Ctrl-C in `Event.wait` can leave the event's lock locked, and then the application's `set` would hang.
        deadline = time.monotonic_ns() + timeout_ns
        while not self._native.is_set():
            left_ns = deadline - time.monotonic_ns()
            if left_ns <= 0:
                return False
            time.sleep(min(_LOOK_S, _seconds(left_ns)))
        return True


class FutureFence:
    """A borrowed `concurrent.futures.Future`: reached by a result, failed by an exception or a cancellation."""

    def __init__(self, native: Future[Any]) -> None:
        self._native = native
        self._settled = HostFence()
        # One callback, not one for each slice of each wait: a future keeps its callbacks until it has a result.
        native.add_done_callback(self._settle)

    def _settle(self, _: Future[Any]) -> None:
        self._settled.reach()

    def done(self) -> bool:
        """Return whether the future has its result; raise if it was cancelled or has an exception."""
        if not self._native.done():
            return False
        if self._native.cancelled():
            raise DriverError("the awaited future was cancelled", reason="work_failed",
                              from_earlier_work=True)
        error = self._native.exception(0)
        if error is not None:
            raise DriverError(f"the awaited future raised {type(error).__name__}: {error}",
                              reason="work_failed", from_earlier_work=True) from error
        return True

    def wait(self, timeout_ns: int) -> bool:
        """Block until the future is settled or the timeout expires; then return or raise as `done` does."""
        self._settled.wait(timeout_ns)
        return self.done()


def foreign(native: object) -> Waitable:
    """Wrap a borrowed event. It stays the application's."""
    if isinstance(native, threading.Event):
        return EventFence(native)
    if isinstance(native, Future):
        return FutureFence(native)
    raise BadArgumentError(f"host takes a threading.Event or a concurrent.futures.Future, not {type(native).__name__}",
                           reason="not_an_event", backend="host")


def repeated(failure: XsemError) -> XsemError:
    """Return a copy of the failure for one caller: a shared exception would collect the tracebacks of all callers."""
    again = copy.copy(failure)
    again.__cause__ = failure.__cause__
    return again


def _seconds(timeout_ns: int) -> float:
    return min(max(0, timeout_ns) / 1e9, threading.TIMEOUT_MAX)
