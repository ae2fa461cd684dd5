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
