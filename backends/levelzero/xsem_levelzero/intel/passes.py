"""Knowledge of signals that Intel's driver makes later than their event.

A thread of the driver makes all waits and signals of a process. The thread makes a signal some time after the list has
passed the signal and set its event, and uses the semaphore then. Neither an event nor a barrier tells when.

The thread looks at its entries from the oldest to the newest, and holds its lock meanwhile. An append adds an entry
under this lock. So xsem appends a wait that is always met after it has seen the event. When the list passes this wait,
the thread has made the signal. Before build 38646 the thread begins with the newest entry: then a second wait is
necessary, whose append waits for the end of the first pass.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from typing import Final

from xsem.errors import BusyError, OutOfMemoryError, XsemError
from xsem.spi import Lock, duplicate_fd
from xsem.types import OwnedHandle, SemaphoreHandleType, WaitParams
from xsem_levelzero import ze
from xsem_levelzero.core import Core
from xsem_levelzero.events import Events, Fence
from xsem_levelzero.functions import WAIT
from xsem_levelzero.semaphores import Batches, Semaphore, import_fd

__all__ = ["Passes", "Signals"]

_log = logging.getLogger("xsem")

_SLICE_NS: Final = 50_000_000
_CLOSE_NS: Final = 2_000_000_000

MetObject = Callable[[], tuple[SemaphoreHandleType, OwnedHandle] | None]
"""Creates an object whose waits are always met. None: the system creates none."""


class Signals:
    """The signals of one list.

    The list can also wait for events of other lists. The signals before these events are then before the end of this
    list, too.

    Attributes
    ----------
    appended : int
        Number of appended signals.
    passed : int
        Number of signals that the list has certainly passed.
    made : int
        Number of signals that the driver's thread has certainly made.
    """

    __slots__ = ("_others", "appended", "made", "passed")

    def __init__(self) -> None:
        self.appended = 0
        self.passed = 0
        self.made = 0
        self._others: dict[Signals, int] = {}

    def follow(self, fences: Iterable[Fence]) -> None:
        """Note the signals of other lists before fences for which this list waits."""
        for fence in fences:
            for signals, number in fence.signals:
                if signals is not self:
                    self._others[signals] = max(number, self._others.get(signals, 0))

    def open(self) -> tuple[tuple[Signals, int], ...]:
        """Return the signals before the end of the list that the thread may not have made: list and number."""
        if self._others:
            self._others = {each: number for each, number in self._others.items() if each.made < number}
        own = ((self, self.appended),) if self.made < self.appended else ()
        return (*own, *self._others.items())


class Passes:
    """The passes of the driver's thread over its entries, as far as one device has observed them.

    Parameters
    ----------
    core : Core
    events : Events
    met_object : callable
        Creates the object of the waits.
    waits : int
        Number of waits for one pass: 2 before build 38646, else 1.
    """

    def __init__(self, core: Core, events: Events, met_object: MetObject, waits: int) -> None:
        self._core = core
        self._events = events
        self._met_object = met_object
        self._waits = waits
        self._lock = Lock()
        self._object: OwnedHandle | None = None
        self._semaphore: Semaphore | None = None
        self._list = 0
        self._native = 0
        self._wait: Fence | None = None   # the wait in flight
        self._waits_left = 0
        self._begun = 0
        self._over = 0
        # Semaphores that the facade has released, each with the pass after which the driver does not use it any more.
        # None: no pass is chosen yet, because a list may not have passed an operation of the semaphore.
        self._released: list[tuple[Semaphore, int | None]] = []

    # ---- fences
    def reached(self, fence: Fence) -> bool:
        """Return whether the thread has made all signals before a fence whose event is set.

        False also while an unmet wait stalls the engine of the list of the waits: then nothing can be known.
        """
        if any(signals.made < number for signals, number in fence.signals):
            for signals, number in fence.signals:
                signals.passed = max(signals.passed, number)
            with self._lock:
                if not fence.ticket:
                    fence.ticket = self._next_pass()
                try:
                    self._advance(fence.ticket)
                except (BusyError, OutOfMemoryError):
                    return False   # the system has no room for the wait now; the caller asks again
                if self._over < fence.ticket:
                    return False
            for signals, number in fence.signals:
                signals.made = max(signals.made, number)
        fence.signals = ()
        return True

    def wait(self, fence: Fence, timeout_ns: int) -> bool:
        """Block until `reached`, or until the time is over. Return whether it is reached."""
        deadline = time.monotonic_ns() + timeout_ns
        while not self.reached(fence):
            left = deadline - time.monotonic_ns()
            if left <= 0:
                return False
            wait = self._wait
            if wait is None:
                time.sleep(20e-6)
            else:
                self._events.wait(wait, min(left, _SLICE_NS))
        return True

    # ---- semaphores
    def release(self, semaphore: Semaphore) -> None:
        """Release a semaphore when the thread does not use it any more: now, in a later call, or at the close."""
        # After a failed query of a fence, or after Ctrl-C in an append, the driver may still have an operation.
        now = semaphore.made() and semaphore.passed(self._events)
        if not now:
            with self._lock:
                self._released.append((semaphore, None))
        self.sweep()
        if now:
            semaphore.release(self._core, self._events)

    def sweep(self) -> None:
        """Release the semaphores that the thread does not use any more. A failure is left to the next call."""
        if self._released:
            with self._lock, suppress(XsemError):
                self._sweep()

    def close(self) -> bool:
        """Release all semaphores, and destroy the list of the waits. The facade regards all work as done.

        Returns
        -------
        bool
            False after 2 s: the driver still has an operation of a released semaphore, or an unmet wait of another
            device stalls the engine. The objects stay, with their events.
        """
        deadline = time.monotonic_ns() + _CLOSE_NS
        while self._released or self._wait is not None:
            with self._lock:
                self._sweep()
                self._advance(self._begun)
            wait = self._wait
            if time.monotonic_ns() > deadline:
                _log.warning("%d semaphores stay imported: their operations do not end, or an unmet wait stalls the "
                             "engine", len(self._released))
                return False
            if wait is not None:
                self._events.wait(wait, 10_000_000)
            elif self._released:
                time.sleep(0.001)
        with ExitStack() as rest:   # the last one first, and each one also after a failure
            if self._object is not None:
                rest.callback(self._object.close)
            if self._semaphore is not None:
                rest.callback(self._semaphore.release, self._core, self._events)
            if self._list:
                rest.callback(self._core.destroy, "zeCommandListDestroy", self._list)
        return True

    # ---- inside; the caller holds the lock
    def _next_pass(self) -> int:
        """Return the number of the first pass that begins after this call."""
        return self._begun + 1

    def _sweep(self) -> None:
        for at, (semaphore, number) in enumerate(self._released):
            if number is None and semaphore.passed(self._events):
                self._released[at] = semaphore, self._next_pass()
        numbers = [number for _, number in self._released if number is not None]
        if numbers:
            self._advance(min(numbers))
        for each in [(semaphore, number) for semaphore, number in self._released
                     if number is not None and number <= self._over]:
            self._released.remove(each)
            each[0].release(self._core, self._events)

    def _advance(self, wanted: int) -> None:
        """Look at the wait in flight, and begin the pass `wanted` if no other pass is in flight."""
        if self._wait is not None:
            if not self._events.done(self._wait):
                return
            self._events.release(self._wait)
            self._wait = None
            self._waits_left -= 1
            if self._waits_left == 0:
                self._over = self._begun
        if self._waits_left == 0 and self._begun < wanted:
            self._prepare()
            self._waits_left = self._waits
            self._append()
            self._begun += 1
        elif self._waits_left:
            self._append()
        if self._wait is not None and self._events.done(self._wait):
            self._advance(wanted)

    def _prepare(self) -> None:
        if self._semaphore is None:
            made = self._met_object()
            if made is None:
                return
            type, self._object = made
            handle = import_fd(self._core, type, duplicate_fd(self._object.fileno()), self._object)
            self._semaphore = Semaphore(handle, type, None)
        if not self._list:
            self._list = self._core.create_side_list()
            self._native = self._core.extension.command_list(self._list)

    def _append(self) -> None:
        if self._semaphore is None:
            self._waits_left, self._over = 0, self._begun + 1   # nothing can be known
            return
        event = self._events.take()
        try:
            params = Batches(ze.WaitParams).fill([self._semaphore], [WaitParams(value=0)])
            self._core.extension.append(WAIT, self._native, [self._semaphore.handle], params, event.native, ())
        except BaseException:
            self._events.give_back(event)
            raise
        self._wait = event
