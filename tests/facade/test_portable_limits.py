"""Limits of portable objects: the difference of two values, and whole pages of memory."""

from __future__ import annotations

import dataclasses
import mmap
import sys

import pytest

import xsem
from xsem.facade.device import Device
from xsem.portable import SharedMemory
from xsem.types import Capabilities, DeviceInfo, MemoryHandleType, SemaphoreHandleType
from xsem_host.device import HostDevice

WINDOWS = sys.platform == "win32"
TIMELINE = SemaphoreHandleType.HOST_TIMELINE_WIN32 if WINDOWS else SemaphoreHandleType.HOST_TIMELINE_FD
MEMORY = MemoryHandleType.HOST_MEMORY_WIN32 if WINDOWS else MemoryHandleType.HOST_MEMORY_FD
FAR = 2**63 - 1
INFO = DeviceInfo(id="limited:0", backend="limited", index=0, name="host")


def test_difference_is_counted_from_the_value_that_others_have_signalled() -> None:
    with xsem.open_device("host") as device, xsem.open_device("host") as other:
        made = device.create_semaphore(TIMELINE)
        with made.export() as desc:
            imported = other.import_semaphore(desc)
        commands = device.create_command_list()
        imported.host_signal(FAR)
        commands.append_wait(made, FAR + 1)   # 2**63 above the last value that `made` itself knows
        made.host_signal(FAR + 1)
        commands.synchronize(timeout_s=10)
        imported.host_signal(2 * FAR)


@pytest.mark.parametrize("imported", [False, True])
def test_larger_difference_is_refused(imported: bool) -> None:
    with xsem.open_device("host") as device:
        made = device.create_semaphore(TIMELINE, initial_value=1)
        if imported:   # it knows no last value
            with made.export() as desc:
                made = device.import_semaphore(desc)
        commands = device.create_command_list()
        for call in (made.host_signal, lambda value: commands.append_signal(made, value)):
            with pytest.raises(xsem.BadArgumentError, match="above") as refused:
                call(FAR + 2)
            assert refused.value.reason == "value_difference"
        assert made.value() == 1


class Limited(HostDevice):
    """A host device with small differences, which notes the sizes of portable memory."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    @property
    def capabilities(self) -> Capabilities:
        return dataclasses.replace(super().capabilities, max_value_difference=10)

    def import_host_memory(self, memory: SharedMemory) -> SharedMemory:
        self.sizes.append(memory.size)
        return super().import_host_memory(memory)


def test_difference_of_a_device_does_not_limit_a_portable_timeline() -> None:
    with Device(INFO, Limited()) as device:
        made = device.create_semaphore(TIMELINE)
        made.host_signal(FAR)
        assert made.value() == FAR


def test_import_takes_whole_pages_into_use() -> None:
    driver = Limited()
    with xsem.open_device("host") as other, Device(INFO, driver) as device, other.create_memory(
            MEMORY, 3 * mmap.PAGESIZE).export() as desc:
        device.import_memory(dataclasses.replace(desc, allocation_size=mmap.PAGESIZE + 1)).release()
    assert driver.sizes == [2 * mmap.PAGESIZE]
