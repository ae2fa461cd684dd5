"""Command lists of the host: a queue, and a worker thread that does the operations in order."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from xsem.errors import DriverError, OutOfMemoryError, ReleasedError, XsemError
from xsem.spi import CommandListDriver
from xsem.types import SignalParams, WaitParams
from xsem_host.points import HostPoint, Waitable, repeated
from xsem_host.sharing import HostSemaphore

__all__ = ["HostList"]

# How long the worker waits at a stretch: in between it looks whether the list was closed.
_SLICE_NS: Final = 50_000_000
_FILL_CHUNK: Final = 1 << 20

_keys = itertools.count(1)

Operation = Callable[[], None]


class _ClosedError(Exception):
    """The list was closed while the worker waited."""


class _AwaitedError(Exception):
    """What the worker waited for has failed; the cause says why."""

    def __init__(self, failure: XsemError) -> None:
        super().__init__(str(failure))
        self.failure = failure


class HostList(CommandListDriver):
    """One in-order list. The worker is a daemon and lives from the first append to `close`."""

    def __init__(self, forget: Callable[[HostList], None]) -> None:
        self.key = next(_keys)
        self._forget = forget
        self._queue: deque[tuple[Operation, HostPoint | None]] = deque()
        self._changed = threading.Condition()
        self._touching = threading.Lock()
        self._worker: threading.Thread | None = None
        self._failure: DriverError | None = None
        self._closed = False

    # ---- appending
    def append_barrier(self, wait_points: Sequence[Waitable], want_point: bool) -> HostPoint | None:
        """A barrier is its event list: the queue is in order."""
        points = tuple(wait_points)
        return self._append(lambda: self._await_points(points), want_point)

    def append_wait(
        self, semaphores: Sequence[HostSemaphore], params: Sequence[WaitParams], wait_points: Sequence[Waitable],
        acquire: Sequence[object], want_point: bool,
    ) -> HostPoint | None:
        """Wait for all, one after the other."""
        points = tuple(wait_points)
        waits = tuple(zip(semaphores, params, strict=True))

        def operation() -> None:
            self._await_points(points)
            for semaphore, param in waits:
                while not semaphore.wait(param.value, _SLICE_NS):
                    self._check_open()

        return self._append(operation, want_point)

    def append_signal(
        self, semaphores: Sequence[HostSemaphore], params: Sequence[SignalParams],
        wait_points: Sequence[Waitable], release: Sequence[object], want_point: bool,
    ) -> HostPoint | None:
        """Signal all."""
        points = tuple(wait_points)
        signals = tuple(zip(semaphores, params, strict=True))

        def operation() -> None:
            self._await_points(points)
            for semaphore, param in signals:
                semaphore.signal(param.value)

        return self._append(operation, want_point)

    def append_copy(
        self, dst: int, src: int, size: int, wait_points: Sequence[Waitable], want_point: bool
    ) -> HostPoint | None:
        """Move bytes between addresses."""
        points = tuple(wait_points)

        def operation() -> None:
            self._await_points(points)
            with self._touching:
                self._check_open()
                ctypes.memmove(dst, src, size)

        return self._append(operation, want_point)

    def append_fill(
        self, dst: int, pattern: bytes, size: int, wait_points: Sequence[Waitable], want_point: bool
    ) -> HostPoint | None:
        """Repeat the pattern, chunk by chunk."""
        points = tuple(wait_points)

        def operation() -> None:
            self._await_points(points)
            chunk = pattern * max(1, min(size, _FILL_CHUNK) // len(pattern))
            with self._touching:
                self._check_open()
                for at in range(0, size, len(chunk)):
                    ctypes.memmove(dst + at, chunk, min(len(chunk), size - at))

        return self._append(operation, want_point)

    def append_work(self, work: Callable[[], object]) -> None:
        """Queue it: on the host the application's work runs on the worker."""

        def operation() -> None:
            work()

        self._append(operation, False)

    def _append(self, operation: Operation, want_point: bool) -> HostPoint | None:
        with self._changed:
            if self._closed:
                raise ReleasedError("the command list has been closed", reason="released")
            if self._failure is not None:
                raise repeated(self._failure)
            if self._worker is None:
                self._worker = self._start()
            point = HostPoint() if want_point else None
            self._queue.append((operation, point))
            self._changed.notify()
            return point

    def _start(self) -> threading.Thread:
        worker = threading.Thread(target=self._run, name=f"xsem-host-list-{self.key}", daemon=True)
        try:
            worker.start()
        except RuntimeError as error:
            raise OutOfMemoryError(f"the list's worker cannot be started: {error}", reason="out_of_memory") from error
        return worker

    def close(self) -> None:
        """End the worker; what is still queued is dropped. Waits for a copy that is under way, not for work."""
        with self._changed:
            self._closed = True
            self._drop(ReleasedError("the command list was closed before that was done", reason="released"))
            self._changed.notify()
        # The memory that it copies to or from may be unmapped next.
        with self._touching:
            pass
        self._forget(self)

    def _drop(self, failure: XsemError) -> None:
        """Nothing that is queued will be done."""
        while self._queue:
            _, point = self._queue.popleft()
            if point is not None:
                point.fail(failure)

    # ---- the worker
    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._closed and self._failure is None:
                    self._changed.wait()
                if self._closed or self._failure is not None:
                    return
                operation, point = self._queue.popleft()
            try:
                operation()
            except _ClosedError:
                if point is not None:
                    point.fail(ReleasedError("the command list was closed before that was done", reason="released"))
            except BaseException as error:
                self._stop(error, point)
            else:
                if point is not None:
                    point.reach()
            # Not kept while the worker sleeps: the application's function may hold arrays.
            del operation, point

    def _stop(self, error: BaseException, point: HostPoint | None) -> None:
        if isinstance(error, _AwaitedError):
            failure = DriverError(f"what the list waited for has failed: {error.failure.message}",
                                  reason="work_failed", from_earlier_work=True)
            failure.__cause__ = error.failure.__cause__ or error.failure
        else:
            failure = DriverError(f"work appended to the list raised {type(error).__name__}: {error}",
                                  reason="work_failed", from_earlier_work=True)
            failure.__cause__ = error
        with self._changed:
            self._failure = failure
            if point is not None:
                point.fail(failure)
            self._drop(failure)

    def _await_points(self, points: tuple[Waitable, ...]) -> None:
        for point in points:
            try:
                while not point.wait(_SLICE_NS):
                    self._check_open()
            except XsemError as failure:
                raise _AwaitedError(failure) from None

    def _check_open(self) -> None:
        if self._closed:
            raise _ClosedError
