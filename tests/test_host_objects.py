"""The host's objects, at the driver interface: semantics, refusals, and what a peer can and cannot do."""

from __future__ import annotations

import fcntl
import functools
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_backend import until
from xsem_host import objects
from xsem_host.device import CAPABILITIES, HostDevice
from xsem_host.objects import VERSION, Binary, Timeline, new_memory, new_timeline

from xsem import spi
from xsem.errors import UnsupportedError, XsemError
from xsem.types import (
    MemoryDesc,
    MemoryHandleType,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
)

TIMELINE = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
BINARY = SemaphoreHandleType.OPAQUE_FD
SLICE_NS = 5_000_000
F_ADD_SEALS, SEALS = 1033, 7


def open_fds() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@pytest.fixture
def device() -> Iterator[HostDevice]:
    before = open_fds()
    made = HostDevice()
    yield made
    made.close()
    assert open_fds() == before, "the test left file descriptors open"


def desc(type: SemaphoreHandleType) -> SemaphoreDesc:
    return SemaphoreDesc(type=type, handle=0)


def memory_desc(size: int) -> MemoryDesc:
    return MemoryDesc(type=MemoryHandleType.OPAQUE_FD, allocation_size=size, handle=0)


def imported(device: HostDevice, type: SemaphoreHandleType, exporter: Binary | Timeline) -> Binary | Timeline:
    handle = device.export_semaphore(exporter)
    token = device.import_semaphore(desc(type), handle)
    assert handle.closed, "the object owns the fd after success"
    return token


# ---- binary
def test_binary_wait_resets_and_two_signals_are_one(device: HostDevice) -> None:
    one = device.create_semaphore(BINARY, 0)
    other = imported(device, BINARY, one)
    assert not device.host_wait(other, None, 0)
    device.host_signal(one, None)
    device.host_signal(one, None)
    assert device.host_wait(other, None, SLICE_NS)
    assert not device.host_wait(one, None, 0)
    device.release_semaphore(one)
    device.release_semaphore(other)


def test_binary_signal_never_blocks_near_the_counters_maximum(device: HostDevice) -> None:
    fd = os.eventfd(0, os.EFD_CLOEXEC)  # a blocking one, as a peer may make it
    os.write(fd, struct.pack("=Q", 2**64 - 2))
    token = device.import_semaphore(desc(BINARY), OwnedHandle(fd))
    device.host_signal(token, None)
    assert device.host_wait(token, None, SLICE_NS)
    assert not device.host_wait(token, None, 0)
    device.release_semaphore(token)


def test_binary_wakes_exactly_one_of_several_waiters(device: HostDevice) -> None:
    token = device.import_semaphore(desc(BINARY), OwnedHandle(os.eventfd(0, os.EFD_CLOEXEC)))
    got: list[int] = []
    stop = threading.Event()

    def wait(number: int) -> None:
        while not stop.is_set():
            if device.host_wait(token, None, SLICE_NS):
                got.append(number)

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for count in range(1, 21):
        device.host_signal(token, None)
        until(functools.partial(enough, got, count))
    stop.set()
    for thread in threads:
        thread.join()
    assert len(got) == 20
    device.release_semaphore(token)


def enough(got: list[int], count: int) -> bool:
    return len(got) == count


# ---- timeline
def test_timeline_compares_unsigned_over_64_bits_and_may_go_back(device: HostDevice) -> None:
    one = device.create_semaphore(TIMELINE, 3)
    other = imported(device, TIMELINE, one)
    assert device.semaphore_value(other) == 3
    assert device.host_wait(other, 3, 0)
    for value in (2**31, 2**32 + 1, 2**62, 2**63, 2**64 - 1):
        assert not device.host_wait(other, value, 0)
        device.host_signal(one, value)
        assert device.host_wait(other, value, 0)
        assert device.semaphore_value(other) == value
    device.host_signal(other, 1)
    assert device.semaphore_value(one) == 1
    device.release_semaphore(one)
    device.release_semaphore(other)


def test_timeline_jump_by_two_to_the_32_wakes_a_sleeper(device: HostDevice) -> None:
    one = device.create_semaphore(TIMELINE, 0)
    met: list[bool] = []
    thread = threading.Thread(target=lambda: met.append(device.host_wait(one, 2**32, 20_000_000_000)))
    thread.start()
    until(lambda: sleeping_in("futex", thread))
    device.host_signal(one, 2**32)
    thread.join()
    assert met == [True]
    device.release_semaphore(one)


def sleeping_in(what: str, thread: threading.Thread) -> bool:
    call = Path(f"/proc/self/task/{thread.native_id}/syscall").read_text()
    return call.startswith({"futex": "202 ", "poll": "7 "}[what]) if os.uname().machine == "x86_64" else True


