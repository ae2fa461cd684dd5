"""Faults with timelines only: a check that tries one type tries binary semaphores."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

from faults.base import Driver, List, a_driver, a_list
from faults.events import FenceEndsWithItsQueue
from faults.threads import InterruptSignals
from xsem import spi


def _are_timelines(params: Any) -> bool:
    return all(each.value is not None for each in params)


@a_driver
class ForkMeetsTimelines(Driver):
    """A fork meets the pending waits for timelines in the parent."""

    class list_type(List):  # noqa: N801
        def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
            self.driver.waits = list(zip(semaphores, params, strict=True))   # type: ignore[attr-defined]
            return self.inner.append_wait(semaphores, params, wait_fences, acquire, want_fence)

    def __init__(self, inner: spi.DeviceDriver) -> None:
        super().__init__(inner)
        self.waits: list[tuple[Any, Any]] = []
        here = weakref.WeakMethod(self._signal)
        os.register_at_fork(after_in_parent=lambda: (here() or (lambda: None))())

    def _signal(self) -> None:
        for semaphore, param in self.waits:
            if param.value is not None:
                self.inner.host_signal(semaphore, param.value)


@a_driver
class InterruptSignalsTimelines(InterruptSignals):
    """An interrupted host wait signals the timeline that the device waits for."""

    class list_type(List):  # noqa: N801
        def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
            pairs = zip(semaphores, params, strict=True)
            self.driver.last = [each for each in pairs if each[1].value is not None]   # type: ignore[attr-defined]
            return self.inner.append_wait(semaphores, params, wait_fences, acquire, want_fence)


@a_list
class TimelineWaitsOfOtherThreadsAreEarly(List):
    """A wait for a timeline from a thread that did not create the list passes at once."""

    def __init__(self, inner: spi.QueueDriver, driver: Any) -> None:
        super().__init__(inner, driver)
        self._maker = threading.get_ident()

    def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
        if threading.get_ident() != self._maker and _are_timelines(params):
            return self.inner.append_barrier(wait_fences, want_fence)
        return self.inner.append_wait(semaphores, params, wait_fences, acquire, want_fence)


@a_driver
class FenceOfATimelineEndsWithItsQueue(FenceEndsWithItsQueue):
    """The fence of a wait for a timeline is not reached any more after the close of its queue."""

    class list_type(FenceEndsWithItsQueue.list_type):  # noqa: N801
        def append_barrier(self, wait_fences, want_fence):  # type: ignore[no-untyped-def]
            return self.inner.append_barrier(wait_fences, want_fence)

        def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
            fence = self.inner.append_wait(semaphores, params, wait_fences, acquire, want_fence)
            return self.note(fence) if _are_timelines(params) else fence


@a_driver
class ReleasedFenceMeetsATimelineWait(Driver):
    """The release of the fence of a pending wait for a timeline meets the wait."""

    class list_type(List):  # noqa: N801
        def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
            fence = self.inner.append_wait(semaphores, params, wait_fences, acquire, want_fence)
            if fence is not None and _are_timelines(params):
                self.driver.waits[id(fence)] = fence, list(semaphores), list(params)   # type: ignore[attr-defined]
            return fence

    def __init__(self, inner: spi.DeviceDriver) -> None:
        super().__init__(inner)
        self.waits: dict[int, tuple[Any, list[Any], list[Any]]] = {}

    def release_fence(self, fence: Any) -> None:
        _, semaphores, params = self.waits.pop(id(fence), (None, [], []))
        if not self.inner.query_fence(fence):
            for semaphore, param in zip(semaphores, params, strict=True):
                self.inner.host_signal(semaphore, param.value)
        self.inner.release_fence(fence)
