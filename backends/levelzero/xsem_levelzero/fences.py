"""Fences: events from pools that grow. An event is reused after the device has signalled it."""

from __future__ import annotations

import time
from collections import deque
from contextlib import ExitStack
from ctypes import byref, c_void_p
from typing import Any, Final

from xsem.errors import BadArgumentError, XsemError
from xsem.spi import Lock
from xsem_levelzero import ze
from xsem_levelzero.core import Core
from xsem_levelzero.results import NO_MEMORY, NOT_READY, SUCCESS, error_of

__all__ = ["Events", "Fence", "Order", "foreign_event"]

_FIRST_POOL: Final = 32
_LARGEST_POOL: Final = 1024
_PAUSE_S: Final = 0.001


class Order:
    """The operations of one list, as counts. They end in their order, so one set event tells of all before it."""

    __slots__ = ("appended", "passed")

    def __init__(self) -> None:
        self.appended = 0
        self.passed = 0   # the list has certainly passed so many


class Fence:
    """A fence: one event."""

    __slots__ = ("handle", "late", "native", "place", "source", "uses")

    def __init__(self, handle: int, native: int, source: object | None = None) -> None:
        self.handle = handle   # in the form that the loader's functions take
        self.native = native   # in the form that the extension's functions take
        self.source = source   # the application's event object, kept alive; None for an event of the backend
        self.uses = 1          # releases still to come
        self.place: tuple[Order, int] | None = None   # the operation that sets the event: its list and its number
        self.late: Any = None  # the signals before the fence that the driver may make after it (xsem_levelzero.intel)


class Events:
    """The events of one device.

    An event stays signalled until the host resets it. It is reused only after its last release, and after the device
    has signalled it. With an earlier reuse, a late signal would be mistaken for the signal of the next use.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = Lock()
        self._pools: list[int] = []
        self._all: list[int] = []
        self._fresh: deque[Fence] = deque()
        self._released: deque[Fence] = deque()
        self._next_pool = _FIRST_POOL

    @property
    def count(self) -> int:
        """Number of events; 0 after `close`."""
        return len(self._all)

    def take(self) -> Fence:
        """Return an unsignalled event that no operation uses. It has one use."""
        with self._lock:
            if not self._fresh:
                self._recycle()
            if not self._fresh:
                self._grow()
            fence = self._fresh.popleft()
            fence.uses, fence.late, fence.place = 1, None, None
            return fence

    def reach(self, fence: Fence) -> None:
        """Call zeEventHostSignal, for an event of `take` that no operation signals."""
        self._core.loader.do("zeEventHostSignal", fence.handle)

    def share(self, fence: Fence) -> Fence:
        """Add a use, which `release` ends. The caller holds another one."""
        with self._lock:
            fence.uses += 1
        return fence

    def give_back(self, fence: Fence) -> None:
        """Undo `take` for an event that no operation signals."""
        self._fresh.append(fence)

    def release(self, fence: Fence) -> None:
        """End one use of an event. A borrowed event is no longer kept alive."""
        if fence.source is not None:
            fence.source = None
            return
        with self._lock:
            fence.uses -= 1
            if fence.uses == 0:
                self._released.append(fence)

    def done(self, fence: Fence) -> bool:
        """Call zeEventQueryStatus, unless a later event of the list is known to be set."""
        place = fence.place
        return _known(place) or _noted(place, self._asked("zeEventQueryStatus", fence.handle))

    def wait(self, fence: Fence, timeout_ns: int) -> bool:
        """Call zeEventHostSynchronize, unless a later event of the list is known to be set."""
        # The place comes first: a caller may wait for an event that another thread releases, and the next operation of
        # the event has another place, which this answer says nothing about.
        place = fence.place
        return _known(place) or _noted(
            place, self._asked("zeEventHostSynchronize", fence.handle, max(0, timeout_ns)))

    @staticmethod
    def known(fence: Fence) -> bool:
        """Whether the event, or a later one of the list, has been seen to be set. No call."""
        return _known(fence.place)

    def _asked(self, call: str, *arguments: int) -> bool:
        code = self._core.loader.raw(call, *arguments)
        if code == SUCCESS:
            return True
        if code == NOT_READY:
            return False
        if code in NO_MEMORY:
            # The state is unknown, so the event counts as pending, and the caller asks again.
            time.sleep(_PAUSE_S)
            return False
        raise error_of(call, code)

    def _recycle(self) -> None:
        # Query each event at most once, the newest first, because it tells of those before it.
        pending, self._released = self._released, deque()
        while pending:
            fence = pending.pop()
            if self.done(fence):
                code = self._core.loader.raw("zeEventHostReset", fence.handle)
                if code != SUCCESS:
                    self._released.extendleft((fence, *reversed(pending)))
                    raise error_of("zeEventHostReset", code)
                self._fresh.append(fence)
            else:
                self._released.appendleft(fence)

    def _grow(self) -> None:
        core, count = self._core, self._next_pool
        desc = ze.EventPoolDesc.made(flags=ze.EVENT_POOL_HOST_VISIBLE, count=count)
        pool = core.loader.make("zeEventPoolCreate", core.context, byref(desc), 1, (c_void_p * 1)(core.device))
        made: list[Fence] = []
        try:
            made.extend(_new_event(core, pool, index) for index in range(count))
        except XsemError:
            if not made:
                core.destroy("zeEventPoolDestroy", pool)
                raise
            # The events so far serve as a smaller pool.
        self._pools.append(pool)
        self._next_pool = min(2 * count, _LARGEST_POOL)
        self._all.extend(fence.handle for fence in made)
        self._fresh.extend(made)

    def close(self) -> None:
        """Destroy events and pools. All operations that signal them must be complete."""
        # Events first: the pools must stay if a call failed twice, because then an event stays.
        events, self._all = self._all, []
        for name, handles in (("zeEventDestroy", events), ("zeEventPoolDestroy", self._pools)):
            with ExitStack() as rest:   # each call is made, also after a failure
                for handle in handles:
                    rest.callback(self._core.destroy, name, handle)


def _known(place: tuple[Order, int] | None) -> bool:
    return place is not None and place[1] <= place[0].passed


def _noted(place: tuple[Order, int] | None, reached: bool) -> bool:
    if reached and place is not None:
        order, number = place
        order.passed = max(order.passed, number)
    return reached


def _new_event(core: Core, pool: int, index: int) -> Fence:
    desc = ze.EventDesc.made(index=index, signal=ze.SCOPE_HOST, wait=ze.SCOPE_HOST)
    handle = core.loader.make("zeEventCreate", pool, byref(desc))
    try:
        return Fence(handle, core.extension.event(handle))
    except XsemError:
        core.destroy("zeEventDestroy", handle)
        raise


def foreign_event(core: Core, native: object) -> Fence:
    """Return a fence for the application's ze_event_handle_t, an int or a ctypes pointer."""
    value = getattr(native, "value", native)
    if isinstance(value, bool) or not isinstance(value, int | None) or (value is None and native is None):
        raise BadArgumentError(
            f"{type(native).__name__} is not an event: a ze_event_handle_t as an int or a ctypes.c_void_p is needed",
            reason="not_an_event",
        )
    if not value or value < 0:
        raise BadArgumentError("the event is null", reason="null_event")
    return Fence(value, core.extension.event(value), source=native)
