"""Queues of the host: each has a worker thread that runs its operations in order."""

from __future__ import annotations

import ctypes
import functools
import itertools
import threading
from _thread import start_new_thread
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Final, TypeAlias

from xsem.errors import DriverError, OutOfMemoryError, ReleasedError, XsemError
from xsem.portable import HostMapping, Pages, SemaphoreBase
from xsem.spi import CopyQueue, Lock, SemaphoreQueue
from xsem.types import SignalParams, WaitParams
from xsem_host.fences import HostFence, Waitable, repeated

__all__ = ["HostQueue"]

# Length of one slice of a wait. After each slice the worker checks whether the queue is closed. The slices grow: a
# thousand waiting queues cost little, and a young wait ends soon after its queue is closed.
_FIRST_SLICE_NS: Final = 50_000_000
_LONGEST_SLICE_NS: Final = 1_000_000_000
_FILL_CHUNK: Final = 1 << 20

_numbers = itertools.count(1)

Buffer: TypeAlias = HostMapping | Pages
Operation = Callable[[], object]


class _ClosedError(Exception):
    """The queue was closed during a wait of its worker."""


class _AwaitedError(Exception):
    """A fence that the worker waited for failed. `failure` is its error."""

    def __init__(self, failure: XsemError) -> None:
        super().__init__(str(failure))
        self.failure = failure


