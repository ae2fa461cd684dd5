"""Test that the host device and C code with tests/support/host_objects.h understand each other in both directions."""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.host_peers import (
    BINARY,
    LONG_NS,
    MEMORY,
    SEAL_WRITE,
    SEALS,
    SLICE_NS,
    TIMELINE,
    content,
    desc,
    fill,
    imported,
    mapped,
    memfd,
    memory_desc,
    page,
    three_asleep,
)
from support.paths import TESTS

from xsem.data.peers import Peer
from xsem.portable import linux_timeline
from xsem.portable.holders import Holder
from xsem.portable.memory import SharedMemory
from xsem.portable.semaphore_base import SemaphoreBase
from xsem.types import OwnedHandle, WaitParams
from xsem_host.device import HostDevice

HERE = TESTS / "support"
PEER = r"""
#include "host_objects.h"
#include <stdlib.h>

/* argv: turns, fds of timeline, binary to us, binary to them, memory, rounds. Answers each value v with v + 1. */
static int turns(char **argv) {
    int tl = atoi(argv[2]), to_us = atoi(argv[3]), to_them = atoi(argv[4]), memory = atoi(argv[5]);
    int rounds = atoi(argv[6]);
    if (xsem_host_recognise(to_us) != XSEM_HOST_BINARY || xsem_host_recognise(to_them) != XSEM_HOST_BINARY) return 12;
    if (xsem_host_memory_check(memory, 4096) != 0 || xsem_host_memory_check(memory, 1 << 20) == 0) return 13;
    xsem_host_timeline *page = xsem_host_timeline_open(tl);
    unsigned char *bytes = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (!page || bytes == MAP_FAILED) return 15;
    if (xsem_host_timeline_wait(page, 1000000, 1000000) != 0) return 16;
    if (xsem_host_binary_wait(to_us, 1000000) != 0) return 17;
    for (int round = 0; round < rounds; round++) {
        if (xsem_host_timeline_wait(page, 2u * round + 1, 20000000000) != 1) return 18;
        bytes[0] ^= 0xff;
        xsem_host_timeline_signal(page, 2u * round + 2);
        if (xsem_host_binary_wait(to_us, -1) != 1) return 19;
        bytes[0] ^= 0xff;
        xsem_host_binary_signal(to_them);
    }
    xsem_host_timeline_close(page);
    return 0;
}

/* argv: storm, sequence | wakes, fd. Disturbs those who wait, as fast as it can. */
static int storm(char **argv) {
    xsem_host_timeline *page = xsem_host_timeline_open(atoi(argv[3]));
    if (!page) return 20;
    for (;;) {
        if (argv[2][0] == 's') atomic_fetch_add(&page->sequence, 1);
        syscall(SYS_futex, &page->sequence, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
}

int main(int argc, char **argv) {
    if (argc == 7) return turns(argv);
    return argc == 4 ? storm(argv) : 10;
}
"""
LIBRARY = r"""
#include "host_objects.h"
int timeline_create(uint64_t value) { return xsem_host_timeline_create(value); }
int binary_create(void) { return xsem_host_binary_create(); }
int memory_create(size_t size) { return xsem_host_memory_create(size); }
int recognise(int fd) { return (int)xsem_host_recognise(fd); }
void *timeline_open(int fd) { return xsem_host_timeline_open(fd); }
void timeline_close(void *page) { xsem_host_timeline_close(page); }
uint64_t timeline_value(void *page) { return xsem_host_timeline_value(page); }
void timeline_signal(void *page, uint64_t value) { xsem_host_timeline_signal(page, value); }
int timeline_wait(void *page, uint64_t value, int64_t timeout_ns) {
    return xsem_host_timeline_wait(page, value, timeout_ns);
}
void binary_signal(int fd) { xsem_host_binary_signal(fd); }
int binary_wait(int fd, int64_t timeout_ns) { return xsem_host_binary_wait(fd, timeout_ns); }
void timeline_abandon(void *page) { xsem_host_timeline_abandon(page); }
int place_take(int fd, int *number) { return xsem_host_place_take(fd, number); }
void place_leave(int place, int number) { xsem_host_place_leave(place, number); }
int place_others(int place) { return xsem_host_place_others(place); }
uint32_t place_joined(const void *page) { return xsem_host_place_joined(page); }
"""
UNKNOWN, IS_BINARY, IS_TIMELINE, IS_MEMORY = range(4)


