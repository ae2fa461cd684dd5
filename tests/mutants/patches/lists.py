"""Faults in lists, fences and recordings."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import xsem_cuda.device
import xsem_cuda.recording
from patches.base import instead, patch
from xsem_cuda.queue import StreamQueue
from xsem_cuda.results import call
from xsem_cuda.stream_calls import StreamCalls
from xsem_cuda.suite_hooks import CudaHooks


@patch
def event_recycled_at_once() -> None:
    """The event of a fence is reused for the next fence while it is in use."""
    @instead(StreamCalls, "end")
    def end(before: Any, self: Any, event: int) -> Any:
        fence = before(self, event)
        if fence is not None:
            self._fences.give_back(fence.event)
        return fence


# ---- native streams
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
def timeline_waits_of_borrowed_streams_are_early() -> None:
    """On a borrowed stream, a wait for a timeline passes at once."""
    @instead(StreamQueue, "append_wait")
    def append_wait(before: Any, self: Any, semaphores: Any, params: Any, *args: Any) -> Any:
        if self._own or any(each.value is None for each in params):
            return before(self, semaphores, params, *args)
        return self.append_barrier(args[0], args[2])


@patch
def foreign_stream_accepted() -> None:
    """A stream of another context is borrowed."""
    @instead(xsem_cuda.device, "check_stream_device")
    def check_stream_device(before: Any, *args: Any) -> None:
        pass


# ---- recordings
@patch
def replays_keep_the_values_of_portable_timelines() -> None:
    """A replay uses the recorded values of portable timelines."""
    @instead(xsem_cuda.recording, "_word_node")
    def word_node(before: Any, *args: Any) -> Any:
        node = before(*args)
        node._slots = ()
        return node


@patch
def recorded_fill_runs_at_once() -> None:
    """A recorded fill runs when it is recorded, and in no replay."""
    @instead(StreamQueue, "append_fill")
    def append_fill(before: Any, self: Any, *args: Any) -> Any:
        if not self._calls.captured:
            return before(self, *args)
        with self._context:
            call(self._driver.cuMemsetD8, args[0].address + args[1], args[2][0], args[3])
        return self.append_barrier(args[4], args[5])


@patch
def recorded_image_copies_run_in_no_replay() -> None:
    """Copies of images are not recorded."""
    for name, fences in (("append_region_copy", 7), ("append_image_copy", 4)):
        instead(StreamQueue, name)(functools.partial(_unless_recorded, fences))


def _unless_recorded(fences: int, append: Any, queue: Any, *args: Any) -> Any:
    """Append a copy; in a recording, append a barrier with its fences, which are the arguments from that number on."""
    return queue.append_barrier(*args[fences:]) if queue._calls.captured else append(queue, *args)
