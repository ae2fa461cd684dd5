"""Faults with several threads, and calls that a pending wait blocks."""

from __future__ import annotations

import threading
import time
from typing import Any

from faults.base import Driver, List, a_driver, a_list
from xsem import spi
from xsem.types import OwnedHandle, SemaphoreDesc


@a_driver
class WaitHoldsTheDriver(Driver):
    """A wait for a fence holds a lock that every query of a fence needs."""

    def __init__(self, inner: spi.DeviceDriver) -> None:
        super().__init__(inner)
        self._one = threading.Lock()

    def query_fence(self, fence: Any) -> bool:
        with self._one:
            return self.inner.query_fence(fence)

    def wait_fence(self, fence: Any, timeout_ns: int) -> bool:
        with self._one:
            return self.inner.wait_fence(fence, timeout_ns)


@a_list
class OtherThreadsUnheard(List):
    """Signals from a thread that did not create the list are dropped."""

    def __init__(self, inner: spi.QueueDriver, driver: Any) -> None:
        super().__init__(inner, driver)
        self._maker = threading.get_ident()

    def append_signal(self, semaphores, params, wait_fences, release, want_fence):  # type: ignore[no-untyped-def]
        if threading.get_ident() != self._maker:
            return self.inner.append_barrier(wait_fences, want_fence)
        return self.inner.append_signal(semaphores, params, wait_fences, release, want_fence)


@a_list
class AppendsHeldAfterMany(List):
    """The 200th signal behind a wait blocks its caller until the wait is met."""

    fence: Any = None
    count = 0

    def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
        self.fence, self.count = self.inner.append_wait(semaphores, params, wait_fences, acquire, True), 0
        return self.fence

    def append_signal(self, semaphores, params, wait_fences, release, want_fence):  # type: ignore[no-untyped-def]
        self.count += 1
        while self.count >= 200 and self.fence is not None and not self.driver.inner.query_fence(self.fence):
            time.sleep(0.001)
        return self.inner.append_signal(semaphores, params, wait_fences, release, want_fence)


@a_driver
class InterruptSignals(Driver):
    """An interrupted host wait signals the semaphore that the device waits for."""

    class list_type(List):  # noqa: N801
        def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
            self.driver.last = list(zip(semaphores, params, strict=True))   # type: ignore[attr-defined]
            return self.inner.append_wait(semaphores, params, wait_fences, acquire, want_fence)

    def wait_fence(self, fence: Any, timeout_ns: int) -> bool:
        try:
            return self.inner.wait_fence(fence, timeout_ns)
        except KeyboardInterrupt:
            for semaphore, param in self.last:   # type: ignore[attr-defined]
                self.inner.host_signal(semaphore, param.value)
            raise


@a_driver
class ImportsOfThreadsAreMixedUp(Driver):
    """An import on a thread other than the main thread gives the object of the import before it."""

    def __init__(self, inner: spi.DeviceDriver) -> None:
        super().__init__(inner)
        self._one = threading.Lock()
        self._users: dict[int, list[Any]] = {}
        self._last: Any = None

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        with self._one:
            if threading.current_thread() is not threading.main_thread() and self._last is not None:
                self._users[id(self._last)][1] += 1
                return spi.Imported(self._last, handle="left")
            imported = self.inner.import_semaphore(desc, handle)
            self._last = imported.token
            self._users[id(imported.token)] = [imported.token, 1]
            return imported

    def release_semaphore(self, semaphore: Any) -> None:
        with self._one:
            users = self._users.get(id(semaphore))
            if users is not None:
                users[1] -= 1
                if users[1]:
                    return
                del self._users[id(semaphore)]
                if self._last is semaphore:
                    self._last = None
            self.inner.release_semaphore(semaphore)


class _TakesAnyCallers(List):
    """Its queue declares `Callers.ANY`."""

    def __init__(self, inner: spi.QueueDriver, driver: Any) -> None:
        super().__init__(inner, driver)
        self.callers = spi.Callers.ANY
        self._inside = threading.Lock()

    def append_copy(self, *args):  # type: ignore[no-untyped-def]
        alone = self._inside.acquire(blocking=False)
        try:
            if not alone:
                return self.during_another(*args)
            time.sleep(0.0001)
            return self.inner.append_copy(*args)
        finally:
            if alone:
                self._inside.release()


@a_list
class AppendDuringAnotherIsLost(_TakesAnyCallers):
    """The queue declares `Callers.ANY`, and a copy during another copy is lost."""

    def during_another(self, *args):  # type: ignore[no-untyped-def]
        return self.inner.append_barrier((), args[-1])


@a_list
class AppendDuringAnotherIsLate(_TakesAnyCallers):
    """The queue declares `Callers.ANY`, and a copy during another copy begins two milliseconds late."""

    def during_another(self, *args):  # type: ignore[no-untyped-def]
        timer = threading.Timer(0.002, self.inner.append_copy, (*args[:-1], False))
        timer.start()
        return self.inner.append_barrier((), args[-1])
