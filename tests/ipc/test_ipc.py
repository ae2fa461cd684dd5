"""Descriptors over Unix sockets: messages that arrive, refusals, and no lost or leaked file descriptor."""

from __future__ import annotations

import fcntl
import os
import resource
import socket
import threading
import uuid
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.at_once import ctrl_c_in
from support.open_files import numbers
from support.wire_messages import BAD, header, one, raw, record

import xsem
from xsem import ipc
from xsem.ipc import wire
from xsem.spi import same_open_file
from xsem.types import MemoryDesc, MemoryHandleType, OwnedHandle, SemaphoreDesc, SemaphoreHandleType

DEVICE = uuid.UUID(int=0x0102030405060708090A0B0C0D0E0F10)
DRIVER = uuid.UUID(int=0x11)
STREAM, PACKET = socket.SOCK_STREAM, socket.SOCK_SEQPACKET

pytestmark = pytest.mark.usefixtures("no_leak")


def all_descs(fds: list[int]) -> list[SemaphoreDesc | MemoryDesc]:
    return [
        SemaphoreDesc.opaque_fd(fds[0], device_uuid=DEVICE, driver_uuid=DRIVER),
        MemoryDesc.opaque_fd(fds[1], allocation_size=2**40 + 7, device_uuid=DEVICE, dedicated=True),
        SemaphoreDesc.timeline_fd(fds[2], device_uuid=None),
        SemaphoreDesc.sync_fd(-1),
        MemoryDesc.dmabuf_fd(fds[3], allocation_size=1),
        SemaphoreDesc.sync_fd(fds[0]),
    ]


def test_descriptors_arrive_in_order_as_owned_cloexec_handles(
    pair: tuple[socket.socket, socket.socket], fds: list[int]
) -> None:
    sent = all_descs(fds)
    ipc.send(pair[0], *sent, payload=b"\0payload\xff")
    with ipc.receive(pair[1]) as message:
        semaphores = [desc for desc in sent if isinstance(desc, SemaphoreDesc)]
        memories = [desc for desc in sent if isinstance(desc, MemoryDesc)]
        got: list[SemaphoreDesc | MemoryDesc] = [*message.semaphores, *message.memories]
        wanted: list[SemaphoreDesc | MemoryDesc] = [*semaphores, *memories]
        for ours, theirs in zip(wanted, got, strict=True):
            assert theirs.type == ours.type
            assert (theirs.device_uuid, theirs.driver_uuid) == (ours.device_uuid, ours.driver_uuid)
            if isinstance(ours, MemoryDesc) and isinstance(theirs, MemoryDesc):
                assert (theirs.allocation_size, theirs.dedicated) == (ours.allocation_size, ours.dedicated)
            if ours.handle == -1:
                assert theirs.handle == -1
                continue
            assert isinstance(theirs.handle, OwnedHandle)
            assert isinstance(ours.handle, int)
            assert same_open_file(theirs.handle.fileno(), ours.handle)
            assert fcntl.fcntl(theirs.handle.fileno(), fcntl.F_GETFD) & fcntl.FD_CLOEXEC
        assert message.payload == b"\0payload\xff"
    for fd in fds:
        os.fstat(fd)


def test_messages_stay_separate(pair: tuple[socket.socket, socket.socket], fds: list[int]) -> None:
    for number, fd in enumerate(fds):
        ipc.send(pair[0], SemaphoreDesc.opaque_fd(fd, device_uuid=None), payload=bytes([number]))
    ipc.send(pair[0])
    for number, fd in enumerate(fds):
        with ipc.receive(pair[1]) as message:
            assert message.payload == bytes([number])
            handle = message.semaphores[0].handle
            assert isinstance(handle, OwnedHandle)
            assert same_open_file(handle.fileno(), fd)
    assert ipc.receive(pair[1]) == ipc.Message(semaphores=(), memories=(), payload=b"")


