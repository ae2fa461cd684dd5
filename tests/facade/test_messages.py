"""An error of a usual mistake says what was wrong, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.fake_backend import open_fake
from support.system_types import BINARY, MEMORY, TIMELINE, binary, timeline

import xsem
from xsem.errors import XsemError
from xsem.facade.device import Device

OTHER = xsem.SemaphoreHandleType.SYNC_FD


def without_value(device: Device) -> None:
    commands: Any = device.create_command_list()
    commands.append_wait(device.create_timeline(label="frames"))


def of_another_device(device: Device) -> None:
    with xsem.open_device("host") as other:
        device.create_command_list().append_signal(timeline(other), 1)


def mapped(*range_: int, **layout: Any) -> Callable[[Device], object]:
    return lambda device: device.create_memory(MEMORY, 4096).map_buffer(*range_, **layout)


def imported(device: Device, what: Any) -> object:
    with what.export() as desc:
        take: Any = device.import_semaphore if isinstance(what, xsem.Semaphore) else device.import_memory
        return take(desc).export()


MISTAKES: dict[str, tuple[Callable[[Device], object], tuple[str, ...]]] = {
    "wait without a value": (without_value, ("'frames'", "timeline", "value", "for example 1", "WaitParams(value=")),
    "host wait without a value": (lambda device: timeline(device).host_wait(), ("timeline", "value", "for example 1")),
    "buffer beyond the allocation": (
        mapped(512, shape=(100, 100)),
        ("offset 512", "size 10000", "(100, 100) of uint8", "4096", "6416 bytes beyond")),
    "bytes beyond the last whole element": (mapped(3, dtype="float32"), ("4093 bytes", "offset 3", "float32", "shape")),
    "memory type": (lambda device: device.create_memory("D3D12_HEAP", 10), ("memory.export", MEMORY.name)),
    "semaphore type": (
        lambda device: device.create_semaphore(OTHER), ("semaphore.export", BINARY.name, TIMELINE.name)),
    "import type": (
        lambda device: device.import_semaphore(xsem.SemaphoreDesc.sync_fd(-1)), ("semaphore.import", TIMELINE.name)),
    "dma-buf": (
        lambda device: device.import_memory(xsem.MemoryDesc.dmabuf_fd(0, allocation_size=4096)),
        ("memory.import", "MemoryDesc.opaque_fd(fd, ")),
    "feature": (lambda device: device.create_command_list().record(), ("recording", "HOST_WAIT", "READ_VALUE")),
    "import of a semaphore itself": (
        lambda device: device.import_semaphore(timeline(device)),  # type: ignore[arg-type]
        ("SemaphoreDesc", "not Semaphore", "export(for_device=")),
    "import of a number": (
        lambda device: device.import_semaphore(5),  # type: ignore[arg-type]
        ("not int", "SemaphoreDesc.timeline_fd(")),
    "import of memory itself": (
        lambda device: device.import_memory(device.create_memory(MEMORY, 1)),  # type: ignore[arg-type]
        ("MemoryDesc", "not Memory", "export(for_device=")),
    "import of memory by a number": (
        lambda device: device.import_memory(5), ("MemoryDesc.opaque_fd(",)),  # type: ignore[arg-type]
    "semaphore as memory": (
        lambda device: device.import_memory(binary(device).export()),  # type: ignore[arg-type]
        ("not SemaphoreDesc", "import_semaphore")),
    "export of an import": (
        lambda device: imported(device, timeline(device)), ("was imported", "Forward the received descriptor")),
    "export of imported memory": (
        lambda device: imported(device, device.create_memory(MEMORY, 1)),
        ("was imported", "Forward the received descriptor")),
    "semaphore of another device": (
        of_another_device, ("another open device", "opened twice", "export", "import")),
    "UUID": (lambda device: timeline(device).export(for_device="cuda:0"), ("for_device", "MIG-", "'cuda:0'")),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_message_says_what_to_do(device: Device, mistake: str) -> None:
    act, words = MISTAKES[mistake]
    with pytest.raises(XsemError) as caught:
        act(device)
    said = str(caught.value)
    assert [word for word in words if word not in said] == [], said


def test_device_without_types_says_so() -> None:
    with (open_fake(xsem.Capabilities())[0] as device,
          pytest.raises(xsem.UnsupportedError, match=r"semaphore\.export: none")):
        device.create_timeline()
