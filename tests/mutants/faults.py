"""Drivers with one fault each: every one passes all calls on to a real driver, but for what its fault changes."""

from __future__ import annotations

import dataclasses
import os
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from xsem import spi
from xsem.errors import DriverError, UnsupportedError
from xsem.types import (
    Capabilities,
    DeviceInfo,
    Kind,
    MemoryDesc,
    OwnedHandle,
    SemaphoreDesc,
    SignalParams,
)

_DRIVER_CALLS = (
    "done", "release_point", "close", "import_semaphore", "release_semaphore", "import_memory", "map_buffer",
    "unmap_buffer", "release_memory", "map_mipmapped_array", "mipmap_level", "read_level", "write_level",
    "release_array", "create_semaphore", "export_semaphore", "create_memory", "export_memory", "semaphore_value",
    "host_signal", "host_wait", "nvscisync_attributes", "host_buffer", "release_host_buffer", "open_event", "wait",
    "native_handle", "dlpack_device", "quiet",
)
_LIST_CALLS = (
    "append_barrier", "close", "append_wait", "append_signal", "append_copy", "append_fill", "begin_recording",
    "end_recording", "replay", "release_recording", "append_work", "capturing",
)


def _passing(calls: Sequence[str]) -> dict[str, Any]:
    def passer(name: str) -> Callable[..., Any]:
        def method(self: Any, *args: Any, **named: Any) -> Any:
            return getattr(self.inner, name)(*args, **named)

        return method

    return {name: passer(name) for name in calls}


class _ListBase(spi.CommandListDriver):
    locals().update(_passing(_LIST_CALLS))

    def __init__(self, inner: spi.CommandListDriver, driver: Driver) -> None:
        self.inner = inner
        self.driver = driver
        self.key = inner.key


class _DriverBase(spi.DeviceDriver):
    locals().update(_passing(_DRIVER_CALLS))
    list_type: type[_ListBase]

    def __init__(self, inner: spi.DeviceDriver) -> None:
        self.inner = inner

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    def create_command_list(self) -> spi.CommandListDriver:
        return self.list_type(self.inner.create_command_list(), self)  # type: ignore[arg-type]

    def open_command_list(self, stream: object, in_order: bool) -> spi.CommandListDriver:
        return self.list_type(self.inner.open_command_list(stream, in_order), self)  # type: ignore[arg-type]


class List(_ListBase):
    """No fault: what the others are made from."""


class Driver(_DriverBase):
    """No fault."""

    list_type: type[_ListBase] = List


@dataclasses.dataclass(frozen=True)
class Fault:
    """A driver with one fault, and what becomes of the device's identity."""

    driver: Callable[[spi.DeviceDriver], spi.DeviceDriver]
    text: str
    info: Callable[[DeviceInfo], DeviceInfo] = lambda info: info


FAULTS: dict[str, Fault] = {"none": Fault(Driver, "no fault: must conform")}


def _driver(cls: type[_DriverBase]) -> type[_DriverBase]:
    FAULTS[_snake(cls.__name__)] = Fault(cls, (cls.__doc__ or "").strip())
    return cls


def _list(cls: type[_ListBase]) -> type[_ListBase]:
    made = type(cls.__name__, (Driver,), {"list_type": cls})
    FAULTS[_snake(cls.__name__)] = Fault(made, (cls.__doc__ or "").strip())
    return cls


def _snake(name: str) -> str:
    return "".join("_" + each.lower() if each.isupper() else each for each in name).lstrip("_")


def _plus(param: Any, more: int) -> Any:
    if param.value is None or param.value >= 2**64 - 1:
        return param
    return dataclasses.replace(param, value=param.value + more)


# ---- waits and signals
@_list
class SignalLost(List):
    """A signal is accepted and never done."""

    def append_signal(self, semaphores, params, wait_points, release, want_point):  # type: ignore[no-untyped-def]
        return self.inner.append_barrier(wait_points, want_point)


@_list
class WaitIgnored(List):
    """A wait is accepted and passed at once."""

    def append_wait(self, semaphores, params, wait_points, acquire, want_point):  # type: ignore[no-untyped-def]
        return self.inner.append_barrier(wait_points, want_point)