def test_largest_message_goes_through_while_the_reader_reads(
    pair: tuple[socket.socket, socket.socket], fds: list[int]
) -> None:
    descs = [SemaphoreDesc.opaque_fd(fds[0], device_uuid=None)] * wire.MAX_DESCRIPTORS
    sender = threading.Thread(target=ipc.send, args=(pair[0], *descs), kwargs={"payload": b"x" * 65536})
    sender.start()
    with ipc.receive(pair[1]) as message:
        assert len(message.semaphores) == 128
        assert message.payload == b"x" * 65536
    sender.join()


# ---- refusals before anything is sent
@pytest.mark.parametrize(
    "desc",
    [
        SemaphoreDesc.d3d12_fence(5), SemaphoreDesc.opaque_win32(name="n", device_uuid=None),
        SemaphoreDesc.opaque_win32_kmt(5, device_uuid=None), SemaphoreDesc.nvscisync(64),
        MemoryDesc.d3d12_resource(5, allocation_size=1), MemoryDesc.nvscibuf(64, allocation_size=1),
    ],
    ids=lambda desc: desc.type.value,
)
def test_process_local_handle_is_refused(
    pair: tuple[socket.socket, socket.socket], desc: SemaphoreDesc
) -> None:
    with pytest.raises(xsem.UnsupportedError):
        ipc.send(pair[0], desc)
    nothing_came(pair[1])


def nothing_came(sock: socket.socket) -> None:
    with pytest.raises(BlockingIOError):
        sock.recv(1, socket.MSG_DONTWAIT)


def test_bad_arguments_of_send_are_refused_before_sending(
    pair: tuple[socket.socket, socket.socket], fds: list[int]
) -> None:
    closed = os.dup(fds[0])
    os.close(closed)
    good = SemaphoreDesc.opaque_fd(fds[0], device_uuid=None)
    gone = OwnedHandle(os.dup(fds[0]))
    gone.close()
    cases: list[tuple[type[Exception], str, Callable[[], None]]] = [
        (xsem.BadHandleError, "closed_fd", lambda: ipc.send(pair[0], good, SemaphoreDesc.sync_fd(closed))),
        (xsem.ReleasedError, "handle_closed", lambda: ipc.send(pair[0], SemaphoreDesc.sync_fd(gone))),
        (xsem.BadArgumentError, "not_a_descriptor", lambda: ipc.send(pair[0], good, 3)),  # type: ignore[arg-type]
        (xsem.BadArgumentError, "too_many_descriptors", lambda: ipc.send(pair[0], *[good] * 129)),
        (xsem.BadArgumentError, "payload_too_long", lambda: ipc.send(pair[0], payload=b"x" * 65537)),
        (xsem.BadArgumentError, "bad_payload", lambda: ipc.send(pair[0], payload="text")),  # type: ignore[arg-type]
    ]
    for error, reason, call in cases:
        with pytest.raises(error) as failure:
            call()
        assert isinstance(failure.value, xsem.XsemError)
        assert failure.value.reason == reason
        nothing_came(pair[1])


@pytest.mark.parametrize(("family", "type"), [(socket.AF_UNIX, socket.SOCK_DGRAM), (socket.AF_INET, STREAM)])
def test_socket_that_cannot_carry_descriptors_is_refused(family: int, type: int) -> None:
    with socket.socket(family, type) as sock:
        for call in (lambda: ipc.send(sock), lambda: ipc.receive(sock), lambda: ipc.receive_fds(sock, 1, 1)):
            with pytest.raises(xsem.BadArgumentError) as failure:
                call()
            assert failure.value.reason == "not_a_unix_socket"


# ---- wrong messages
@pytest.mark.parametrize("case", BAD)
def test_bad_message_is_refused_and_its_fds_closed(
    pair: tuple[socket.socket, socket.socket], fds: list[int], case: str
) -> None:
    data, count, reason = BAD[case]
    raw(pair[0], data, fds[:count])
    before = numbers()
    with pytest.raises(xsem.XsemError) as failure:
        ipc.receive(pair[1], timeout_s=5)
    assert failure.value.reason == reason
    assert numbers() == before