def build(folder: Path, name: str, source: str, *options: str) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler (gcc)")
    (folder / f"{name}.c").write_text(source)
    command = [compiler, "-std=c11", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Wno-sign-conversion", "-Werror", "-I",
               str(HERE), *options, "-o", str(folder / name), str(folder / f"{name}.c")]
    subprocess.run(command, check=True)
    return folder / name


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("host_c"), "peer", PEER)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(build(tmp_path_factory.mktemp("host_c"), "objects.so", LIBRARY, "-shared", "-fPIC")))
    u64, i64, address = ctypes.c_uint64, ctypes.c_int64, ctypes.c_void_p
    loaded.timeline_create.argtypes = [u64]
    loaded.memory_create.argtypes = [ctypes.c_size_t]
    loaded.timeline_open.restype = address
    loaded.timeline_close.argtypes = loaded.timeline_abandon.argtypes = loaded.place_joined.argtypes = [address]
    loaded.timeline_value.argtypes, loaded.timeline_value.restype = [address], u64
    loaded.timeline_signal.argtypes, loaded.timeline_signal.restype = [address, u64], None
    loaded.timeline_wait.argtypes = [address, u64, i64]
    loaded.binary_wait.argtypes = [ctypes.c_int, i64]
    return loaded


@contextmanager
def disturbing(program: Path, how: str, *, fd: int) -> Iterator[None]:
    with subprocess.Popen([program, "storm", how, str(fd)], pass_fds=[fd], stdin=subprocess.DEVNULL) as peer:
        try:
            yield
            assert peer.poll() is None
        finally:
            peer.kill()


def test_c_and_python_take_turns_on_timeline_binaries_and_memory(program: Path, driver: HostDevice) -> None:
    timeline = driver.create_semaphore(TIMELINE, 0)
    to_them, to_us = driver.create_semaphore(BINARY, 0), driver.create_semaphore(BINARY, 0)
    memory, size = driver.create_memory(MEMORY, 1, False)
    assert size == mmap.PAGESIZE
    buffer, address = driver.map_buffer(memory, 0, 1)
    objects: list[SemaphoreBase | SharedMemory] = [timeline, to_them, to_us, memory]
    fds = [each.fd for each in objects]
    rounds = 200
    with subprocess.Popen([program, "turns", *map(str, fds), str(rounds)], pass_fds=fds,
                          stdin=subprocess.DEVNULL) as peer:
        for number in range(rounds):
            fill(address, bytes([number]))
            driver.host_signal(timeline, 2 * number + 1)
            assert driver.host_wait(timeline, 2 * number + 2, LONG_NS)
            assert content(address, 1)[0] == number ^ 0xFF
            driver.host_signal(to_them, None)
            assert driver.host_wait(to_us, None, LONG_NS)
            assert content(address, 1)[0] == number
        assert peer.wait(20) == 0
    driver.unmap_buffer(buffer)
    for each in (timeline, to_them, to_us):
        driver.release_semaphore(each)
    driver.release_memory(memory)


def test_python_takes_what_c_makes(library: ctypes.CDLL, driver: HostDevice) -> None:
    fds = timeline_fd, binary_fd, memory_fd = (library.timeline_create(77), library.binary_create(),
                                               library.memory_create(8192))
    assert [library.recognise(fd) for fd in fds] == [IS_TIMELINE, IS_BINARY, IS_MEMORY]
    assert [os.get_inheritable(fd) for fd in fds] == [False] * 3
    page = library.timeline_open(timeline_fd)
    timeline = imported(driver, desc(TIMELINE), OwnedHandle(timeline_fd))
    assert driver.semaphore_value(timeline) == library.timeline_value(page) == 77
    library.timeline_signal(page, 2**63 + 5)
    assert driver.host_wait(timeline, 2**63 + 5, 0)
    assert not driver.host_wait(timeline, 2**63 + 6, 0)
    assert library.timeline_wait(page, 2**63 + 5, 0) == 1
    assert library.timeline_wait(page, 2**63 + 6, SLICE_NS) == 0
    driver.host_signal(timeline, 2**64 - 1)
    assert library.timeline_wait(page, 2**64 - 1, -1) == 1
    library.timeline_close(page)

    binary = imported(driver, desc(BINARY), OwnedHandle(binary_fd))
    library.binary_signal(binary.fd)
    library.binary_signal(binary.fd)
    assert driver.host_wait(binary, None, 0)
    assert library.binary_wait(binary.fd, SLICE_NS) == 0
    driver.host_signal(binary, None)
    assert library.binary_wait(binary.fd, -1) == 1
    assert not driver.host_wait(binary, None, 0)

    memory = imported(driver, memory_desc(8192), OwnedHandle(memory_fd))
    with pytest.raises(PermissionError):
        os.ftruncate(memory.fd, 0)
    driver.release_semaphore(timeline)
    driver.release_semaphore(binary)
    driver.release_memory(memory)