@_list
class WaitOneEarly(List):
    """A timeline wait passes one value early."""

    def append_wait(self, semaphores, params, wait_points, acquire, want_point):  # type: ignore[no-untyped-def]
        early = [each if not each.value else dataclasses.replace(each, value=each.value - 1) for each in params]
        return self.inner.append_wait(semaphores, early, wait_points, acquire, want_point)


@_list
class WaitOneLate(List):
    """A timeline wait needs one value more."""

    def append_wait(self, semaphores, params, wait_points, acquire, want_point):  # type: ignore[no-untyped-def]
        late = [_plus(each, 1) for each in params]
        return self.inner.append_wait(semaphores, late, wait_points, acquire, want_point)


@_list
class ValueOf32Bits(List):
    """Waits see the low 32 bits of a value."""

    def append_wait(self, semaphores, params, wait_points, acquire, want_point):  # type: ignore[no-untyped-def]
        low = [each if each.value is None else dataclasses.replace(each, value=each.value & 0xFFFFFFFF)
               for each in params]
        return self.inner.append_wait(semaphores, low, wait_points, acquire, want_point)


@_list
class SignalOneMore(List):
    """A timeline signal sets one more than asked."""

    def append_signal(self, semaphores, params, wait_points, release, want_point):  # type: ignore[no-untyped-def]
        more = [_plus(each, 1) for each in params]
        return self.inner.append_signal(semaphores, more, wait_points, release, want_point)


@_list
class BinaryNotReset(List):
    """A met wait leaves a binary semaphore signalled."""

    def append_wait(self, semaphores, params, wait_points, acquire, want_point):  # type: ignore[no-untyped-def]
        self.inner.append_wait(semaphores, params, wait_points, acquire, False)
        binary = [each for each, param in zip(semaphores, params, strict=True) if param.value is None]
        if binary:
            self.inner.append_signal(binary, [SignalParams()] * len(binary), (), (), False)
        return self.inner.append_barrier((), True) if want_point else None


# ---- batches
@_list
class ValuesSwapped(List):
    """The values of a batch go to the wrong semaphores."""

    def append_signal(self, semaphores, params, wait_points, release, want_point):  # type: ignore[no-untyped-def]
        return self.inner.append_signal(semaphores, params[::-1], wait_points, release, want_point)


@_list
class HalfABatchSignalled(List):
    """Of a batch of signals the second half is left out."""

    def append_signal(self, semaphores, params, wait_points, release, want_point):  # type: ignore[no-untyped-def]
        some = (len(semaphores) + 1) // 2
        return self.inner.append_signal(semaphores[:some], params[:some], wait_points, release, want_point)


@_list
class HalfABatchAwaited(List):
    """Of a batch of waits the second half is left out."""

    def append_wait(self, semaphores, params, wait_points, acquire, want_point):  # type: ignore[no-untyped-def]
        some = (len(semaphores) + 1) // 2
        return self.inner.append_wait(semaphores[:some], params[:some], wait_points, acquire, want_point)


# ---- events and lists
@_list
class EventsIgnored(List):
    """Event lists are accepted and not waited for."""

    def append_wait(self, semaphores, params, wait_points, acquire, want_point):  # type: ignore[no-untyped-def]
        return self.inner.append_wait(semaphores, params, (), acquire, want_point)

    def append_signal(self, semaphores, params, wait_points, release, want_point):  # type: ignore[no-untyped-def]
        return self.inner.append_signal(semaphores, params, (), release, want_point)

    def append_barrier(self, wait_points, want_point):  # type: ignore[no-untyped-def]
        return self.inner.append_barrier((), want_point)

    def append_copy(self, dst, src, size, wait_points, want_point):  # type: ignore[no-untyped-def]
        return self.inner.append_copy(dst, src, size, (), want_point)


@_driver
class PointDoneTooEarly(Driver):
    """A point counts as reached as soon as it exists."""

    def done(self, point: Any) -> bool:
        return True

    def wait(self, point: Any, timeout_ns: int) -> bool:
        return True


