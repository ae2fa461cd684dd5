"""Ctrl-C at any moment of an export, an import or a mapping: no number is lost, and none is closed twice."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from fake_backend import until
from host_peers import mapped
from interrupts import interrupt_at
from open_files import numbers

import xsem
from xsem.handles import own
from xsem.types import MemoryHandleType, OwnedHandle, SemaphoreDesc, SemaphoreHandleType

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the host device needs Linux")

FILES = tuple(f"xsem/{name}.py" for name in (
    "handles", "fds", "ownership", "descriptors", "stamps", "semaphore", "memory", "session", "device"))
# The release of an object has begun, and has not reached the driver: one object is lost, no more.
RELEASE = ("Making._add.<locals>.release", "_making.<locals>.<lambda>", "import_memory.<locals>.<lambda>")


class Rig:
    def __init__(self) -> None:
        self.device = xsem.open_device("host")
        self.timeline = self.device.create_semaphore(SemaphoreHandleType.TIMELINE_SEMAPHORE_FD)
        self.binary = self.device.create_semaphore(SemaphoreHandleType.OPAQUE_FD)
        self.memory = self.device.create_memory(MemoryHandleType.OPAQUE_FD, 4096)

    def import_timeline(self) -> None:
        with self.timeline.export() as desc:
            self.device.import_semaphore(desc).release()

    def import_binary(self) -> None:
        with self.binary.export() as desc:
            self.device.import_semaphore(desc).release()

    def import_memory(self) -> None:
        with self.memory.export() as desc:
            self.device.import_memory(desc).release()

    def refuse_timeline(self) -> None:
        # A binary semaphore's descriptor over a timeline's file.
        with pytest.raises(xsem.BadHandleError):
            self.device.import_semaphore(SemaphoreDesc.opaque_fd(self.timeline.native_handle, device_uuid=None))

    def map_buffer(self) -> None:
        self.memory.map_buffer(0, 64).release()

    def own_a_number(self) -> None:
        with own(os.dup, self.binary.native_handle) as handle:
            os.close(OwnedHandle(handle.detach()).detach())

    def settle(self) -> None:
        gc.collect()
        self.device.pending()
        until(lambda: not self.device.releasing())


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    gc.freeze()   # some hundred collections: let them look at what is new
    yield rig
    gc.unfreeze()
    rig.device.release()
    give_back_mappings()


def give_back_mappings() -> None:
    """Of the objects that were lost in a release: other tests look for mappings."""
    libc = ctypes.CDLL(None)
    for line in mapped():
        first, _, end = line.split(maxsplit=1)[0].partition("-")
        libc.munmap(ctypes.c_void_p(int(first, 16)), ctypes.c_size_t(int(end, 16) - int(first, 16)))


@contextmanager
def no_warnings(caplog: pytest.LogCaptureFixture, place: str) -> Iterator[None]:
    """A number that was closed twice would be one."""
    caplog.clear()
    yield
    assert [record.getMessage() for record in caplog.records] == [], place


@pytest.mark.timeout(120)
@pytest.mark.parametrize("operation", [
    Rig.import_timeline, Rig.import_binary, Rig.import_memory, Rig.refuse_timeline, Rig.map_buffer,
], ids=lambda operation: str(operation.__name__))
def test_ctrl_c_loses_no_number_and_closes_none_twice(
    operation: Callable[[Rig], None], rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "xsem")
    operation(rig)
    rig.settle()
    before, held = numbers(), rig.device._record._holds
    lossy: list[str] = []
    count = 0
    while True:
        with no_warnings(caplog, f"place {count + 1}"):
            place = interrupt_at(count + 1, lambda: operation(rig), FILES)
            if place is None:
                break
            rig.settle()
        count += 1
        lost = numbers() - before
        assert before <= numbers(), f"{place}: a number was closed that is another's"
        assert len(lost) <= 1, place
        assert rig.device._record._holds == held or place.startswith(RELEASE), place
        if lost:
            lossy.append(place)
        for number in lost:
            os.close(number)
        operation(rig)   # nothing is stuck
    assert count > 40
    assert [place for place in lossy if not place.startswith(RELEASE)] == []
    assert len(lossy) <= 3


@pytest.mark.timeout(60)
def test_ctrl_c_while_a_number_is_owned_loses_one_at_most(rig: Rig) -> None:
    rig.own_a_number()
    before = numbers()
    for place in range(1, 1000):
        found = interrupt_at(place, rig.own_a_number, ("xsem/handles.py",))
        if found is None:
            break
        gc.collect()
        lost = numbers() - before
        # A number that the caller has in its hand: detached, or about to be owned.
        assert not lost or found.startswith(("OwnedHandle.detach", "OwnedHandle.__init__")), found
        assert len(lost) <= 1
        for number in lost:
            os.close(number)
    assert place > 10
