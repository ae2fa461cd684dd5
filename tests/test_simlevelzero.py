"""The simulated Level Zero driver, through the real loader by plain calls: what it holds back, passes, refuses and counts."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import levelzero_raw as ze
import pytest
from levelzero_raw import Raw
from levelzero_sim import on_level_zero

import xsem
from xsem.types import MemoryHandleType, OwnedHandle, SemaphoreHandleType

TIMELINE = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
BINARY = SemaphoreHandleType.OPAQUE_FD
KINDS = {TIMELINE: ze.TIMELINE_FD, BINARY: ze.OPAQUE_FD}
PAGE = 4096


class Rig(Raw):
    """With the exporter, and with an end: what the test made is destroyed, in order."""

    def __init__(self, host: xsem.Device, *, driver: int = 0, device: int = 0) -> None:
        super().__init__(driver, device)
        self.host = host
        self.exports: list[xsem.Semaphore] = []
        self.semaphores: list[int] = []
        self.lists: list[int] = []
        self.events_of: dict[int, list[int]] = {}
        self.memories: list[int] = []
        self.views: list[mmap.mmap] = []

    def exported(self, kind: SemaphoreHandleType) -> tuple[xsem.Semaphore, int]:
        """A semaphore and a new fd of it."""
        there = self.host.create_semaphore(kind)
        self.exports.append(there)
        with there.export() as desc:
            assert isinstance(desc.handle, OwnedHandle)
            return there, os.dup(desc.handle.fileno())

    def semaphore(self, kind: SemaphoreHandleType = TIMELINE) -> tuple[xsem.Semaphore, int]:
        there, fd = self.exported(kind)
        here = self.import_fd(fd, KINDS[kind])
        self.semaphores.append(here)
        return there, here

    def again(self, there: xsem.Semaphore) -> int:
        """Another import of the same."""
        with there.export() as desc:
            assert isinstance(desc.handle, OwnedHandle)
            here = self.import_fd(os.dup(desc.handle.fileno()), KINDS[there.type])
        self.semaphores.append(here)
        return here

    def stream(self, flags: int = ze.IN_ORDER, mode: int = 2) -> int:
        self.lists.append(self.immediate(flags, mode))
        return self.lists[-1]

    def events(self, count: int) -> list[int]:
        pool = self.pool(count)
        self.events_of[pool] = [self.event(pool, index) for index in range(count)]
        return self.events_of[pool]

    def memory_fd(self, size: int = PAGE) -> tuple[mmap.mmap, int]:
        """The exporter's view of a new memory, and an fd of it."""
        there = self.host.create_memory(MemoryHandleType.OPAQUE_FD, size)
        with there.export() as desc:
            assert isinstance(desc.handle, OwnedHandle)
            view = mmap.mmap(desc.handle.fileno(), size)
            self.views.append(view)
            return view, os.dup(desc.handle.fileno())

    def memory(self, size: int = PAGE) -> tuple[mmap.mmap, int]:
        view, fd = self.memory_fd(size)
        address = self.allocate(size, fd=fd)
        self.memories.append(address)
        return view, address

    def open_gates(self) -> None:
        """A test that failed must not hold the next ones: what is pending is met."""
        for there in self.exports:
            with contextlib.suppress(xsem.XsemError):
                there.host_signal(2**64 - 1 if there.type is TIMELINE else None)

    def end(self) -> None:
        for commands in self.lists:
            self.call("zeCommandListDestroy", ctypes.c_void_p(commands))
        for semaphore in self.semaphores:
            assert self.release(semaphore) == 0
        for pool, events in self.events_of.items():
            self.destroy(**{f"Event_{number}": event for number, event in enumerate(events)})
            self.destroy(EventPool=pool)
        for address in self.memories:
            self.free(address)
        for view in self.views:
            view.close()
        self.close()


@contextmanager
def rig(*, driver: int = 0, device: int = 0) -> Iterator[Rig]:
    with xsem.open_device("host") as host:
        at = Rig(host, driver=driver, device=device)
        try:
            yield at
        except BaseException:
            at.open_gates()
            raise
        at.end()