@_driver
class PointNeverDone(Driver):
    """A point is never reached."""

    def done(self, point: Any) -> bool:
        return False

    def wait(self, point: Any, timeout_ns: int) -> bool:
        time.sleep(timeout_ns / 1e9)
        return False


@_driver
class ListsAreOne(Driver):
    """All lists are one queue: one that waits holds all the others."""

    _one: spi.CommandListDriver | None = None

    def create_command_list(self) -> spi.CommandListDriver:
        if self._one is None:
            self._one = self.inner.create_command_list()
        made = _Unclosed(self._one, self)
        made.key = id(made)
        return made


class _Unclosed(List):
    def close(self) -> None:
        pass


@_list
class SignalOvertakes(List):
    """Signals go to a queue of their own and overtake the work before them."""

    other: spi.CommandListDriver | None = None

    def append_signal(self, semaphores, params, wait_points, release, want_point):  # type: ignore[no-untyped-def]
        if self.other is None:
            self.other = self.driver.inner.create_command_list()
        return self.other.append_signal(semaphores, params, wait_points, release, want_point)

    def close(self) -> None:
        if self.other is not None:
            self.other.close()
        self.inner.close()


@_list
class CopyOvertakes(List):
    """Copies go to a queue of their own and overtake the waits before them."""

    other: spi.CommandListDriver | None = None

    def append_copy(self, dst, src, size, wait_points, want_point):  # type: ignore[no-untyped-def]
        if self.other is None:
            self.other = self.driver.inner.create_command_list()
        self.other.append_copy(dst, src, size, wait_points, False)
        return self.inner.append_barrier((), want_point) if want_point else None

    def close(self) -> None:
        if self.other is not None:
            self.other.close()
        self.inner.close()


@_list
class CopyDropped(List):
    """Copies are accepted and not made."""

    def append_copy(self, dst, src, size, wait_points, want_point):  # type: ignore[no-untyped-def]
        return self.inner.append_barrier(wait_points, want_point)


# ---- import
@_driver
class FdLeaked(Driver):
    """Every import leaves a file descriptor open."""

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        if handle is not None:
            os.dup(handle.fileno())
        return self.inner.import_semaphore(desc, handle)


@_driver
class FdClosedUnsaid(Driver):
    """A successful import closes the handle and does not say so."""

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        assert handle is not None
        with OwnedHandle(os.dup(handle.fileno())) as own:
            token = self.inner.import_semaphore(desc, own)
        os.close(handle.fileno())
        return token


@_driver
class FdClosedOnFailure(Driver):
    """A failed import closes the handle and says that it was left."""

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        return self._closing(self.inner.import_semaphore, desc, handle)

    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Any:
        return self._closing(self.inner.import_memory, desc, handle)

    def _closing(self, act: Callable[..., Any], desc: Any, handle: OwnedHandle | None) -> Any:
        try:
            return act(desc, handle)
        except spi.ImportFailure as failure:
            if isinstance(failure.error, UnsupportedError) or handle is None or handle.closed:
                raise
            os.close(handle.fileno())
            raise spi.ImportFailure(failure.error, fate="left") from failure


@_driver
class ErrorSwallowed(Driver):
    """A handle that the driver refuses counts as imported."""

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        try:
            return self.inner.import_semaphore(desc, handle)
        except spi.ImportFailure as failure:
            if isinstance(failure.error, UnsupportedError):
                raise
            return object()

    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Any:
        try:
            return self.inner.import_memory(desc, handle)
        except spi.ImportFailure as failure:
            if isinstance(failure.error, UnsupportedError):
                raise
            return object()

    def release_semaphore(self, semaphore: Any) -> None:
        if type(semaphore) is not object:
            self.inner.release_semaphore(semaphore)

    def release_memory(self, memory: Any) -> None:
        if type(memory) is not object:
            self.inner.release_memory(memory)


@_driver
class UndeclaredAccepted(Driver):
    """What is not declared is taken all the same."""

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        if desc.type not in self.capabilities.semaphore_import:
            return None
        return self.inner.import_semaphore(desc, handle)


@_driver
class RefusedWithAnotherError(Driver):
    """What is not declared is refused, with the wrong class of error."""

    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Any:
        if desc.type not in self.capabilities.memory_import:
            raise DriverError("no", reason="driver_error")
        return self.inner.import_memory(desc, handle)


