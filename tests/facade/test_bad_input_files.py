"""An import refuses files of another kind before the driver call, and closes none of the caller's."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import socket
import struct
import sys
from collections.abc import Callable

import pytest
from support.bad_input import Counted, importing
from support.descriptors import OF_DRIVER, named
from support.fake_backend import open_fake
from support.fixtures import refused
from support.open_files import closed_number, holding, numbers, untouched

import xsem
from xsem.errors import BadHandleError, ReleasedError, XsemError
from xsem.facade.device import Device
from xsem.types import MemoryDesc, MemoryHandleType, OwnedHandle, SemaphoreDesc, SemaphoreHandleType

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the host device needs Linux")

S = SemaphoreHandleType
M = MemoryHandleType


# ---- file descriptors of another kind
def _pty() -> tuple[int, ...]:
    return pty.openpty()


def _sockets() -> tuple[int, ...]:
    return tuple(each.detach() for each in socket.socketpair())


def _regular(data: bytes) -> Callable[[], tuple[int, ...]]:
    return lambda: (holding(data),)


def _path_of(make: Callable[[], int | tuple[int, ...]]) -> Callable[[], tuple[int, ...]]:
    """Open with O_PATH: every query of the file gives the same answers as for a usable fd."""
    def opened() -> tuple[int, ...]:
        made = make()
        files = (made,) if isinstance(made, int) else made
        return (os.open(f"/proc/self/fd/{files[0]}", os.O_PATH), *files)

    return opened


KINDS_OF_FILE: dict[str, tuple[Callable[[], tuple[int, ...]], str]] = {
    "pipe, reading end": (os.pipe, "fd_is_pipe"),
    "pipe, writing end": (lambda: os.pipe()[::-1], "fd_is_pipe"),
    "socket": (_sockets, "fd_is_socket"),
    "listening socket": (lambda: (socket.socket().detach(),), "fd_is_socket"),
    "directory": (lambda: (os.open("/", os.O_RDONLY),), "fd_is_directory"),
    "empty file": (_regular(b""), "fd_is_empty_file"),
    "empty memfd": (lambda: (os.memfd_create("empty"),), "fd_is_empty_file"),
    "/dev/null": (lambda: (os.open(os.devnull, os.O_RDWR),), "fd_is_device"),
    "/dev/zero": (lambda: (os.open("/dev/zero", os.O_RDWR),), "fd_is_device"),
    "path of an eventfd": (_path_of(lambda: os.eventfd(0)), "fd_is_path"),
    "path of a memfd": (_path_of(_regular(b"x")), "fd_is_path"),
    "path of a pipe": (_path_of(os.pipe), "fd_is_path"),
    "terminal, controller": (_pty, "fd_is_terminal"),
    "terminal": (lambda: _pty()[::-1], "fd_is_terminal"),
}


@pytest.mark.parametrize("kind", KINDS_OF_FILE)
@pytest.mark.parametrize("member", OF_DRIVER, ids=named)
def test_fd_of_another_kind_is_refused_before_the_driver(
    kind: str, member: SemaphoreHandleType | MemoryHandleType
) -> None:
    make, reason = KINDS_OF_FILE[kind]
    device, driver = open_fake()
    files = make()
    with device, untouched(*files):
        error = refused(importing(device, member, files[0]), reason, BadHandleError)
        assert error.handle_type is member
        assert error.backend == "fake"
        assert str(files[0]) in str(error)
        assert error.likely_causes
    assert not driver.seen_handles
    for number in files:
        os.close(number)


@pytest.mark.parametrize("member", OF_DRIVER, ids=named)
def test_read_only_fd_reaches_the_driver(
    member: SemaphoreHandleType | MemoryHandleType
) -> None:
    # The kernel creates sync files like this.
    device, driver = open_fake()
    writable = holding(b"x")
    number = os.open(f"/proc/self/fd/{writable}", os.O_RDONLY)
    with device, untouched(number):
        importing(device, member, number)()
    assert len(driver.seen_handles) == 1
    for each in (number, writable):
        os.close(each)


@pytest.mark.parametrize("kind", KINDS_OF_FILE)
@pytest.mark.parametrize(
    "member", [S.OPAQUE_FD, S.TIMELINE_SEMAPHORE_FD, S.HOST_TIMELINE_FD, M.OPAQUE_FD, M.HOST_MEMORY_FD], ids=named)
def test_host_refuses_fd_of_another_kind(
    device: Device, kind: str, member: SemaphoreHandleType | MemoryHandleType
) -> None:
    make, reason = KINDS_OF_FILE[kind]
    files = make()
    with untouched(*files):
        refused(importing(device, member, files[0]), reason, BadHandleError)
    for number in files:
        os.close(number)


@pytest.mark.parametrize("member", OF_DRIVER, ids=named)
@pytest.mark.parametrize("number", ["closed", 2**20, 2**31, 2**70])
def test_a_closed_fd_is_refused_before_the_driver(
    number: int | str, member: SemaphoreHandleType | MemoryHandleType
) -> None:
    device, driver = open_fake()
    with device, untouched():
        handle = closed_number() if number == "closed" else number
        error = refused(importing(device, member, handle), "closed_fd", BadHandleError)
        assert error.handle_type is member
    assert not driver.seen_handles


def test_closed_files_sockets_and_handles_are_refused(counted: Counted) -> None:
    file = os.fdopen(os.eventfd(0), "rb", buffering=0)
    file.close()
    ours = socket.socket()
    ours.close()
    owned = OwnedHandle(os.eventfd(0))
    owned.close()
    with untouched():
        for member in (S.OPAQUE_FD, S.TIMELINE_SEMAPHORE_FD, M.OPAQUE_FD):
            refused(importing(counted, member, file), "closed_fd", BadHandleError)
            refused(importing(counted, member, ours), "closed_fd", BadHandleError)
            error = refused(importing(counted, member, owned), "handle_closed", ReleasedError)
            assert error.handle_type is member
    assert not counted.asked


@pytest.mark.parametrize("size", [1, 4096, 2**40])
def test_memory_larger_than_its_file_is_refused(counted: Counted, size: int) -> None:
    number = holding(bytes(size - 1)) if size <= 4096 else holding(b"x")
    reason = "fd_is_empty_file" if size == 1 else "allocation_size_beyond_file"
    with untouched(number):
        error = refused(importing(counted, M.OPAQUE_FD, number, size), reason, BadHandleError)
        assert error.handle_type is M.OPAQUE_FD
    assert not counted.asked
    os.close(number)


@pytest.mark.parametrize("size", [1, 2])
def test_memory_no_larger_than_its_file_reaches_the_driver(size: int) -> None:
    device, driver = open_fake()
    number = holding(b"xx")
    with device:
        with untouched(number):
            device.import_memory(MemoryDesc.dmabuf_fd(number, allocation_size=size)).release()
        assert len(driver.seen_handles) == 1
    os.close(number)


def test_fd_that_xsem_cannot_classify_reaches_the_driver() -> None:
    # Only the driver knows which anonymous inodes it accepts: eventfd, epoll, pidfd, a sealed file with content.
    device, driver = open_fake()
    import select

    with device, select.epoll() as epoll:
        for number in (os.eventfd(0), os.pidfd_open(os.getpid()), holding(b"x"), os.dup(epoll.fileno())):
            with untouched(number):
                device.import_semaphore(SemaphoreDesc.opaque_fd(number, device_uuid=None)).release()
            os.close(number)
    assert len(driver.seen_handles) == 4


def test_full_fd_table_is_reported(counted: Counted) -> None:
    import resource

    number = os.eventfd(0)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    filler: list[int] = []
    desc = SemaphoreDesc.opaque_fd(number, device_uuid=None)
    act = importing(counted, S.OPAQUE_FD, number)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(numbers()) + 1, limits[1]))
    caught: XsemError | None = None
    try:
        while True:
            try:
                filler.append(os.dup(number))
            except OSError as error:
                assert error.errno == errno.EMFILE  # noqa: PT017 - the loop ends here
                break
        try:
            act()
        except XsemError as error:
            caught = error
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for each in filler:
            os.close(each)
    assert caught is not None
    assert (type(caught), caught.reason) == (xsem.BusyError, "fd_limit")
    with untouched(number):
        counted.import_semaphore(desc).release()
    os.close(number)


# ---- files that are not objects of host
MAGIC = 0x314E4C544D455358


def memfd(data: bytes, seals: int = 7, name: str = "xsem-timeline") -> int:
    number = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(number, data)
    fcntl.fcntl(number, 1033, seals)  # F_ADD_SEALS
    return number


def page(magic: int = MAGIC, version: int = 2, kind: int = 2, size: int = 4096) -> bytes:
    return struct.pack("=QIIQI", magic, version, kind, 0, 0).ljust(size, b"\0")[:size]


def read_only(number: int) -> int:
    again = os.open(f"/proc/self/fd/{number}", os.O_RDONLY | os.O_CLOEXEC)
    os.close(number)
    return again


TIMELINES: dict[str, tuple[Callable[[], int], str]] = {
    "eventfd": (lambda: os.eventfd(0), "not_a_memfd"),
    "file": (lambda: holding(page()), "not_a_memfd"),
    "magic": (lambda: memfd(page(magic=MAGIC + 1)), "wrong_magic"),
    "version 0": (lambda: memfd(page(version=0)), "wrong_version"),
    "version 1": (lambda: memfd(page(version=1)), "wrong_version"),
    "kind": (lambda: memfd(page(kind=1)), "wrong_kind"),
    "zeros": (lambda: memfd(bytes(4096)), "wrong_magic"),
    "unsealed": (lambda: memfd(page(), seals=0), "unsealed"),
    "may shrink": (lambda: memfd(page(), seals=1 | 4), "unsealed"),
    "may grow": (lambda: memfd(page(), seals=1 | 2), "unsealed"),
    "seals may be added": (lambda: memfd(page(), seals=2 | 4), "unsealed"),
    "short": (lambda: memfd(page(size=4095)), "short_page"),
    "header alone": (lambda: memfd(page(size=28)), "short_page"),
    "read-only": (lambda: read_only(memfd(page())), "read_only"),
}
BINARIES: dict[str, tuple[Callable[[], int], str]] = {
    "memfd": (lambda: memfd(page()), "not_an_eventfd"),
    "file": (lambda: holding(b"x"), "not_an_eventfd"),
    "pidfd": (lambda: os.pidfd_open(os.getpid()), "not_an_eventfd"),
    "counting": (lambda: os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_CLOEXEC), "eventfd_is_counting"),
}
MEMORIES: dict[str, tuple[Callable[[], int], str]] = {
    "eventfd": (lambda: os.eventfd(0), "not_a_memfd"),
    "file": (lambda: holding(bytes(8192)), "not_a_memfd"),
    "unsealed": (lambda: memfd(bytes(8192), seals=0, name="m"), "unsealed"),
    "may shrink": (lambda: memfd(bytes(8192), seals=1 | 4, name="m"), "unsealed"),
    "timeline": (lambda: memfd(page()), "wrong_kind"),
    "read-only": (lambda: read_only(memfd(bytes(8192), name="m")), "read_only"),
}


@pytest.mark.parametrize(
    ("member", "case"),
    [(S.TIMELINE_SEMAPHORE_FD, case) for case in TIMELINES.items()]
    + [(S.OPAQUE_FD, case) for case in BINARIES.items()]
    + [(M.OPAQUE_FD, case) for case in MEMORIES.items()],
    ids=lambda value: value[0] if isinstance(value, tuple) else named(value),
)
def test_host_refuses_files_that_are_not_its_objects(
    device: Device, member: SemaphoreHandleType | MemoryHandleType, case: tuple[str, tuple[Callable[[], int], str]]
) -> None:
    make, reason = case[1]
    number = make()
    with untouched(number):
        error = refused(importing(device, member, number, size=4096), reason, BadHandleError)
        assert error.handle_type is member
        assert error.backend == "host"
    os.close(number)


def test_host_accepts_its_own_objects(device: Device) -> None:
    for member, number in (
        (S.TIMELINE_SEMAPHORE_FD, memfd(page())),
        (S.OPAQUE_FD, os.eventfd(0, os.EFD_CLOEXEC)),
        (M.OPAQUE_FD, memfd(bytes(8192), name="m")),
    ):
        with untouched(number):
            importing(device, member, number, size=8192)().release()
        os.close(number)
