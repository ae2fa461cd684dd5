"""Test refusals of the host's driver: files of other objects, undeclared types, missing resources."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.shared_memory import SharedMemory

import pytest
from support.host_peers import (
    BINARY,
    MEMORY,
    SEAL_WRITE,
    SEALS,
    TIMELINE,
    desc,
    imported,
    memfd,
    memory_desc,
    page,
    refused_fd,
)
from support.open_files import few_more_files, holding, numbers

import xsem
from xsem import spi
from xsem.errors import BusyError, OutOfMemoryError
from xsem.portable import linux
from xsem.types import (
    MemoryDesc,
    OwnedHandle,
    SemaphoreDesc,
)
from xsem_host.device import HostDevice

MFD_HUGETLB = 4


def reopened(fd: int, mode: int) -> int:
    again = os.open(f"/proc/self/fd/{fd}", mode | os.O_CLOEXEC)
    os.close(fd)
    return again


def pipe() -> int:
    read, write = os.pipe()
    os.close(write)
    return read


def unix_socket() -> int:
    one, other = socket.socketpair()
    other.close()
    return one.detach()


Cases = dict[str, tuple[Callable[[], int], str]]
ANYTHING: dict[str, Callable[[], int]] = {
    "pipe": pipe,
    "socket": unix_socket,
    "directory": lambda: os.open("/", os.O_RDONLY),
    "null device": lambda: os.open("/dev/null", os.O_RDWR),
    "empty file": lambda: holding(b""),
    "file": lambda: holding(page().ljust(8192, b"\0")),
    "path": lambda: os.open("/", os.O_PATH),
    "pidfd": lambda: os.pidfd_open(os.getpid()),
}
TIMELINES: Cases = {
    "magic": (lambda: memfd(4096, page(magic=1)), "wrong_magic"),
    "zeros": (lambda: memfd(4096), "wrong_magic"),
    "memory": (lambda: memfd(8192, name="xsem-memory"), "wrong_magic"),
    "version 0": (lambda: memfd(4096, page(version=0)), "wrong_version"),
    "version 1": (lambda: memfd(4096, page(version=1)), "wrong_version"),
    "kind": (lambda: memfd(4096, page(kind=3)), "wrong_kind"),
    "empty": (lambda: memfd(0), "short_page"),
    "short": (lambda: memfd(4095, page()), "short_page"),
    "unsealed": (lambda: memfd(4096, page(), seals=0), "unsealed"),
    "may shrink": (lambda: memfd(4096, page(), seals=1 | 4), "unsealed"),
    "may grow": (lambda: memfd(4096, page(), seals=1 | 2), "unsealed"),
    "may be sealed further": (lambda: memfd(4096, page(), seals=2 | 4), "unsealed"),
    "read only": (lambda: reopened(memfd(4096, page()), os.O_RDONLY), "read_only"),
    "write only": (lambda: reopened(memfd(4096, page()), os.O_WRONLY), "read_only"),
    "sealed against writing": (lambda: memfd(4096, page(), seals=SEALS | SEAL_WRITE), "read_only"),
    "huge pages": (lambda: memfd(0, flags=MFD_HUGETLB), "not_a_memfd"),
    "eventfd": (lambda: os.eventfd(0), "not_a_memfd"),
    **{name: (make, "not_a_memfd") for name, make in ANYTHING.items()},
}
BINARIES: Cases = {
    "counting": (lambda: os.eventfd(0, os.EFD_SEMAPHORE), "eventfd_is_counting"),
    "timeline": (lambda: memfd(4096, page()), "not_an_eventfd"),
    **{name: (make, "not_an_eventfd") for name, make in ANYTHING.items()},
}
MEMORIES: Cases = {
    "short": (lambda: memfd(4095, name="m"), "short_page"),
    "empty": (lambda: memfd(0, name="m"), "short_page"),
    "unsealed": (lambda: memfd(4096, seals=0, name="m"), "unsealed"),
    "may shrink": (lambda: memfd(4096, seals=1 | 4, name="m"), "unsealed"),
    "timeline": (lambda: memfd(4096, page()), "wrong_kind"),
    "large timeline": (lambda: memfd(8192, page()), "wrong_kind"),
    "read only": (lambda: reopened(memfd(4096, name="m"), os.O_RDONLY), "read_only"),
    "write only": (lambda: reopened(memfd(4096, name="m"), os.O_WRONLY), "read_only"),
    "sealed against writing": (lambda: memfd(4096, seals=SEALS | SEAL_WRITE, name="m"), "read_only"),
    "huge pages": (lambda: memfd(0, name="m", flags=MFD_HUGETLB), "not_a_memfd"),
    "eventfd": (lambda: os.eventfd(0), "not_a_memfd"),
    **{name: (make, "not_a_memfd") for name, make in ANYTHING.items()},
}


def test_refusal_of_shared_memory_says_what_to_share_instead(driver: HostDevice) -> None:
    with shared_memory() as fd:
        said = str(refused_fd(os.dup(fd), "unsealed", driver, memory_desc(4096)))
    assert "multiprocessing.SharedMemory" in said
    assert "create_memory()" in said
    said = str(refused_fd(memfd(4096, seals=0, name="m"), "unsealed", driver, memory_desc(4096)))
    assert "F_ADD_SEALS, 7" in said


@contextmanager
def shared_memory() -> Iterator[int]:
    made = SharedMemory(create=True, size=4096)
    try:
        yield made._fd   # type: ignore[attr-defined]
    finally:
        made.close()
        made.unlink()


@pytest.mark.parametrize("case", TIMELINES)
def test_import_of_a_timeline_refuses(driver: HostDevice, case: str) -> None:
    make, reason = TIMELINES[case]
    refused_fd(make(), reason, driver, desc(TIMELINE))


@pytest.mark.parametrize("case", BINARIES)
def test_import_of_a_binary_refuses(driver: HostDevice, case: str) -> None:
    make, reason = BINARIES[case]
    refused_fd(make(), reason, driver, desc(BINARY))


@pytest.mark.parametrize("case", MEMORIES)
def test_import_of_memory_refuses(driver: HostDevice, case: str) -> None:
    make, reason = MEMORIES[case]
    refused_fd(make(), reason, driver, memory_desc(4096))


def test_import_of_memory_refuses_a_size_beyond_all_files(driver: HostDevice) -> None:
    refused_fd(memfd(4096, name="m"), "short_page", driver, memory_desc(2**64 - 1))


def test_import_accepts_memory_with_a_name_like_a_timelines(driver: HostDevice) -> None:
    for name in ("xsem-timeline-frames", "my xsem-timeline"):
        driver.release_memory(imported(driver, memory_desc(4096), OwnedHandle(memfd(4096, name=name))))


def test_import_without_a_handle_is_refused(driver: HostDevice) -> None:
    calls: list[Callable[[], object]] = [
        lambda: driver.import_semaphore(desc(BINARY), None),
        lambda: driver.import_semaphore(desc(TIMELINE), None),
        lambda: driver.import_memory(memory_desc(1), None),
    ]
    for call in calls:
        with pytest.raises(spi.ImportFailure) as failure:
            call()
        assert getattr(failure.value.error, "reason", None) == "no_handle"


def test_import_of_a_handle_that_is_closed_is_refused(driver: HostDevice) -> None:
    handle = OwnedHandle(os.eventfd(0))
    handle.close()
    with pytest.raises(spi.ImportFailure) as failure:
        driver.import_semaphore(desc(BINARY), handle)
    assert failure.value.handle == "left"


@pytest.mark.timeout(30)
def test_refusals_in_threads_close_no_other_files(driver: HostDevice) -> None:
    cases: list[tuple[tuple[Callable[[], int], str], SemaphoreDesc | MemoryDesc]]
    cases = [*((case, desc(TIMELINE)) for case in TIMELINES.values()),
             *((case, desc(BINARY)) for case in BINARIES.values()),
             *((case, memory_desc(4096)) for case in MEMORIES.values())]
    before = numbers()
    failures: list[BaseException] = []
    stop = threading.Event()

    def refuse() -> None:
        try:
            for _ in range(3):
                for (make, reason), wanted in cases:
                    refused_fd(make(), reason, driver, wanted)
        except BaseException as error:
            failures.append(error)

    def reopen() -> None:
        try:
            while not stop.is_set():
                fd = os.eventfd(0)
                os.fstat(fd)
                os.close(fd)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=refuse) for _ in range(3)]
    bystander = threading.Thread(target=reopen)
    for thread in (*threads, bystander):
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    bystander.join()
    assert failures == []
    assert numbers() == before


# ---- missing resources
def test_a_full_file_table_is_said_to_be_full(driver: HostDevice) -> None:
    timeline, binary = driver.create_semaphore(TIMELINE, 0), driver.create_semaphore(BINARY, 0)
    memory, _ = driver.create_memory(MEMORY, 1, False)
    before = numbers()
    calls: list[Callable[[], object]] = [
        lambda: driver.create_semaphore(TIMELINE, 0),
        lambda: driver.create_semaphore(BINARY, 0),
        lambda: driver.create_memory(MEMORY, 1, False),
        lambda: driver.export_semaphore(timeline),
        lambda: driver.export_memory(memory),
    ]
    for call in calls:
        with few_more_files(0), pytest.raises(BusyError) as failure:
            call()
        assert failure.value.reason == "fd_limit"
        assert (failure.value.code, failure.value.code_name) == (errno.EMFILE, "EMFILE")
    assert numbers() == before
    driver.release_semaphore(timeline)
    driver.release_semaphore(binary)
    driver.release_memory(memory)


def test_device_with_a_full_file_table_is_not_a_platform_that_cannot_work() -> None:
    xsem.devices("host")   # loads the plugins
    with few_more_files(0):
        for act in (lambda: xsem.devices("host"), lambda: xsem.open_device("host")):
            with pytest.raises(BusyError) as failure:
                act()
            assert (failure.value.reason, failure.value.backend) == ("fd_limit", "host")
    xsem.open_device("host").release()


def test_import_with_a_full_file_table_leaves_the_handle(driver: HostDevice) -> None:
    with OwnedHandle(os.eventfd(0)) as handle:
        with few_more_files(0), pytest.raises(spi.ImportFailure) as failure:
            driver.import_semaphore(desc(BINARY), handle)  # /proc/self/fdinfo cannot be opened
        assert failure.value.handle == "left"
        assert isinstance(failure.value.error, BusyError)
        os.fstat(handle.fileno())


def test_import_without_address_space_leaves_the_handle(driver: HostDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int, writable: bool) -> int:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(linux, "_map", full)
    wanted: SemaphoreDesc | MemoryDesc
    for fd, wanted in ((memfd(4096, page()), desc(TIMELINE)), (memfd(4096, name="m"), memory_desc(4096))):
        error = refused_fd(fd, "out_of_memory", driver, wanted)
        assert isinstance(error, OutOfMemoryError)
        assert error.call == "mmap"
    before = numbers()
    with pytest.raises(OutOfMemoryError):
        driver.create_semaphore(TIMELINE, 0)
    with pytest.raises(OutOfMemoryError):
        driver.create_memory(MEMORY, 1, False)
    assert numbers() == before


def test_import_without_proc_is_refused(driver: HostDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(path: str) -> str:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    monkeypatch.setattr(os, "readlink", missing)
    refused_fd(os.eventfd(0), "no_proc", driver, desc(BINARY))
    refused_fd(memfd(4096, name="m"), "no_proc", driver, memory_desc(4096))