@_driver
class StaleAfterReimport(Driver):
    """A second import of a type gives the first one's object, as long as that lives."""

    _kept: dict[Any, list[Any]]

    def __init__(self, inner: spi.DeviceDriver) -> None:
        super().__init__(inner)
        self._kept = {}

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        kept = self._kept.get(desc.type)
        if kept is not None and desc.type.kind is Kind.TIMELINE:
            kept[1] += 1
            return kept[0]
        token = self.inner.import_semaphore(desc, handle)
        self._kept[desc.type] = [token, 1]
        return token

    def release_semaphore(self, semaphore: Any) -> None:
        for type, kept in list(self._kept.items()):
            if kept[0] is semaphore:
                kept[1] -= 1
                if kept[1]:
                    return
                del self._kept[type]
        self.inner.release_semaphore(semaphore)


# ---- memory
@_driver
class OffsetIgnored(Driver):
    """Every mapping begins at the memory's start."""

    def map_buffer(self, memory: Any, offset: int, size: int) -> tuple[Any, int]:
        return self.inner.map_buffer(memory, 0, size)


@_driver
class MappingIsACopy(Driver):
    """A mapping is memory of its own."""

    def map_buffer(self, memory: Any, offset: int, size: int) -> tuple[Any, int]:
        return self.inner.host_buffer(size)

    def unmap_buffer(self, buffer: Any) -> None:
        self.inner.release_host_buffer(buffer)


@_driver
class ReleaseTooEarly(Driver):
    """Released memory is wiped at once, whatever still uses it."""

    def done(self, point: Any) -> bool:
        return True   # so the facade takes everything for idle, and frees

    def wait(self, point: Any, timeout_ns: int) -> bool:
        return self.inner.wait(point, timeout_ns)


# ---- as a whole
@_driver
class NothingDeclared(Driver):
    """A driver that declares nothing."""

    capabilities = Capabilities()


@_list
class AppendBlocks(List):
    """An append of a wait holds the caller until the wait is met."""

    def append_wait(self, semaphores, params, wait_points, acquire, want_point):  # type: ignore[no-untyped-def]
        self.inner.append_wait(semaphores, params, wait_points, acquire, False)
        point = self.inner.append_barrier((), True)
        while not self.driver.inner.done(point):
            time.sleep(0.001)
        return point if want_point else None


@_list
class Crashes(List):
    """The 20th signal ends the process."""

    count = 0

    def append_signal(self, semaphores, params, wait_points, release, want_point):  # type: ignore[no-untyped-def]
        type(self).count += 1
        if type(self).count == 20:
            os.abort()
        return self.inner.append_signal(semaphores, params, wait_points, release, want_point)


@_driver
class DlpackNonsense(Driver):
    """The DLPack device is none that DLPack knows."""

    def dlpack_device(self) -> tuple[int, int]:
        return (0, -1)


@_driver
class CloseLeaks(Driver):
    """Closing the device leaves two file descriptors open."""

    def close(self) -> None:
        self.inner.close()
        os.pipe()


class CapabilitiesChange(Driver):
    """What is declared differs from one driver of the device to the next."""

    _made = 0

    def __init__(self, inner: spi.DeviceDriver) -> None:
        super().__init__(inner)
        type(self)._made += 1
        self._lists = inner.capabilities.independent_lists + type(self)._made

    @property
    def capabilities(self) -> Capabilities:
        return dataclasses.replace(self.inner.capabilities, independent_lists=self._lists)


FAULTS["capabilities_change"] = Fault(CapabilitiesChange, (CapabilitiesChange.__doc__ or "").strip())
FAULTS["zero_uuid"] = Fault(Driver, "The device's UUID is zero.",
                            lambda info: dataclasses.replace(info, uuid=uuid.UUID(int=0)))
FAULTS["wrong_uuid"] = Fault(Driver, "The device's UUID is another one each time.",
                             lambda info: dataclasses.replace(info, uuid=uuid.uuid4()))

__all__ = ["FAULTS", "Fault"]
