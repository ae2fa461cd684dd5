"""Faults with several threads, and calls that a pending wait blocks."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any, ClassVar

from faults.base import Driver, List, a_driver, a_list
from xsem import spi
from xsem.types import OwnedHandle, SemaphoreDesc


@a_driver
class WaitHoldsTheDriver(Driver):
    """A wait for a fence holds a lock that every query of a fence needs."""

    def __init__(self, inner: spi.DeviceDriver) -> None:
        super().__init__(inner)
        self._one = threading.Lock()

    def done(self, point: Any) -> bool:
        with self._one:
            return self.inner.done(point)

    def wait(self, point: Any, timeout_ns: int) -> bool:
        with self._one:
            return self.inner.wait(point, timeout_ns)


@a_list
class OtherThreadsUnheard(List):
    """Signals from a thread that did not create the list are dropped."""

    def __init__(self, inner: spi.CommandListDriver, driver: Any) -> None:
        super().__init__(inner, driver)
        self._maker = threading.get_ident()

    def append_signal(self, semaphores, params, wait_points, release, want_point):  # type: ignore[no-untyped-def]
        if threading.get_ident() != self._maker:
            return self.inner.append_barrier(wait_points, want_point)
        return self.inner.append_signal(semaphores, params, wait_points, release, want_point)


class _Pending(Driver):
    """Knows the fences of all waits of its lists, and of all such drivers in the process."""

    points: list[tuple[Any, Any]]
    made: ClassVar[weakref.WeakSet[Any]] = weakref.WeakSet()

    def __init__(self, inner: spi.DeviceDriver) -> None:
        super().__init__(inner)
        self.points = []
        _Pending.made.add(self)

    def until_none_is_pending(self) -> None:
        for driver in list(_Pending.made):
            for point in list(driver.points):
                while not driver.inner.done(point):
                    time.sleep(0.001)


class _PendingList(List):
    def append_wait(self, semaphores, params, wait_points, acquire, want_point):  # type: ignore[no-untyped-def]
        point = self.inner.append_wait(semaphores, params, wait_points, acquire, True)
        self.driver.points.append(point)   # type: ignore[attr-defined]
        return point


@a_driver
class ImportWaits(_Pending):
    """An import returns when no wait is pending."""

    list_type = _PendingList

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        self.until_none_is_pending()
        return self.inner.import_semaphore(desc, handle)


@a_driver
class FreeWaits(_Pending):
    """Memory is unmapped when no wait is pending."""

    list_type = _PendingList

    def unmap_buffer(self, buffer: Any) -> None:
        self.until_none_is_pending()
        self.inner.unmap_buffer(buffer)


@a_list
class AppendsHeldAfterMany(List):
    """The 200th signal behind a wait blocks its caller until the wait is met."""

    point: Any = None
    count = 0

    def append_wait(self, semaphores, params, wait_points, acquire, want_point):  # type: ignore[no-untyped-def]
        self.point, self.count = self.inner.append_wait(semaphores, params, wait_points, acquire, True), 0
        return self.point

    def append_signal(self, semaphores, params, wait_points, release, want_point):  # type: ignore[no-untyped-def]
        self.count += 1
        while self.count >= 200 and self.point is not None and not self.driver.inner.done(self.point):
            time.sleep(0.001)
        return self.inner.append_signal(semaphores, params, wait_points, release, want_point)


@a_driver
class InterruptSignals(Driver):
    """An interrupted host wait signals the semaphore that the device waits for."""

    class list_type(List):  # noqa: N801
        def append_wait(self, semaphores, params, wait_points, acquire, want_point):  # type: ignore[no-untyped-def]
            self.driver.last = list(zip(semaphores, params, strict=True))   # type: ignore[attr-defined]
            return self.inner.append_wait(semaphores, params, wait_points, acquire, want_point)

    def wait(self, point: Any, timeout_ns: int) -> bool:
        try:
            return self.inner.wait(point, timeout_ns)
        except KeyboardInterrupt:
            for semaphore, param in self.last:   # type: ignore[attr-defined]
                self.inner.host_signal(semaphore, param.value)
            raise
