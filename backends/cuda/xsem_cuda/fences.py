"""Fences: CUDA events, which are recycled."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from xsem.errors import BadArgumentError, BusyError
from xsem_cuda.context import Context
from xsem_cuda.keyed_mutexes import KeyedWait, check_acquired
from xsem_cuda.results import NOT_READY, call

__all__ = ["Fence", "Fences", "native_event"]


class Fence:
    """The fence of one operation: an event that was recorded once after it, or a borrowed event.

    Attributes
    ----------
    event : CUevent
    captured : object
        False outside of captures. True in a capture of the application. In a recording of xsem, the object of that
        recording. A captured event cannot be queried: the query would invalidate the capture (measured: 907).
    keyed : sequence of KeyedWait
        Waits with a timeout before this fence in the list.
    owned : bool
        Whether the event is xsem's, to be recycled.
    source : object
        Keeps the owner of the event alive: the application's object, or the fence with the same event.
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


class Fences:
    """Creates, queries and recycles the events of one device.

    A recycled event can be recorded again at once: cuStreamWaitEvent uses the event's state at the time of the call.

    Parameters
    ----------
    driver : module
        ``cuda.bindings.driver``.
    context : Context
    """

    def __init__(self, driver: Any, context: Context) -> None:
        self._context = context
        self._create = driver.cuEventCreate
        self._query = driver.cuEventQuery
        self._destroy = driver.cuEventDestroy
        self._flags = int(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)
        self._free: deque[Any] = deque()

    def take(self) -> Any:
        """Return an unused event. The caller owns it until `give_back` or `release`."""
        try:
            return self._free.popleft()
        except IndexError:
            with self._context:
                return call(self._create, self._flags)

    def give_back(self, event: Any) -> None:
        """Undo `take` for an unrecorded event."""
        self._free.append(event)

    def done(self, fence: Fence) -> bool:
        """Return whether the fence is reached.

        Raises
        ------
        DriverError
            ``mutex_timeout``: the fence is reached, and a wait before it timed out.
        BusyError
            ``captured_event``: the event was recorded into a capture.
        """
        if fence.captured:
            raise BusyError("the event was recorded into a capture: captured work runs when its graph is launched, "
                            "and xsem does not see that", reason="captured_event")
        if call(self._query, fence.event) is NOT_READY:
            return False
        if fence.keyed:
            # If a timeout expires during the first query, the next call reports it.
            call(self._query, fence.event)
            check_acquired(fence.keyed)
        return True

    def release(self, fence: Fence) -> None:
        """Recycle the event of a fence, or destroy it if it is captured. A borrowed event stays the application's."""
        event, fence.event, fence.source = fence.event, None, None
        if event is None or not fence.owned:
            return
        if fence.captured:
            call(self._destroy, event)
        else:
            self._free.append(event)

    def close(self) -> None:
        """Destroy the unused events."""
        while self._free:
            call(self._destroy, self._free.popleft())


def native_event(driver: Any, native: object) -> Any:
    """Return the CUevent of another library's event object, or of a handle.

    Parameters
    ----------
    driver : module
        ``cuda.bindings.driver``.
    native : object
        A torch, CuPy, Numba or cuda.core event, or a CUevent as an int. It stays its owner's.

    Raises
    ------
    TypeError
        `native` is not a CUDA event.
    BadArgumentError
        ``event_not_recorded``: the event does not exist yet, because its owner did not record it.
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
        raise TypeError("the event must be a torch, CuPy, Numba or cuda.core event, or a CUevent as an int")
    if value == 0:
        raise BadArgumentError("the event was not recorded: record it first", reason="event_not_recorded")
    return driver.CUevent(value)
