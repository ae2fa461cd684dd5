"""Faults in calls with a certain number of semaphores, of fences or of bytes."""

from __future__ import annotations

import os
import stat

from faults.base import Driver, List, a_driver, a_list
from xsem import spi


def _are_of_one_kind(params):  # type: ignore[no-untyped-def]
    return len({each.value is None for each in params}) == 1


# ---- batches
@a_list
class SecondOfTwoIgnored(List):
    """A wait for exactly two semaphores of one kind waits for the first."""

    def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
        if len(semaphores) == 2 and _are_of_one_kind(params):
            semaphores, params = semaphores[:1], params[:1]
        return self.inner.append_wait(semaphores, params, wait_fences, acquire, want_fence)


@a_list
class LastOfEightIgnored(List):
    """A wait for 4 to 16 semaphores leaves out the last."""

    def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
        if 4 <= len(semaphores) <= 16:
            semaphores, params = semaphores[:-1], params[:-1]
        return self.inner.append_wait(semaphores, params, wait_fences, acquire, want_fence)


@a_list
class FirstOfManyIgnored(List):
    """A wait for more than 16 semaphores leaves out the first."""

    def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
        if len(semaphores) > 16:
            semaphores, params = semaphores[1:], params[1:]
        return self.inner.append_wait(semaphores, params, wait_fences, acquire, want_fence)


@a_list
class BatchOf64Awaited(List):
    """A batch of waits ends after 64 semaphores."""

    def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
        return self.inner.append_wait(semaphores[:64], params[:64], wait_fences, acquire, want_fence)


@a_list
class ValuesOfEightSwapped(List):
    """In a signal of 5 to 16 timelines, the third has the value of the fifth, and the reverse."""

    def append_signal(self, semaphores, params, wait_fences, release, want_fence):  # type: ignore[no-untyped-def]
        params = list(params)
        if 5 <= len(params) <= 16:
            params[2], params[4] = params[4], params[2]
        return self.inner.append_signal(semaphores, params, wait_fences, release, want_fence)


# ---- wait fences
@a_list
class FourFencesAwaited(List):
    """A signal waits for the first four of its fences."""

    def append_signal(self, semaphores, params, wait_fences, release, want_fence):  # type: ignore[no-untyped-def]
        return self.inner.append_signal(semaphores, params, wait_fences[:4], release, want_fence)


@a_list
class EighthFenceIgnored(List):
    """A wait and a barrier wait for the first seven of their fences."""

    def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
        return self.inner.append_wait(semaphores, params, wait_fences[:7], acquire, want_fence)

    def append_barrier(self, wait_fences, want_fence):  # type: ignore[no-untyped-def]
        return self.inner.append_barrier(wait_fences[:7], want_fence)


# ---- many calls
@a_list
class OneFileIn1000AppendsLeaked(List):
    """Every thousandth append of a queue leaves a file descriptor open."""

    count = 0

    def _note(self) -> None:
        self.count += 1
        if self.count % 1000 == 0:
            os.dup(0)

    def append_wait(self, *args):  # type: ignore[no-untyped-def]
        self._note()
        return self.inner.append_wait(*args)

    def append_signal(self, *args):  # type: ignore[no-untyped-def]
        self._note()
        return self.inner.append_signal(*args)


@a_driver
class OneFileIn500ImportsLeaked(Driver):
    """Every 500th import leaves a file descriptor open."""

    count = 0

    def _note(self) -> None:
        type(self).count += 1
        if self.count % 500 == 0:
            os.dup(0)

    def import_memory(self, desc, handle):  # type: ignore[no-untyped-def]
        self._note()
        return self.inner.import_memory(desc, handle)

    def import_semaphore(self, desc, handle):  # type: ignore[no-untyped-def]
        self._note()
        return self.inner.import_semaphore(desc, handle)


@a_driver
class RefusedObjectsAreKept(Driver):
    """The refusal of an object of the exporter leaves a duplicate of its descriptor open."""

    def import_memory(self, desc, handle):  # type: ignore[no-untyped-def]
        return self._keeping(self.inner.import_memory, desc, handle)

    def import_semaphore(self, desc, handle):  # type: ignore[no-untyped-def]
        return self._keeping(self.inner.import_semaphore, desc, handle)

    def _keeping(self, act, desc, handle):  # type: ignore[no-untyped-def]
        try:
            return act(desc, handle)
        except spi.ImportFailure:
            if stat.S_ISREG(os.fstat(handle.fileno()).st_mode):
                os.dup(handle.fileno())
            raise


# ---- fills and copies
@a_list
class PatternOf8IsHalf(List):
    """A fill with a pattern of 8 bytes repeats its first 4."""

    def append_fill(self, dst, offset, pattern, size, *rest):  # type: ignore[no-untyped-def]
        if len(pattern) == 8:
            pattern = pattern[:4]
        return self.inner.append_fill(dst, offset, pattern, size, *rest)


@a_list
class EndOfAFillOf64MiBMissing(List):
    """A fill of more than 64,000,000 bytes ends there."""

    def append_fill(self, dst, offset, pattern, size, *rest):  # type: ignore[no-untyped-def]
        return self.inner.append_fill(dst, offset, pattern, min(size, 64_000_000), *rest)


@a_list
class EndOfACopyOf64MiBMissing(List):
    """A copy of more than 64,000,000 bytes ends there."""

    def append_copy(self, dst, dst_offset, src, src_offset, size, *rest):  # type: ignore[no-untyped-def]
        return self.inner.append_copy(dst, dst_offset, src, src_offset, min(size, 64_000_000), *rest)


@a_list
class OddCopyIsShort(List):
    """A copy of 20,000 to 60,000 bytes with an odd size leaves out the last byte."""

    def append_copy(self, dst, dst_offset, src, src_offset, size, *rest):  # type: ignore[no-untyped-def]
        if 20_000 < size < 60_000 and size % 2:
            size -= 1
        return self.inner.append_copy(dst, dst_offset, src, src_offset, size, *rest)
