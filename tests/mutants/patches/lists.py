"""Faults in lists and fences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import xsem_cuda.device
from patches.base import instead, patch
from xsem_cuda.device import CudaDevice
from xsem_cuda.fences import Fence, Fences
from xsem_cuda.queue import StreamQueue
from xsem_cuda.results import call
from xsem_cuda.stream_calls import StreamCalls
from xsem_cuda.streams import LEGACY
from xsem_cuda.suite_hooks import CudaHooks


@patch
def wait_fences_dropped() -> None:
    """An append does not wait for its fences."""
    @instead(StreamCalls, "begin")
    def begin(before: Any, self: Any, wait_fences: Any, want_fence: bool) -> int:
        return before(self, (), want_fence)  # type: ignore[no-any-return]


@patch
def wait_fences_of_a_barrier_dropped() -> None:
    """A barrier does not wait for its fences."""
    @instead(StreamQueue, "append_barrier")
    def append_barrier(before: Any, self: Any, wait_fences: Any, want_fence: bool) -> Any:
        return before(self, (), want_fence)


@patch
def wait_fences_after_the_operation() -> None:
    """An append waits for its fences after its operation."""
    wait = StreamCalls.begin

    @instead(StreamCalls, "begin")
    def begin(before: Any, self: Any, wait_fences: Any, want_fence: bool) -> int:
        self.late = wait_fences
        return before(self, (), want_fence)  # type: ignore[no-any-return]

    @instead(StreamCalls, "end")
    def end(before: Any, self: Any, event: int) -> Any:
        wait(self, self.late, False)
        return before(self, event)


@patch
def point_before_the_operation() -> None:
    """The fence of an operation is recorded before the operation."""
    record = StreamCalls.end

    @instead(StreamCalls, "begin")
    def begin(before: Any, self: Any, wait_fences: Any, want_fence: bool) -> int:
        event: int = before(self, wait_fences, want_fence)
        self.early = record(self, event)
        return event

    @instead(StreamCalls, "end")
    def end(before: Any, self: Any, event: int) -> Any:
        return self.early


@patch
def point_not_recorded() -> None:
    """The event of a fence is created and never recorded."""
    @instead(StreamCalls, "end")
    def end(before: Any, self: Any, event: int) -> Any:
        return Fence(event, self.captured) if event else None


@patch
def event_recycled_at_once() -> None:
    """The event of a fence is reused for the next fence while it is in use."""
    @instead(StreamCalls, "end")
    def end(before: Any, self: Any, event: int) -> Any:
        fence = before(self, event)
        if fence is not None:
            self._fences.give_back(fence.event)
        return fence


@patch
def done_not_asked() -> None:
    """Every fence counts as reached."""
    @instead(Fences, "done")
    def done(before: Any, self: Any, fence: Any) -> bool:
        return True


@patch
def done_never() -> None:
    """No fence counts as reached."""
    @instead(Fences, "done")
    def done(before: Any, self: Any, fence: Any) -> bool:
        return False


@patch
def stream_shared() -> None:
    """All lists of a device append to one stream."""
    @instead(CudaDevice, "create_queue")
    def create(before: Any, self: Any) -> Any:
        first = self.__dict__.setdefault("_first", None) or before(self)
        self._first = first
        return StreamQueue(self._driver, self._context, self._fences, first.native_handle, lent=first)


@patch
def signal_on_another_stream() -> None:
    """Signals go to a separate stream and overtake earlier work."""
    @instead(StreamQueue, "append_signal")
    def append_signal(before: Any, self: Any, *args: Any) -> Any:
        mine = self._stream
        if not hasattr(self, "_other"):
            with self._context:
                self._other = call(self._driver.cuStreamCreate, 1)
        self._stream = self._other
        try:
            return before(self, *args)
        finally:
            self._stream = mine


@patch
def copy_on_the_legacy_stream() -> None:
    """Copies go to the legacy stream, which does not wait for the streams of lists."""
    @instead(StreamQueue, "append_copy")
    def append_copy(before: Any, self: Any, *args: Any) -> Any:
        mine, calls = self._stream, self._calls
        self._stream, self._calls = self._driver.CUstream(LEGACY), StreamCalls(self._driver, calls._fences, LEGACY)
        try:
            before(self, *args[:-1], False)
        finally:
            self._stream, self._calls = mine, calls
        return self.append_barrier((), args[-1])


@patch
def append_waits_for_the_end() -> None:
    """The append of a wait returns when the wait is met."""
    @instead(StreamQueue, "append_wait")
    def append_wait(before: Any, self: Any, *args: Any) -> Any:
        fence = before(self, *args)
        call(self._driver.cuStreamSynchronize, self._stream)
        return fence


# ---- native streams and events
@patch
def borrowed_stream_destroyed() -> None:
    """The close of a borrowed stream destroys the stream."""
    @instead(StreamQueue, "close")
    def close(before: Any, self: Any) -> None:
        self._own = True
        before(self)


@patch
def borrowed_stream_called_from_any_thread() -> None:
    """Simultaneous calls on a native stream are forbidden, and its queue accepts calls of xsem's own threads."""
    @instead(CudaHooks, "native_queue")
    def native_queue(before: Any, self: Any) -> Any:
        return replace(before(self), simultaneous=False)


@patch
def foreign_stream_accepted() -> None:
    """A stream of another context is borrowed."""
    @instead(xsem_cuda.device, "check_stream_device")
    def check_stream_device(before: Any, *args: Any) -> None:
        pass


@patch
def borrowed_stream_replaced() -> None:
    """A borrowed stream is another stream, with the handle and the identity of the application's."""
    @instead(CudaDevice, "borrow_queue")
    def borrow_queue(before: Any, self: Any, stream: Any, in_order: bool) -> Any:
        queue, own = before(self, stream, in_order), self.create_queue()
        own.native_handle = queue.native_handle
        return own


@patch
def native_event_reached_at_once() -> None:
    """A native event counts as reached when it is borrowed."""
    @instead(CudaDevice, "borrow_event")
    def borrow_event(before: Any, self: Any, native: Any) -> Any:
        before(self, native)
        return Fence(self._fences.create(), False)


@patch
def native_event_recycled() -> None:
    """The release of the fence of a native event gives the event to the next fence."""
    @instead(Fences, "release")
    def release(before: Any, self: Any, fence: Any) -> None:
        self._free.append(fence.event)