def test_end_of_the_stream_between_and_within_messages(stream: tuple[socket.socket, socket.socket]) -> None:
    a, b = stream
    a.close()
    with pytest.raises(xsem.BadArgumentError) as failure:
        ipc.receive(b)
    assert failure.value.reason == "peer_closed"
    a, b = socket.socketpair()
    with a, b:
        a.send(header()[:10])
        a.close()
        with pytest.raises(xsem.BadArgumentError) as failure:
            ipc.receive(b)
        assert failure.value.reason == "truncated_message"


def test_timeout_between_messages_leaves_the_stream_usable(pair: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(xsem.WaitTimeoutError):
        ipc.receive(pair[1], timeout_s=0)
    ipc.send(pair[0], payload=b"late")
    assert ipc.receive(pair[1]).payload == b"late"


def test_timeout_within_a_message_ends_the_stream(
    stream: tuple[socket.socket, socket.socket], fds: list[int]
) -> None:
    data = one(record())
    raw(stream[0], data[:40], fds[:1])
    with pytest.raises(xsem.WaitTimeoutError):
        ipc.receive(stream[1], timeout_s=0.05)
    with pytest.raises(BrokenPipeError):
        stream[0].send(data[40:])
    with pytest.raises(xsem.BadArgumentError) as failure:
        ipc.receive(stream[1])
    assert failure.value.reason == "peer_closed"


def test_sender_byte_by_byte_is_understood(stream: tuple[socket.socket, socket.socket], fds: list[int]) -> None:
    data = one(record(), fds=1)

    def trickle() -> None:
        raw(stream[0], data[:1], fds[:1])
        for index in range(1, len(data)):
            stream[0].send(data[index : index + 1])

    sender = threading.Thread(target=trickle)
    sender.start()
    with ipc.receive(stream[1]) as message:
        assert message.semaphores[0].type is SemaphoreHandleType.OPAQUE_FD
    sender.join()


def test_fds_attached_to_a_later_part_are_counted(
    stream: tuple[socket.socket, socket.socket], fds: list[int]
) -> None:
    data = one(record(), fds=1)
    raw(stream[0], data[:40], fds[:1])
    raw(stream[0], data[40:], fds[1:3])
    with pytest.raises(xsem.BadHandleError) as failure:
        ipc.receive(stream[1])
    assert failure.value.reason == "fd_count"


def test_fds_lost_to_the_process_limit_are_an_error(
    pair: tuple[socket.socket, socket.socket], fds: list[int]
) -> None:
    ipc.send(pair[0], *all_descs(fds))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = numbers()
    free = [number for number in range(1000) if number not in used]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[2], hard))  # room for two of the five descriptors
    try:
        with pytest.raises(xsem.BadHandleError) as failure:
            ipc.receive(pair[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert failure.value.reason == "fds_truncated"


def test_received_credentials_are_ignored(pair: tuple[socket.socket, socket.socket], fds: list[int]) -> None:
    so_passcred = 16
    pair[1].setsockopt(socket.SOL_SOCKET, so_passcred, 1)
    ipc.send(pair[0], SemaphoreDesc.opaque_fd(fds[0], device_uuid=None), payload=b"p")
    with ipc.receive(pair[1]) as message:
        assert len(message.semaphores) == 1


def test_full_socket_times_out_and_a_partial_send_ends_it(
    stream: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ipc.sockets, "DEFAULT_TIMEOUT_S", 0.2)
    stream[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with pytest.raises(xsem.WaitTimeoutError):
        while True:
            ipc.send(stream[0], payload=b"x" * 60000)
    with pytest.raises(BrokenPipeError):
        stream[0].send(b"x")


def test_closed_peer_is_an_error_not_a_signal(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[1].close()
    with pytest.raises(xsem.BadArgumentError) as failure:
        ipc.send(pair[0], payload=b"x")
    assert failure.value.reason == "peer_closed"
    assert isinstance(failure.value.__cause__, BrokenPipeError)


def test_ctrl_c_works_inside_receive(pair: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(KeyboardInterrupt), ctrl_c_in("receive"):
        ipc.receive(pair[1], timeout_s=None)


@given(data=st.binary(max_size=300), with_header=st.booleans(), count=st.integers(0, 3))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_crash_the_receiver_or_leak(data: bytes, with_header: bool, count: int) -> None:
    made = [os.memfd_create("fuzz") for _ in range(count)]
    before = numbers()
    for type in (STREAM, PACKET):
        a, b = socket.socketpair(socket.AF_UNIX, type)
        with a, b:
            content = header(total=32 + len(data), payload=len(data), fds=0) + data if with_header else data
            raw(a, content or b"\0", made)
            a.close()
            try:
                ipc.receive(b, timeout_s=5).close()
            except xsem.XsemError as error:
                assert error.reason  # noqa: PT017
    assert numbers() == before
    for fd in made:
        os.close(fd)


# ---- senders without xsem
def test_receive_fds_accepts_any_sender(
    pair: tuple[socket.socket, socket.socket], fds: list[int]
) -> None:
    raw(pair[0], b"\1\2\3", fds[:2])
    data, handles = ipc.receive_fds(pair[1], 16, 2)
    assert data == b"\1\2\3"
    for handle, fd in zip(handles, fds, strict=False):
        assert same_open_file(handle.fileno(), fd)
        assert fcntl.fcntl(handle.fileno(), fcntl.F_GETFD) & fcntl.FD_CLOEXEC
        handle.close()


def test_receive_fds_refuses_more_than_expected_and_closes_them(
    pair: tuple[socket.socket, socket.socket], fds: list[int]
) -> None:
    for count in (2, 4):
        raw(pair[0], b"x", fds[:count])
        before = numbers()
        with pytest.raises(xsem.BadHandleError):
            ipc.receive_fds(pair[1], 16, 1)
        assert numbers() == before
        if pair[0].type == STREAM:
            return  # shut down: the rest of that message cannot be distinguished from the next message


def test_receive_fds_end_and_truncation(fds: list[int]) -> None:
    a, b = socket.socketpair(socket.AF_UNIX, PACKET)
    with a, b:
        raw(a, b"12345", fds[:1])
        with pytest.raises(xsem.BadArgumentError) as failure:
            ipc.receive_fds(b, 3, 1)
        assert failure.value.reason == "message_truncated"
        a.close()
        with pytest.raises(xsem.BadArgumentError) as failure:
            ipc.receive_fds(b, 3, 1)
        assert failure.value.reason == "peer_closed"


@pytest.mark.parametrize(("size", "count"), [(0, 1), (-1, 1), (True, 1), (1, 254), (1, -1), (2**31, 1)])
def test_receive_fds_checks_its_limits(size: int, count: int) -> None:
    a, b = socket.socketpair()
    with a, b, pytest.raises(xsem.BadArgumentError):
        ipc.receive_fds(b, size, count)


def test_wire_numbers_never_change() -> None:
    assert wire.SEMAPHORE_NUMBERS == {
        SemaphoreHandleType.OPAQUE_FD: 1, SemaphoreHandleType.TIMELINE_SEMAPHORE_FD: 9, SemaphoreHandleType.SYNC_FD: 11,
        SemaphoreHandleType.HOST_TIMELINE_FD: 128,
    }
    assert wire.MEMORY_NUMBERS == {
        MemoryHandleType.OPAQUE_FD: 1, MemoryHandleType.DMABUF_FD: 9, MemoryHandleType.HOST_MEMORY_FD: 128,
    }


def test_message_has_these_bytes_on_the_wire(fds: list[int]) -> None:
    data = wire.encode([MemoryDesc.opaque_fd(fds[0], allocation_size=0x1122, device_uuid=DEVICE, dedicated=True)],
                       [True], b"pay")
    assert data == (
        b"XSEM\1\0\x20\0\x63\0\0\0\1\0\1\0\3\0\0\0" + bytes(12)
        + b"\2\1\x0d\0" + bytes(4) + b"\x22\x11" + bytes(6) + bytes(range(1, 17)) + bytes(16) + bytes(16) + b"pay"
    )
