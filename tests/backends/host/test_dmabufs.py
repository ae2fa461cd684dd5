"""dma-bufs as memory of the host. A memfd that calls itself a dma-buf stands for one, and the ioctls are recorded."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from support.host_peers import content, covered, fill, imported, mapped, memory_desc, refused_fd

import xsem
from xsem import spi
from xsem.errors import DriverError
from xsem.portable import linux
from xsem.types import MemoryDesc, OwnedHandle
from xsem_host import dmabufs
from xsem_host.device import HostDevice

SIZE = 8192
BEGIN, END = 3, 7   # DMA_BUF_SYNC_RW, with DMA_BUF_SYNC_END


class Exporter:
    """The answers of the exporter of dma-bufs."""

    def __init__(self) -> None:
        self.syncs: list[int] = []
        self.failures: list[OSError] = []

    def ioctl(self, fd: int, request: int, argument: bytes) -> int:
        assert request == dmabufs._DMA_BUF_IOCTL_SYNC
        if self.failures:
            raise self.failures.pop(0)
        self.syncs.append(struct.unpack("=Q", argument)[0])
        return 0


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Exporter:
    made = Exporter()
    monkeypatch.setattr(fcntl, "ioctl", made.ioctl)
    monkeypatch.setattr(dmabufs, "file_name",
                        lambda fd: os.readlink(f"/proc/self/fd/{fd}").replace("/memfd:buf", "/dmabuf:"))
    return made


@pytest.fixture
def fd(exporter: Exporter) -> Iterator[int]:
    made = os.memfd_create("buf")   # without seals, as a dma-buf
    os.truncate(made, SIZE)
    yield made
    os.close(made)


def taken(driver: HostDevice, fd: int) -> Any:
    return imported(driver, memory_desc(SIZE), OwnedHandle(os.dup(fd)))


def test_the_access_of_the_cpu_lasts_as_long_as_a_mapping(driver: HostDevice, exporter: Exporter, fd: int) -> None:
    memory = taken(driver, fd)
    assert exporter.syncs == []
    first, address = driver.map_buffer(memory, 0, SIZE)
    second, _ = driver.map_buffer(memory, 4096, 10)
    assert exporter.syncs == [BEGIN]
    fill(address, b"frame")
    assert os.pread(fd, 5, 0) == b"frame"
    driver.unmap_buffer(first)
    assert exporter.syncs == [BEGIN]
    driver.unmap_buffer(second)
    assert exporter.syncs == [BEGIN, END]
    os.pwrite(fd, b"again", 0)
    third, address = driver.map_buffer(memory, 0, 5)
    assert content(address, 5) == b"again"
    driver.release_memory(memory)
    driver.unmap_buffer(third)   # its file is closed, and the kernel ends the access
    assert exporter.syncs == [BEGIN, END, BEGIN]
    assert mapped() == []


def test_interrupted_sync_is_repeated(driver: HostDevice, exporter: Exporter, fd: int) -> None:
    memory = taken(driver, fd)
    exporter.failures = [InterruptedError(errno.EINTR, ""), BlockingIOError(errno.EAGAIN, "")]
    token, _ = driver.map_buffer(memory, 0, SIZE)
    assert exporter.syncs == [BEGIN]
    driver.unmap_buffer(token)
    driver.release_memory(memory)


def test_refused_access_maps_nothing_and_can_be_repeated(driver: HostDevice, exporter: Exporter, fd: int) -> None:
    memory = taken(driver, fd)
    exporter.failures = [OSError(errno.EIO, "gone")]
    with pytest.raises(DriverError, match="gone") as caught:
        driver.map_buffer(memory, 0, SIZE)
    assert (caught.value.call, caught.value.code_name) == ("DMA_BUF_IOCTL_SYNC", "EIO")
    assert mapped() == []
    token, address = driver.map_buffer(memory, 0, SIZE)
    exporter.failures = [OSError(errno.EIO, "gone")]
    with pytest.raises(DriverError, match="gone"):
        driver.unmap_buffer(token)
    assert not covered(address, SIZE)
    driver.release_memory(memory)


def test_dma_buf_that_is_too_small_is_refused(driver: HostDevice, fd: int) -> None:
    with OwnedHandle(os.dup(fd)) as handle, pytest.raises(spi.ImportFailure) as caught:
        driver.import_memory(memory_desc(SIZE + 1), handle)
    assert isinstance(caught.value.error, xsem.BadHandleError)
    assert caught.value.error.reason == "short_page"


@pytest.mark.parametrize(("number", "reason"), [
    (errno.EOPNOTSUPP, "not_mappable"), (errno.EINVAL, "not_mappable"), (errno.ENODEV, "not_mappable"),
    (errno.EACCES, "read_only")])
def test_dma_buf_that_the_cpu_cannot_map_is_refused_by_name(
    driver: HostDevice, fd: int, monkeypatch: pytest.MonkeyPatch, number: int, reason: str
) -> None:
    def refuse(*_: int, writable: bool) -> int:
        raise OSError(number, "no")

    monkeypatch.setattr(linux, "_map", refuse)
    refused_fd(os.dup(fd), reason, driver, memory_desc(SIZE))


def test_application_maps_a_frame(exporter: Exporter, fd: int) -> None:
    os.pwrite(fd, bytes(range(64)), 512)
    with xsem.open_device("host") as device:
        frame = device.import_memory(MemoryDesc.opaque_fd(fd, allocation_size=SIZE, device_uuid=None))
        with frame.map_buffer(512, shape=(4, 16)) as luma:
            assert luma.copy_to_host().tolist() == [list(range(row * 16, row * 16 + 16)) for row in range(4)]
