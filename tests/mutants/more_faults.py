"""More drivers with one fault each, in the way of ``faults``; and one that can record and takes sync files, for faults
in what ``host`` does not declare."""

from __future__ import annotations

import atexit
import dataclasses
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

from faults import Driver, Fault, List, _snake

from xsem import spi
from xsem.errors import BadHandleError, DriverError
from xsem.types import Feature, MemoryDesc, OwnedHandle, SemaphoreDesc, SemaphoreHandleType

MORE_FAULTS: dict[str, Fault] = {}
"""Of a driver that declares what the other one does."""
CAPABLE_FAULTS: dict[str, Fault] = {}
"""Of `Capable`."""


def _driver(cls: type[Driver]) -> type[Driver]:
    MORE_FAULTS[_snake(cls.__name__)] = Fault(cls, (cls.__doc__ or "").strip())
    return cls


def _list(cls: type[List]) -> type[List]:
    made = type(cls.__name__, (Driver,), {"list_type": cls})
    MORE_FAULTS[_snake(cls.__name__)] = Fault(made, (cls.__doc__ or "").strip())
    return cls


# ---- processes
@_list
class KilledWaiterSignals(List):
    """What a process waits for is signalled when that process is killed."""

    def append_wait(self, semaphores, params, wait_points, acquire, want_point):  # type: ignore[no-untyped-def]
        # Only where it matters, in the second process of the device: it takes a while.
        if "peer" in sys.modules["__main__"].__spec__.name:   # type: ignore[union-attr]
            for semaphore, param in zip(semaphores, params, strict=True):
                _signal_when_killed(self.driver.inner.native_handle(semaphore), param.value)
        return self.inner.append_wait(semaphores, params, wait_points, acquire, want_point)


_SIGNALS = """
import os, sys
from xsem_host.device import HostDevice
from xsem.types import OwnedHandle, SemaphoreDesc, SemaphoreHandleType as T
life, ready, fd, value = map(int, sys.argv[1:])
handle, type = OwnedHandle(fd), T.TIMELINE_SEMAPHORE_FD if value else T.OPAQUE_FD
driver = HostDevice()
semaphore = driver.import_semaphore(SemaphoreDesc(type=type, handle=handle), handle)
os.write(ready, b".")
if not os.read(life, 1):   # a byte where the other process ends in order
    driver.host_signal(semaphore, value or None)
"""


