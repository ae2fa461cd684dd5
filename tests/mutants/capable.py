"""A driver with more capabilities than `host`, with one fault each. `test_capable.py` runs the suite on them."""

from __future__ import annotations

import atexit
import ctypes
import dataclasses
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from faults.base import Driver, Fault, List, named

from xsem import spi
from xsem.types import Feature, MemoryDesc, OwnedHandle, SemaphoreDesc, SemaphoreHandleType

__all__ = ["CAPABLE", "Capable"]

CAPABLE: dict[str, Fault] = {}


class _Silent:
    """A timeline's page that the device signals as a GPU does: it stores the value, and wakes no waiter."""

    def __init__(self, page: Any) -> None:
        self._page = page
        self.wait = page.wait

    def signal(self, value: int) -> None:
        ctypes.c_uint64.from_address(self._page.address + 16).value = value

    def close(self) -> None:
        """Do nothing: xsem closes the page."""


class _Held:
    """Portable memory in use."""

    def __init__(self, memory: Any) -> None:
        self.map = memory.map

    def close(self) -> None:
        """Do nothing: xsem closes the memory."""


class _SyncFile:
    """A semaphore with a separate object for each signal. A sync file stands for one signal."""

    def __init__(self, driver: Any, first: Any) -> None:
        self.driver = driver
        self.made = [first]

    def signalled(self) -> Any:
        self.made.append(self.driver.create_semaphore(SemaphoreHandleType.OPAQUE_FD, 0))
        return self.made[-1]


class _Recorder(List, spi.RecordingQueue):
    recorded: list[Callable[[dict[Any, tuple[int, int]]], object]] | None = None

    def begin_recording(self) -> None:
        self.recorded = []

    def end_recording(self) -> Any:
        made, self.recorded = self.recorded, None
        return made

    def replay(self, recording, values):  # type: ignore[no-untyped-def]
        given = {semaphore: (wait, signal) for semaphore, wait, signal in values}
        for each in recording:
            each(given)

    def release_recording(self, recording: Any) -> None:
        pass

    def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
        def append(values: dict[Any, tuple[int, int]]) -> Any:
            return self.inner.append_wait(semaphores, _replaced(semaphores, params, values, 0), wait_fences, acquire,
                                          want_fence)

        return append({}) if self.recorded is None else self.recorded.append(append)

    def append_signal(self, semaphores, params, wait_fences, release, want_fence):  # type: ignore[no-untyped-def]
        semaphores = [each.signalled() if isinstance(each, _SyncFile) else each for each in semaphores]

        def append(values: dict[Any, tuple[int, int]]) -> Any:
            return self.inner.append_signal(semaphores, _replaced(semaphores, params, values, 1), wait_fences, release,
                                            want_fence)

        return append({}) if self.recorded is None else self.recorded.append(append)

    def append_fill(self, *fill):  # type: ignore[no-untyped-def]
        def append(_values: object) -> Any:
            return self.inner.append_fill(*fill)

        return append(None) if self.recorded is None else self.recorded.append(append)

    def append_copy(self, *copy):  # type: ignore[no-untyped-def]
        def append(_values: object) -> Any:
            return self.inner.append_copy(*copy)

        return append(None) if self.recorded is None else self.recorded.append(append)


def _replaced(semaphores: Any, params: Any, values: dict[Any, tuple[int, int]], which: int) -> list[Any]:
    return [dataclasses.replace(param, value=values[semaphore][which]) if semaphore in values else param
            for semaphore, param in zip(semaphores, params, strict=True)]


