"""Points in a stream: events, recycled."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from xsem.errors import BadArgumentError, BusyError
from xsem_cuda._call import NOT_READY, call
from xsem_cuda._context import Context
from xsem_cuda._mutexes import KeyedWait, check_acquired

__all__ = ["Point", "Points", "native_event"]


class Point:
    """An event recorded once for one operation.

    Attributes
    ----------
    event : CUevent
    captured : object
        True where it was recorded into a capture, so it cannot be queried: that would invalidate the capture (measured:
        907). Which one, where that is a recording of ours.
    keyed : sequence of KeyedWait
        Waits with a timeout before this point in the list.
    source : object
        Keeps alive what owns the event: the application's object, or the point whose event is shared.
    """

    __slots__ = ("captured", "event", "keyed", "owned", "source")

    def __init__(
        self, event: Any, *, captured: object = False, source: object | None = None, keyed: Sequence[KeyedWait] = ()
    ) -> None:
        self.event = event
        self.captured = captured
        self.source = source
        self.keyed = keyed
        self.owned = source is None


class Points:
    """Makes, queries and recycles the events of one device.

    An event that went back may be recorded again at once: cuStreamWaitEvent takes the state at the time of its call.
    """

    def __init__(self, driver: Any, context: Context) -> None:
        self._context = context
        self._create = driver.cuEventCreate
        self._query = driver.cuEventQuery
        self._destroy = driver.cuEventDestroy
        self._flags = int(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)
        self._free: deque[Any] = deque()

    def take(self) -> Any:
        """An event that nobody uses."""
        try:
            return self._free.popleft()
        except IndexError:
            with self._context:
                return call(self._create, self._flags)

    def give_back(self, event: Any) -> None:
        """Undo `take` for an event that was not recorded."""
        self._free.append(event)

    def done(self, point: Point) -> bool:
        """Whether the point has been reached.

        Raises
        ------
        DriverError
            ``mutex_timeout``: the point is reached, and a wait before it timed out.
        """
        if point.captured:
            raise BusyError("the event was recorded into a capture: what is captured does not run until its graph is "
                            "launched, and nobody tells xsem", reason="captured_event")
        if call(self._query, point.event) is NOT_READY:
            return False
        if point.keyed:
            # A timeout that expires during the first query is reported by the next call.
            call(self._query, point.event)
            check_acquired(point.keyed)
        return True

    def release(self, point: Point) -> None:
        """Recycle the event of a point; a foreign event is let go."""
        event, point.event, point.source = point.event, None, None
        if event is None or not point.owned:
            return
        if point.captured:
            call(self._destroy, event)
        else:
            self._free.append(event)

    def close(self) -> None:
        """Destroy all events."""
        while self._free:
            call(self._destroy, self._free.popleft())


def native_event(driver: Any, native: object) -> Any:
    """The CUevent of another library's event object, or of a handle.

    Raises
    ------
    TypeError
        It is none.
    BadArgumentError
        ``event_not_recorded``: its owner has not recorded it yet, so there is nothing to wait for.
    """
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
        raise TypeError("a torch, CuPy, Numba or cuda.core event or a CUevent as an int is needed")
    if value == 0:
        raise BadArgumentError("the event has not been recorded", reason="event_not_recorded")
    return driver.CUevent(value)
