"""`ipc.pack` and `ipc.unpack`: the bytes of a message, and the owners of its file descriptors."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.fixtures import reason_of
from support.open_files import closed_number, is_open, numbers

import xsem
from xsem import ipc
from xsem.spi import same_open_file
from xsem.types import MemoryDesc, OwnedHandle, SemaphoreDesc

pytestmark = pytest.mark.usefixtures("no_leak")


def test_file_descriptors_come_from_any_iterable(fds: list[int]) -> None:
    data, given = ipc.pack(message_of(fds))
    with ipc.unpack(data, (os.dup(fd) for fd in given)) as message:  # type: ignore[arg-type]
        assert [is_open(each.handle.fileno()) for each in message.memories] == [True]  # type: ignore[union-attr]


def message_of(fds: list[int]) -> ipc.Message:
    return ipc.Message(
        semaphores=(SemaphoreDesc.timeline_fd(fds[0], device_uuid=bytes(range(16))), SemaphoreDesc.sync_fd(-1)),
        memories=(MemoryDesc.dmabuf_fd(fds[1], allocation_size=4096),), payload=b"640x480")


def test_message_crosses_a_channel_of_the_application(fds: list[int]) -> None:
    near, far = socket.socketpair()
    with near, far:
        data, packed = ipc.pack(message_of(fds))
        assert packed == fds[:2]
        socket.send_fds(near, [data], packed)
        data, received, _, _ = socket.recv_fds(far, 1 << 17, 64)
        with ipc.unpack(bytearray(data), received) as message:
            timeline, sync = message.semaphores
            for desc, fd, number in ((timeline, fds[0], received[0]), (message.memories[0], fds[1], received[1])):
                assert isinstance(desc.handle, OwnedHandle)
                assert desc.handle.fileno() == number
                assert same_open_file(number, fd)
                assert not os.get_inheritable(number)
            assert (timeline.device_uuid, sync.handle, message.payload) == (
                message_of(fds).semaphores[0].device_uuid, -1, b"640x480")
        assert not any(map(is_open, received))


def test_bytes_of_pack_are_those_of_send(fds: list[int]) -> None:
    message = message_of(fds)
    near, far = socket.socketpair()
    with near, far:
        ipc.send(near, *message.semaphores, *message.memories, payload=message.payload)
        data, handles = ipc.receive_fds(far, 1 << 17, 64)
        assert data == ipc.pack(message)[0]
        with ipc.unpack(data, handles) as received:
            assert all(handle.closed for handle in handles)
            assert received.payload == b"640x480"


def test_pack_borrows_and_refuses_as_send_does(fds: list[int]) -> None:
    closed = SemaphoreDesc.opaque_fd(closed_number(), device_uuid=None)
    for desc, reason in ((closed, "closed_fd"), (SemaphoreDesc.d3d12_fence(5), "unsupported")):
        assert reason_of(lambda: ipc.pack(ipc.Message(semaphores=(desc,), memories=(), payload=b""))) == reason  # noqa: B023
    assert reason_of(lambda: ipc.pack(b"")) == "not_a_message"  # type: ignore[arg-type]
    assert all(map(is_open, fds))


@pytest.mark.parametrize(("reason", "change"), [
    ("bad_magic", lambda data, fds: (b"xsem" + data[4:], fds)),
    ("bad_version", lambda data, fds: (data[:4] + b"\xff" + data[5:], fds)),
    ("bad_message", lambda data, fds: (data[:-1], fds)),
    ("bad_message", lambda data, fds: (data + b"\0", fds)),
    ("bad_message", lambda data, fds: (data + bytes(1 << 17), fds)),
    ("bad_message", lambda _data, fds: (b"", fds)),
    ("bad_payload", lambda _data, fds: ("text", fds)),
    ("fd_count", lambda data, fds: (data, fds[:1])),
    ("fd_count", lambda data, fds: (data, [*fds, *os.pipe()[:1]])),
    ("duplicate_fd", lambda data, fds: (data, [fds[0], fds[0]])),
    ("negative_fd", lambda data, fds: (data, [fds[0], -1])),
    ("closed_fd", lambda data, fds: (data, [fds[0], closed_number()])),
    ("not_an_int", lambda data, fds: (data, [fds[0], "1"])),
    ("not_an_int", lambda data, fds: (data, [fds[0], True])),
])
def test_refused_message_leaves_every_descriptor_to_the_caller(
    fds: list[int], reason: str, change: Callable[[bytes, list[int]], tuple[bytes, list[int]]]
) -> None:
    data, packed = ipc.pack(message_of(fds))
    before = numbers()
    changed, given_fds = change(data, packed)
    made = numbers() - before
    assert reason_of(lambda: ipc.unpack(changed, given_fds)) == reason
    assert all(map(is_open, fds))
    for number in made:
        os.close(number)


def test_refused_message_leaves_owned_handles_open(fds: list[int]) -> None:
    data, packed = ipc.pack(message_of(fds))
    owned = [OwnedHandle(os.dup(fd)) for fd in packed]
    assert reason_of(lambda: ipc.unpack(data[:-1], owned)) == "bad_message"
    assert not any(handle.closed for handle in owned)
    owned[1].close()
    assert reason_of(lambda: ipc.unpack(data, owned)) == "handle_closed"
    assert not owned[0].closed
    owned[0].close()


@given(data=st.binary(max_size=200), position=st.integers(0, 300), whole=st.booleans())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_crash_unpack_or_lose_a_descriptor(fds: list[int], data: bytes, position: int, whole: bool) -> None:
    good, packed = ipc.pack(message_of(fds))
    changed = data if whole else good[:position] + data + good[position + len(data) :]
    owned = [OwnedHandle(os.dup(fd)) for fd in packed]
    try:
        with ipc.unpack(changed, owned):
            assert all(handle.closed for handle in owned)
    except xsem.XsemError:
        assert not any(handle.closed for handle in owned)
    for handle in owned:
        handle.close()