class Capable(Driver):
    """No fault: records, has sync files, and signals portable timelines as a GPU does."""

    # Each signal of a sync file semaphore is a new semaphore of the host.
    list_type = _Recorder
    signals_wake = False

    def __init__(self, inner: spi.DeviceDriver) -> None:
        super().__init__(inner)
        declared = inner.capabilities
        self._declared = dataclasses.replace(
            declared, features=declared.features | {Feature.RECORDING},
            semaphore_import=declared.semaphore_import | {SemaphoreHandleType.SYNC_FD},
            semaphore_export=declared.semaphore_export | {SemaphoreHandleType.SYNC_FD})

    @property
    def capabilities(self) -> Any:
        return self._declared

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        if desc.type is not SemaphoreHandleType.SYNC_FD:
            return self.inner.import_semaphore(desc, handle)
        if handle is not None:
            return self.inner.import_semaphore(dataclasses.replace(desc, type=SemaphoreHandleType.OPAQUE_FD), handle)
        made = self.signalled(self.inner.create_semaphore(SemaphoreHandleType.OPAQUE_FD, 0))
        return spi.Imported(made, handle="left")

    def create_semaphore(self, type: SemaphoreHandleType, initial_value: int) -> Any:
        made = self.inner.create_semaphore(
            SemaphoreHandleType.OPAQUE_FD if type is SemaphoreHandleType.SYNC_FD else type, initial_value)
        return _SyncFile(self.inner, made) if type is SemaphoreHandleType.SYNC_FD else made

    def export_semaphore(self, semaphore: Any) -> OwnedHandle | None:
        return self.inner.export_semaphore(semaphore.made[-1] if isinstance(semaphore, _SyncFile) else semaphore)

    def release_semaphore(self, semaphore: Any) -> None:
        for each in semaphore.made if isinstance(semaphore, _SyncFile) else [semaphore]:
            self.inner.release_semaphore(each)

    def signalled(self, semaphore: Any) -> Any:
        self.inner.host_signal(semaphore, None)
        return semaphore

    def import_host_timeline(self, page: Any) -> Any:
        return _Silent(page)

    def import_host_memory(self, memory: Any) -> Any:
        return _Held(memory)


class Bridged(Driver, spi.HostFences):
    """No fault: xsem bridges its portable timelines. A fence of the host is an event of this process."""

    def __init__(self, inner: spi.DeviceDriver) -> None:
        super().__init__(inner)
        self._events: dict[Any, threading.Event] = {}

    @property
    def capabilities(self) -> Any:
        declared = self.inner.capabilities
        return dataclasses.replace(declared, bridged=frozenset(
            each for each in declared.semaphore_import if each.portable))

    def create_host_fence(self) -> Any:
        event = threading.Event()
        fence = self.inner.borrow_event(event)
        self._events[fence] = event
        return fence

    def reach_host_fence(self, fence: Any) -> None:
        self._events[fence].set()

    def release_fence(self, fence: Any) -> None:
        self._events.pop(fence, None)
        self.inner.release_fence(fence)


CAPABLE["bridged"] = Fault(Bridged, "no fault")
CAPABLE["capable"] = Fault(Capable, "no fault")


def _capable(cls: type[Capable]) -> type[Capable]:
    CAPABLE[named(cls)] = Fault(cls, (cls.__doc__ or "").strip())
    return cls


class FencesOfTheHostAreOne(Bridged):
    """All fences of the host are reached with the first one."""

    def reach_host_fence(self, fence: Any) -> None:
        for event in self._events.values():
            event.set()


CAPABLE["fences_of_the_host_are_one"] = Fault(FencesOfTheHostAreOne, "All fences of the host are reached at once.")


@_capable
class RecordingRunsAtOnce(Capable):
    """Recorded operations also run immediately."""

    class list_type(_Recorder):  # noqa: N801
        def end_recording(self) -> Any:
            made = super().end_recording()
            for each in made:
                each({})
            return made


@_capable
class ReplayKeepsItsValues(Capable):
    """A replay uses the recorded values."""

    class list_type(_Recorder):  # noqa: N801
        def replay(self, recording, values):  # type: ignore[no-untyped-def]
            super().replay(recording, [])


@_capable
class ReplaySignalsAsRecorded(Capable):
    """A replay waits for its own values, and signals the recorded values."""

    class list_type(_Recorder):  # noqa: N801
        def append_signal(self, semaphores, params, wait_fences, release, want_fence):  # type: ignore[no-untyped-def]
            def append(_values: object) -> Any:
                return self.inner.append_signal(semaphores, params, wait_fences, release, want_fence)

            return append(None) if self.recorded is None else self.recorded.append(append)