@pytest.mark.parametrize("type", [TIMELINE, BINARY])
def test_wait_does_not_spin(device: HostDevice, type: SemaphoreHandleType) -> None:
    token = device.create_semaphore(type, 0)
    began, used = time.monotonic(), time.thread_time()
    assert not device.host_wait(token, 1 if type is TIMELINE else None, 400_000_000)
    assert time.thread_time() - used < 0.2 * (time.monotonic() - began)
    device.release_semaphore(token)


def test_timeline_signal_wakes_every_sleeper(device: HostDevice) -> None:
    token = device.create_semaphore(TIMELINE, 0)
    met: list[bool] = []
    threads = [
        threading.Thread(target=lambda: met.append(device.host_wait(token, 1, 20_000_000_000))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        until(functools.partial(sleeping_in, "futex", thread))
    device.host_signal(token, 1)
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()
    assert met == [True] * 3
    device.release_semaphore(token)


def test_wait_does_not_spin_while_a_peer_scribbles_on_the_sequence(
    device: HostDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = device.create_semaphore(TIMELINE, 0)
    tries = 0

    def restless(address: int, expected: int, timeout_ns: int) -> bool:
        nonlocal tries
        tries += 1
        return False  # what the kernel says when the word is not what it was read as

    monkeypatch.setattr(objects, "futex_wait", restless)
    assert not device.host_wait(token, 1, 300_000_000)
    # 64 tries without a pause, then at most one a millisecond. Without the pauses it would be tens of thousands.
    assert tries < 64 + 350
    device.release_semaphore(token)


def test_killed_peer_wedges_nobody(device: HostDevice) -> None:
    """A peer that signals as fast as it can, killed at a moment of its own choosing."""
    token = device.create_semaphore(TIMELINE, 0)
    script = (
        "import sys\nfrom xsem_host.objects import open_timeline\n"
        "timeline = open_timeline(int(sys.argv[1]))\nvalue = int(sys.argv[2])\n"
        "while True:\n    value += 1\n    timeline.signal(value)\n"
    )
    for turn in range(1, 4):
        start = turn * 10**9
        with device.export_semaphore(token) as handle:
            peer = subprocess.Popen([sys.executable, "-c", script, str(handle.fileno()), str(start)],
                                    pass_fds=[handle.fileno()])
        assert device.host_wait(token, start + 7 * turn, 20_000_000_000)
        os.kill(peer.pid, signal.SIGKILL)
        peer.wait()
        after = device.semaphore_value(token) + 1
        assert not device.host_wait(token, after, SLICE_NS)
        device.host_signal(token, after)
        assert device.host_wait(token, after, SLICE_NS)
    device.release_semaphore(token)


# ---- memory
def test_memory_is_shared_and_unmapped_with_its_release(device: HostDevice) -> None:
    one, size = device.create_memory(MemoryHandleType.OPAQUE_FD, 5000, False)
    assert size == 8192
    other = device.import_memory(memory_desc(size), device.export_memory(one))
    _, address = device.map_buffer(other, 4096, 100)
    ctypes_write(address, b"shared")
    _, back = device.map_buffer(one, 4096, 100)
    assert ctypes_read(back, 6) == b"shared"
    assert Path("/proc/self/maps").read_text().count("xsem-memory") == 2
    device.release_memory(one)
    device.release_memory(other)
    assert "xsem-memory" not in Path("/proc/self/maps").read_text()


def ctypes_write(address: int, data: bytes) -> None:
    import ctypes

    ctypes.memmove(address, data, len(data))


def ctypes_read(address: int, size: int) -> bytes:
    import ctypes

    return ctypes.string_at(address, size)


def test_peer_cannot_shrink_what_it_shares(device: HostDevice) -> None:
    one, _ = device.create_memory(MemoryHandleType.OPAQUE_FD, 4096, False)
    timeline = device.create_semaphore(TIMELINE, 0)
    for fd in (one.fd, timeline.fd):
        with pytest.raises(PermissionError):
            os.ftruncate(fd, 0)
    device.release_memory(one)
    device.release_semaphore(timeline)


# ---- refusals
def memfd(size: int, content: bytes = b"", seals: int = SEALS, name: str = "xsem-timeline") -> int:
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.truncate(fd, size)
    os.pwrite(fd, content, 0)
    if seals:
        fcntl.fcntl(fd, F_ADD_SEALS, seals)
    return fd


def page(magic: int = 0x314E4C544D455358, version: int = VERSION, kind: int = 2) -> bytes:
    return struct.pack("<QII", magic, version, kind)


def read_only(fd: int) -> int:
    again = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    os.close(fd)
    return again


def pipe() -> int:
    read, write = os.pipe()
    os.close(write)
    return read


def unix_socket() -> int:
    a, b = socket.socketpair()
    b.close()
    return a.detach()


TIMELINE_REFUSALS: dict[str, tuple[Callable[[], int], str]] = {
    "magic": (lambda: memfd(4096, page(magic=1)), "wrong_magic"),
    "version": (lambda: memfd(4096, page(version=2)), "wrong_version"),
    "kind": (lambda: memfd(4096, page(kind=3)), "wrong_kind"),
    "short": (lambda: memfd(4095, page()), "short_page"),
    "unsealed": (lambda: memfd(4096, page(), seals=0), "unsealed"),
    "half sealed": (lambda: memfd(4096, page(), seals=2), "unsealed"),
    "read only": (lambda: read_only(memfd(4096, page())), "read_only"),
    "eventfd": (lambda: os.eventfd(0), "not_a_memfd"),
    "pipe": (pipe, "not_a_memfd"),
    "socket": (unix_socket, "not_a_memfd"),
    "directory": (lambda: os.open("/", os.O_RDONLY), "not_a_memfd"),
    "null": (lambda: os.open("/dev/null", os.O_RDWR), "not_a_memfd"),
}
BINARY_REFUSALS: dict[str, tuple[Callable[[], int], str]] = {
    "counting": (lambda: os.eventfd(0, os.EFD_SEMAPHORE), "eventfd_is_counting"),
    "timeline": (lambda: memfd(4096, page()), "not_an_eventfd"),
    "pipe": (pipe, "not_an_eventfd"),
    "socket": (unix_socket, "not_an_eventfd"),
}
MEMORY_REFUSALS: dict[str, tuple[Callable[[], int], str]] = {
    "short": (lambda: memfd(4095, name="m"), "short_page"),
    "unsealed": (lambda: memfd(4096, seals=0, name="m"), "unsealed"),
    "timeline": (lambda: memfd(4096, page()), "wrong_kind"),
    "read only": (lambda: read_only(memfd(4096, name="m")), "read_only"),
    "eventfd": (lambda: os.eventfd(0), "not_a_memfd"),
}


def refused(fd: int, reason: str, importer: Callable[[OwnedHandle], object]) -> None:
    with OwnedHandle(fd) as handle:
        with pytest.raises(spi.ImportFailure) as failure:
            importer(handle)
        assert failure.value.fate == "left"
        assert not handle.closed
        os.fstat(fd)
    error = failure.value.error
    assert isinstance(error, XsemError)
    assert error.reason == reason


@pytest.mark.parametrize("case", TIMELINE_REFUSALS)
def test_import_of_a_timeline_refuses(device: HostDevice, case: str) -> None:
    make, reason = TIMELINE_REFUSALS[case]
    refused(make(), reason, lambda handle: device.import_semaphore(desc(TIMELINE), handle))


@pytest.mark.parametrize("case", BINARY_REFUSALS)
def test_import_of_a_binary_refuses(device: HostDevice, case: str) -> None:
    make, reason = BINARY_REFUSALS[case]
    refused(make(), reason, lambda handle: device.import_semaphore(desc(BINARY), handle))


@pytest.mark.parametrize("case", MEMORY_REFUSALS)
def test_import_of_memory_refuses(device: HostDevice, case: str) -> None:
    make, reason = MEMORY_REFUSALS[case]
    refused(make(), reason, lambda handle: device.import_memory(memory_desc(4096), handle))


@pytest.mark.parametrize("type", sorted(set(SemaphoreHandleType) - CAPABILITIES.semaphore_import))
def test_undeclared_semaphore_type_is_refused_by_the_driver_itself(
    device: HostDevice, type: SemaphoreHandleType
) -> None:
    with pytest.raises(spi.ImportFailure) as failure:
        device.import_semaphore(SemaphoreDesc(type=type, handle=1), None)
    assert isinstance(failure.value.error, UnsupportedError)
    assert failure.value.error.capability == f"semaphore.import.{type.value}"
    with pytest.raises(UnsupportedError):
        device.create_semaphore(type, 0)


@pytest.mark.parametrize("type", sorted(set(MemoryHandleType) - CAPABILITIES.memory_import))
def test_undeclared_memory_type_is_refused_by_the_driver_itself(device: HostDevice, type: MemoryHandleType) -> None:
    with pytest.raises(spi.ImportFailure) as failure:
        device.import_memory(MemoryDesc(type=type, handle=1, allocation_size=1), None)
    assert isinstance(failure.value.error, UnsupportedError)
    with pytest.raises(UnsupportedError):
        device.create_memory(type, 1, False)


def test_value_of_a_binary_is_unsupported(device: HostDevice) -> None:
    token = device.create_semaphore(BINARY, 0)
    with pytest.raises(UnsupportedError):
        device.semaphore_value(token)
    device.release_semaphore(token)


def test_native_handle_is_the_fd(device: HostDevice) -> None:
    token = new_timeline(0)
    memory = new_memory(mmap.PAGESIZE)
    assert device.native_handle(token) == token.fd
    assert device.native_handle(memory) == memory.fd
    with pytest.raises(UnsupportedError):
        device.native_handle(None)
    token.close()
    memory.close()
