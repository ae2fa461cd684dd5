"""Faults in the reset of binary semaphores, in one of many waits, and in a part of a batch."""

from __future__ import annotations

from typing import Any

from faults.base import Driver, List, a_driver, a_list
from xsem.types import SignalParams


# ---- the reset of binary semaphores
@a_list
class BinaryNotReset(List):
    """A met wait leaves a binary semaphore signalled."""

    def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
        self.inner.append_wait(semaphores, params, wait_fences, acquire, False)
        binary = [each for each, param in zip(semaphores, params, strict=True) if param.value is None]
        if binary:
            self.inner.append_signal(binary, [SignalParams()] * len(binary), (), (), False)
        return self.inner.append_barrier((), True) if want_fence else None


@a_driver
class HostWaitDoesNotReset(Driver):
    """A met wait on the host leaves a binary semaphore signalled."""

    def host_wait(self, semaphore: Any, value: int | None, timeout_ns: int) -> bool:
        met = self.inner.host_wait(semaphore, value, timeout_ns)
        if met and value is None:
            self.inner.host_signal(semaphore, None)
        return bool(met)


# ---- one of many waits
@a_list
class EachHundredthWaitIsEarly(List):
    """Each hundredth wait of a list passes immediately."""

    count = 0

    def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
        self.count += 1
        if self.count % 100 == 0:
            return self.inner.append_barrier(wait_fences, want_fence)
        return self.inner.append_wait(semaphores, params, wait_fences, acquire, want_fence)


@a_list
class ThirdOfPendingWaitsIsEarly(List):
    """Of several waits of a list for one timeline, the third passes with the second."""

    def __init__(self, inner: Any, driver: Any) -> None:
        super().__init__(inner, driver)
        self.waits: list[tuple[Any, Any]] = []

    def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
        self.waits = [each for each in self.waits if not self.driver.inner.query_fence(each[1])]
        same = sum(each[0] is semaphores[0] for each in self.waits)
        if same == 2 and len(semaphores) == 1 and params[0].value is not None:
            return self.inner.append_barrier(wait_fences, want_fence)
        fence = self.inner.append_wait(semaphores, params, wait_fences, acquire, True)
        self.waits.append((semaphores[0], fence))
        return fence


# ---- large batches, mixed batches
@a_list
class BatchOf32Awaited(List):
    """A batch of waits ends after 32 semaphores."""

    def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
        return self.inner.append_wait(semaphores[:32], params[:32], wait_fences, acquire, want_fence)


@a_list
class BinaryOfAMixedBatchIgnored(List):
    """A wait for a batch of both kinds waits for its timelines."""

    def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
        pairs = list(zip(semaphores, params, strict=True))
        some = [pair for pair in pairs if pair[1].value is not None] or pairs
        return self.inner.append_wait([each for each, _ in some], [each for _, each in some], wait_fences, acquire,
                                      want_fence)
