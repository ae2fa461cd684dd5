"""Test the host against a participant that makes only system calls, to detect a fault that two hosts would share.

The conformance suite tests host against host with one implementation on both ends. Here each test proves an order: it
holds the producer back. The participant produces in one test and consumes in the other. Each test has a control.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import platform
import select
import struct
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import xsem
from xsem.types import MemoryDesc, SemaphoreDesc

pytestmark = [
    pytest.mark.timeout(20),
    pytest.mark.skipif(sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"),
                       reason="needs Linux on a machine whose number of the futex call is written here"),
]

SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
FUTEX, WAKE = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), -1), 1
VALUE, SEQUENCE = 16, 24
OLD, NEW = b"\x11" * 64, b"\xee" * 64
SETTLE_S = 0.05


class Binary:
    """An eventfd."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.desc = SemaphoreDesc.opaque_fd(self.fd, device_uuid=None)
        self.value = None

    def signal(self) -> None:
        os.write(self.fd, struct.pack("=Q", 1))

    def is_signalled(self, within_s: float) -> bool:
        """Return whether there is a signal, and take it."""
        if not select.select([self.fd], [], [], within_s)[0]:
            return False
        return os.read(self.fd, 8) != bytes(8)

    def close(self) -> None:
        os.close(self.fd)


class Timeline:
    """A page with a header, a value and a futex."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("xsem-timeline", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.write(self.fd, struct.pack("=QIIQI", 0x314E4C544D455358, 2, 2, 0, 0))
        os.ftruncate(self.fd, 4096)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, SEALS)
        self.page = mmap.mmap(self.fd, 4096)
        self.desc = SemaphoreDesc.timeline_fd(self.fd, device_uuid=None)
        self.value = 7

    def signal(self) -> None:
        # The word may be stored in steps: no wait is for a value in between.
        struct.pack_into("=Q", self.page, VALUE, 7)
        struct.pack_into("=I", self.page, SEQUENCE, struct.unpack_from("=I", self.page, SEQUENCE)[0] + 1)
        word = ctypes.c_uint32.from_buffer(self.page, SEQUENCE)
        ctypes.CDLL(None).syscall(FUTEX, ctypes.byref(word), WAKE, 2**31 - 1, None, None, 0)

    def is_signalled(self, within_s: float) -> bool:
        """Return whether the timeline has the value."""
        pause = select.poll()
        for _ in range(max(1, int(within_s * 1000))):
            if struct.unpack_from("=Q", self.page, VALUE)[0] >= 7:
                return True
            pause.poll(1)
        return False

    def close(self) -> None:
        self.page.close()
        os.close(self.fd)


@pytest.fixture(params=[Binary, Timeline])
def other(request: pytest.FixtureRequest) -> Iterator[Any]:
    made = request.param()
    yield made
    made.close()


@pytest.fixture
def pixels() -> Iterator[tuple[mmap.mmap, int]]:
    fd = os.memfd_create("pixels", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 4096)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    with mmap.mmap(fd, 4096) as mapped:
        mapped[:64] = OLD
        yield mapped, fd
    os.close(fd)


def read(device: xsem.Device, commands: xsem.CommandList, image: xsem.Buffer) -> xsem.Buffer:
    into = device.host_buffer(64)
    commands.append_copy(into, image)
    return into


@pytest.mark.parametrize("waits", [True, False])
def test_host_reads_what_plain_calls_wrote_before_their_signal(
    device: xsem.Device, other: Any, pixels: tuple[mmap.mmap, int], waits: bool
) -> None:
    page, fd = pixels
    semaphore = device.import_semaphore(other.desc)
    memory = device.import_memory(MemoryDesc.opaque_fd(fd, allocation_size=4096, device_uuid=None))
    commands = device.create_command_list()
    if waits:
        commands.append_wait(semaphore, other.value)
    into = read(device, commands, memory.map_buffer(size=64))
    if waits:
        with pytest.raises(xsem.WaitTimeoutError):
            commands.synchronize(timeout_s=SETTLE_S)
    else:
        commands.synchronize(timeout_s=5)
    page[:64] = NEW
    other.signal()
    commands.synchronize(timeout_s=5)
    assert into.numpy().tobytes() == (NEW if waits else OLD)
    if waits and other.value is None:
        assert not other.is_signalled(0)   # the wait took it


@pytest.mark.parametrize("held", [True, False])
def test_plain_calls_read_what_host_wrote_before_its_signal(
    device: xsem.Device, other: Any, pixels: tuple[mmap.mmap, int], held: bool
) -> None:
    page, fd = pixels
    gate = Timeline()
    semaphore, opens = device.import_semaphore(other.desc), device.import_semaphore(gate.desc)
    memory = device.import_memory(MemoryDesc.opaque_fd(fd, allocation_size=4096, device_uuid=None))
    commands = device.create_command_list()
    if held:
        commands.append_wait(opens, 7)
    commands.append_fill(memory.map_buffer(size=64), b"\xee")
    commands.append_signal(semaphore, other.value)
    if held:
        assert not other.is_signalled(SETTLE_S)
        assert page[:64] == OLD
        gate.signal()
    assert other.is_signalled(5)
    assert page[:64] == NEW
    commands.synchronize(timeout_s=5)
    gate.close()