@pytest.mark.parametrize("mode", [0, os.EFD_NONBLOCK], ids=["blocking", "nonblocking"])
def test_c_is_not_held_by_a_full_or_an_empty_counter(library: ctypes.CDLL, mode: int) -> None:
    fd = os.eventfd(0, os.EFD_CLOEXEC | mode)
    assert library.binary_wait(fd, 0) == 0
    os.eventfd_write(fd, 2**64 - 2)
    library.binary_signal(fd)
    assert library.binary_wait(fd, 0) == 1
    assert library.binary_wait(fd, SLICE_NS) == 0
    os.close(fd)


def test_c_loser_of_a_race_for_a_signal_is_not_held(tmp_path: Path) -> None:
    always_ready = r"""
#define _GNU_SOURCE 1
#include <poll.h>
#define poll(fds, count, timeout_ms) ((fds)->revents = POLLIN, 1)
"""
    raced = ctypes.CDLL(str(build(tmp_path, "raced.so", always_ready + LIBRARY, "-Wno-unused", "-shared", "-fPIC")))
    raced.binary_wait.argtypes = [ctypes.c_int, ctypes.c_int64]
    fd = os.eventfd(0, os.EFD_CLOEXEC)
    assert raced.binary_wait(fd, SLICE_NS) == 0
    os.close(fd)


def test_c_signal_wakes_every_sleeper(
    library: ctypes.CDLL, driver: HostDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linux_timeline, "_LONGEST_SLEEP_NS", LONG_NS)  # only a wake-up can end the sleep in time
    timeline = driver.create_semaphore(TIMELINE, 0)
    with three_asleep(lambda: driver.host_wait(timeline, 1, LONG_NS)) as met:
        opened = library.timeline_open(timeline.fd)
        library.timeline_signal(opened, 1)
    assert met == [True] * 3
    library.timeline_close(opened)
    driver.release_semaphore(timeline)


CASES: dict[str, tuple[Callable[[], int], int]] = {
    "timeline": (lambda: memfd(4096, page()), IS_TIMELINE),
    "magic": (lambda: memfd(4096, page(magic=1)), UNKNOWN),
    "version": (lambda: memfd(4096, page(version=1)), UNKNOWN),
    "kind": (lambda: memfd(4096, page(kind=3)), UNKNOWN),
    "short timeline": (lambda: memfd(4095, page()), UNKNOWN),
    "unsealed timeline": (lambda: memfd(4096, page(), seals=0), UNKNOWN),
    "memory": (lambda: memfd(4096, name="m"), IS_MEMORY),
    "unsealed memory": (lambda: memfd(4096, seals=1 | 4, name="m"), UNKNOWN),
    "sealed against writing": (lambda: memfd(4096, seals=SEALS | SEAL_WRITE, name="m"), UNKNOWN),
    "huge pages": (lambda: memfd(0, name="m", flags=4), UNKNOWN),
    "empty": (lambda: memfd(0, name="m"), UNKNOWN),
    "eventfd": (lambda: os.eventfd(0), IS_BINARY),
    "counting": (lambda: os.eventfd(0, os.EFD_SEMAPHORE), UNKNOWN),
    "null device": (lambda: os.open("/dev/null", os.O_RDWR), UNKNOWN),
}


