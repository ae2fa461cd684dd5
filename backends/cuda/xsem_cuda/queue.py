"""Command lists: CUDA streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

from xsem.errors import BadArgumentError, BusyError, UnsupportedError
from xsem.spi import PreparedCall, QueueDriver
from xsem.types import INFINITE, SignalParams, WaitParams
from xsem_cuda.context import Context
from xsem_cuda.direct import capture_query
from xsem_cuda.fences import Fence, Fences
from xsem_cuda.images import LevelToken, level_copy
from xsem_cuda.keyed_mutexes import KeyedWait, forget
from xsem_cuda.prepared import prepared
from xsem_cuda.recording import Graphs, Recorded
from xsem_cuda.results import call
from xsem_cuda.semaphores import Batches, SemaphoreToken
from xsem_cuda.streams import LEGACY, PER_THREAD, per_thread_identity

__all__ = ["PerThreadList", "StreamList"]

_NO_CONTEXT: Final[AbstractContextManager[None]] = nullcontext()


class StreamList(QueueDriver):
    """A command list on one stream, created by xsem or borrowed.

    Parameters
    ----------
    driver : module
        ``cuda.bindings.driver``.
    context : Context
    fences : Fences
    handle : int
        The CUstream as a number: the legacy stream is 1.
    lent : object
        The application's stream object. The list keeps it alive and never destroys the stream. None: the list owns the
        stream, and `close` destroys it.
    """

    def __init__(
        self, driver: Any, context: Context, fences: Fences, handle: int, *, lent: object | None = None
    ) -> None:
        self.identity = handle
        self._driver = driver
        self._context = context
        self._fences = fences
        self._stream = driver.CUstream(handle)
        self._lent = lent
        self._own = lent is None
        # Signal, wait and record find the context through the stream (measured on a thread without a context). The
        # default streams depend on the current context.
        self._scope: AbstractContextManager[None] = context if handle in (LEGACY, PER_THREAD) else _NO_CONTEXT
        self._bare = self._scope is _NO_CONTEXT
        self._signals = Batches(driver, signal=True)
        self._waits = Batches(driver, signal=False)
        self._signal = driver.cuSignalExternalSemaphoresAsync
        self._wait = driver.cuWaitExternalSemaphoresAsync
        self._record_event = driver.cuEventRecord
        self._query_capture: Callable[[], bool] | None = None   # created by the first query
        self._graphs = Graphs(driver, context, self._stream)
        # False outside of captures. True in a capture of the application: the driver does not tell whether two streams
        # are in the same one. Each recording has its own object: a wait in one recording for an event of another
        # invalidates both (measured).
        self._captured: object = False
        self._keyed: tuple[KeyedWait, ...] = ()  # each fence refers to the waits before it

    # ---- appends
    def append_wait(
        self, semaphores: Sequence[SemaphoreToken], params: Sequence[WaitParams], wait_fences: Sequence[Fence],
        acquire: Sequence[object], want_fence: bool,
    ) -> Fence | None:
        """Call cuWaitExternalSemaphoresAsync.

        Raises
        ------
        BusyError
            ``capture_isolation``: a fence of `wait_fences` belongs to another capture.
        """
        limited = () if semaphores[0].plain and len(semaphores) == 1 else _timeouts(params)
        with self._limited(limited) if limited and not self._captured else _NO_CONTEXT:
            fence = self._semaphores(self._wait, self._waits, semaphores, params, wait_fences, want_fence)
        if isinstance(self._captured, _Recording):
            self._captured.timeouts += limited
        return fence

    def append_signal(
        self, semaphores: Sequence[SemaphoreToken], params: Sequence[SignalParams], wait_fences: Sequence[Fence],
        release: Sequence[object], want_fence: bool,
    ) -> Fence | None:
        """Call cuSignalExternalSemaphoresAsync.

        Raises
        ------
        BusyError
            ``capture_isolation``: a fence of `wait_fences` belongs to another capture.
        """
        return self._semaphores(self._signal, self._signals, semaphores, params, wait_fences, want_fence)

    def prepare_wait(self, semaphores: Sequence[SemaphoreToken]) -> PreparedCall:
        """Return a callable that calls cuWaitExternalSemaphoresAsync with arrays that are made once."""
        return self._prepared(self._wait, semaphores) or super().prepare_wait(semaphores)

    def prepare_signal(self, semaphores: Sequence[SemaphoreToken]) -> PreparedCall:
        """Return a callable that calls cuSignalExternalSemaphoresAsync with arrays that are made once."""
        return self._prepared(self._signal, semaphores) or super().prepare_signal(semaphores)

    def append_barrier(self, wait_fences: Sequence[Fence], want_fence: bool) -> Fence | None:
        """Call cuStreamWaitEvent for each fence. A stream is in order, so earlier work needs no wait."""
        return self._issue(None, (), wait_fences, want_fence)

    def append_copy(
        self, dst: int, src: int, size: int, wait_fences: Sequence[Fence], want_fence: bool
    ) -> Fence | None:
        """Call cuMemcpyAsync. Neither side is pageable memory: a copy with pageable memory would block (measured)."""
        return self._issue(self._in_context, (self._driver.cuMemcpyAsync, dst, src, size, self._stream), wait_fences,
                           want_fence)

    def append_level_copy(
        self, level: LevelToken, address: int, read: bool, wait_fences: Sequence[Fence], want_fence: bool
    ) -> Fence | None:
        """Call cuMemcpy3DAsync. The host memory is page-locked, as for `append_copy`."""
        driver = self._driver
        native = level_copy(driver, level, address, read=read)

        return self._issue(self._in_context, (driver.cuMemcpy3DAsync, native, self._stream), wait_fences, want_fence)

    def append_fill(
        self, dst: int, pattern: bytes, size: int, wait_fences: Sequence[Fence], want_fence: bool
    ) -> Fence | None:
        """Call cuMemsetD8Async, cuMemsetD16Async or cuMemsetD32Async: one operation for any size.

        Raises
        ------
        BadArgumentError
            ``bad_pattern``: the pattern does not repeat after 1, 2 or 4 bytes, or `dst` is not aligned to that length.
        """
        word = _shortest_period(pattern)
        width = len(word)
        names = {1: "cuMemsetD8Async", 2: "cuMemsetD16Async", 4: "cuMemsetD32Async"}
        if width not in names or dst % width:
            raise BadArgumentError(
                f"CUDA fills with 1, 2 or 4 repeated bytes at an address aligned to them, not with {len(pattern)} "
                f"bytes at {dst:#x}; copy from a filled host buffer instead", reason="bad_pattern",
            )
        function = getattr(self._driver, names[width])
        value = int.from_bytes(word, "little")

        return self._issue(self._in_context, (function, dst, value, size // width, self._stream), wait_fences,
                           want_fence)

    def is_capturing(self) -> bool:
        """Return whether the stream is in a capture (cuStreamIsCapturing). An invalidated capture counts."""
        if self.identity == LEGACY:
            # The legacy stream cannot be captured, and the query fails while a blocking stream is captured.
            return False
        if self._query_capture is None:
            self._query_capture = (capture_query(self._driver, self.identity) if self._bare else None) or self._ask_capture
        captured = self._query_capture()
        self._captured = captured
        return captured

    def _ask_capture(self) -> bool:
        with self._scope:
            status = call(self._driver.cuStreamIsCapturing, self._stream)
        captured: bool = status != self._driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
        return captured

    def close(self) -> None:
        """Destroy the stream, unless it is borrowed. A borrowed stream stays the application's."""
        self._lent = None
        if self._own:
            self._own = False
            forget(self._keyed)
            with self._context:
                call(self._driver.cuStreamDestroy, self._stream)

    # ---- recordings
    def begin_recording(self) -> None:
        """Begin a capture of the stream.

        Raises
        ------
        UnsupportedError
            ``default_stream``: the driver never captures the legacy stream, and the per-thread stream is a different
            stream in each thread.
        BusyError
            ``capturing``: the application captures the stream.
        """
        if not self._bare:
            raise UnsupportedError("a default stream cannot be recorded: record on another stream, or on a list that "
                                   "create_command_list() made", capability="recording", reason="default_stream")
        self._graphs.begin()
        self._captured = _Recording()

    def end_recording(self) -> Recorded:
        """End the capture, complete or not.

        Returns
        -------
        Recorded
            Owned by the caller, until `release_recording`.

        Raises
        ------
        BusyError
            ``not_recordable``.
        """
        recording, self._captured = self._captured, False
        recorded = self._graphs.end()
        if isinstance(recording, _Recording):
            recorded.timeouts = recording.timeouts
        return recorded

    def replay(self, recording: Recorded, values: Sequence[tuple[SemaphoreToken, int, int]]) -> None:
        """Launch the graph with new timeline values. A launch counts as one operation of `max_pending` (measured).

        Parameters
        ----------
        recording : Recorded
        values : sequence of (SemaphoreToken, int, int)
            Value to wait for, and value to signal.

        Raises
        ------
        BusyError
            ``capturing``: the stream is in a capture. That graph would keep the recording, unknown to xsem.
        """
        if self._captured:
            raise BusyError("a recording cannot be replayed into a capture: end the capture first", reason="capturing")
        with self._limited(recording.timeouts) if recording.timeouts else _NO_CONTEXT:
            self._graphs.replay(recording, {token.address: (wait, signal) for token, wait, signal in values})

    def release_recording(self, recording: Recorded) -> None:
        """Destroy the graph and its instance."""
        self._graphs.release(recording)

    # ---- inside
    def _in_context(self, function: Callable[..., Any], *arguments: object) -> None:
        with self._context:
            call(function, *arguments)

    @contextmanager
    def _limited(self, timeouts: Sequence[int]) -> Iterator[None]:
        """Register one `KeyedWait` for an append of keyed-mutex waits with timeouts in milliseconds."""
        wait, before = KeyedWait(min(timeouts)), self._keyed
        self._keyed = (*(each for each in before if each.pending), wait)
        try:
            yield
        except BaseException:
            self._keyed = before
            raise
        wait.begin()

    def _prepared(
        self, function: Callable[..., Any], semaphores: Sequence[SemaphoreToken]
    ) -> PreparedCall | None:
        # The default streams need the context at each call. The per-thread stream also needs its thread.
        return prepared(self._driver, function.__name__, semaphores, self._stream, self._issue) if self._bare else None

    def _semaphores(
        self, function: Callable[..., Any], batches: Batches, semaphores: Sequence[SemaphoreToken],
        params: Sequence[SignalParams] | Sequence[WaitParams], wait_fences: Sequence[Fence], want_fence: bool,
    ) -> Fence | None:
        natives, structs = batches.fill(semaphores, params)
        if self._bare and not wait_fences and not want_fence:
            call(function, natives, structs, len(natives), self._stream)
            return None
        return self._issue(call, (function, natives, structs, len(natives), self._stream), wait_fences, want_fence)

    def _issue(
        self, function: Callable[..., object] | None, arguments: Sequence[object], wait_fences: Sequence[Fence],
        want_fence: bool,
    ) -> Fence | None:
        """Wait for the fences, call the function, and record the requested fence. A barrier has no function."""
        for fence in wait_fences:
            if fence.captured != self._captured:
                raise BusyError(
                    "an event of a capture and work outside of this capture cannot wait for each other: the wait would "
                    "invalidate the capture", reason="capture_isolation",
                )
        # Before any append: creating an event can fail.
        event = self._fences.take() if want_fence else None
        try:
            with self._scope:
                for fence in wait_fences:
                    call(self._driver.cuStreamWaitEvent, self._stream, fence.event, 0)
                    if self._captured is False and not fence.owned:
                        # A wait for an event of the application's capture adds this stream to that capture.
                        self.is_capturing()
                if function is not None:
                    function(*arguments)
                if event is None:
                    return None
                call(self._record_event, event, self._stream)
        except BaseException:
            if event is not None:
                self._fences.give_back(event)
            raise
        return Fence(event, captured=self._captured, keyed=self._keyed)


