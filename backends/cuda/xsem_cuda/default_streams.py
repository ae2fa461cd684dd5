"""Queues on the default streams: the stream of the current context, and the stream of the calling thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xsem.errors import BadArgumentError, UnsupportedError
from xsem.spi import PreparedCall
from xsem_cuda.context import Context
from xsem_cuda.fences import Fence, Fences
from xsem_cuda.queue import StreamQueue
from xsem_cuda.semaphores import SemaphoreToken
from xsem_cuda.streams import PER_THREAD, per_thread_identity

__all__ = ["DefaultStreamQueue", "PerThreadQueue"]


class DefaultStreamQueue(StreamQueue):
    """A queue on a default stream. The handle means a stream of the current context, so each append enters it."""

    def __init__(self, driver: Any, context: Context, fences: Fences, handle: int, *, lent: object) -> None:
        super().__init__(driver, context, fences, handle, lent=lent)
        self.native_calls = None   # the compiled part would neither enter the context nor check the thread

    def is_capturing(self) -> bool:
        """Return False: the legacy stream cannot be captured."""
        return False   # without a query, which fails during the capture of a blocking stream

    def append_barrier(self, wait_fences: Sequence[Fence], want_fence: bool) -> Fence | None:
        """Append a barrier as `StreamQueue`, in the device's context."""
        return self._issue(None, (), wait_fences, want_fence)

    def begin_recording(self) -> None:
        """Refuse the recording."""
        # The driver never captures the legacy stream, and the per-thread stream is another stream in each thread.
        raise UnsupportedError("a default stream cannot be recorded: record on another stream, or on a list from "
                               "create_command_list()", capability="recording", reason="default_stream")

    def _prepared(
        self, function: Callable[..., Any], semaphores: Sequence[SemaphoreToken]
    ) -> PreparedCall | None:
        return None   # each append makes the context current; on the per-thread stream, it also checks the thread

    def _issue(
        self, function: Callable[..., object] | None, arguments: Sequence[object], wait_fences: Sequence[Fence],
        want_fence: bool,
    ) -> Fence | None:
        with self._context:
            return super()._issue(function, arguments, wait_fences, want_fence)


class PerThreadQueue(DefaultStreamQueue):
    """A queue on the per-thread default stream of the thread that borrowed it."""

    # The handle means a different stream in each thread, so only the borrowing thread appends work, and each append
    # records a fence. Other threads, for example xsem's releasing thread, can only append a barrier with a fence. It
    # appends nothing to the stream and returns the newest fence of the queue.

    def __init__(self, driver: Any, context: Context, fences: Fences, *, lent: object) -> None:
        super().__init__(driver, context, fences, PER_THREAD, lent=lent)
        self.identity = per_thread_identity()
        self._fences = fences
        self._newest: Fence | None = None

    def append_barrier(self, wait_fences: Sequence[Fence], want_fence: bool) -> Fence | None:
        """Append a barrier. Another thread may only ask for a fence, without `wait_fences`."""
        if self.identity == per_thread_identity() or wait_fences or not want_fence:
            return super().append_barrier(wait_fences, want_fence)
        if self._newest is None:
            return Fence(self._fences.create())
        return self._fences.share(self._newest)

    def append_work(self, work: Callable[[], object]) -> None:
        """Call `work`, then record the newest fence, so that the fences of other threads include the work."""
        self._issue(work, (), (), False)

    def cuda_stream(self) -> tuple[int, int]:
        """Return CU_STREAM_PER_THREAD and the ordinal of its device."""
        if self.identity != per_thread_identity():
            raise _other_thread("use it")
        return super().cuda_stream()

    def is_capturing(self) -> bool:
        """Return whether the stream is in a capture. On another thread, return the last known answer."""
        if self.identity == per_thread_identity():
            with self._context:
                self._calls.is_capturing()
        return bool(self._calls.captured)

    def close(self) -> None:
        """Recycle the newest fence. The application keeps the stream."""
        super().close()
        newest, self._newest = self._newest, None
        if newest is not None:
            self._fences.release(newest)

    def _issue(
        self, function: Callable[..., object] | None, arguments: Sequence[object], wait_fences: Sequence[Fence],
        want_fence: bool,
    ) -> Fence | None:
        if self.identity != per_thread_identity():
            raise _other_thread("append")
        newest = super()._issue(function, arguments, wait_fences, True)
        before, self._newest = self._newest, newest
        if before is not None:
            self._fences.release(before)
        return None if newest is None or not want_fence else self._fences.share(newest)


def _other_thread(action: str) -> BadArgumentError:
    return BadArgumentError(f"the per-thread default stream differs in each thread: {action} on the thread that made "
                            "this list", reason="per_thread_stream")