@pytest.mark.parametrize("case", CASES)
def test_c_tells_what_a_file_is(library: ctypes.CDLL, case: str) -> None:
    make, kind = CASES[case]
    fd = make()
    assert library.recognise(fd) == kind
    assert (library.timeline_open(fd) is None) == (kind != IS_TIMELINE)
    os.close(fd)
    for line in mapped():  # the page of the opened timeline
        first, _, end = line.split(maxsplit=1)[0].partition("-")
        library.timeline_close(int(first, 16))
        assert int(end, 16) - int(first, 16) == 4096


@pytest.mark.variants
@pytest.mark.parametrize("how", ["sequence", "wakes"])
@pytest.mark.parametrize("waiter", ["python", "c"])
def test_wait_does_not_spin_while_c_disturbs_it(
    program: Path, library: ctypes.CDLL, driver: HostDevice, how: str, waiter: str
) -> None:
    timeline = driver.create_semaphore(TIMELINE, 0)
    opened = library.timeline_open(timeline.fd)
    with disturbing(program, how, fd=timeline.fd):
        began, used = time.monotonic(), time.thread_time()
        if waiter == "c":
            assert library.timeline_wait(opened, 1, 600_000_000) == 0
        else:
            assert not driver.host_wait(timeline, 1, 600_000_000)
        assert time.thread_time() - used < 0.2 * (time.monotonic() - began)
    library.timeline_close(opened)
    driver.release_semaphore(timeline)


def test_list_does_not_spin_while_c_disturbs_it(program: Path, driver: HostDevice) -> None:
    timeline = driver.create_semaphore(TIMELINE, 0)
    commands = driver.create_queue()
    with disturbing(program, "wakes", fd=timeline.fd):
        fence = commands.append_wait([timeline], [WaitParams(value=1)], (), (), True)
        assert fence is not None
        began, used = time.monotonic(), time.process_time()
        assert not driver.wait_fence(fence, 500_000_000)
        assert time.process_time() - used < 0.2 * (time.monotonic() - began)
    commands.close()
    driver.release_semaphore(timeline)


# ---- holders and abandonment
def test_c_and_python_see_each_others_places(library: ctypes.CDLL, driver: HostDevice) -> None:
    page = driver.create_semaphore(TIMELINE, 0)
    assert isinstance(page, linux_timeline.Timeline)
    holder = page.holder
    assert isinstance(holder, Holder)
    assert holder.ended() == ()
    address, number = library.timeline_open(page.fd), ctypes.c_int()
    place = library.place_take(page.fd, ctypes.byref(number))
    assert number.value == 1
    assert library.place_others(place) == 1
    assert (holder.joined(), library.place_joined(address)) == (1, 2)
    assert holder.ended() is None
    os.close(place)   # as its end
    assert holder.ended() == (Peer.of(os.getpid()),)
    place = library.place_take(page.fd, ctypes.byref(number))
    library.place_leave(place, number)
    assert holder.ended() == ()
    again = os.dup(page.fd)
    driver.release_semaphore(page)
    places = [library.place_take(again, ctypes.byref(number)) for _ in range(128)]
    assert min(places) >= 0
    assert library.place_take(again, ctypes.byref(number)) == -1
    for each in places[1:]:
        os.close(each)
    assert library.place_others(places[0]) == 0
    library.timeline_close(address)
    for each in (places[0], again):
        os.close(each)


@pytest.mark.parametrize("by_c", [True, False])
def test_c_and_python_abandon_in_the_same_way(library: ctypes.CDLL, driver: HostDevice, by_c: bool) -> None:
    page = driver.create_semaphore(TIMELINE, 5)
    assert isinstance(page, linux_timeline.Timeline)
    address = library.timeline_open(page.fd)
    if by_c:
        library.timeline_abandon(address)
    else:
        page.abandon()
    assert page.lost(6)
    assert not page.lost(5)
    assert (page.value, library.timeline_value(address)) == (5, 5)
    assert library.timeline_wait(address, 5, 0) == 1
    assert library.timeline_wait(address, 6, LONG_NS) == -1
    library.timeline_signal(address, 9)
    page.signal(9)
    assert page.value == 5
    library.timeline_close(address)
    driver.release_semaphore(page)
