"""Faults in the events of single operations, in fences after their release, in failures and in time limits."""

from __future__ import annotations

import time
from typing import Any

from faults.base import Driver, List, a_driver, a_list
from xsem import spi


# ---- one operation, one position
@a_list
class FillIgnoresEventsAndItsFenceDoesNot(List):
    """A fill does not wait for its events, and the fence of the fill does."""

    def append_fill(self, *args):  # type: ignore[no-untyped-def]
        *fill, wait_fences, want_fence = args
        self.inner.append_fill(*fill, (), False)
        return self.inner.append_barrier(wait_fences, want_fence)


@a_list
class SignalsEventIsEarly(List):
    """The event of a signal is reached a millisecond before the signal."""

    def append_signal(self, semaphores, params, wait_fences, release, want_fence):  # type: ignore[no-untyped-def]
        fence = self.inner.append_barrier(wait_fences, want_fence)
        self.inner.append_work(lambda: time.sleep(0.001))
        self.inner.append_signal(semaphores, params, (), release, False)
        return fence


# ---- fences and their release
@a_driver
class ReleasedFenceIsUsedAgain(Driver):
    """A barrier gets the fence that was released last, also if that fence belongs to pending work."""

    class list_type(List):  # noqa: N801
        def append_barrier(self, wait_fences, want_fence):  # type: ignore[no-untyped-def]
            fence = self.inner.append_barrier(wait_fences, want_fence)
            released = self.driver.released   # type: ignore[attr-defined]
            return released.pop() if want_fence and released else fence

    def __init__(self, inner: spi.DeviceDriver) -> None:
        super().__init__(inner)
        self.released: list[Any] = []

    def release_fence(self, fence: Any) -> None:
        self.released.append(fence)


@a_driver
class FenceEndsWithItsQueue(Driver):
    """A fence is not reached any more after the close of its queue."""

    class list_type(List):  # noqa: N801
        def append_barrier(self, wait_fences, want_fence):  # type: ignore[no-untyped-def]
            return self.note(self.inner.append_barrier(wait_fences, want_fence))

        def append_wait(self, *args):  # type: ignore[no-untyped-def]
            return self.note(self.inner.append_wait(*args))

        def note(self, fence: Any) -> Any:
            if fence is not None:
                self.driver.queues[id(fence)] = self, fence   # type: ignore[attr-defined]
            return fence

        def close(self) -> None:
            self.driver.closed.add(self)   # type: ignore[attr-defined]
            self.inner.close()

    def __init__(self, inner: spi.DeviceDriver) -> None:
        super().__init__(inner)
        self.queues: dict[int, tuple[Any, Any]] = {}
        self.closed: set[Any] = set()

    def query_fence(self, fence: Any) -> bool:
        queue, _ = self.queues.get(id(fence), (None, None))
        return queue not in self.closed and self.inner.query_fence(fence)


@a_driver
class QueryTakesAWhile(Driver):
    """A query of a fence takes 150 ms."""

    def query_fence(self, fence: Any) -> bool:
        time.sleep(0.15)
        return self.inner.query_fence(fence)   # type: ignore[no-any-return]


# ---- native events, failed work
@a_driver
class NativeEventIsResetByItsRelease(Driver):
    """The release of the fence of a native event resets the event."""

    def __init__(self, inner: spi.DeviceDriver) -> None:
        super().__init__(inner)
        self._events: dict[int, tuple[Any, Any]] = {}

    def borrow_event(self, native: object) -> Any:
        fence = self.inner.borrow_event(native)
        self._events[id(fence)] = fence, native
        return fence

    def release_fence(self, fence: Any) -> None:
        _, native = self._events.pop(id(fence), (None, None))
        if native is not None:
            native.clear()
        self.inner.release_fence(fence)


@a_driver
class FailedWorkCountsAsDone(Driver):
    """A fence behind failed work counts as reached."""

    def query_fence(self, fence: Any) -> bool:
        try:
            return self.inner.query_fence(fence)
        except Exception:
            return True

    def wait_fence(self, fence: Any, timeout_ns: int) -> bool:
        try:
            return self.inner.wait_fence(fence, timeout_ns)
        except Exception:
            return True


@a_list
class FailureIsNotOfEarlierWork(List):
    """An append behind failed work raises an error of its own, not of earlier work."""

    def append_barrier(self, wait_fences, want_fence):  # type: ignore[no-untyped-def]
        try:
            return self.inner.append_barrier(wait_fences, want_fence)
        except Exception as error:
            if getattr(error, "from_earlier_work", False):
                error.from_earlier_work = False   # type: ignore[attr-defined]
            raise


@a_list
class SignalBehindAFailureIsTaken(List):
    """A signal behind failed work is accepted, and dropped."""

    def append_signal(self, semaphores, params, wait_fences, release, want_fence):  # type: ignore[no-untyped-def]
        try:
            return self.inner.append_signal(semaphores, params, wait_fences, release, want_fence)
        except Exception:
            return object()


@a_driver
class FailedWorkIsNeverReported(Driver):
    """The query of a fence behind failed work returns False for ever."""

    def query_fence(self, fence: Any) -> bool:
        try:
            return self.inner.query_fence(fence)   # type: ignore[no-any-return]
        except Exception:
            return False


@a_driver
class FailureEndsAllQueues(Driver):
    """After work of a queue fails, the appends of all queues raise its failure."""

    failure: Exception | None = None

    class list_type(List):  # noqa: N801
        def append_barrier(self, wait_fences, want_fence):  # type: ignore[no-untyped-def]
            if self.driver.failure is not None:   # type: ignore[attr-defined]
                raise self.driver.failure   # type: ignore[attr-defined]
            return self.inner.append_barrier(wait_fences, want_fence)

    def query_fence(self, fence: Any) -> bool:
        try:
            return self.inner.query_fence(fence)   # type: ignore[no-any-return]
        except Exception as error:
            self.failure = error
            raise


@a_driver
class FailureReachesOtherFences(Driver):
    """After work of a queue fails, the fences of all queues count as reached."""

    _failed = False

    def query_fence(self, fence: Any) -> bool:
        try:
            return self._failed or self.inner.query_fence(fence)
        except Exception:
            self._failed = True
            raise


# ---- time limits: xsem itself waits in parts of at most 50 ms, so that only direct calls show these faults
_LONG_NS = 100_000_000


@a_driver
class WaitIgnoresWhatIsReachedMeanwhile(Driver):
    """A long wait for an unreached fence returns at its timeout, also if the fence is reached before."""

    def wait_fence(self, fence: Any, timeout_ns: int) -> bool:
        if timeout_ns > _LONG_NS and not self.inner.query_fence(fence):
            time.sleep(timeout_ns / 1e9)
        return bool(self.inner.wait_fence(fence, timeout_ns))


@a_driver
class WaitForAReachedFenceTakesItsTimeout(Driver):
    """A long wait for a reached fence returns at its timeout."""

    def wait_fence(self, fence: Any, timeout_ns: int) -> bool:
        if timeout_ns > _LONG_NS and self.inner.query_fence(fence):
            time.sleep(timeout_ns / 1e9)
        return bool(self.inner.wait_fence(fence, timeout_ns))


@a_driver
class MetHostWaitTakesItsTimeout(Driver):
    """A long host wait that is met returns at its timeout."""

    def host_wait(self, semaphore: Any, value: int | None, timeout_ns: int) -> bool:
        met = self.inner.host_wait(semaphore, value, timeout_ns)
        if met and timeout_ns > _LONG_NS:
            time.sleep(timeout_ns / 1e9)
        return bool(met)
