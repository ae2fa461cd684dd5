"""Base of the faulty drivers: they forward all calls to a real driver, except the calls that their fault changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from xsem import spi
from xsem.types import Capabilities, DeviceInfo

__all__ = ["DRIVER_CALLS", "FAULTS", "LIST_CALLS", "Driver", "Fault", "List", "a_driver", "a_list", "named"]

DRIVER_CALLS = (
    "query_fence", "wait_fence", "release_fence", "close", "native_handle",
    "import_semaphore", "create_semaphore", "export_semaphore", "release_semaphore",
    "semaphore_value", "host_signal", "host_wait",
    "import_memory", "create_memory", "export_memory", "map_buffer", "unmap_buffer", "release_memory", "dlpack_device",
    "host_buffer", "release_host_buffer", "borrow_event", "import_host_timeline", "import_host_memory",
)
LIST_CALLS = (
    "append_barrier", "close", "append_work", "is_capturing", "append_wait", "append_signal", "append_copy",
    "append_fill",
)


def _passing(calls: Sequence[str]) -> dict[str, Any]:
    def passer(name: str) -> Callable[..., Any]:
        def method(self: Any, *args: Any, **named: Any) -> Any:
            return getattr(self.inner, name)(*args, **named)

        return method

    return {name: passer(name) for name in calls}


class _ListBase(spi.SemaphoreQueue, spi.CopyQueue):
    """A queue with the abilities of a queue of `host`."""

    locals().update(_passing(LIST_CALLS))

    def __init__(self, inner: spi.QueueDriver, driver: Driver) -> None:
        self.inner: Any = inner
        self.driver = driver
        self.identity = inner.identity
        self.native_handle = inner.native_handle
        self.callers = inner.callers


class _DriverBase(
    spi.DeviceDriver, spi.SemaphoreImport, spi.SemaphoreExport, spi.HostSemaphore, spi.HostTimelines, spi.MemoryImport,
    spi.MemoryExport, spi.HostMemoryImport, spi.HostMemory, spi.BorrowedEvents,
):
    """A driver with the abilities of `host`."""

    locals().update(_passing(DRIVER_CALLS))
    list_type: type[_ListBase]

    def __init__(self, inner: spi.DeviceDriver) -> None:
        self.inner: Any = inner

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities   # type: ignore[no-any-return]

    def create_queue(self) -> spi.QueueDriver:
        return self.list_type(self.inner.create_queue(), self)  # type: ignore[arg-type]


class List(_ListBase):
    """No fault: the base of the faulty lists."""


class Driver(_DriverBase):
    """No fault: the base of the faulty drivers."""

    list_type: type[_ListBase] = List


@dataclasses.dataclass(frozen=True)
class Fault:
    """A driver with one fault, and a change of the device information."""

    driver: Callable[[spi.DeviceDriver], spi.DeviceDriver]
    text: str
    info: Callable[[DeviceInfo], DeviceInfo] = lambda info: info


FAULTS: dict[str, Fault] = {}


def a_driver(cls: type[_DriverBase]) -> type[_DriverBase]:
    """Register a faulty `Driver`. Its name is the name of the class, its text the docstring."""
    FAULTS[named(cls)] = Fault(cls, (cls.__doc__ or "").strip())
    return cls


def a_list(cls: type[_ListBase]) -> type[_ListBase]:
    """Register a faulty `List` in the same way."""
    made = type(cls.__name__, (Driver,), {"list_type": cls})
    FAULTS[named(cls)] = Fault(made, (cls.__doc__ or "").strip())
    return cls


def named(cls: type) -> str:
    """Return the name of the fault for a class name."""
    return "".join("_" + each.lower() if each.isupper() else each for each in cls.__name__).lstrip("_")