def value_of(kind: SemaphoreHandleType, value: int) -> int | None:
    return value if kind is TIMELINE else None


# ---- each way to it: loaders, drivers, forced intercept
def walk(at: Rig, kind: SemaphoreHandleType) -> None:
    """A wait holds what comes after it, the signal lets it go, and the answer is signalled."""
    there, here = at.semaphore(kind)
    answer_there, answer = at.semaphore(kind)
    memory_there, memory = at.memory()
    commands = at.stream()
    waited, copied = at.events(2)
    source = ctypes.c_char(b"a")
    assert at.wait(commands, [here], [7], event=waited) == 0
    at.copy(commands, memory, ctypes.addressof(source), 1, event=copied)
    assert at.signal(commands, [answer], [9], after=[copied]) == 0
    assert at.pending(waited)
    assert at.pending(copied)
    source.value = b"b"   # what is copied before the signal is seen to be
    there.host_signal(value_of(kind, 7))
    answer_there.host_wait(value_of(kind, 9), timeout_s=20)
    assert at.reached(waited)
    assert at.reached(copied)
    assert memory_there[:1] == b"b"


SETUPS: dict[str, tuple[dict[str, str], str, int]] = {
    # name: settings, where the functions are found, which driver
    "by_address": ({}, "address", 0),
    "by_table": ({"SIMZE_NO_ADDRESS": "1"}, "table", 0),
    "by_address_intercepted": ({"ZE_ENABLE_LOADER_INTERCEPT": "1"}, "address", 0),
    "by_table_intercepted": ({"ZE_ENABLE_LOADER_INTERCEPT": "1", "SIMZE_NO_ADDRESS": "1"}, "table", 0),
    "by_address_second_driver": ({"SIMZE_DRIVERS": "2"}, "address", 1),
    "debian_13": ({"LOADER": "trixie"}, "loader", 0),
    "debian_13_two_drivers": ({"LOADER": "trixie", "SIMZE_DRIVERS": "2"}, "loader", 1),
    "newest_intercepted": ({"LOADER": "forky", "ZE_ENABLE_LOADER_INTERCEPT": "1"}, "loader", 0),
    "newest_validated": (
        {"LOADER": "forky", "ZE_ENABLE_VALIDATION_LAYER": "1", "ZE_ENABLE_PARAMETER_VALIDATION": "1"}, "loader", 0,
    ),
}


def walks(name: str) -> Callable[[SemaphoreHandleType], None]:
    settings, path, driver = SETUPS[name]

    @on_level_zero(**settings)
    @pytest.mark.parametrize("kind", [TIMELINE, BINARY])
    def test(kind: SemaphoreHandleType) -> None:
        with rig(driver=driver) as at:
            assert (at.path, len(at.drivers)) == (path, int(settings.get("SIMZE_DRIVERS", "1")))
            walk(at, kind)

    return test


test_semaphores_by_address = walks("by_address")
test_semaphores_by_table = walks("by_table")
test_semaphores_by_address_with_forced_intercept = walks("by_address_intercepted")
test_semaphores_by_table_with_forced_intercept = walks("by_table_intercepted")
test_semaphores_by_address_of_the_second_driver = walks("by_address_second_driver")
test_semaphores_by_the_loader_of_debian_13 = walks("debian_13")
test_semaphores_by_the_loader_of_debian_13_with_two_drivers = walks("debian_13_two_drivers")
test_semaphores_by_the_newest_loader_with_forced_intercept = walks("newest_intercepted")
test_semaphores_by_the_newest_loader_with_parameter_validation = walks("newest_validated")


@on_level_zero(**SETUPS["newest_validated"][0])
def test_parameter_validation_refuses_before_the_driver() -> None:
    """The layer is in the path: its code for flags that no header has; the driver would say another."""
    with rig() as at:
        _there, fd = at.exported(BINARY)
        assert at.import_code(fd, 0x200)[0] == ze.INVALID_ENUMERATION
        os.close(fd)
