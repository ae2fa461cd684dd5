"""Command lists of Intel's driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast

from xsem.errors import XsemError
from xsem.types import SignalParams, WaitParams
from xsem_levelzero.core import Core
from xsem_levelzero.fences import Fence, Order
from xsem_levelzero.intel.semaphores import LateSemaphore
from xsem_levelzero.intel.signals import Signals
from xsem_levelzero.intel.unmet_waits import unmet_waits_of
from xsem_levelzero.queue import ImmediateList, Step
from xsem_levelzero.semaphores import Semaphore

__all__ = ["BlockingLateList", "BlockingList", "LateList"]


class BlockingList(ImmediateList):
    """A list of a driver that blocks in a signal behind an unmet wait: see `unmet_waits`."""

    def __init__(self, core: Core, *args: Any, **more: Any) -> None:
        super().__init__(core, *args, **more)
        self._unmet = unmet_waits_of(core.driver)

    def _append_wait(
        self, semaphores: Sequence[Any], params: Sequence[WaitParams], wait_fences: Sequence[Fence], want_fence: bool
    ) -> Fence | None:
        with self._unmet.lock:
            fence = super()._append_wait(semaphores, params, wait_fences, True)
            return self._recorded(fence, want_fence)

    def append_signal(
        self, semaphores: Sequence[Semaphore], params: Sequence[SignalParams], wait_fences: Sequence[Fence],
        release: Sequence[object], want_fence: bool,
    ) -> Fence | None:
        """Append a signal, or refuse it while a wait is unmet (`BusyError`, ``signal_behind_wait``)."""
        with self._unmet.lock:
            if semaphores:   # without one, it is a barrier behind which xsem itself stores a value
                self._unmet.check(self._events, wait_fences)
            return super().append_signal(semaphores, params, wait_fences, release, want_fence)

    def _place(self, step: Step, wait_fences: Sequence[Fence], want_fence: bool) -> Fence | None:
        with self._unmet.lock:
            if not self._unmet.holds(self._events, wait_fences):
                return super()._place(step, wait_fences, want_fence)
            return self._recorded(super()._place(step, wait_fences, True), want_fence)

    def _recorded(self, fence: Fence | None, want_fence: bool) -> Fence | None:
        """Give a use of the fence to the record, and another one to the caller who wants it."""
        if fence is None:
            return None
        wanted = self._events.share(fence) if want_fence else None
        self._unmet.add(self._events, fence)
        return wanted


class LateList(ImmediateList):
    """A list of a driver that makes a signal after its event, and whose imports support one wait: see `passes`."""

    order_class: ClassVar[type[Order]] = Signals
    _order: Signals

    def append_signal(
        self, semaphores: Sequence[Semaphore], params: Sequence[SignalParams], wait_fences: Sequence[Fence],
        release: Sequence[object], want_fence: bool,
    ) -> Fence | None:
        """Append a signal, and note it until the driver has made it."""
        fence = super().append_signal(semaphores, params, wait_fences, release, want_fence)
        if semaphores:
            self._order.tell([(cast("LateSemaphore", each), param.value)
                              for each, param in zip(semaphores, params, strict=True)])
        return fence

    def close(self) -> None:
        """Destroy an owned list."""
        super().close()
        if self._own:
            self._order.passed = self._order.appended   # zeCommandListDestroy requires the end of the list's work

    def _append_wait(
        self, semaphores: Sequence[Any], params: Sequence[WaitParams], wait_fences: Sequence[Fence], want_fence: bool
    ) -> Fence | None:
        """Append a wait on a fresh import of each semaphore."""
        fresh: list[Semaphore] = []
        try:
            fresh.extend(semaphore.for_one_wait() for semaphore in semaphores)
            fence = super()._append_wait(fresh, params, wait_fences, True)
        except Exception:   # after Ctrl-C the driver may have the wait, so the imports stay
            for each in fresh:
                each.release(self._core)
            raise
        if fence is not None:
            for semaphore, each in zip(semaphores, fresh, strict=True):
                semaphore.waits_with(each, self._events.share(fence))
        return self._wanted(fence, want_fence)

    def _signal(self, semaphores: Sequence[Semaphore], params: Sequence[SignalParams]) -> Step:
        return _LateSignal(super()._signal(semaphores, params), cast("Sequence[LateSemaphore]", semaphores),
                           self._order)

    def _place(self, step: Step, wait_fences: Sequence[Fence], want_fence: bool) -> Fence | None:
        others = self._order.follow(wait_fences)   # before the driver's call: after Ctrl-C it may have the operation
        try:
            fence = super()._place(step, wait_fences, want_fence)
        except XsemError:
            self._order.unfollow(others)
            raise
        if fence is not None:
            fence.late = self._order.before_end()
        return fence

    def _wanted(self, fence: Fence | None, want_fence: bool) -> Fence | None:
        if fence is not None and not want_fence:
            self._events.release(fence)
            return None
        return fence


class BlockingLateList(LateList, BlockingList):
    """A list of a driver before 26.22: both."""


class _LateSignal:
    """The append of a signal that each semaphore notes."""

    def __init__(self, step: Step, semaphores: Sequence[LateSemaphore], order: Signals) -> None:
        self._step = step
        self._semaphores = semaphores
        self._order = order

    def call(self, signal: Fence | None, waits: Sequence[Fence]) -> None:
        """Note the signal, and append it."""
        # Before the driver's call: after Ctrl-C in the call, the driver may have the signal.
        order = self._order
        last = order.last
        before = [(each, each.signals_at(order, order.appended)) for each in self._semaphores]
        order.note()
        try:
            self._step.call(signal, waits)
        except XsemError:
            order.forget(last)
            for each, number in before:
                each.signals_at(order, number)
            raise