def _signal_when_killed(fd: int, value: int | None) -> None:
    # A process of its own outlives this one, sees its end, and is as good as a driver that cleans up wrongly.
    life, ending = os.pipe()
    waits, ready = os.pipe()
    subprocess.Popen([sys.executable, "-c", _SIGNALS, str(life), str(ready), str(fd), str(value or 0)],
                     pass_fds=[life, ready, fd], start_new_session=True, stdin=subprocess.DEVNULL,
                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for each in (life, ready):
        os.close(each)
    os.read(waits, 1)
    os.close(waits)
    atexit.register(os.write, ending, b".")


@_list
class ExitWaits(List):
    """A process does not end while a wait of its is pending."""

    def append_wait(self, semaphores, params, wait_points, acquire, want_point):  # type: ignore[no-untyped-def]
        point = self.inner.append_wait(semaphores, params, wait_points, acquire, True)
        atexit.register(_wait_for, self.driver.inner, point)
        return point


def _wait_for(driver: spi.DeviceDriver, point: Any) -> None:
    while not driver.done(point):
        time.sleep(0.01)


# ---- threads, and what waits hold
@_driver
class WaitHoldsTheDriver(Driver):
    """Who waits for a point holds a lock that every question about a point needs."""

    def __init__(self, inner: spi.DeviceDriver) -> None:
        super().__init__(inner)
        self._one = threading.Lock()

    def done(self, point: Any) -> bool:
        with self._one:
            return self.inner.done(point)

    def wait(self, point: Any, timeout_ns: int) -> bool:
        with self._one:
            return self.inner.wait(point, timeout_ns)


@_list
class OtherThreadsUnheard(List):
    """What another thread than the list's maker signals is dropped."""

    def __init__(self, inner: spi.CommandListDriver, driver: Any) -> None:
        super().__init__(inner, driver)
        self._maker = threading.get_ident()

    def append_signal(self, semaphores, params, wait_points, release, want_point):  # type: ignore[no-untyped-def]
        if threading.get_ident() != self._maker:
            return self.inner.append_barrier(wait_points, want_point)
        return self.inner.append_signal(semaphores, params, wait_points, release, want_point)


class _Pending(Driver):
    """Knows the points of all waits of its lists, and of those of every such driver in the process."""

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


@_driver
class ImportWaits(_Pending):
    """An import returns when no wait is pending."""

    list_type = _PendingList

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        self.until_none_is_pending()
        return self.inner.import_semaphore(desc, handle)


@_driver
class FreeWaits(_Pending):
    """Memory is unmapped when no wait is pending."""

    list_type = _PendingList

    def unmap_buffer(self, buffer: Any) -> None:
        self.until_none_is_pending()
        self.inner.unmap_buffer(buffer)


@_list
class AppendsHeldAfterMany(List):
    """The 200th signal behind a wait holds its caller until the wait is met."""

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


@_driver
class InterruptSignals(Driver):
    """An interrupted host wait signals what the device waits for."""

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


# ---- handles
@_driver
class ZeroIsNoHandle(Driver):
    """A handle with the number 0 is taken for none."""

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        return self.inner.import_semaphore(desc, _unless_0(handle))

    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Any:
        return self.inner.import_memory(desc, _unless_0(handle))


def _unless_0(handle: OwnedHandle | None) -> OwnedHandle | None:
    if handle is not None and not handle.fileno():
        raise spi.ImportFailure(BadHandleError("no handle", reason="no_handle"), fate="left")
    return handle


@_driver
class DedicatedIsElsewhere(Driver):
    """Memory with the dedicated flag maps to memory of its own."""

    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Any:
        if not desc.dedicated:
            return self.inner.import_memory(desc, handle)
        made, _ = self.inner.create_memory(desc.type, desc.allocation_size, True)
        return made


@_driver
class SizeUnchecked(Driver):
    """The allocation size of an import is not looked at."""

    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Any:
        assert handle is not None
        size = os.fstat(handle.fileno()).st_size
        return self.inner.import_memory(dataclasses.replace(desc, allocation_size=size or desc.allocation_size), handle)


@_driver
class ExportsOneHandle(Driver):
    """Every export of an object is one and the same handle."""

    def __init__(self, inner: spi.DeviceDriver) -> None:
        super().__init__(inner)
        self._given: dict[int, OwnedHandle] = {}

    def export_semaphore(self, semaphore: Any) -> OwnedHandle:
        return self._given.setdefault(id(semaphore), self.inner.export_semaphore(semaphore))

    def export_memory(self, memory: Any) -> OwnedHandle:
        return self._given.setdefault(id(memory), self.inner.export_memory(memory))


@_driver
class AnythingIsAStream(Driver):
    """Whatever is given as a stream is taken for one."""

    def open_command_list(self, stream: object, in_order: bool) -> spi.CommandListDriver:
        return self.create_command_list()


# ---- what host does not declare
class _Recorder(List):
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

    def append_wait(self, semaphores, params, wait_points, acquire, want_point):  # type: ignore[no-untyped-def]
        def append(values: dict[Any, tuple[int, int]]) -> Any:
            return self.inner.append_wait(semaphores, _replaced(semaphores, params, values, 0), wait_points, acquire,
                                          want_point)

        return append({}) if self.recorded is None else self.recorded.append(append)

    def append_signal(self, semaphores, params, wait_points, release, want_point):  # type: ignore[no-untyped-def]
        def append(values: dict[Any, tuple[int, int]]) -> Any:
            return self.inner.append_signal(semaphores, _replaced(semaphores, params, values, 1), wait_points, release,
                                            want_point)

        return append({}) if self.recorded is None else self.recorded.append(append)


def _replaced(semaphores: Any, params: Any, values: dict[Any, tuple[int, int]], which: int) -> list[Any]:
    return [dataclasses.replace(param, value=values[semaphore][which]) if semaphore in values else param
            for semaphore, param in zip(semaphores, params, strict=True)]


class Capable(Driver):
    """No fault: records, and imports the sync file -1, which is signalled."""

    list_type = _Recorder

    def __init__(self, inner: spi.DeviceDriver) -> None:
        super().__init__(inner)
        declared = inner.capabilities
        self._declared = dataclasses.replace(
            declared, features=declared.features | {Feature.RECORDING},
            semaphore_import=declared.semaphore_import | {SemaphoreHandleType.SYNC_FD})

    @property
    def capabilities(self) -> Any:
        return self._declared

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        if desc.type is not SemaphoreHandleType.SYNC_FD:
            return self.inner.import_semaphore(desc, handle)
        if handle is not None:
            raise spi.ImportFailure(DriverError("no sync file", reason="driver_error"), fate="left")
        return self.signalled(self.inner.create_semaphore(SemaphoreHandleType.OPAQUE_FD, 0))

    def signalled(self, semaphore: Any) -> Any:
        self.inner.host_signal(semaphore, None)
        return semaphore


CAPABLE_FAULTS["capable"] = Fault(Capable, "no fault")


def _capable(cls: type[Capable]) -> type[Capable]:
    CAPABLE_FAULTS[_snake(cls.__name__)] = Fault(cls, (cls.__doc__ or "").strip())
    return cls


@_capable
class RecordingRunsAtOnce(Capable):
    """What is recorded runs at once as well."""

    class list_type(_Recorder):  # noqa: N801
        def end_recording(self) -> Any:
            made = super().end_recording()
            for each in made:
                each({})
            return made


@_capable
class ReplayKeepsItsValues(Capable):
    """A replay has the values that were recorded."""

    class list_type(_Recorder):  # noqa: N801
        def replay(self, recording, values):  # type: ignore[no-untyped-def]
            super().replay(recording, [])


@_capable
class ReplaySignalsAsRecorded(Capable):
    """A replay waits for the values given with it, and signals those that were recorded."""

    class list_type(_Recorder):  # noqa: N801
        def append_signal(self, semaphores, params, wait_points, release, want_point):  # type: ignore[no-untyped-def]
            def append(_values: object) -> Any:
                return self.inner.append_signal(semaphores, params, wait_points, release, want_point)

            return append(None) if self.recorded is None else self.recorded.append(append)


@_capable
class SyncFileMinusOneIsPending(Capable):
    """The sync file -1 is signalled by nobody."""

    def signalled(self, semaphore: Any) -> Any:
        return semaphore


__all__ = ["CAPABLE_FAULTS", "MORE_FAULTS", "Capable"]
