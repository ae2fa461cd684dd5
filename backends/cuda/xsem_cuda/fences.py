"""Fences. Each fence is a CUDA event, and xsem recycles its own events."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from xsem.errors import BadArgumentError, BusyError
from xsem.spi import Lock
from xsem_cuda.context import Context
from xsem_cuda.keyed_mutexes import KeyedWait, check_acquired
from xsem_cuda.results import NOT_READY, call

__all__ = ["BorrowedFence", "Fence", "Fences", "native_event"]


class Fence:
    """The fence of one operation: an event with one record, after the operation."""

    __slots__ = ("borrowed", "captured", "event", "keyed")

    def __init__(self, event: int, captured: object = False, keyed: Sequence[KeyedWait] = ()) -> None:
        self.event = event
        # Outside of captures, False. In a capture of the application, True. In a recording of xsem, the object of that
        # recording. xsem does not query a captured event: the query would invalidate the capture (measured: 907).
        self.captured = captured
        self.keyed = keyed   # the waits for keyed mutexes before this fence on the stream
        self.borrowed = False   # the event belongs to the application; otherwise xsem owns and recycles it


class BorrowedFence(Fence):
    """An event of the application. The fence keeps its object until the release."""

    __slots__ = ("source",)

    def __init__(self, event: int, source: object) -> None:
        super().__init__(event)
        self.borrowed = True
        self.source: object | None = source


class Fences:
    """Creates, queries and recycles the events of one device."""

    # A recycled event can be recorded again at once: cuStreamWaitEvent uses the event's state at the time of the call.

    def __init__(self, driver: Any, context: Context) -> None:
        self._context = context
        self._quiet = context.quiet
        self._create = driver.cuEventCreate
        self._query = driver.cuEventQuery
        self._destroy = driver.cuEventDestroy
        self._untimed_flags = int(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)
        self._timed_flags = int(driver.CUevent_flags.CU_EVENT_DEFAULT)
        self.timed = False   # whether new fences have times
        self._timed: set[int] = set()   # events that have times
        self.unused: deque[int] = deque()
        self._events: set[int] = set()   # all of them, so that `close` also destroys those of fences in use
        self._shared: dict[int, int] = {}   # number of additional fences of each event
        self._shared_lock = Lock()

    def take(self) -> int:
        """Return an unused event. The caller owns the event until `give_back` or `release`."""
        try:
            event = self.unused.popleft()
            while self.timed and event not in self._timed:
                self.destroy(event)
                event = self.unused.popleft()
            return event
        except IndexError:
            return self.create()

    def create(self) -> int:
        """Return a new event, as `take`. For the driver, an event without a record is complete."""
        with self._context, self._quiet:
            event = int(call(self._create, self._timed_flags if self.timed else self._untimed_flags))
        self._events.add(event)
        if self.timed:
            self._timed.add(event)
        return event

    def give_back(self, event: int) -> None:
        """Undo `take` for an unrecorded event."""
        self.unused.append(event)

    def share(self, fence: Fence) -> Fence:
        """Return another fence with the same event. The last release of these fences recycles the event."""
        with self._shared_lock:
            self._shared[fence.event] = self._shared.get(fence.event, 0) + 1
        return Fence(fence.event, fence.captured, fence.keyed)

    def done(self, fence: Fence) -> bool:
        """Return whether the fence is reached."""
        if fence.captured:
            raise BusyError("the event was recorded into a capture: captured work runs when its graph is launched, "
                            "and xsem does not see that", reason="captured_event")
        with self._quiet:
            if call(self._query, fence.event) is NOT_READY:
                return False
            if fence.keyed:
                # A timeout can expire during the first query. The next call then reports the timeout.
                call(self._query, fence.event)
        if fence.keyed:
            check_acquired(fence.keyed)
        return True

    def has_time(self, fence: Fence) -> bool:
        """Return whether the driver notes when the fence is reached."""
        return fence.event in self._timed and not fence.captured

    def release(self, fence: Fence) -> None:
        """Recycle the event of a fence. Destroy a captured event. Keep a borrowed event: the application owns it."""
        if isinstance(fence, BorrowedFence):
            fence.source = None
        elif self._shared and self._used_by_others(fence):
            return
        elif fence.captured:
            self.destroy(fence.event)
        else:
            self.unused.append(fence.event)

    def _used_by_others(self, fence: Fence) -> bool:
        with self._shared_lock:
            others = self._shared.pop(fence.event, 0)
            if others > 1:
                self._shared[fence.event] = others - 1
        return others > 0

    def destroy(self, event: int) -> None:
        """Destroy an event that no fence uses."""
        self._events.discard(event)
        self._timed.discard(event)
        with self._quiet:
            call(self._destroy, event)

    def close(self) -> None:
        """Destroy all events."""
        self.unused.clear()
        while self._events:
            call(self._destroy, self._events.pop())


def native_event(driver: Any, native: object) -> int:
    """Return the CUevent of another library's event object, or of a handle, as a number. Its owner keeps it."""
    value: object = native
    for attribute in ("cuda_event", "ptr", "handle"):  # torch; CuPy; cuda.core and Numba
        if hasattr(native, attribute):
            value = getattr(native, attribute)
            break
    if isinstance(value, driver.CUevent):
        value = int(value)
    elif not isinstance(value, int) and isinstance(getattr(value, "value", None), int):
        value = value.value  # type: ignore[attr-defined]  # ctypes.c_void_p
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadArgumentError(
            f"{type(native).__name__} is not a CUDA event: pass a torch, CuPy, Numba or cuda.core event, or a CUevent "
            "as an int", reason="not_an_event")
    if value == 0:   # no CUevent exists before the first record
        raise BadArgumentError("the event was not recorded: record it first", reason="event_not_recorded")
    return value
