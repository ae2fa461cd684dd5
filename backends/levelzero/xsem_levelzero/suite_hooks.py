"""Native lists and events, for the conformance suite."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref, c_void_p
from typing import Final

from xsem.spi import NativeEvent, NativeQueue, SuiteHooks
from xsem_levelzero import ze
from xsem_levelzero.core import Core, create_context
from xsem_levelzero.results import SUCCESS

__all__ = ["LevelZeroHooks"]

_WORKS_NS: Final = 1_000_000_000


class LevelZeroHooks(SuiteHooks):
    """Immediate lists and events of the loader."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def native_queue(self) -> NativeQueue:
        """Create an immediate list in the context of the device."""
        return _list_of(self._core)

    def foreign_queue(self) -> NativeQueue | None:
        """Create an immediate list in another context of the same device."""
        core = self._core
        # A loader before 1.17 cannot query the context of a list, so the driver could not refuse this list.
        if core.loader.find("zeCommandListGetContextHandle") is None:
            return None
        context = create_context(core.loader, core.driver)
        other = Core(core.loader, core.extension, core.driver, core.device, context)
        return _list_of(other, lambda: core.loader.do("zeContextDestroy", context))

    def native_event(self) -> NativeEvent:
        """Create an event that the host signals."""
        loader = self._core.loader
        pool, event = _event_of(self._core)
        return NativeEvent(event=event, reach=lambda: loader.do("zeEventHostSignal", event),
                           works=lambda: loader.raw("zeEventQueryStatus", event) == SUCCESS,
                           close=lambda: _destroy(self._core, pool, event))


def _event_of(core: Core) -> tuple[int, int]:
    desc = ze.EventPoolDesc.made(flags=ze.EVENT_POOL_HOST_VISIBLE, count=1)
    pool = core.loader.make("zeEventPoolCreate", core.context, byref(desc), 1, (c_void_p * 1)(core.device))
    event = ze.EventDesc.made(index=0, signal=ze.SCOPE_HOST, wait=ze.SCOPE_HOST)
    return pool, core.loader.make("zeEventCreate", pool, byref(event))


def _destroy(core: Core, pool: int, event: int) -> None:
    core.loader.do("zeEventDestroy", event)
    core.loader.do("zeEventPoolDestroy", pool)


def _list_of(core: Core, then: Callable[[], object] | None = None) -> NativeQueue:
    loader = core.loader
    commands, _ = core.create_list(0)

    def works() -> bool:
        pool, event = _event_of(core)
        loader.do("zeCommandListAppendBarrier", commands, event, 0, None)
        reached = loader.raw("zeEventHostSynchronize", event, _WORKS_NS) == SUCCESS
        if reached:   # an event in use must not be destroyed
            _destroy(core, pool, event)
        return reached

    def close() -> None:
        loader.do("zeCommandListDestroy", commands)
        if then is not None:
            then()

    return NativeQueue(stream=commands, handle=commands, works=works, close=close)
