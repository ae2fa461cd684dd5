"""The driver calls around the appends to a stream: waits for events, records of events, and the capture query."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from xsem.errors import BusyError
from xsem.spi import QueueCalls
from xsem_cuda.direct import address_of, check, native_function, native_query
from xsem_cuda.fences import Fence, Fences
from xsem_cuda.keyed_mutexes import KeyedWait

__all__ = ["StreamCalls"]


class StreamCalls:
    """Driver calls on one stream, at the addresses of the functions or, without them, through the bindings."""

    def __init__(self, driver: Any, fences: Fences, handle: int) -> None:
        # Outside of captures, False. In a capture of the application, True: the driver does not tell whether two
        # streams are in the same capture. In a recording of xsem, the object of that recording: a wait in one recording
        # for an event of another recording invalidates both (measured).
        self.captured: object = False
        self.keyed: list[KeyedWait] = []   # each fence refers to those before it
        self._fences = fences
        self._handle = handle
        self.native = self._native_calls(driver)
        self._wait_event = native_function(driver, "cuStreamWaitEvent", 3)
        self._record_event = native_function(driver, "cuEventRecord", 2)
        self._capture_status = native_query(driver, "cuStreamIsCapturing")

    def _native_calls(self, driver: Any) -> QueueCalls | None:
        """Return the driver's functions for the compiled part; None if the driver does not tell their addresses."""
        names = ("cuStreamIsCapturing", "cuStreamWaitEvent", "cuEventRecord")
        captured, wait, record = ((address_of(driver, name) or 0, partial(check, driver, name)) for name in names)
        if not (captured[0] and wait[0] and record[0]):
            return None
        return QueueCalls(self._handle, captured, wait, record, self._fences.unused, Fence, self.keyed)

    def is_capturing(self) -> bool:
        """Return whether the stream is in a capture (cuStreamIsCapturing). An invalidated capture counts."""
        captured = self._capture_status(self._handle) != 0   # CU_STREAM_CAPTURE_STATUS_NONE
        self.captured = captured
        return captured

    def barrier(self, wait_fences: Sequence[Fence], want_fence: bool) -> Fence | None:
        """Append a barrier. A stream is in order, so earlier work needs no wait."""
        return self.end(self.begin(wait_fences, want_fence))

    def begin(self, wait_fences: Sequence[Fence], want_fence: bool) -> int:
        """Append the waits for the fences. Return an event for `end` or `cancel`; 0 if `want_fence` is False."""
        captured = self.captured
        for fence in wait_fences:
            if fence.captured is not captured:
                raise BusyError(
                    "an event of a capture and work outside of this capture cannot wait for each other: the wait would "
                    "invalidate the capture", reason="capture_isolation",
                )
        # This call precedes all appends, because the creation of an event can fail.
        event = self._fences.take() if want_fence else 0
        if wait_fences:
            try:
                self._wait_for(wait_fences)
            except BaseException:
                self.cancel(event)
                raise
        return event

    def _wait_for(self, wait_fences: Sequence[Fence]) -> None:
        for fence in wait_fences:
            self._wait_event(self._handle, fence.event, 0)
            if fence.borrowed and self.captured is False:
                # A wait for an event of the application's capture adds this stream to that capture.
                self.is_capturing()

    def end(self, event: int) -> Fence | None:
        """Record the event of `begin` behind the operation, and return its fence. For event 0, return None."""
        if not event:
            return None
        try:
            self._record_event(event, self._handle)
        except BaseException:
            self.cancel(event)
            raise
        return Fence(event, self.captured, tuple(self.keyed))

    def cancel(self, event: int) -> None:
        """Give back the event of `begin` after a failure of the operation."""
        if event:
            self._fences.give_back(event)