@_capable
class SecondOfTwoRecordedIgnored(Capable):
    """A recorded wait for exactly two semaphores waits for the first."""

    class list_type(_Recorder):  # noqa: N801
        def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
            if self.recorded is not None and len(semaphores) == 2:
                semaphores, params = semaphores[:1], params[:1]
            return super().append_wait(semaphores, params, wait_fences, acquire, want_fence)


@_capable
class LastOfThreeRecordedIgnored(Capable):
    """A recorded wait for three semaphores or more leaves out the last."""

    class list_type(_Recorder):  # noqa: N801
        def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
            if self.recorded is not None and len(semaphores) > 2:
                semaphores, params = semaphores[:-1], params[:-1]
            return super().append_wait(semaphores, params, wait_fences, acquire, want_fence)


@_capable
class RecordedBatchHasOneValue(Capable):
    """A replay signals all timelines of a batch with the value of the batch's first timeline."""

    class list_type(_Recorder):  # noqa: N801
        def append_signal(self, semaphores, params, wait_fences, release, want_fence):  # type: ignore[no-untyped-def]
            if self.recorded is None:
                return super().append_signal(semaphores, params, wait_fences, release, want_fence)

            def append(values: dict[Any, tuple[int, int]]) -> Any:
                given = [_replaced(semaphores, params, values, 1)[0]] * len(semaphores)
                return self.inner.append_signal(semaphores, given, wait_fences, release, want_fence)

            return self.recorded.append(append)


@_capable
class EmptyReplayRepeatsTheLast(Capable):
    """The replay of an empty recording replays the recording before it on its list."""

    class list_type(_Recorder):  # noqa: N801
        last: Any = ()

        def end_recording(self) -> Any:
            made = super().end_recording()
            self.last = made or self.last
            return made

        def replay(self, recording, values):  # type: ignore[no-untyped-def]
            super().replay(recording or self.last, values)


@_capable
class SyncFileMinusOneIsPending(Capable):
    """The sync file -1 is never signalled."""

    def signalled(self, semaphore: Any) -> Any:
        return semaphore


@_capable
class SyncFileIsSignalledAtOnce(Capable):
    """A sync file is signalled when it is exported, even if earlier work is pending."""

    def export_semaphore(self, semaphore: Any) -> OwnedHandle | None:
        return None if isinstance(semaphore, _SyncFile) else super().export_semaphore(semaphore)


@_capable
class SyncFileIsTheFirstOne(Capable):
    """Each sync file of a semaphore stands for its first signal."""

    def export_semaphore(self, semaphore: Any) -> OwnedHandle | None:
        return super().export_semaphore(semaphore.made[1] if isinstance(semaphore, _SyncFile) else semaphore)


@_capable
class SizeUnchecked(Capable):
    """The allocation size of an import is not checked."""

    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Any:
        assert handle is not None
        size = os.fstat(handle.fileno()).st_size
        return self.inner.import_memory(dataclasses.replace(desc, allocation_size=size or desc.allocation_size), handle)


@_capable
class WakesLate(Capable):
    """A wait is met 1.5 s after its signal."""

    class list_type(_Recorder):  # noqa: N801
        def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
            self.inner.append_wait(semaphores, params, wait_fences, acquire, False)
            self.inner.append_work(lambda: time.sleep(1.5))
            return self.inner.append_barrier((), want_fence)


@_capable
class ExitWaits(Capable):
    """A process does not end while one of its waits is pending."""

    class list_type(_Recorder):  # noqa: N801
        def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
            fence = super().append_wait(semaphores, params, wait_fences, acquire, True)
            atexit.register(_wait_for, self.driver.inner, fence)
            return fence


def _wait_for(driver: spi.DeviceDriver, fence: Any) -> None:
    while not driver.query_fence(fence):
        time.sleep(0.01)