class HostQueue(SemaphoreQueue, CopyQueue):
    """One in-order queue. Its worker is a daemon thread, and lives from the first append to `close`."""

    def __init__(self, forget: Callable[[HostQueue], None]) -> None:
        self.identity = next(_numbers)
        self._forget = forget
        self._queue: SimpleQueue[tuple[Operation, HostFence | None] | None] = SimpleQueue()   # None: wake up
        self._touching = Lock()   # held during a copy or a fill
        self._started = False
        self._failure: DriverError | None = None
        self._closed = False

    # ---- appending
    def append_barrier(self, wait_fences: Sequence[Waitable], want_fence: bool) -> HostFence | None:
        """Append a wait for the fences. The queue is in order, so earlier work needs no wait."""
        fences = tuple(wait_fences)
        return self._append(lambda: self._await_fences(fences), want_fence)

    def append_wait(
        self, semaphores: Sequence[SemaphoreBase], params: Sequence[WaitParams], wait_fences: Sequence[Waitable],
        acquire: Sequence[object], want_fence: bool,
    ) -> HostFence | None:
        """Append a wait for all fences and then for all semaphores, one after the other."""
        fences = tuple(wait_fences)
        waits = tuple(zip(semaphores, params, strict=True))

        def operation() -> None:
            self._await_fences(fences)
            for semaphore, param in waits:
                self._await(functools.partial(semaphore.wait, param.value))

        return self._append(operation, want_fence)

    def append_signal(
        self, semaphores: Sequence[SemaphoreBase], params: Sequence[SignalParams],
        wait_fences: Sequence[Waitable], release: Sequence[object], want_fence: bool,
    ) -> HostFence | None:
        """Append a wait for all fences and then a signal of all semaphores."""
        fences = tuple(wait_fences)
        signals = tuple(zip(semaphores, params, strict=True))

        def operation() -> None:
            self._await_fences(fences)
            for semaphore, param in signals:
                semaphore.signal(param.value)

        return self._append(operation, want_fence)

    def append_copy(
        self, dst: Buffer, dst_offset: int, src: Buffer, src_offset: int, size: int, wait_fences: Sequence[Waitable],
        want_fence: bool,
    ) -> HostFence | None:
        """Append a copy of `size` bytes."""
        fences = tuple(wait_fences)
        target, source = dst.address + dst_offset, src.address + src_offset

        def operation() -> None:
            self._await_fences(fences)
            with self._touching:
                self._check_open()
                ctypes.memmove(target, source, size)

        return self._append(operation, want_fence)

    def append_fill(
        self, dst: Buffer, offset: int, pattern: bytes, size: int, wait_fences: Sequence[Waitable], want_fence: bool
    ) -> HostFence | None:
        """Append a fill that repeats `pattern` over `size` bytes, in chunks of about 1 MiB."""
        fences = tuple(wait_fences)
        target = dst.address + offset

        def operation() -> None:
            self._await_fences(fences)
            chunk = pattern * max(1, min(size, _FILL_CHUNK) // len(pattern))
            with self._touching:
                self._check_open()
                for at in range(0, size, len(chunk)):
                    ctypes.memmove(target + at, chunk, min(len(chunk), size - at))

        return self._append(operation, want_fence)

    def append_work(self, work: Callable[[], object]) -> None:
        """Append the application's function: it runs on the queue's worker thread."""
        self._append(work, False)

    def _append(self, operation: Operation, want_fence: bool) -> HostFence | None:
        self._check_usable()
        if not self._started:
            self._start()
        fence = HostFence() if want_fence else None
        self._queue.put((operation, fence))
        if self._failure is not None or self._closed:
            # The queue was stopped or closed after the first check: the worker may have emptied the queue before `put`.
            self._drop(self._failure or _closed())
        return fence

    def _check_usable(self) -> None:
        if self._closed:
            raise ReleasedError("the command list has been closed", reason="released")
        if self._failure is not None:
            raise repeated(self._failure)

    def _start(self) -> None:
        self._started = True
        try:
            # Not `Thread.start`, which waits for the thread: Ctrl-C in it can come out as a RuntimeError, like a thread
            # that the system refuses (CPython 3.11.7).
            start_new_thread(self._run_as_thread, ())
        except (RuntimeError, MemoryError) as error:
            self._started = False
            raise OutOfMemoryError(f"the list's worker cannot be started: {error}", reason="out_of_memory") from error

    def close(self) -> None:
        """Drop the queued operations and end the worker. Waits for a copy or a fill, not for the application's work."""
        self._closed = True
        self._drop(_closed())
        self._queue.put(None)
        self._forget(self)
        with self._touching:   # the caller may unmap the memory of a copy next
            pass

    def _drop(self, failure: XsemError) -> None:
        """Empty the queue and fail the fences in it."""
        while True:
            try:
                queued = self._queue.get_nowait()
            except Empty:
                return
            if queued is not None and queued[1] is not None:
                queued[1].fail(failure)

    # ---- the worker
    def _run_as_thread(self) -> None:
        try:
            # Without a Thread object the thread would lack a name, and logging would create a dummy object for it.
            threading.Thread(target=self._run, name=f"xsem-host-list-{self.identity}", daemon=True).start()
        except (RuntimeError, MemoryError):   # the system refuses a second thread, so this one does the work
            self._run()

    def _run(self) -> None:
        while not self._closed and self._failure is None:
            queued = self._queue.get()
            if queued is None:
                continue
            operation, fence = queued
            try:
                operation()
            except _ClosedError:
                if fence is not None:
                    fence.fail(_closed())
            except BaseException as error:
                self._stop(error, fence)
            else:
                if fence is not None:
                    fence.reach()
            # No reference stays while the worker sleeps: the application's function may hold arrays.
            del queued, operation, fence
        self._drop(self._failure or _closed())

    def _stop(self, error: BaseException, fence: HostFence | None) -> None:
        if isinstance(error, _AwaitedError):
            failure = DriverError(f"an event that the list waited for failed: {error.failure.message}",
                                  reason="work_failed", from_earlier_work=True)
            failure.__cause__ = error.failure.__cause__ or error.failure
        else:
            failure = DriverError(f"work appended to the list raised {type(error).__name__}: {error}",
                                  reason="work_failed", from_earlier_work=True)
            failure.__cause__ = error
        self._failure = failure
        if fence is not None:
            fence.fail(failure)

    def _await_fences(self, fences: tuple[Waitable, ...]) -> None:
        for fence in fences:
            try:
                self._await(fence.wait)
            except XsemError as failure:
                raise _AwaitedError(failure) from None

    def _await(self, wait: Callable[[int], bool]) -> None:
        slice_ns = _FIRST_SLICE_NS
        while not wait(slice_ns):
            self._check_open()
            slice_ns = min(2 * slice_ns, _LONGEST_SLICE_NS)

    def _check_open(self) -> None:
        if self._closed:
            raise _ClosedError


def _closed() -> ReleasedError:
    return ReleasedError("the command list was closed before this operation was done", reason="released")
