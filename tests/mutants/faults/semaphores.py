"""Faults in waits, signals and batches."""

from __future__ import annotations

import dataclasses
from typing import Any

from faults.base import Driver, List, a_driver, a_list, plus
from xsem.types import SignalParams


# ---- waits and signals
@a_list
class SignalLost(List):
    """A signal is accepted and never done."""

    def append_signal(self, semaphores, params, wait_fences, release, want_fence):  # type: ignore[no-untyped-def]
        return self.inner.append_barrier(wait_fences, want_fence)


@a_list
class WaitIgnored(List):
    """A wait is accepted and passes immediately."""

    def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
        return self.inner.append_barrier(wait_fences, want_fence)


@a_list
class WaitOneEarly(List):
    """A timeline wait passes one value early."""

    def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
        early = [each if not each.value else dataclasses.replace(each, value=each.value - 1) for each in params]
        return self.inner.append_wait(semaphores, early, wait_fences, acquire, want_fence)


@a_list
class WaitOneLate(List):
    """A timeline wait needs one value more."""

    def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
        late = [plus(each, 1) for each in params]
        return self.inner.append_wait(semaphores, late, wait_fences, acquire, want_fence)


@a_list
class ValueOf32Bits(List):
    """Waits see the low 32 bits of a value."""

    def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
        low = [each if each.value is None else dataclasses.replace(each, value=each.value & 0xFFFFFFFF)
               for each in params]
        return self.inner.append_wait(semaphores, low, wait_fences, acquire, want_fence)


@a_list
class SignalOneMore(List):
    """A timeline signal sets one more than requested."""

    def append_signal(self, semaphores, params, wait_fences, release, want_fence):  # type: ignore[no-untyped-def]
        more = [plus(each, 1) for each in params]
        return self.inner.append_signal(semaphores, more, wait_fences, release, want_fence)


@a_list
class BinaryNotReset(List):
    """A met wait leaves a binary semaphore signalled."""

    def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
        self.inner.append_wait(semaphores, params, wait_fences, acquire, False)
        binary = [each for each, param in zip(semaphores, params, strict=True) if param.value is None]
        if binary:
            self.inner.append_signal(binary, [SignalParams()] * len(binary), (), (), False)
        return self.inner.append_barrier((), True) if want_fence else None


# ---- batches
@a_list
class ValuesSwapped(List):
    """The values of a batch go to the wrong semaphores."""

    def append_signal(self, semaphores, params, wait_fences, release, want_fence):  # type: ignore[no-untyped-def]
        return self.inner.append_signal(semaphores, params[::-1], wait_fences, release, want_fence)


@a_list
class HalfABatchSignalled(List):
    """The second half of a batch of signals is left out."""

    def append_signal(self, semaphores, params, wait_fences, release, want_fence):  # type: ignore[no-untyped-def]
        some = (len(semaphores) + 1) // 2
        return self.inner.append_signal(semaphores[:some], params[:some], wait_fences, release, want_fence)


@a_list
class HalfABatchAwaited(List):
    """The second half of a batch of waits is left out."""

    def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
        some = (len(semaphores) + 1) // 2
        return self.inner.append_wait(semaphores[:some], params[:some], wait_fences, acquire, want_fence)


# ---- on the host
@a_driver
class HostSignalLost(Driver):
    """A signal from the host is accepted and never done."""

    def host_signal(self, semaphore: Any, value: int | None) -> None:
        pass


@a_driver
class HostWaitIgnored(Driver):
    """A wait on the host passes immediately."""

    def host_wait(self, semaphore: Any, value: int | None, timeout_ns: int) -> bool:
        return True


@a_driver
class HostSignalOneMore(Driver):
    """A signal from the host sets one more than requested."""

    def host_signal(self, semaphore: Any, value: int | None) -> None:
        self.inner.host_signal(semaphore, value if value in (None, 2**64 - 1) else value + 1)


@a_driver
class HostWaitDoesNotReset(Driver):
    """A met wait on the host leaves a binary semaphore signalled."""

    def host_wait(self, semaphore: Any, value: int | None, timeout_ns: int) -> bool:
        met = self.inner.host_wait(semaphore, value, timeout_ns)
        if met and value is None:
            self.inner.host_signal(semaphore, None)
        return bool(met)


@a_driver
class HostWaitOf32Bits(Driver):
    """A wait on the host sees the low 32 bits of its value."""

    def host_wait(self, semaphore: Any, value: int | None, timeout_ns: int) -> bool:
        return bool(self.inner.host_wait(semaphore, None if value is None else value & 0xFFFFFFFF, timeout_ns))


# ---- timelines
@a_driver
class InitialValueIgnored(Driver):
    """A created timeline starts at 0."""

    def create_semaphore(self, type: Any, initial_value: int) -> Any:
        return self.inner.create_semaphore(type, 0)


@a_driver
class NativeHandlesAreEqual(Driver):
    """All semaphores have one native handle."""

    def native_handle(self, token: Any) -> int:
        return 7


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
