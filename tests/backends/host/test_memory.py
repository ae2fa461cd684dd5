"""Test the host's memory and buffers at the driver interface."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys

import pytest
from support.host_peers import MEMORY, content, covered, fill, mapped

from xsem.errors import OutOfMemoryError
from xsem_host.device import HostDevice

LARGE = 64 << 20


def test_memory_is_mapped_once_and_unmapped_with_its_last_buffer(driver: HostDevice) -> None:
    memory, _ = driver.create_memory(MEMORY, 3 * mmap.PAGESIZE, False)
    assert mapped() == []
    tokens = [driver.map_buffer(memory, offset, 1) for offset in (0, 1, 4097, 3 * mmap.PAGESIZE - 1)]
    assert len(mapped()) == 1
    assert [address - tokens[0][1] for _, address in tokens] == [0, 1, 4097, 3 * mmap.PAGESIZE - 1]
    for token, _ in tokens:
        assert len(mapped()) == 1
        driver.unmap_buffer(token)
    assert mapped() == []
    token, address = driver.map_buffer(memory, 0, 1)
    assert covered(address, 3 * mmap.PAGESIZE)
    driver.unmap_buffer(token)
    driver.release_memory(memory)


def test_memory_takes_one_file_descriptor_also_when_mapped(driver: HostDevice) -> None:
    before = len(os.listdir("/proc/self/fd"))
    memory, _ = driver.create_memory(MEMORY, 1, False)
    token, _ = driver.map_buffer(memory, 0, 1)
    assert len(os.listdir("/proc/self/fd")) == before + 1
    driver.unmap_buffer(token)
    driver.release_memory(memory)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_buffer_outlives_the_file_of_its_memory(driver: HostDevice) -> None:
    memory, _ = driver.create_memory(MEMORY, 1, False)
    token, address = driver.map_buffer(memory, 0, 1)
    driver.release_memory(memory)
    fill(address, b"x")
    assert content(address, 1) == b"x"
    driver.unmap_buffer(token)


@pytest.mark.parametrize("size", [2**62, 2**63, 2**64 - 1])
def test_memory_that_cannot_be_had_leaves_no_file(driver: HostDevice, size: int) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OutOfMemoryError) as failure:
        driver.create_memory(MEMORY, size, False)
    assert failure.value.call in ("ftruncate", "mmap")
    assert os.listdir("/proc/self/fd") == before
    with pytest.raises(OutOfMemoryError):
        driver.host_buffer(size)


def test_peer_cannot_shrink_or_grow_what_it_shares(driver: HostDevice) -> None:
    memory, size = driver.create_memory(MEMORY, 4096, False)
    for other in (0, size - 1, size + 1):
        with pytest.raises(PermissionError):
            os.ftruncate(memory.fd, other)
    driver.release_memory(memory)


def test_host_buffer_is_zeroed_and_really_given_back(driver: HostDevice) -> None:
    token, address = driver.host_buffer(LARGE)
    assert address % mmap.PAGESIZE == 0
    assert content(address + LARGE - 10, 10) == bytes(10)
    fill(address + LARGE - 5, b"bytes")
    assert content(address + LARGE - 10, 10) == b"\0\0\0\0\0bytes"
    assert covered(address, LARGE)
    driver.release_host_buffer(token)
    assert not covered(address, LARGE)


def test_memory_has_the_fd_as_native_handle(driver: HostDevice) -> None:
    memory, _ = driver.create_memory(MEMORY, 1, False)
    assert driver.native_handle(memory) == memory.fd
    driver.release_memory(memory)


def test_pages_stay_mapped_at_the_interpreters_exit() -> None:
    # A worker may copy there without the interpreter's lock. Here the last finalizer reads in its place.
    done = subprocess.run([sys.executable, "-c", """
import ctypes, mmap
from xsem.portable.linux import Pages
_pages = Pages(4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)

class Worker:
    def __init__(self):
        self.address, self.at = _pages.address, ctypes.c_char.from_address
    def __del__(self):
        self.at(self.address).value

worker = Worker()   # cleared after names that begin with an underscore
"""], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
