"""Errors of an application: each has a class and a reason, precedes the driver call, and closes no file."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import pty
import socket
import struct
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from support.fake_backend import ALL, INFO, FakeDriver, FakeStream, binary, open_fake, timeline, until
from support.fixtures import refused
from support.open_files import closed_number, holding, is_open, numbers, untouched

import xsem
from xsem.errors import (
    BackendUnavailableError,
    BadHandleError,
    DeviceNotFoundError,
    EventNotAppendedError,
    ReleasedError,
    UnsupportedError,
    WrongDeviceError,
    XsemError,
)
from xsem.facade.device import Device
from xsem.spi import ImportFailure, same_open_file
from xsem.types import (
    DeviceInfo,
    MemoryDesc,
    MemoryHandleType,
    OsHandleKind,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
    SignalParams,
    WaitParams,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the host device needs Linux")

S = SemaphoreHandleType
M = MemoryHandleType
ONE = uuid.UUID("a1b2c3d4-0000-4000-8000-0123456789ab")
TWO = uuid.UUID("b1b2c3d4-0000-4000-8000-0123456789ab")
PAGE = mmap.PAGESIZE


class Counted:
    """A device, with a count of the handles that its driver was given to import."""

    def __init__(self, device: Device, driver: FakeDriver | None) -> None:
        self.device = device
        self.driver = driver

    def __getattr__(self, name: str) -> Any:
        return getattr(self.device, name)

    @property
    def asked(self) -> int:
        return 0 if self.driver is None else len(self.driver.seen_handles)


@contextmanager
def faked(**fields: Any) -> Iterator[tuple[Device, FakeDriver]]:
    """A fake device whose pending work completes at the end."""
    device, driver = open_fake(**fields)
    with device:
        yield device, driver
        driver.finish()
    assert not driver.misuse


@pytest.fixture(params=["fake", "host"])
def counted(request: pytest.FixtureRequest) -> Iterator[Counted]:
    if request.param == "fake":
        with faked() as (device, driver):
            yield Counted(device, driver)
    else:
        with xsem.open_device("host") as device:
            yield Counted(device, None)


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
FD_TYPES: list[SemaphoreHandleType | MemoryHandleType] = [
    member for member in (*S, *M) if member.os_handle_kind is OsHandleKind.FD
]


def importing(
    device: Any, member: SemaphoreHandleType | MemoryHandleType, handle: Any, size: int = 1
) -> Callable[[], Any]:
    if isinstance(member, SemaphoreHandleType):
        desc = SemaphoreDesc(type=member, handle=handle)
        return lambda: device.import_semaphore(desc)
    memory = MemoryDesc(type=member, handle=handle, allocation_size=size)
    return lambda: device.import_memory(memory)


def named(member: SemaphoreHandleType | MemoryHandleType) -> str:
    return f"{type(member).__name__.removesuffix('HandleType')}-{member.name}"


@pytest.mark.parametrize("kind", KINDS_OF_FILE)
@pytest.mark.parametrize("member", FD_TYPES, ids=named)
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
    assert not driver.loud
    for number in files:
        os.close(number)


@pytest.mark.parametrize("member", FD_TYPES, ids=named)
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
@pytest.mark.parametrize("member", [S.OPAQUE_FD, S.TIMELINE_SEMAPHORE_FD, M.OPAQUE_FD], ids=named)
def test_host_refuses_fd_of_another_kind(
    device: Device, kind: str, member: SemaphoreHandleType | MemoryHandleType
) -> None:
    make, reason = KINDS_OF_FILE[kind]
    files = make()
    with untouched(*files):
        refused(importing(device, member, files[0]), reason, BadHandleError)
    for number in files:
        os.close(number)


@pytest.mark.parametrize("member", FD_TYPES, ids=named)
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


def page(magic: int = MAGIC, version: int = 1, kind: int = 2, size: int = 4096) -> bytes:
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
    "version 2": (lambda: memfd(page(version=2)), "wrong_version"),
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


# ---- types that the device does not declare
@pytest.mark.parametrize("member", [*S, *M], ids=named)
def test_a_type_that_host_does_not_declare_is_unsupported(
    device: Device, member: SemaphoreHandleType | MemoryHandleType
) -> None:
    if member in (S.OPAQUE_FD, S.TIMELINE_SEMAPHORE_FD):  # M.OPAQUE_FD equals S.OPAQUE_FD, and is also declared
        return
    kind = "semaphore" if isinstance(member, SemaphoreHandleType) else "memory"
    number = os.eventfd(0)
    with untouched(number):
        error = refused(importing(device, member, number), "unsupported", UnsupportedError)
    assert isinstance(error, UnsupportedError)
    assert error.capability == f"{kind}.import.{member.value}"
    assert error.backend == "host"
    os.close(number)
    create: Any = device.create_semaphore if kind == "semaphore" else lambda member: device.create_memory(member, 4096)
    error = refused(lambda: create(member), "unsupported", UnsupportedError)
    assert isinstance(error, UnsupportedError)
    assert error.capability == f"{kind}.export.{member.value}"


def test_import_is_unsupported_when_nothing_is_declared() -> None:
    device, driver = open_fake(xsem.Capabilities())
    number = os.eventfd(0)
    with device, untouched(number):
        for member in FD_TYPES:
            refused(importing(device, member, number), "unsupported", UnsupportedError)
    assert not driver.seen_handles
    os.close(number)


@pytest.mark.parametrize("wrong", [None, 5, "desc", object, {"type": S.OPAQUE_FD}], ids=repr)
def test_non_descriptor_is_refused(counted: Counted, wrong: Any) -> None:
    refused(lambda: counted.import_semaphore(wrong), "not_a_descriptor")
    refused(lambda: counted.import_memory(wrong), "not_a_descriptor")


def test_each_import_takes_its_own_descriptor(counted: Counted) -> None:
    number = os.eventfd(0)
    semaphore = SemaphoreDesc.opaque_fd(number, device_uuid=None)
    memory = MemoryDesc.opaque_fd(number, allocation_size=1, device_uuid=None)
    with untouched(number):
        refused(lambda: counted.import_semaphore(memory), "not_a_descriptor")
        refused(lambda: counted.import_memory(semaphore), "not_a_descriptor")
    os.close(number)


@pytest.mark.parametrize("wrong", ["opaque_fd", None, 1, S, M.OPAQUE_FD], ids=repr)
def test_create_semaphore_takes_a_member_of_the_enum(counted: Counted, wrong: Any) -> None:
    refused(lambda: counted.create_semaphore(wrong), "bad_type")


@pytest.mark.parametrize("wrong", ["opaque_fd", None, 1, M, S.OPAQUE_FD], ids=repr)
def test_create_memory_takes_a_member_of_the_enum(counted: Counted, wrong: Any) -> None:
    refused(lambda: counted.create_memory(wrong, 4096), "bad_type")


@pytest.mark.parametrize("wrong", [None, 0, 1, "False"])
def test_create_memory_takes_a_bool_for_dedicated(counted: Counted, wrong: Any) -> None:
    refused(lambda: counted.create_memory(M.OPAQUE_FD, 4096, dedicated=wrong), "not_a_bool")


# ---- devices
def test_open_device_refuses_unknown_backends_and_devices() -> None:
    refused(lambda: xsem.open_device("nonesuch"), "unknown_backend", BackendUnavailableError)
    refused(lambda: xsem.open_device("nonesuch:0"), "unknown_backend", BackendUnavailableError)
    error = refused(lambda: xsem.open_device("host:1"), "no_such_device", DeviceNotFoundError)
    assert isinstance(error, DeviceNotFoundError)
    assert [info.id for info in error.candidates] == ["host:0"]
    refused(lambda: xsem.open_device("host", uuid=ONE), "no_such_device", DeviceNotFoundError)
    refused(lambda: xsem.open_device("host", luid=b"12345678"), "no_such_device", DeviceNotFoundError)


# ---- device identity
def fake_with_uuids(info_uuid: uuid.UUID | None, driver_uuid: uuid.UUID | None = None) -> tuple[Device, FakeDriver]:
    info = DeviceInfo(id="fake:0", backend="fake", index=0, name="fake", uuid=info_uuid, driver_uuid=driver_uuid)
    return open_fake(info=info)


@pytest.mark.parametrize("member", [*S, *M], ids=named)
@pytest.mark.parametrize("info_uuid", [TWO, None], ids=["another", "none"])
def test_device_bound_import_from_another_device_is_refused(
    member: SemaphoreHandleType | MemoryHandleType, info_uuid: uuid.UUID | None
) -> None:
    device, driver = fake_with_uuids(info_uuid)
    number = holding(b"x") if member.os_handle_kind is OsHandleKind.FD else 0x40
    desc: Any = (
        SemaphoreDesc(type=member, handle=number, device_uuid=ONE)
        if isinstance(member, SemaphoreHandleType)
        else MemoryDesc(type=member, handle=number, device_uuid=ONE, allocation_size=1)
    )
    act: Any = device.import_semaphore if isinstance(member, SemaphoreHandleType) else device.import_memory
    with device:
        if member.device_bound:
            with untouched(*([number] if member.os_handle_kind is OsHandleKind.FD else [])):
                error = refused(lambda: act(desc), "wrong_device", WrongDeviceError)
            assert isinstance(error, WrongDeviceError)
            assert error.expected == str(ONE)
            assert "fake:0" in error.actual
            assert str(TWO if info_uuid else "no UUID") in error.actual
            assert error.handle_type is member
            assert error.backend == "fake"
            assert not driver.log
        else:
            act(desc).release()
    if member.os_handle_kind is OsHandleKind.FD:
        os.close(number)


def test_matching_or_missing_device_uuid_is_accepted() -> None:
    number = os.eventfd(0)
    for info_uuid, desc_uuid in ((ONE, ONE), (ONE, None), (None, None)):
        device, _ = fake_with_uuids(info_uuid)
        with device, untouched(number):
            device.import_semaphore(SemaphoreDesc.opaque_fd(number, device_uuid=desc_uuid)).release()
    os.close(number)


def test_import_from_another_driver_is_refused_when_both_known() -> None:
    number = os.eventfd(0)
    desc = SemaphoreDesc.opaque_fd(number, device_uuid=ONE, driver_uuid=ONE)
    device, _ = fake_with_uuids(ONE, TWO)
    with device, untouched(number):
        error = refused(lambda: device.import_semaphore(desc), "wrong_driver", WrongDeviceError)
        assert isinstance(error, WrongDeviceError)
        assert (error.expected, error.actual) == (str(ONE), str(TWO))
    for driver_uuid in (ONE, None):
        device, _ = fake_with_uuids(ONE, driver_uuid)
        with device, untouched(number):
            device.import_semaphore(desc).release()
    os.close(number)


def test_host_refuses_a_descriptor_of_a_gpu(device: Device) -> None:
    number = os.eventfd(0)
    with untouched(number):
        desc = SemaphoreDesc.opaque_fd(number, device_uuid=ONE)
        refused(lambda: device.import_semaphore(desc), "wrong_device", WrongDeviceError)
    os.close(number)


def test_export_for_another_device_is_refused_except_from_host(device: Device) -> None:
    here, _ = fake_with_uuids(ONE)
    there, _ = fake_with_uuids(TWO)
    with here, there:
        for made in (binary(here), here.create_memory(M.OPAQUE_FD, 1)):
            refused(lambda made=made: made.export(for_device=there), "wrong_device", WrongDeviceError)  # type: ignore[misc]
        for made in (binary(device), device.create_memory(M.OPAQUE_FD, 1)):
            with made.export(for_device=there) as desc:
                assert (desc.device_uuid, desc.driver_uuid) == (TWO, None)
            with made.export() as desc:
                assert (desc.device_uuid, desc.driver_uuid) == (None, None)


# ---- memory ranges
@pytest.mark.parametrize("size", [0, -1, 2**64, True, 1.0, "1", None])
def test_memory_of_no_size_is_refused(counted: Counted, size: Any) -> None:
    reason = "bad_size" if type(size) is int else "not_an_int"
    refused(lambda: counted.create_memory(M.OPAQUE_FD, size), reason)
    refused(lambda: counted.host_buffer(size), reason)


@pytest.mark.parametrize(
    ("offset", "size", "reason"),
    [
        (0, PAGE + 1, "out_of_range"),
        (1, PAGE, "out_of_range"),
        (PAGE - 1, 2, "out_of_range"),
        (PAGE, 1, "out_of_range"),
        (PAGE, None, "out_of_range"),
        (2**64 - 1, 2, "out_of_range"),
        (2**64 - 1, None, "out_of_range"),
        (0, 0, "bad_size"),
        (0, -1, "bad_size"),
        (0, 2**64, "bad_size"),
        (-1, 1, "bad_offset"),
        (2**64, 1, "bad_offset"),
        (True, 1, "not_an_int"),
        (0.0, 1, "not_an_int"),
        (0, True, "not_an_int"),
        (0, "1", "not_an_int"),
        (None, 1, "not_an_int"),
    ],
)
def test_a_range_beyond_the_allocation_is_refused(counted: Counted, offset: Any, size: Any, reason: str) -> None:
    memory = counted.create_memory(M.OPAQUE_FD, PAGE)
    assert memory.allocation_size == PAGE
    refused(lambda: memory.map_buffer(offset, size), reason)
    memory.map_buffer(0, PAGE).release()


def test_an_imported_range_ends_where_the_descriptor_says(device: Device) -> None:
    with device.create_memory(M.OPAQUE_FD, 4 * PAGE) as made, made.export() as desc:
        import dataclasses

        with device.import_memory(dataclasses.replace(desc, allocation_size=PAGE)) as memory:
            refused(lambda: memory.map_buffer(0, PAGE + 1), "out_of_range")
            refused(lambda: memory.map_buffer(PAGE), "out_of_range")


# ---- values
@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("binary", 1, "value_not_allowed"),
        ("binary", 0, "value_not_allowed"),
        ("binary", True, "value_not_allowed"),
        ("timeline", None, "value_required"),
        ("timeline", True, "not_an_int"),
        ("timeline", False, "not_an_int"),
        ("timeline", 1.0, "not_an_int"),
        ("timeline", "1", "not_an_int"),
        ("timeline", -1, "value_out_of_range"),
        ("timeline", 2**64, "value_out_of_range"),
    ],
)
def test_value_of_the_wrong_type_or_range_is_refused(counted: Counted, kind: str, value: Any, reason: str) -> None:
    semaphore = timeline(counted.device) if kind == "timeline" else binary(counted.device)
    commands = counted.create_command_list()
    for act in (commands.append_signal, commands.append_wait):
        refused(lambda act=act: act(semaphore, value), reason)  # type: ignore[misc]
    for act in (semaphore.host_signal, semaphore.host_wait):
        refused(lambda act=act: act(value), reason)  # type: ignore[misc]
    commands.synchronize()
    assert counted.pending() == ()


@pytest.mark.parametrize("kind", ["binary", "timeline"])
@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"key": 1}, "key_not_allowed"), ({"nvscisync_fence": 0x1000}, "fence_not_allowed"),
     ({"skip_nvscibuf_memsync": True}, "flag_not_allowed")],
    ids=str,
)
def test_parameters_of_another_kind_are_refused(
    counted: Counted, kind: str, fields: dict[str, Any], reason: str
) -> None:
    semaphore = timeline(counted.device) if kind == "timeline" else binary(counted.device)
    fields = {"value": 1 if kind == "timeline" else None, **fields}
    commands = counted.create_command_list()
    refused(lambda: commands.append_signal(semaphore, SignalParams(**fields)), reason)
    refused(lambda: commands.append_wait(semaphore, WaitParams(**fields)), reason)


def test_a_value_going_back_is_refused(counted: Counted) -> None:
    semaphore = timeline(counted.device)
    commands = counted.create_command_list()
    refused(lambda: commands.append_signal(semaphore, 0), "value_not_above_last")
    commands.append_signal(semaphore, 5)
    for value in (5, 4, 0):
        refused(lambda value=value: commands.append_signal(semaphore, value), "value_not_above_last")
        refused(lambda value=value: semaphore.host_signal(value), "value_not_above_last")
    commands.append_signal(semaphore, SignalParams(value=2, allow_rewind=True))
    commands.append_signal(semaphore, 3)


def test_bad_initial_values_are_refused(counted: Counted) -> None:
    refused(lambda: counted.create_semaphore(S.OPAQUE_FD, initial_value=1), "value_not_allowed")
    for value, reason in ((-1, "value_out_of_range"), (2**64, "value_out_of_range"), (True, "not_an_int")):
        refused(lambda value=value: counted.create_semaphore(  # type: ignore[misc]
            S.TIMELINE_SEMAPHORE_FD, initial_value=value), reason)


# ---- events, other devices, released objects
def test_an_event_that_is_not_appended_is_refused(counted: Counted) -> None:
    event = counted.create_event()
    commands = counted.create_command_list()
    semaphore = timeline(counted.device)
    acts: list[Callable[[], object]] = [
        event.query,
        lambda: event.wait(timeout_s=0),
        lambda: event.add_done_callback(print),
        lambda: commands.append_wait(semaphore, 1, wait_events=[event]),
        lambda: commands.append_signal(semaphore, 1, wait_events=[event]),
        lambda: commands.append_barrier(wait_events=[event]),
    ]
    for act in acts:
        refused(act, "event_not_appended", EventNotAppendedError)
    # The refused signal has not advanced the value.
    commands.append_signal(semaphore, 1, signal_event=event)


def test_objects_of_another_device_are_refused(counted: Counted) -> None:
    with faked() as (other, _):
        theirs, ours = timeline(other), timeline(counted.device)
        commands, their_list = counted.create_command_list(), other.create_command_list()
        event = other.create_event()
        their_list.append_barrier(signal_event=event)
        memory = other.create_memory(M.OPAQUE_FD, 4096)
        mine = counted.create_memory(M.OPAQUE_FD, 4096).map_buffer()
        acts: list[Callable[[], object]] = [
            lambda: commands.append_wait(theirs, 1),
            lambda: commands.append_signal(theirs, 1),
            lambda: commands.append_wait([ours, theirs], [1, 1]),
            lambda: commands.append_signal([ours, theirs], [1, 1]),
            lambda: commands.append_wait(ours, 1, wait_events=[event]),
            lambda: commands.append_signal(ours, 1, wait_events=[event]),
            lambda: commands.append_signal(ours, 1, signal_event=event),
            lambda: commands.append_barrier(signal_event=event),
            lambda: commands.append_wait(ours, 1, acquire=[memory]),
            lambda: commands.append_signal(ours, 1, release=[memory]),
            lambda: commands.append_copy(memory.map_buffer(overlap=True), mine),
            lambda: commands.append_copy(mine, memory.map_buffer(overlap=True)),
            lambda: commands.append_fill(memory.map_buffer(overlap=True), b"\0"),
        ]
        for act in acts:
            error = refused(act, "wrong_device", WrongDeviceError)
            assert isinstance(error, WrongDeviceError)
            assert error.expected == counted.info.id
            assert error.actual == "fake:0"
        commands.append_signal(ours, 1)


def test_released_objects_are_refused(counted: Counted) -> None:
    commands = counted.create_command_list()
    semaphore, event = timeline(counted.device), counted.create_event()
    memory = counted.create_memory(M.OPAQUE_FD, PAGE)
    buffer = memory.map_buffer()
    commands.append_barrier(signal_event=event)
    if counted.driver is not None:
        counted.driver.lists[0].reach_all()
    kept = timeline(counted.device)
    for each in (buffer, semaphore, memory, event):
        each.release()
        each.release()
        assert each.released
    acts: list[Callable[[], object]] = [
        lambda: semaphore.export(),
        lambda: semaphore.value(),
        lambda: semaphore.host_signal(1),
        lambda: semaphore.host_wait(1, timeout_s=0),
        lambda: semaphore.mark_reset(),
        lambda: semaphore.native_handle,
        lambda: semaphore.__enter__(),
        lambda: commands.append_wait(semaphore, 1),
        lambda: commands.append_signal([kept, semaphore], [1, 1]),
        lambda: commands.append_wait(kept, 1, acquire=[memory]),
        lambda: commands.append_wait(kept, 1, wait_events=[event]),
        lambda: commands.append_barrier(signal_event=event),
        lambda: commands.append_fill(buffer, b"\0"),
        lambda: memory.export(),
        lambda: memory.map_buffer(),
        lambda: memory.map_mipmapped_array(xsem.MipmapDesc(extent=(1, 0, 0), format="uint8", channels=1)),
        lambda: buffer.view((1,), "uint8"),
        lambda: buffer.numpy(),
        lambda: buffer.copy_to_host(),
        lambda: buffer.copy_from_host([0]),
        lambda: buffer.__dlpack__(),
        lambda: buffer.__dlpack_device__(),
        lambda: event.query(),
        lambda: event.wait(timeout_s=0),
        lambda: event.reset(),
        lambda: event.add_done_callback(print),
    ]
    for number, act in enumerate(acts):
        with pytest.raises(ReleasedError) as caught:
            act()
            pytest.fail(f"act {number} was not refused")
        assert caught.value.reason == "released"
    commands.release()
    for act in (lambda: commands.append_barrier(), lambda: commands.query(), lambda: commands.synchronize(),
                lambda: commands.record(), lambda: commands.append_work(print)):
        refused(act, "released", ReleasedError)
    counted.device.release()
    for act in (lambda: counted.create_command_list(), lambda: counted.create_event(), lambda: counted.pending(),
                lambda: counted.host_buffer(1), lambda: counted.create_semaphore(S.OPAQUE_FD),
                lambda: counted.create_memory(M.OPAQUE_FD, 1), lambda: counted.event(threading.Event()),
                lambda: counted.command_list(FakeStream(5)), lambda: counted.watch(after_s=1), lambda: kept.value()):
        refused(act, "released", ReleasedError)


@pytest.mark.parametrize(
    ("stream", "reason"),
    [(0, "null_stream"), (-1, "not_a_stream"), (True, "not_a_stream"), (2**64, "not_a_stream"), (1.0, "not_a_stream"),
     ("stream", "not_a_stream"), (None, "not_a_stream"), (object(), "not_a_stream")],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_non_stream_is_refused(counted: Counted, stream: Any, reason: str) -> None:
    refused(lambda: counted.command_list(stream), reason)


def test_batch_with_one_bad_member_appends_nothing() -> None:
    with faked() as (device, driver):
        good, bad, kept = timeline(device), timeline(device), binary(device)
        commands = device.create_command_list()
        commands.append_signal(bad, 7)
        calls = list(driver.lists[0].calls)
        for params, reason in (
            ([1, 7], "value_not_above_last"), ([1, None], "value_required"), ([1, True], "not_an_int"),
            ([1, SignalParams(key=1)], "value_required"), ([1], "params_mismatch"), ([1, 8, 9], "params_mismatch"),
        ):
            refused(lambda params=params: commands.append_signal([good, bad], params), reason)
        refused(lambda: commands.append_signal([good, kept], [1, 1]), "value_not_allowed")
        refused(lambda: commands.append_signal([good, good], [1, 2]), "duplicate_semaphore")
        refused(lambda: commands.append_signal([], []), "empty_batch")
        refused(lambda: commands.append_signal([good, 5], [1, 1]), "not_a_semaphore")
        assert driver.lists[0].calls == calls
        # No value was recorded: 1 is still above the last value of the good semaphore.
        commands.append_signal([good, bad], [1, 8])


# ---- refusals of the driver
class Scripted(FakeDriver):
    """Each import calls `act` with its duplicate."""

    def __init__(self, act: Callable[[OwnedHandle], object]) -> None:
        super().__init__(ALL)
        self.act = act

    def _import(self, what: str, desc: SemaphoreDesc | MemoryDesc, handle: OwnedHandle | None) -> int:
        assert handle is not None
        self.act(handle)
        return super()._import(what, desc, handle)


class RefusedError(BadHandleError):
    """An error as a driver raises it."""

    def __init__(self) -> None:
        super().__init__("refused", reason="driver_refused", call="fakeImport", code=999, code_name="FAKE_UNKNOWN")


def _close(handle: OwnedHandle) -> None:
    os.close(handle.fileno())


def _nothing(handle: OwnedHandle) -> None:
    pass


def _detach_and_close(handle: OwnedHandle) -> None:
    os.close(handle.detach())


FATES: dict[str, tuple[str, Callable[[OwnedHandle], object]]] = {
    "taken: closed by the driver": ("taken", _close),
    "taken: detached and closed": ("taken", _detach_and_close),
    "left": ("left", _nothing),
    "unknown: still open": ("unknown", _nothing),
    "unknown: closed": ("unknown", _close),
}


@pytest.mark.parametrize("member", FD_TYPES, ids=named)
@pytest.mark.parametrize("fate", FATES)
def test_refusal_of_the_driver_leaks_no_handle(fate: str, member: SemaphoreHandleType | MemoryHandleType) -> None:
    said: Any
    said, act = FATES[fate]

    def importer(handle: OwnedHandle) -> None:
        number = handle.fileno()
        assert same_open_file(number, given)
        assert number != given
        act(handle)
        raise ImportFailure(RefusedError(), fate=said)

    driver = Scripted(importer)
    device = Device(INFO, driver)
    given = holding(b"x")
    with device, untouched(given):
        error = refused(importing(device, member, given), "driver_refused", RefusedError)
        assert error.handle_type is member
        assert error.backend == "fake"
        assert (error.call, error.code, error.code_name) == ("fakeImport", 999, "FAKE_UNKNOWN")
        assert device.pending() == ()
    os.close(given)


def test_failed_import_does_not_close_a_reused_number() -> None:
    other = holding(b"another's")

    def importer(handle: OwnedHandle) -> None:
        os.dup2(other, handle.fileno(), inheritable=False)
        reused.append(handle.fileno())
        raise ImportFailure(RefusedError(), fate="unknown")

    reused: list[int] = []
    device = Device(INFO, Scripted(importer))
    given = os.eventfd(0)
    with device:
        refused(importing(device, S.OPAQUE_FD, given), "driver_refused", RefusedError)
    assert os.pread(reused[0], 99, 0) == b"another's"
    for number in (*reused, given, other):
        os.close(number)


def test_import_is_released_when_device_is_released_meanwhile() -> None:
    # The device was released during the driver's import, so the driver gets the new object back.
    given = os.eventfd(0)
    scripted = Scripted(lambda handle: late.release())
    late = Device(INFO, scripted)
    with untouched(given):
        refused(importing(late, S.OPAQUE_FD, given), "released", ReleasedError)
    until(lambda: ("close",) in scripted.log)
    assert len(scripted.released("import_semaphore")) == 1
    assert scripted.released("release_semaphore") == scripted.released("import_semaphore")
    os.close(given)


# ---- the storm
class Storm:
    """Opens, reads and closes its own files as fast as possible; each file has unique content."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lost: list[str] = []
        self.count = 0
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._run, name="storm")

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop.set()
        self.thread.join()

    def _run(self) -> None:
        held: list[tuple[int, bytes]] = []
        try:
            while not self.stop.is_set():
                self.count += 1
                data = f"file {self.count}".encode()
                number = os.open(self.folder / str(self.count % 16), os.O_RDWR | os.O_CREAT | os.O_EXCL)
                os.unlink(self.folder / str(self.count % 16))
                os.pwrite(number, data, 0)
                held.append((number, data))
                if len(held) == 8:
                    self._check(*held.pop(self.count % 8))
        except OSError as error:
            self.lost.append(f"while opening: {error}")
        for each in held:
            self._check(*each)

    def _check(self, number: int, data: bytes) -> None:
        try:
            if (found := os.pread(number, 99, 0)) != data:
                self.lost.append(f"{number} held {found!r}, not {data!r}")
            os.close(number)
        except OSError as error:
            self.lost.append(f"{number}: {error}")