class PerThreadList(StreamList):
    """A command list on the per-thread default stream of the thread that borrowed it.

    The handle of this stream means a different stream in each thread. So only the borrowing thread appends work, and
    each append records a fence. Another thread can only append a barrier that records a fence, as xsem's releasing
    thread does. This barrier returns the newest fence of the list.

    Parameters
    ----------
    driver : module
        ``cuda.bindings.driver``.
    context : Context
    fences : Fences
    lent : object
        The application's stream object, kept alive.
    """

    def __init__(self, driver: Any, context: Context, fences: Fences, *, lent: object) -> None:
        super().__init__(driver, context, fences, PER_THREAD, lent=lent)
        self.identity = per_thread_identity()
        self._newest: Fence | None = None

    def append_barrier(self, wait_fences: Sequence[Fence], want_fence: bool) -> Fence | None:
        """Append a barrier. On another thread only without `wait_fences` and with `want_fence`.

        Raises
        ------
        BadArgumentError
            ``per_thread_stream``: on another thread, with `wait_fences` or without `want_fence`.
        """
        if self.identity == per_thread_identity() or wait_fences or not want_fence:
            return super().append_barrier(wait_fences, want_fence)
        newest = self._newest
        if newest is None:
            # An event that was never recorded counts as complete.
            with self._context:
                return Fence(call(self._driver.cuEventCreate, 0))
        return Fence(newest.event, captured=newest.captured, source=newest, keyed=newest.keyed)

    def append_work(self, work: Callable[[], object]) -> None:
        """Call `work`, then record the newest fence, so that the fences of other threads include the work."""
        self._issue(work, (), (), False)

    def is_capturing(self) -> bool:
        """Return whether the stream is in a capture. On another thread, return the last known answer."""
        return super().is_capturing() if self.identity == per_thread_identity() else bool(self._captured)

    def _semaphores(
        self, function: Callable[..., Any], batches: Batches, semaphores: Sequence[SemaphoreToken],
        params: Sequence[SignalParams] | Sequence[WaitParams], wait_fences: Sequence[Fence], want_fence: bool,
    ) -> Fence | None:
        natives, structs = batches.fill(semaphores, params)
        return self._issue(call, (function, natives, structs, len(natives), self._stream), wait_fences, want_fence)

    def _issue(
        self, function: Callable[..., object] | None, arguments: Sequence[object], wait_fences: Sequence[Fence],
        want_fence: bool,
    ) -> Fence | None:
        if self.identity != per_thread_identity():
            raise BadArgumentError("the per-thread default stream differs in each thread: append on the thread "
                                   "that made this list", reason="per_thread_stream")
        newest = super()._issue(function, arguments, wait_fences, True)
        self._newest = newest
        return newest if want_fence else None


class _Recording:
    """One recording of xsem. `timeouts` holds the timeouts of its keyed-mutex waits, in milliseconds."""

    def __init__(self) -> None:
        self.timeouts: tuple[int, ...] = ()


def _shortest_period(pattern: bytes) -> bytes:
    for width in (1, 2, 4):
        if len(pattern) % width == 0 and pattern == pattern[:width] * (len(pattern) // width):
            return pattern[:width]
    return pattern


def _timeouts(params: Sequence[WaitParams]) -> tuple[int, ...]:
    """Return the finite timeouts; only waits for keyed mutexes have them."""
    return tuple(each.timeout_ms for each in params if each.timeout_ms is not None and each.timeout_ms != INFINITE)
