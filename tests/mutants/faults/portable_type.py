"""Faults with portable objects only: a check that tries one type tries an object of the device."""

from __future__ import annotations

from typing import Any, ClassVar

from faults.base import Driver, List, a_driver
from xsem import spi


class _Portable(Driver):
    """A driver that knows its portable timelines, and the memory and buffers of its portable memory."""

    def __init__(self, inner: spi.DeviceDriver) -> None:
        super().__init__(inner)
        self.timelines: list[Any] = []
        self.memories: list[Any] = []
        self.buffers: list[Any] = []

    def import_host_timeline(self, page: Any) -> Any:
        self.timelines.append(self.inner.import_host_timeline(page))
        return self.timelines[-1]

    def release_semaphore(self, semaphore: Any) -> None:
        self.timelines = [each for each in self.timelines if each is not semaphore]
        self.inner.release_semaphore(semaphore)

    def import_host_memory(self, memory: Any) -> Any:
        self.memories.append(self.inner.import_host_memory(memory))
        return self.memories[-1]

    def release_memory(self, memory: Any) -> None:
        self.memories = [each for each in self.memories if each is not memory]
        self.inner.release_memory(memory)

    def map_buffer(self, memory: Any, offset: int, size: int) -> Any:
        buffer, address = self.inner.map_buffer(memory, offset, size)
        if any(each is memory for each in self.memories):
            self.buffers.append(buffer)
        return buffer, address

    def unmap_buffer(self, buffer: Any) -> None:
        self.buffers = [each for each in self.buffers if each is not buffer]
        self.inner.unmap_buffer(buffer)

    def is_portable(self, token: Any) -> bool:
        return any(each is token for each in (*self.timelines, *self.buffers))


@a_driver
class EachFiftiethFillOfPortableMemoryIsLost(_Portable):
    """Each fiftieth fill of a list is lost if it is one of portable memory."""

    class list_type(List):  # noqa: N801
        count = 0

        def append_fill(self, dst, offset, pattern, size, wait_fences, want_fence):  # type: ignore[no-untyped-def]
            self.count += 1
            if self.count % 50 == 0 and self.driver.is_portable(dst):   # type: ignore[attr-defined]
                return self.inner.append_barrier(wait_fences, want_fence)
            return self.inner.append_fill(dst, offset, pattern, size, wait_fences, want_fence)


@a_driver
class ThirteenthPortableTimelineIsEarly(_Portable):
    """A wait for a portable timeline beside twelve older ones passes at once, except in a batch."""

    class list_type(List):  # noqa: N801
        def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
            later = self.driver.timelines[12:]   # type: ignore[attr-defined]
            if len(semaphores) == 1 and any(each is semaphores[0] for each in later):
                return self.inner.append_barrier(wait_fences, want_fence)
            return self.inner.append_wait(semaphores, params, wait_fences, acquire, want_fence)


@a_driver
class BinaryBesideAPortableTimelineIgnored(_Portable):
    """A wait for a batch with a portable timeline waits for the timelines."""

    class list_type(List):  # noqa: N801
        def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
            pairs = list(zip(semaphores, params, strict=True))
            if any(self.driver.is_portable(each) for each in semaphores):   # type: ignore[attr-defined]
                pairs = [pair for pair in pairs if pair[1].value is not None] or pairs
            return self.inner.append_wait([each for each, _ in pairs], [each for _, each in pairs], wait_fences,
                                          acquire, want_fence)


class _Watched(_Portable):
    """A driver with the fences of the process's pending waits, each with whether it waits for a timeline."""

    waits: ClassVar[list[tuple[Any, bool]]] = []

    class list_type(List):  # noqa: N801
        def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
            fence = self.inner.append_wait(semaphores, params, wait_fences, acquire, True)
            self.driver.waits[:] = [   # type: ignore[attr-defined]
                *self.driver.unmet(), (fence, params[0].value is not None)]   # type: ignore[attr-defined]
            return fence

    def unmet(self) -> list[tuple[Any, bool]]:
        return [each for each in self.waits if not self.inner.query_fence(each[0])]

    def wait_until_idle(self, *, timelines_only: bool = False) -> None:
        for fence, is_timeline in self.unmet():
            if is_timeline or not timelines_only:
                self.inner.wait_fence(fence, 10**10)


@a_driver
class PortableMemoryIsFreedBehindWaits(_Watched):
    """The release of portable memory returns when no wait is pending."""

    def release_memory(self, memory: Any) -> None:
        if any(each is memory for each in self.memories):
            self.wait_until_idle()
        super().release_memory(memory)


@a_driver
class PortableTimelineIsReleasedBehindWaits(_Watched):
    """The release of a portable timeline returns when no wait is pending."""

    def release_semaphore(self, semaphore: Any) -> None:
        if any(each is semaphore for each in self.timelines):
            self.wait_until_idle()
        super().release_semaphore(semaphore)


@a_driver
class ImportBlocksBesideATimelinesWait(_Watched):
    """The import of memory returns when no wait for a timeline is pending."""

    def import_memory(self, desc: Any, handle: Any) -> Any:
        self.wait_until_idle(timelines_only=True)
        return self.inner.import_memory(desc, handle)


@a_driver
class BorrowBlocksBesideATimelinesWait(_Watched):
    """The borrow of a native event returns when no wait for a timeline is pending."""

    def borrow_event(self, event: Any) -> Any:
        self.wait_until_idle(timelines_only=True)
        return self.inner.borrow_event(event)


@a_driver
class ManyTimelineWaitsHoldOtherLists(_Watched):
    """Behind 40 pending waits for timelines, a signal waits for one of them."""

    class list_type(_Watched.list_type):  # noqa: N801
        def append_signal(self, semaphores, params, wait_fences, release, want_fence):  # type: ignore[no-untyped-def]
            held = [fence for fence, is_timeline in self.driver.unmet() if is_timeline]   # type: ignore[attr-defined]
            more = held[:1] if len(held) >= 40 else ()
            return self.inner.append_signal(semaphores, params, [*wait_fences, *more], release, want_fence)


@a_driver
class TimelinesHaveOneNativeHandle(Driver):
    """All timelines have the native handle of the first."""

    first: int | None = None

    def native_handle(self, token: Any) -> int:
        found: int = self.inner.native_handle(token)
        if not hasattr(token, "value"):
            return found
        self.first = found if self.first is None else self.first
        return self.first
