"""Fences: events from pools that grow. An event is reused after the device has signalled it."""

from __future__ import annotations

import threading
from collections import deque
from ctypes import byref, c_void_p
from typing import Final

from xsem.errors import BadArgumentError
from xsem_levelzero import ze
from xsem_levelzero.core import Core
from xsem_levelzero.results import NOT_READY, SUCCESS, error_of

__all__ = ["Events", "Fence", "foreign_event"]

_FIRST_POOL: Final = 32
_LARGEST_POOL: Final = 1024


class Fence:
    """A fence: one event.

    Attributes
    ----------
    handle : int
        The event in the form that the loader's functions take.
    native : int
        The event in the form that the extension's functions take.
    source : object
        The application's event object, kept alive; None for an event of the backend.
    users : int
        Number of releases still to come.
    """

    __slots__ = ("handle", "native", "source", "users")

    def __init__(self, handle: int, native: int, source: object | None = None) -> None:
        self.handle = handle
        self.native = native
        self.source = source
        self.users = 1


class Events:
    """The events of one device.

    An event stays signalled until the host resets it. It is reused only after all users have released it (`release`)
    and the device has signalled it. With an earlier reuse, a late signal would be mistaken for the signal of the next
    use.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._pools: list[int] = []
        self._all: list[int] = []
        self._fresh: deque[Fence] = deque()
        self._released: deque[Fence] = deque()
        self._next_pool = _FIRST_POOL

    @property
    def count(self) -> int:
        """Number of events."""
        return len(self._all)

    def take(self, users: int = 1) -> Fence:
        """Return an unsignalled event that no operation uses. It must be released `users` times."""
        with self._lock:
            if not self._fresh:
                self._recycle()
            if not self._fresh:
                self._grow()
            fence = self._fresh.popleft()
            fence.users = users
            return fence

    def give_back(self, fence: Fence) -> None:
        """Undo `take` for an event that no operation signals."""
        self._fresh.append(fence)

    def release(self, fence: Fence) -> None:
        """Release an event once.

        The event is reused after its last release and its signal. A borrowed event is no longer kept alive.
        """
        if fence.source is not None:
            fence.source = None
            return
        with self._lock:
            fence.users -= 1
            if fence.users == 0:
                self._released.append(fence)

    def done(self, fence: Fence) -> bool:
        """Call zeEventQueryStatus."""
        return self._asked("zeEventQueryStatus", self._core.loader.raw("zeEventQueryStatus", fence.handle))

    def wait(self, fence: Fence, timeout_ns: int) -> bool:
        """Call zeEventHostSynchronize."""
        return self._asked("zeEventHostSynchronize", self._core.loader.raw(
            "zeEventHostSynchronize", fence.handle, max(0, timeout_ns)))

    def _asked(self, call: str, code: int) -> bool:
        if code == SUCCESS:
            return True
        if code == NOT_READY:
            return False
        raise error_of(call, code)

    def _recycle(self) -> None:
        # Query each event once. Pending events move to the end.
        for _ in range(len(self._released)):
            fence = self._released.popleft()
            if self.done(fence):
                self._core.loader.do("zeEventHostReset", fence.handle)
                self._fresh.append(fence)
            else:
                self._released.append(fence)

    def _grow(self) -> None:
        core, count = self._core, self._next_pool
        desc = ze.EventPoolDesc.made(flags=ze.EVENT_POOL_HOST_VISIBLE, count=count)
        pool = core.loader.make("zeEventPoolCreate", core.context, byref(desc), 1, (c_void_p * 1)(core.device))
        self._pools.append(pool)
        self._next_pool = min(2 * count, _LARGEST_POOL)
        for index in range(count):
            event = ze.EventDesc.made(index=index, signal=ze.SCOPE_HOST, wait=ze.SCOPE_HOST)
            handle = core.loader.make("zeEventCreate", pool, byref(event))
            self._all.append(handle)
            self._fresh.append(Fence(handle, core.extension.event(handle)))

    def close(self) -> None:
        """Destroy events and pools. All operations that signal them must be complete."""
        for handle in self._all:
            self._core.loader.do("zeEventDestroy", handle)
        for pool in self._pools:
            self._core.loader.do("zeEventPoolDestroy", pool)


def foreign_event(core: Core, native: object) -> Fence:
    """Return a fence for the application's ze_event_handle_t, an int or a ctypes pointer.

    The event stays the application's.

    Raises
    ------
    BadArgumentError
        ``not_an_event``, ``null_event``.
    """
    value = getattr(native, "value", native)
    if isinstance(value, bool) or not isinstance(value, int | None) or (value is None and native is None):
        raise BadArgumentError(
            f"{type(native).__name__} is not an event: a ze_event_handle_t as an int or a ctypes.c_void_p is needed",
            reason="not_an_event",
        )
    if not value or value < 0:
        raise BadArgumentError("the event is null", reason="null_event")
    return Fence(value, core.extension.event(value), source=native)