@pytest.mark.timeout(60)
def test_failed_imports_in_four_threads_leak_no_handle(tmp_path: Path) -> None:
    turn = threading.local()
    wrong: list[str] = []
    given = holding(b"the caller's")

    def importer(handle: OwnedHandle) -> None:
        # The number must name the same file while this import owns it, also during the imports of other threads.
        number = handle.fileno()
        for _ in range(3):
            os.sched_yield()
            if os.pread(number, 99, 0) != b"the caller's":
                wrong.append(f"{number} is another's")
        turn.count = getattr(turn, "count", 0) + 1
        fate: Any
        fate, act = list(FATES.values())[turn.count % len(FATES)]
        act(handle)
        os.sched_yield()
        raise ImportFailure(RefusedError(), fate=fate)

    device = Device(INFO, Scripted(importer))
    pipe = os.pipe()
    seen: dict[str, int] = {}
    lock = threading.Lock()

    def imports(thread: int) -> None:
        gone = 2**20 + thread
        sem = SemaphoreDesc.opaque_fd(given, device_uuid=None)
        acts: list[Callable[[], object]] = [
            lambda: device.import_semaphore(sem),
            lambda: device.import_semaphore(SemaphoreDesc.opaque_fd(pipe[0], device_uuid=None)),
            lambda: device.import_memory(MemoryDesc.dmabuf_fd(given, allocation_size=4)),
            lambda: device.import_memory(MemoryDesc.dmabuf_fd(gone, allocation_size=4)),
            lambda: device.import_semaphore(sem),
            lambda: device.import_semaphore(SemaphoreDesc.opaque_fd(given, device_uuid=ONE)),
            lambda: device.import_memory(MemoryDesc.opaque_fd(given, allocation_size=4, device_uuid=None)),
            lambda: device.import_memory(MemoryDesc.opaque_fd(given, allocation_size=4096, device_uuid=None)),
        ]
        for number in range(250):
            try:
                acts[number % len(acts)]()
            except XsemError as error:
                with lock:
                    seen[error.reason] = seen.get(error.reason, 0) + 1

    def run(thread: int) -> None:
        try:
            imports(thread)
        except BaseException as error:
            wrong.append(repr(error))

    with device, ExitStack() as stack:
        stack.callback(os.close, given)
        for number in pipe:
            stack.callback(os.close, number)
        with untouched(given, *pipe), Storm(tmp_path) as storm:
            threads = [threading.Thread(target=run, args=(thread,)) for thread in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert not storm.lost
        assert not wrong
        assert storm.count > 100
        assert sum(seen.values()) == 1000
        assert seen.pop("driver_refused") == 500
        assert set(seen) == {"fd_is_pipe", "closed_fd", "wrong_device", "allocation_size_beyond_file"}
        assert is_open(given)
