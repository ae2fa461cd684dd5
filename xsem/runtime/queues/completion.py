"""The progress of one native queue: its markers, its pending operations, and its failure."""

# A marker is a barrier with a fence, or an operation with its own fence. When the fence is reached, all earlier
# operations of the queue are done, so xsem does not request the completion of each operation. It appends a marker at a
# release, at a host wait, and after at most `MARK_EVERY` operations, which bounds the list of pending operations.

from __future__ import annotations

import copy
import logging
import time
import weakref
from collections import deque
from typing import Final, Self

from xsem.errors import BusyError, DeviceLostError, DriverError
from xsem.runtime.device_state import DeviceState
from xsem.runtime.lifetime import Lifetime
from xsem.runtime.locks import call_locked
from xsem.runtime.native import Lock
from xsem.runtime.queues.operations import Fence, Operation, new_fence
from xsem.runtime.threads import Mark, calling_thread, on_own_thread
from xsem.spi import Callers, QueueDriver

__all__ = ["MARK_EVERY", "AllOperations", "CompletionTracker"]

_log = logging.getLogger("xsem")

MARK_EVERY: Final = 256
_NO_LIMIT: Final = 2**62
_RETRY_S: Final = 0.001


class CompletionTracker:
    """The progress of the operations on one native queue."""

    def __init__(self, device_state: DeviceState, driver: QueueDriver, name: str, *, borrowed: bool) -> None:
        self.device_state = device_state
        self.driver = driver
        self.name = name
        self.borrowed = borrowed
        # Re-entrant: the driver can call work inside `append_work`, and this work may append to its own list.
        self.lock = Lock()
        self.seq = 0   # number of the last operation, appended or attempted
        self.done_seq = 0   # all operations up to this number are known to be done
        self.operations: deque[Operation] = deque()   # those after `done_seq`, oldest first; readers call `pending`
        self.failure: DriverError | None = None   # of the queue's work; the rest of the work never runs
        self.recording = False   # appends are recorded, not executed
        # A capture can begin on the queue, so each append queries the driver. Either the application has the native
        # handle, or the queue has waited for a borrowed event, which may belong to a capture.
        self.exposed = borrowed
        self.closed = False   # the native queue is closed and gets no more appends
        self._query_capture = driver.is_capturing
        self._only_application = driver.callers is Callers.APPLICATION
        # The thread of the application that called xsem for this queue last. It may call the native queue itself.
        self._user: weakref.ref[Mark] = calling_thread()
        self.lifetime: Lifetime  # set by QueueTable.add
        self._markers: deque[Fence] = deque()
        self._limit = device_state.capabilities.max_pending or _NO_LIMIT
        self._mark_every = min(MARK_EVERY, max(1, self._limit // 2))
        self._issuing = False  # the driver is in an append to this queue
        self._issued = 0  # the driver has returned from all appends up to this number
        self._last_wait = 0  # the last operation that can hold the queue
        self._slots = 0  # operations and markers given to the driver; `max_pending` counts both
        self._done_slots = 0
        self._marked = 0  # `_slots` at the newest marker
        self._polled = 0  # `_slots` at the last poll of the markers
        self._due = 0  # from this value of `_slots` on, an append marks, polls or is refused
        self._set_due()
        self._warned = False

    def appended(self) -> int:
        """Return the number of the last operation for a wait of this thread."""
        # In a signal handler inside an append, this is the operation before that append, because the append continues
        # only after the handler.
        return self._issued if self.lock._is_owned() else self.seq  # type: ignore[attr-defined]

    def on_queue(self, seq: int) -> tuple[Self, int]:
        """Return this queue and `seq`: a queue numbers its own operations."""
        return self, seq

    # ---- markers
    def ensure_fence(self, seq: int) -> None:
        """Ensure a marker at `seq` or later, if a marker is possible now. Never waits for the lock of the queue."""
        # If the queue declares `Callers.APPLICATION`, only the thread that used the queue last appends the marker, in
        # its next call on the device. If this thread has ended, or the device is released, each thread of the
        # application may append it.
        if self.failure is not None:
            self._retire_failed()
        elif not self._has_fence(seq):
            if self._only_application and not self._may_call():
                self.device_state.owe_fence(self)
                return
            with self.lifetime.visited() as there:
                if there:
                    call_locked(self.lock, 0, self._try_mark, None)

    def enter(self) -> None:
        """Note that the calling thread of the application uses the queue."""
        if self._only_application:
            self._user = calling_thread()

    def _may_call(self) -> bool:
        """Return whether the calling thread may call the driver of a queue with `Callers.APPLICATION`."""
        if on_own_thread():
            return False
        user = self._user
        return user is calling_thread() or user() is None or self.device_state.releaser.closing

    def wait(self, seq: int, timeout_ns: int) -> bool:
        """Block until operation `seq` is done or the time is over. Return whether the operation is done."""
        if self.done_seq >= seq:
            return True
        self.enter()
        deadline = time.monotonic_ns() + timeout_ns
        # The timeout is necessary: the driver may block another thread in an append to this queue.
        if not call_locked(self.lock, timeout_ns / 1e9, lambda: self._mark_for_wait(seq), False):
            return False
        marker = self._newest_marker()
        left_ns = max(0, deadline - time.monotonic_ns())
        if marker is None:
            if self.done_seq < seq:
                time.sleep(min(_RETRY_S, left_ns / 1e9))
        elif marker.wait(left_ns):
            self.reached(marker.seq)
        return self.done_seq >= seq

    def _mark_for_wait(self, seq: int) -> bool:
        """Ensure a marker for a host wait, and return True. The caller holds the lock."""
        if not self._has_fence(seq):
            if self._issuing:
                raise BusyError(
                    f"this thread is inside an append to {self.name}, which a signal handler interrupted: wait after "
                    "the handler has returned, or in another thread", reason="in_append",
                )
            if self._is_captured():   # a captured operation does not run, so the queue takes no marker
                raise BusyError(f"{self.name} is being captured", reason="capturing")
            self._mark()
        self.raise_failure()
        return True

    def waits(self) -> bool:
        """Return whether a wait may be pending. Query the driver if a wait is not known to be done."""
        if self._last_wait > self.done_seq and self.failure is None and not self.closed:
            self.ensure_fence(self._last_wait)
            self.poll()
        return self._last_wait > self.done_seq and self.failure is None and not self.closed

    @property
    def may_wait(self) -> bool:
        """Whether a wait is among the operations in flight. The property makes no driver call."""
        return self._last_wait > self.done_seq

    def captured(self) -> bool:
        """Return whether appends are captured or recorded now. False if another thread holds the lock of the queue."""
        # If the queue declares `Callers.APPLICATION`, a thread of xsem does not query the driver for a capture.
        if self._only_application and on_own_thread():
            return self.recording
        return call_locked(self.lock, 0, self._is_captured, False)

    def pending(self) -> list[Operation]:
        """Return the operations after `done_seq`, oldest first."""
        return list(self.operations)   # `list` copies in one step: other threads append

    def marked_at(self, seq: int) -> bool:
        """Return whether a marker directly behind this operation is not known to be reached."""
        return any(marker.seq == seq for marker in list(self._markers))   # `list` copies in one step

    def _is_captured(self) -> bool:
        return self.recording or (self.exposed and not self.closed and self._query_capture())

    def _newest_marker(self) -> Fence | None:
        try:
            return self._markers[-1]
        except IndexError:
            return None

    def _has_fence(self, seq: int) -> bool:
        marker = self._newest_marker()
        return self.done_seq >= seq or (marker is not None and marker.seq >= seq)

    def maybe_fence(self) -> None:
        """Append a marker if one is due, and poll the markers if a poll is due. The caller does not hold the lock."""
        if self._slots - self._marked >= self._mark_every:
            with self.lock:
                self._try_mark()
        if self._slots - self._polled >= self._mark_every:
            self.poll()
            self.device_state.return_fences()

    def _try_mark(self) -> None:
        try:
            self._mark()
        except Exception:
            # The error does not concern the caller's append or release. A later call tries again.
            if not self._warned:
                self._warned = True
                _log.warning("%s took no marker; trying again later", self.name, exc_info=True)

    def _mark(self) -> None:
        """Append a marker, unless it would disturb a capture or block this thread. The caller holds the lock."""
        # A finalizer of the application can call this method during an append of the same thread. `_issuing` is then
        # True. `self.seq` would be wrong: a signal handler can run before the driver gets that operation.
        seq = self._issued
        if self._issuing or self.closed or self._has_fence(seq) or self._is_captured():
            return
        if self._room() < 1 and self._last_wait > self.done_seq:
            return
        try:
            token = self.driver.append_barrier((), True)
        except DriverError as failure:
            if not failure.from_earlier_work and not isinstance(failure, DeviceLostError):
                raise
            self.fail(failure)
            return
        self._slots += 1
        self._note_marker(new_fence(self.device_state, token, self, seq))

    def _note_marker(self, fence: Fence) -> None:
        fence.slots = self._slots
        self._markers.append(fence)
        before, self._marked = self._marked, self._slots
        if before < self._polled:   # otherwise, `_marked` does not affect `_due`
            self._set_due()

    def _set_due(self) -> None:
        """Compute `_due`. An old `_due` is never too large, because no term of the sum decreases."""
        self._due = min(min(self._marked, self._polled) + self._mark_every, self._done_slots + self._limit) - 1

    def _room(self) -> int:
        return self._limit - (self._slots - self._done_slots)

    def poll(self) -> None:
        """Query the driver for the markers, and retire the operations before each reached marker."""
        self._polled = self._slots
        self._set_due()
        if self._markers:
            with self.lifetime.visited() as there:
                if there:
                    self._poll()

    def _poll(self) -> None:
        done = self.device_state.driver.query_fence
        while True:
            try:
                head, tail = self._markers[0], self._markers[-1]
            except IndexError:
                return
            try:
                if not done(head.token):
                    return
                # If the last marker is reached, this query covers all markers: a queue can have hundreds of them.
                if tail is not head and done(tail.token):
                    head = tail
            except Exception as error:
                self.fail(_failure(self.name, error))
                return
            self.reached(head.seq)

    def reached(self, seq: int) -> None:
        """Retire all markers up to `seq`, and their operations: a fence at `seq` or later is reached."""
        with self.device_state.releaser.lock:
            self._retire_markers(seq)

    def _retire_markers(self, seq: int) -> None:
        markers, reached = self._markers, None
        while markers:
            head = markers[0]
            if head.seq > seq:
                break
            reached = markers.popleft()
        if reached is not None:
            self._retire(reached.seq, reached.slots)

    def not_appended(self, seq: int) -> None:
        """Count a refused operation as done. An idle list thus stays idle and needs no marker."""
        with self.device_state.releaser.lock:
            if self.done_seq == seq - 1:
                self.done_seq = seq

    def _retire(self, seq: int, slots: int) -> None:
        self.done_seq = max(self.done_seq, seq)
        self._done_slots = max(self._done_slots, slots)
        self._set_due()
        operations = self.operations
        while operations:
            op = operations[0]
            if op.seq > seq:
                break
            operations.popleft()

    # ---- failure
    def fail(self, failure: DriverError) -> None:
        """Note that the work of the queue failed, and retire the appended operations."""
        self.device_state.annotate_error(failure)
        with self.device_state.releaser.lock:
            if self.failure is None:
                self.failure = failure
        self._retire_failed()

    def _retire_failed(self) -> None:
        with self.device_state.releaser.lock:
            self._markers.clear()
            # `seq` would be too far: another thread may append an operation now, and the driver may use its objects.
            self._retire(self._issued, self._slots)

    def detach(self) -> None:
        """Note that the native queue is closed, and drop its markers and operations."""
        with self.device_state.releaser.lock:
            self.closed = True
            self._markers.clear()
            self.operations.clear()

    def raise_failure(self) -> None:
        """Raise the failure that `fail` noted, if any."""
        if self.failure is not None:
            # Each caller gets a copy: a shared exception would collect the tracebacks of all callers.
            raise copy.copy(self.failure) from self.failure.__cause__


class AllOperations:
    """All operations of a queue as one use of the queue's own lifetime. The use has the number 1."""

    __slots__ = ("_queue",)

    def __init__(self, queue: CompletionTracker) -> None:
        self._queue = queue

    @property
    def done_seq(self) -> int:
        """1 if no operation is pending, otherwise 0."""
        return 1 if self._queue.done_seq >= self._queue.seq else 0

    @property
    def closed(self) -> bool:
        """Whether the queue is closed."""
        return self._queue.closed

    def on_queue(self, seq: int) -> tuple[CompletionTracker, int]:
        """Return the queue, and the number of its last operation."""
        return self._queue, self._queue.seq


def _failure(name: str, error: Exception) -> DriverError:
    """Turn an exception of `driver.query_fence` into the failure of the queue."""
    if isinstance(error, DriverError):
        return error
    failure = DriverError(f"work on {name} failed: {error}", reason="work_failed", from_earlier_work=True)
    failure.__cause__ = error
    return failure
