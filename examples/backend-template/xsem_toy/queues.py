"""Queues. Each queue has a thread, in place of a vendor's stream or device queue."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence

from xsem.errors import DriverError, OutOfMemoryError
from xsem.spi import SemaphoreQueue
from xsem.types import SignalParams, WaitParams
from xsem_toy.eventfd import Semaphore

__all__ = ["Fence", "ToyQueue"]

Operation = Callable[[], object]


class Fence:
    """A token of one completion, which is reached once or fails once, and can outlive its queue."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._failure = ""

    def end(self, failure: str) -> None:
        """Mark the fence as reached, or as failed if `failure` is not empty."""
        self._failure = failure
        self._ended.set()

    def wait(self, timeout_ns: int | None = None) -> bool:
        """Return whether the fence is reached in time, and raise DriverError if earlier work has failed."""
        if not self._ended.wait(None if timeout_ns is None else min(timeout_ns / 1e9, threading.TIMEOUT_MAX)):
            return False
        if self._failure:
            raise _failed(self._failure)
        return True


# A queue of a vendor needs no thread: each append calls the vendor library and returns when the driver has the
# operation. Calls of two threads never overlap, because `callers` is `Callers.ONE_AT_A_TIME`.
class ToyQueue(SemaphoreQueue):
    """One in-order queue."""

    def __init__(self) -> None:
        self.identity = object()   # for a queue of a vendor: its native handle, also as `native_handle`
        self._queue: queue.SimpleQueue[tuple[Operation, Fence | None] | None] = queue.SimpleQueue()
        self._failure = ""
        try:
            threading.Thread(target=self._run, name="xsem-toy-queue", daemon=True).start()
        except RuntimeError as error:
            raise OutOfMemoryError(f"no thread for a queue: {error}", reason="out_of_memory") from error

    def append_barrier(self, wait_fences: Sequence[Fence], want_fence: bool) -> Fence | None:
        """Append a wait for the fences."""
        # The queue is in order, so earlier work needs no wait.
        return self._append(wait_fences, [], want_fence)

    def append_wait(
        self, semaphores: Sequence[Semaphore], params: Sequence[WaitParams], wait_fences: Sequence[Fence],
        acquire: Sequence[object], want_fence: bool,
    ) -> Fence | None:
        """Append waits for all semaphores, which are binary and do not use `params`."""
        return self._append(wait_fences, [each.wait for each in semaphores], want_fence)

    def append_signal(
        self, semaphores: Sequence[Semaphore], params: Sequence[SignalParams], wait_fences: Sequence[Fence],
        release: Sequence[object], want_fence: bool,
    ) -> Fence | None:
        """Append signals of all semaphores."""
        return self._append(wait_fences, [each.signal for each in semaphores], want_fence)

    def append_work(self, work: Operation) -> None:
        """Append `work` to the queue."""
        # A queue of a vendor keeps the default, which calls `work` now, because `work` only enqueues commands.
        self._append([], [work], want_fence=False)

    def close(self) -> None:
        """End the thread, which is idle and ends at once."""
        self._queue.put(None)

    def _append(
        self, wait_fences: Sequence[Fence], operations: Sequence[Operation], want_fence: bool
    ) -> Fence | None:
        if self._failure:
            raise _failed(self._failure)
        steps = [*(each.wait for each in wait_fences), *operations]   # a copy: the caller may change its sequences
        fence = Fence() if want_fence else None
        self._queue.put((lambda: [step() for step in steps], fence))
        return fence

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            operation, fence = item
            try:
                if not self._failure:
                    operation()
            except BaseException as error:   # the application's work may raise any exception; the queue then stops
                self._failure = f"{type(error).__name__}: {error}"
            if fence is not None:
                fence.end(self._failure)
            del item, operation, fence   # `work` may keep much memory alive, and the next get may take long


def _failed(failure: str) -> DriverError:
    # A new exception each time: a shared one collects the traceback of each raise.
    return DriverError(f"earlier work of the queue failed: {failure}", reason="work_failed", from_earlier_work=True)
