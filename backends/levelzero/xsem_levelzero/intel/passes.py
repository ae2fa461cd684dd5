"""Knowledge of signals that Intel's driver makes later than their event.

A thread of the driver makes all waits and signals of a process. The thread makes a signal some time after the list has
passed the signal and set its event, and uses the semaphore then. Neither an event nor a barrier tells when.

The thread looks at its entries from the oldest to the newest, and holds its lock meanwhile. An append adds an entry
under this lock. So xsem appends a wait that is always met after it has seen the event. When the list passes this wait,
the thread has made the signal. Before build 38646 the thread begins with the newest entry: then a second wait is
necessary, whose append waits for the end of the first pass.

Each such wait costs the driver an event that it does not give back before 26.27. So a timeline whose value can be read
needs none: its value tells that the signal is made. For binary semaphores a pass tells this, and also before each
release, because the thread can use a semaphore for a moment after its signal.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack, suppress
from ctypes import byref
from typing import ClassVar, Final

from xsem.errors import BusyError, OutOfMemoryError, XsemError
from xsem.spi import Lock, duplicate_fd
from xsem.types import OwnedHandle, SemaphoreHandleType, WaitParams
from xsem_levelzero import ze
from xsem_levelzero.core import Core
from xsem_levelzero.extension import WAIT
from xsem_levelzero.fences import Events, Fence
from xsem_levelzero.intel.semaphores import LateSemaphore
from xsem_levelzero.intel.signals import SignalsBefore
from xsem_levelzero.objects import met_object
from xsem_levelzero.semaphores import Batches, Semaphore, import_fd

__all__ = ["Passes", "own_queues"]

_log = logging.getLogger("xsem")

_SLICE_NS: Final = 50_000_000
_PAUSE_FIRST_S: Final = 20e-6
_PAUSE_LAST_S: Final = 1e-3
_RELEASE_NS: Final = 20_000_000
_CLOSE_NS: Final = 2_000_000_000


class Passes:
    """The passes of the driver's thread over its entries, as far as one device has observed them."""

    met_value: ClassVar[int] = 1   # of the wait that is always met

    def __init__(self, core: Core, events: Events, waits: int) -> None:
        self._core = core
        self._events = events
        self._waits = waits   # for one pass
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
        self._released: list[tuple[LateSemaphore, int | None]] = []

    # ---- fences
    def reached(self, before: SignalsBefore | None) -> bool:
        """Whether the thread has made all signals before a fence whose event is set (`Fence.late`)."""
        # Also false while an unmet wait stalls the engine of the list of the waits, because nothing can be known then.
        if before is None:
            return True
        with self._lock:
            for signals, number in before.signals:
                signals.passed = max(signals.passed, number)
            made = before.made()
            if made is None:
                if not before.ticket:
                    before.ticket = self._next_pass()
                try:
                    self._advance(before.ticket)
                except (BusyError, OutOfMemoryError):
                    return False   # the system has no room for the wait now; the caller asks again
                made = self._over >= before.ticket
                for signals, number in before.signals if made else ():
                    signals.made, signals.unused = max(signals.made, number), max(signals.unused, number)
        return bool(made)

    def wait(self, before: SignalsBefore | None, timeout_ns: int) -> bool:
        """Block until `reached`, or until the time is over. Return whether it is reached."""
        deadline, pause_s = time.monotonic_ns() + timeout_ns, _PAUSE_FIRST_S
        while not self.reached(before):
            left = deadline - time.monotonic_ns()
            if left <= 0:
                return False
            wait = self._wait
            if wait is None:
                time.sleep(min(pause_s, left * 1e-9))
                pause_s = min(2 * pause_s, _PAUSE_LAST_S)
            else:
                self._events.wait(wait, min(left, _SLICE_NS))
        return True

    # ---- semaphores
    def release(self, semaphore: LateSemaphore) -> None:
        """Release a semaphore when the thread does not use it any more: soon, in a later call, or at the close."""
        # After a failed query of a fence, or after Ctrl-C in an append, the driver may still have an operation.
        now = semaphore.unused() and semaphore.passed()
        if not now:
            with self._lock:
                self._released.append((semaphore, None))
        self.sweep()
        if now:
            semaphore.release(self._core)
            return
        deadline = time.monotonic_ns() + _RELEASE_NS
        with suppress(XsemError):   # usually the thread looks at each wait of the pass at once
            while (wait := self._wait) is not None and any(each is semaphore for each, _ in list(self._released)):
                if not self._events.wait(wait, max(0, deadline - time.monotonic_ns())):
                    return
                self.sweep()

    def sweep(self) -> None:
        """Release the semaphores that the thread does not use any more. A failure is left to the next call."""
        if self._released:
            with self._lock, suppress(XsemError):
                self._sweep()

    def close(self) -> bool:
        """Release all semaphores and destroy the list of the waits. False after 2 s: the objects and events stay."""
        # The facade regards all work as done. But the driver may still have an operation of a released semaphore, or an
        # unmet wait of another device may stall the engine.
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
                rest.callback(self._semaphore.release, self._core)
            if self._list:
                rest.callback(self._core.destroy, "zeCommandListDestroy", self._list)
        return True

    # ---- inside; the caller holds the lock
    def _next_pass(self) -> int:
        """The number of the first pass that begins after this call."""
        return self._begun + 1

    def _sweep(self) -> None:
        for at, (semaphore, number) in enumerate(self._released):
            if number is None and semaphore.passed():
                self._released[at] = semaphore, self._next_pass()
        numbers = [number for _, number in self._released if number is not None]
        if numbers:
            self._advance(min(numbers))
        for each in [(semaphore, number) for semaphore, number in self._released
                     if number is not None and number <= self._over]:
            self._released.remove(each)
            each[0].release(self._core)

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
            made = met_object()
            if made is None:
                return
            binary, self._object = made
            type = SemaphoreHandleType.OPAQUE_FD if binary else SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
            handle = import_fd(self._core, type, duplicate_fd(self._object.fileno()), self._object)
            self._semaphore = Semaphore(handle, type)
        if not self._list:
            self._list = _create_side_list(self._core)
            self._native = self._core.extension.command_list(self._list)

    def _append(self) -> None:
        if self._semaphore is None:
            self._waits_left, self._over = 0, self._begun + 1   # nothing can be known
            return
        event = self._events.take()
        try:
            params = Batches(ze.WaitParams).fill([self._semaphore], [WaitParams(value=self.met_value)])
            self._core.extension.append(WAIT, self._native, [self._semaphore.handle], params, event.native, ())
        except BaseException:
            self._events.give_back(event)
            raise
        self._wait = event


# ---- the engine of the waits, which own lists do not use
def own_queues(core: Core) -> int:
    """The number of queues for own lists, so that no wait of an own list stalls the list of `Passes`."""
    # A GPU without an engine that only copies keeps its last queue free. A GPU with one queue cannot.
    number = core.queues.number
    return number - 1 if number > 1 and _copy_group(core) is None else number


def _create_side_list(core: Core) -> int:
    ordinal = _copy_group(core)
    if ordinal is None:
        return core.create_list(core.queues.number - 1)[0]
    desc = ze.QueueDesc.made(ordinal=ordinal, index=0, flags=0, mode=ze.QUEUE_MODE_ASYNCHRONOUS)
    return core.loader.make("zeCommandListCreateImmediate", core.context, core.device, byref(desc))


def _copy_group(core: Core) -> int | None:
    """The first group whose engines only copy, so that no wait of a compute list stalls them."""
    groups = core.loader.structs(ze.QueueGroup, "zeDeviceGetCommandQueueGroupProperties", core.device)
    return next((ordinal for ordinal, each in enumerate(groups)
                 if each.flags & ze.GROUP_COPY and not each.flags & ze.GROUP_COMPUTE and each.numQueues), None)
