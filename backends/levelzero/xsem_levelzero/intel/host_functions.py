"""Intel's driver from 26.35 on: a host function of the engine makes each wait and signal in its place.

An import supports many waits, and a signal comes before its event. But the end of the process joins the workers of the
engines, and a worker with an unmet wait never ends. A regular list takes waits and signals, too.
"""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from xsem.errors import XsemError
from xsem.spi import skip_exit_handlers
from xsem.types import WaitParams
from xsem_levelzero.core import Core
from xsem_levelzero.device import LevelZeroDevice
from xsem_levelzero.fences import Fence
from xsem_levelzero.queue import ImmediateList

__all__ = ["HostFunctionDevice"]

_log = logging.getLogger("xsem")
_lists: Final = weakref.WeakSet["_List"]()


class _List(ImmediateList):
    """A list that knows whether its last wait is met."""

    def __init__(self, core: Core, *args: Any, **more: Any) -> None:
        super().__init__(core, *args, **more)
        self._pid = os.getpid()
        self._last_wait: Fence | None = None   # the list owns one use
        _lists.add(self)

    def _append_wait(
        self, semaphores: Sequence[Any], params: Sequence[WaitParams], wait_fences: Sequence[Fence], want_fence: bool
    ) -> Fence | None:
        # The event also orders an in-order list: on 26.05 to 26.31, work behind a wait without an event may begin
        # before the work ahead of the wait ends (docs/levelzero.md).
        fence = super()._append_wait(semaphores, params, wait_fences, True)
        before, self._last_wait = self._last_wait, fence
        if before is not None:
            self._events.release(before)
        return self._events.share(fence) if want_fence and fence is not None else None

    def close(self) -> None:
        """Destroy an owned list."""
        super().close()
        last, self._last_wait = self._last_wait, None
        if last is not None:
            self._events.release(last)

    def waits(self) -> bool:
        """Whether a wait may be unmet."""
        last = self._last_wait
        if last is None or not self._events.count or self._pid != os.getpid():
            return False
        try:
            return not self._events.done(last)
        except XsemError:
            return True


class HostFunctionDevice(LevelZeroDevice):
    """A device of this driver."""

    list_class: ClassVar[type[ImmediateList]] = _List
    regular_list_refuses_waits: ClassVar[bool] = False


@atexit.register
def _at_exit() -> None:
    """Let the process end without the driver's exit handler, if a list waits."""
    # Waits for portable timelines do not count: no worker of the driver makes them, and xsem ends them itself.
    if any(each.waits() for each in tuple(_lists)) and skip_exit_handlers():
        _log.warning("a wait of this process is not met, and Intel's driver would wait for it: the process ends "
                     "without the exit handlers of its libraries")
