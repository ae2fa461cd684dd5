"""Queues: CUDA streams."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Final

from xsem.errors import BadArgumentError, BusyError, UnsupportedError, XsemError
from xsem.spi import (
    CopyQueue,
    CudaStreamQueue,
    ImageCopyQueue,
    ImageRegion,
    PreparedCall,
    RecordingQueue,
    SemaphoreQueue,
)
from xsem.types import INFINITE, SignalParams, WaitParams
from xsem_cuda.causes import causes_of_kinds
from xsem_cuda.context import Context
from xsem_cuda.fences import Fence, Fences
from xsem_cuda.images import LevelToken, image_copy, region_copy
from xsem_cuda.keyed_mutexes import KeyedWait, forget
from xsem_cuda.prepared import PreparedSemaphores, native_semaphores
from xsem_cuda.recording import Graphs, Recorded, check_recordable
from xsem_cuda.results import call
from xsem_cuda.semaphores import Batches, SemaphoreToken
from xsem_cuda.stream_calls import StreamCalls
from xsem_cuda.tokens import DriverObject, HostObject
from xsem_cuda.words import LONGEST, Word, native_words

__all__ = ["StreamQueue"]

_MEMSETS: Final = {1: "cuMemsetD8Async", 2: "cuMemsetD16Async", 4: "cuMemsetD32Async"}
"""The function for each length of a pattern, in bytes."""


class StreamQueue(SemaphoreQueue, CopyQueue, ImageCopyQueue, RecordingQueue, CudaStreamQueue):
    """A queue on one stream: its own, or the application's, whose object it keeps."""

    # Signal, wait, record and cuStreamWaitEvent find the context through the stream (measured on a thread without a
    # context).

    identity: Hashable
    native_handle: int

    def __init__(
        self, driver: Any, context: Context, fences: Fences, handle: int, *, lent: object | None = None
    ) -> None:
        self._calls = StreamCalls(driver, fences, handle)
        self.native_calls = self._calls.native
        self.identity = self.native_handle = handle
        self._driver = driver
        self._context = context
        self._stream = driver.CUstream(handle)
        self._lent = lent
        self._own = lent is None
        self._signals = Batches(driver, signal=True)
        self._waits = Batches(driver, signal=False)
        self._signal = driver.cuSignalExternalSemaphoresAsync
        self._wait = driver.cuWaitExternalSemaphoresAsync
        self._graphs = Graphs(driver, context, self._stream)

    def is_capturing(self) -> bool:
        """Return whether the stream is in a capture (cuStreamIsCapturing). An invalidated capture counts."""
        return self._calls.is_capturing()

    # ---- appends
    def append_barrier(self, wait_fences: Sequence[Fence], want_fence: bool) -> Fence | None:
        """Call cuStreamWaitEvent for each fence. A stream is in order, so earlier work needs no wait."""
        return self._calls.barrier(wait_fences, want_fence)

    def append_wait(
        self, semaphores: Sequence[SemaphoreToken], params: Sequence[WaitParams], wait_fences: Sequence[Fence],
        acquire: Sequence[object], want_fence: bool,
    ) -> Fence | None:
        """Call cuWaitExternalSemaphoresAsync, and cuStreamBatchMemOp for timelines in pages of the host."""
        limited = () if semaphores[0].plain and len(semaphores) == 1 else _timeouts(params)
        recording = self._calls.captured
        with self._limited(limited) if limited and not recording else nullcontext():
            fence = self._semaphores(self._wait, self._waits, semaphores, params, wait_fences, want_fence)
        if isinstance(recording, _Recording):
            recording.timeouts += limited
        return fence

    def append_signal(
        self, semaphores: Sequence[SemaphoreToken], params: Sequence[SignalParams], wait_fences: Sequence[Fence],
        release: Sequence[object], want_fence: bool,
    ) -> Fence | None:
        """Call cuSignalExternalSemaphoresAsync, and cuStreamBatchMemOp for timelines in pages of the host."""
        return self._semaphores(self._signal, self._signals, semaphores, params, wait_fences, want_fence)

    def prepare_wait(self, semaphores: Sequence[SemaphoreToken]) -> PreparedCall | None:
        """Return a callable that makes one call as `append_wait`, with arrays that are made once."""
        return self._prepared(self._wait, semaphores)

    def prepare_signal(self, semaphores: Sequence[SemaphoreToken]) -> PreparedCall | None:
        """Return a callable that makes one call as `append_signal`, with arrays that are made once."""
        return self._prepared(self._signal, semaphores)

    def append_copy(
        self, dst: DriverObject, dst_offset: int, src: DriverObject, src_offset: int, size: int,
        wait_fences: Sequence[Fence], want_fence: bool,
    ) -> Fence | None:
        """Call cuMemcpyAsync. Neither side is pageable memory: a copy with pageable memory would block (measured)."""
        if isinstance(dst, HostObject) and isinstance(src, HostObject):
            return self._issue(self._between_host, (dst.address + dst_offset, src.address + src_offset, size),
                               wait_fences, want_fence)
        arguments = (self._driver.cuMemcpyAsync, dst.address + dst_offset, src.address + src_offset, size, self._stream)
        return self._issue(self._in_context, arguments, wait_fences, want_fence)

    def append_region_copy(
        self, level: LevelToken, region: ImageRegion, buffer: DriverObject, offset: int, row_pitch: int,
        slice_pitch: int, read: bool, wait_fences: Sequence[Fence], want_fence: bool,
    ) -> Fence | None:
        """Call cuMemcpy3DAsync. The buffer is device memory or page-locked host memory, as for `append_copy`."""
        native = region_copy(self._driver, level, region, buffer.address + offset, row_pitch, slice_pitch, read=read)
        return self._copy(native, wait_fences, want_fence)

    def append_image_copy(
        self, dst: LevelToken, dst_region: ImageRegion, src: LevelToken, src_region: ImageRegion,
        wait_fences: Sequence[Fence], want_fence: bool,
    ) -> Fence | None:
        """Call cuMemcpy3DAsync between two arrays."""
        return self._copy(image_copy(self._driver, dst, dst_region, src, src_region), wait_fences, want_fence)

    def append_fill(
        self, dst: DriverObject, offset: int, pattern: bytes, size: int, wait_fences: Sequence[Fence], want_fence: bool
    ) -> Fence | None:
        """Call cuMemsetD8Async, cuMemsetD16Async or cuMemsetD32Async: one operation for any size."""
        width, address = len(pattern), dst.address + offset
        if width not in _MEMSETS or address % width:
            raise BadArgumentError(
                f"CUDA fills with a pattern of 1, 2 or 4 bytes, at a multiple of this length, not with {width} bytes "
                f"at {address:#x}; copy from a filled host buffer instead", reason="bad_pattern",
            )
        function = getattr(self._driver, _MEMSETS[width])
        arguments = (function, address, int.from_bytes(pattern, "little"), size // width, self._stream)
        return self._issue(self._in_context, arguments, wait_fences, want_fence)

    def close(self) -> None:
        """Destroy the stream, unless it is borrowed. A borrowed stream stays the application's."""
        self._lent = None
        if self._own:
            forget(self._calls.keyed)
            with self._context, self._context.quiet:
                call(self._driver.cuStreamDestroy, self._stream)

    def cuda_stream(self) -> tuple[int, int]:
        """Return the CUstream and the ordinal of its device."""
        with self._context:
            return self.native_handle, int(call(self._driver.cuCtxGetDevice))

    # ---- recordings
    def begin_recording(self) -> None:
        """Begin a capture of the stream."""
        self._graphs.begin()
        self._calls.captured = _Recording()

    def end_recording(self) -> Recorded:
        """End the capture, complete or not."""
        recording, self._calls.captured = self._calls.captured, False
        recorded = self._graphs.end()
        if isinstance(recording, _Recording):
            recorded.timeouts = recording.timeouts
        return recorded

    def replay(self, recording: Recorded, values: Sequence[tuple[SemaphoreToken, int, int]]) -> None:
        """Launch the graph with new timeline values. A launch counts as one operation of `max_pending` (measured)."""
        if self._calls.captured:   # that graph would keep the recording, unknown to xsem
            raise BusyError("a recording cannot be replayed into a capture: end the capture first", reason="capturing")
        new = {token.address: (wait, signal) for token, wait, signal in values}
        with self._limited(recording.timeouts) if recording.timeouts else nullcontext():
            self._graphs.replay(recording, new)

    def release_recording(self, recording: Recorded) -> None:
        """Destroy the graph and its instance."""
        self._graphs.release(recording)

    # ---- inside
    def _in_context(self, function: Callable[..., Any], *arguments: object) -> None:
        with self._context:
            call(function, *arguments)

    def _between_host(self, dst: int, src: int, size: int) -> None:
        """Copy through memory of the device."""
        # The driver makes a copy within the host on the caller's thread, behind all work of the stream, also as
        # cuMemcpyDtoDAsync and cuMemcpy3DAsync. Through the device, the copy is appended, and is faster: 24 in place of
        # 14 GB/s (H200, 580.159.04). A captured copy is only noted.
        driver, stream = self._driver, self._stream
        with self._context:
            between = None
            if not self._calls.captured:
                with suppress(UnsupportedError):   # a driver before 11.2, or a device without memory pools
                    between = call(driver.cuMemAllocAsync, size, stream)
            if between is None:
                call(driver.cuMemcpyAsync, dst, src, size, stream)
                return
            try:
                call(driver.cuMemcpyAsync, between, src, size, stream)
                call(driver.cuMemcpyAsync, dst, between, size, stream)
            finally:
                call(driver.cuMemFreeAsync, between, stream)

    def _copy(self, native: Any, wait_fences: Sequence[Fence], want_fence: bool) -> Fence | None:
        arguments = (self._driver.cuMemcpy3DAsync, native, self._stream)
        return self._issue(self._in_context, arguments, wait_fences, want_fence)

    @contextmanager
    def _limited(self, timeouts: Sequence[int]) -> Iterator[None]:
        """Register one `KeyedWait` for an append of keyed-mutex waits with timeouts in milliseconds."""
        keyed, wait = self._calls.keyed, KeyedWait(min(timeouts))
        before = list(keyed)
        keyed[:] = [*(each for each in before if each.pending), wait]
        try:
            yield
        except BaseException:
            keyed[:] = before
            raise
        wait.begin()

    def _prepared(
        self, function: Callable[..., Any], semaphores: Sequence[SemaphoreToken]
    ) -> PreparedCall | None:
        words = [each for each in semaphores if type(each) is Word]
        if not words:
            native = native_semaphores(self._driver, function.__name__, semaphores, self.native_handle)
            return None if native is None else PreparedSemaphores(native, self._calls)
        if len(words) < len(semaphores) or len(words) > LONGEST:
            return None   # several calls
        return self._words(function, words)

    def _semaphores(
        self, function: Callable[..., Any], batches: Batches, semaphores: Sequence[SemaphoreToken],
        params: Sequence[SignalParams] | Sequence[WaitParams], wait_fences: Sequence[Fence], want_fence: bool,
    ) -> Fence | None:
        if isinstance(self._calls.captured, _Recording):
            check_recordable(semaphores, params)
        try:
            if any(type(each) is Word for each in semaphores):
                return self._issue(self._with_words, (function, batches, semaphores, params), wait_fences, want_fence)
            natives, structs = batches.fill(semaphores, params)
            return self._issue(call, (function, natives, structs, len(natives), self._stream), wait_fences, want_fence)
        except XsemError as error:
            if error.call == function.__name__ and error.code is not None:
                error.likely_causes = causes_of_kinds(error.call, error.code, (each.kind for each in semaphores))
            raise

    def _with_words(
        self, function: Callable[..., Any], batches: Batches, semaphores: Sequence[SemaphoreToken],
        params: Sequence[SignalParams] | Sequence[WaitParams],
    ) -> None:
        # The words come last, because their call has fewer causes to fail: nothing can take back the first call.
        given: Sequence[SignalParams | WaitParams] = params
        pairs = list(zip(semaphores, given, strict=True))
        others = [pair for pair in pairs if type(pair[0]) is not Word]
        words = [(word, param.value) for word, param in pairs if type(word) is Word]
        if others:
            natives, structs = batches.fill(*zip(*others, strict=True))
            call(function, natives, structs, len(natives), self._stream)
        for begin in range(0, len(words), LONGEST):
            some, values = zip(*words[begin:begin + LONGEST], strict=True)
            self._words(function, some).issue(values if len(values) > 1 else values[0])

    def _words(self, function: Callable[..., Any], words: Sequence[Word]) -> PreparedSemaphores:
        native = native_words(self._driver, words, self.native_handle, signal=function is self._signal)
        return PreparedSemaphores(native, self._calls)

    def _issue(
        self, function: Callable[..., object] | None, arguments: Sequence[object], wait_fences: Sequence[Fence],
        want_fence: bool,
    ) -> Fence | None:
        """Wait for the fences, call the function, and record the requested fence. A barrier has no function."""
        calls = self._calls
        event = calls.begin(wait_fences, want_fence)
        try:
            if function is not None:
                function(*arguments)
        except BaseException:
            calls.cancel(event)
            raise
        return calls.end(event)


class _Recording:
    """One recording of xsem. `timeouts` holds the timeouts of its keyed-mutex waits, in milliseconds."""

    def __init__(self) -> None:
        self.timeouts: tuple[int, ...] = ()


def _timeouts(params: Sequence[WaitParams]) -> tuple[int, ...]:
    """Return the finite timeouts; only waits for keyed mutexes have them."""
    return tuple(each.timeout_ms for each in params if each.timeout_ms is not None and each.timeout_ms != INFINITE)
