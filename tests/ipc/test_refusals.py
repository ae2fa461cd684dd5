"""Errors of a socket, a peer or a caller in `xsem.ipc`: an error of xsem's tree, and no descriptor lost."""

from __future__ import annotations

import array
import asyncio
import errno
import os
import resource
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from support.fixtures import refused
from support.open_files import numbers

import xsem
from xsem import ipc
from xsem.ipc import received_handles
from xsem.ipc.sockets import Receiver
from xsem.spi import same_open_file
from xsem.types import OwnedHandle, SemaphoreDesc

Pair = tuple[socket.socket, socket.socket]
STREAM, PACKET = socket.SOCK_STREAM, socket.SOCK_SEQPACKET
KINDS = pytest.mark.parametrize("kind", [STREAM, PACKET], ids=["stream", "seqpacket"])
SO_PASSPIDFD, SCM_PIDFD, SCM_CREDENTIALS = 76, 4, 2

pytestmark = pytest.mark.usefixtures("no_leak")


@pytest.fixture
def packets() -> Iterator[Pair]:
    a, b = socket.socketpair(socket.AF_UNIX, PACKET)
    with a, b:
        yield a, b


def desc(fd: Any) -> SemaphoreDesc:
    return SemaphoreDesc.opaque_fd(fd, device_uuid=None)


def raw(sock: socket.socket, data: bytes, *fds: int) -> None:
    sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])


# ---- the peer
def test_peer_closing_with_unread_data_is_a_closed_peer(pair: Pair) -> None:
    a, b = pair
    ipc.send(a, payload=b"unread")
    b.close()
    refused(lambda: ipc.receive(a), "peer_closed")
    refused(lambda: ipc.receive(a), "peer_closed")


def test_message_arrives_when_its_peer_closes_with_unread_data(pair: Pair, fd: int) -> None:
    a, b = pair
    ipc.send(a, payload=b"unread")
    ipc.send(b, desc(fd), payload=b"the last one")
    b.close()
    with ipc.receive(a) as message:
        assert message.payload == b"the last one"
        assert len(message.semaphores) == 1
    refused(lambda: ipc.receive(a), "peer_closed")


def test_peer_closing_within_a_message_truncates_it(stream: Pair) -> None:
    a, b = stream
    ipc.send(a, payload=b"unread")
    b.send(b"XSEM\1\0")
    b.close()
    refused(lambda: ipc.receive(a), "truncated_message")


def test_receive_fds_refuses_a_peer_closing_with_unread_data(pair: Pair) -> None:
    a, b = pair
    a.send(b"unread")
    b.close()
    refused(lambda: ipc.receive_fds(a, 16, 1), "peer_closed")


def test_peer_that_closes_within_a_message_ends_the_send(stream: Pair) -> None:
    a, b = stream
    a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    caught: list[xsem.XsemError] = []

    def send() -> None:
        try:
            ipc.send(a, payload=b"x" * 65536)
        except xsem.XsemError as error:
            caught.append(error)

    sender = threading.Thread(target=send)
    sender.start()
    assert b.recv(4) == b"XSEM"
    b.close()
    sender.join()
    assert [error.reason for error in caught] == ["truncated_message"]


# ---- the socket
def _unconnected(kind: int, _folder: Path) -> list[socket.socket]:
    return [socket.socket(socket.AF_UNIX, kind)]


def _listening(kind: int, folder: Path) -> list[socket.socket]:
    listener = socket.socket(socket.AF_UNIX, kind)
    listener.bind(str(folder / "listener"))
    listener.listen()
    return [listener]


def _called(kind: int, folder: Path) -> list[socket.socket]:
    sockets = [*_listening(kind, folder), socket.socket(socket.AF_UNIX, kind)]
    sockets[1].connect(str(folder / "listener"))
    return sockets


def _closed(kind: int, _folder: Path) -> list[socket.socket]:
    a, b = socket.socketpair(socket.AF_UNIX, kind)
    a.close()
    return [a, b]


def _detached(kind: int, _folder: Path) -> list[socket.socket]:
    a, b = socket.socketpair(socket.AF_UNIX, kind)
    os.close(a.detach())
    return [a, b]


@KINDS
@pytest.mark.parametrize(("make", "reason"), [
    (_unconnected, "not_connected"), (_listening, "not_connected"), (_called, "not_connected"),
    (_closed, "socket_closed"), (_detached, "socket_closed"),
])
def test_socket_without_a_peer_is_refused(
    kind: int, make: Callable[[int, Path], list[socket.socket]], reason: str, tmp_path: Path, fd: int
) -> None:
    sockets = make(kind, tmp_path)
    sock = sockets[0]
    for call in (lambda: ipc.send(sock, desc(fd)), lambda: ipc.receive(sock), lambda: ipc.receive_fds(sock, 1, 1)):
        refused(call, reason)
    for each in sockets:
        each.close()


def test_socket_whose_number_was_closed_is_refused(pair: Pair) -> None:
    number = pair[0].fileno()
    os.close(number)
    refused(lambda: ipc.receive(pair[0]), "closed_fd", xsem.BadHandleError)
    pair[0].detach()


class Refusing(socket.socket):
    """A connected socket whose system calls fail."""

    error: int

    def sendmsg(self, *_: Any) -> int:
        raise OSError(self.error, os.strerror(self.error))

    def recvmsg(self, *_: Any) -> Any:
        raise OSError(self.error, os.strerror(self.error))


@pytest.mark.parametrize(("number", "error", "reason"), [
    (errno.ETOOMANYREFS, xsem.BusyError, "fd_limit"), (errno.ENOBUFS, xsem.OutOfMemoryError, "out_of_memory"),
    (errno.EBADF, xsem.BadHandleError, "closed_fd"), (errno.EINVAL, xsem.DriverError, "system_call_failed"),
    (errno.EPERM, xsem.DriverError, "system_call_failed"), (errno.ECONNRESET, xsem.BadArgumentError, "peer_closed"),
])
def test_refusal_of_the_kernel_is_an_error_of_the_tree(number: int, error: type[xsem.XsemError], reason: str) -> None:
    a, b = socket.socketpair()
    with b, Refusing(fileno=a.detach()) as sock:
        sock.error = number
        b.send(b"XSEM")
        for call in (lambda: ipc.send(sock), lambda: ipc.receive(sock)):
            caught = refused(call, reason, error)
            assert isinstance(caught.__cause__, OSError)
            if reason == "system_call_failed":
                assert (caught.code, caught.code_name) == (number, errno.errorcode[number])


def test_packet_longer_than_the_sockets_buffer_is_refused(packets: Pair) -> None:
    a, b = packets
    a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    refused(lambda: ipc.send(a, payload=b"x" * 65536), "payload_too_long")
    ipc.send(a, payload=b"short")
    assert ipc.receive(b).payload == b"short"


# ---- the arguments
class File:
    """Object with a `fileno()`."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def fileno(self) -> int:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[return-value]


@pytest.mark.parametrize(("answer", "error", "reason"), [
    ("abc", xsem.BadArgumentError, "not_a_handle"), (None, xsem.BadArgumentError, "not_a_handle"),
    (3.0, xsem.BadArgumentError, "not_a_handle"), (True, xsem.BadArgumentError, "not_a_handle"),
    (-1, xsem.BadHandleError, "negative_fd"), (2**40, xsem.BadHandleError, "closed_fd"),
    (ValueError("I/O operation on closed file"), xsem.BadHandleError, "closed_fd"),
    (OSError("no"), xsem.BadHandleError, "closed_fd"),
], ids=repr)
def test_object_that_gives_no_descriptor_is_refused(
    pair: Pair, answer: object, error: type[xsem.XsemError], reason: str
) -> None:
    refused(lambda: ipc.send(pair[0], desc(File(answer))), reason, error)
    with pytest.raises(BlockingIOError):
        pair[1].recv(1, socket.MSG_DONTWAIT)


def test_closed_file_is_refused_by_send_and_import(pair: Pair) -> None:
    with open(os.devnull) as file:
        closed = desc(file)
    refused(lambda: ipc.send(pair[0], closed), "closed_fd", xsem.BadHandleError)
    with xsem.open_device("host") as device:
        refused(lambda: device.import_semaphore(closed), "closed_fd", xsem.BadHandleError)


@pytest.mark.parametrize("timeout_s", ["1", "", b"socket", -1, float("nan"), True, 1j, [1]], ids=repr)
def test_invalid_timeout_is_refused(pair: Pair, timeout_s: Any) -> None:
    for call in (lambda: ipc.send(pair[0], timeout_s=timeout_s), lambda: ipc.receive(pair[1], timeout_s=timeout_s),
                 lambda: ipc.receive_fds(pair[1], 1, 1, timeout_s=timeout_s)):
        refused(call, "bad_timeout")


@pytest.mark.parametrize("timeout_s", [10**400, 1e300, float("inf"), None], ids=["10**400", "1e300", "inf", "None"])
def test_huge_timeout_is_accepted(pair: Pair, timeout_s: float | None) -> None:
    ipc.send(pair[0], timeout_s=timeout_s)
    ipc.receive(pair[1], timeout_s=timeout_s)


# ---- other ancillary data
@pytest.fixture
def pidfds(pair: Pair) -> Pair:
    try:
        pair[1].setsockopt(socket.SOL_SOCKET, SO_PASSPIDFD, 1)
    except OSError:
        pytest.skip("SO_PASSPIDFD came with Linux 6.5")
    return pair


def test_received_pidfds_are_closed(pidfds: Pair, fd: int) -> None:
    a, b = pidfds
    before = numbers()
    ipc.send(a, desc(fd), payload=b"p")
    with ipc.receive(b) as message:
        handle = message.semaphores[0].handle
        assert isinstance(handle, OwnedHandle)
        assert same_open_file(handle.fileno(), fd)
        assert numbers() == before | {handle.fileno()}
    raw(a, b"foreign", fd)
    data, handles = ipc.receive_fds(b, 16, 1)
    assert data == b"foreign"
    assert numbers() == before | {handles[0].fileno()}
    handles[0].close()


def test_pidfds_are_closed_when_the_message_is_refused(pidfds: Pair, fd: int) -> None:
    a, b = pidfds
    raw(a, b"not a message of xsem, and long enough for a header", fd)
    before = numbers()
    refused(lambda: ipc.receive(b), "bad_magic")
    assert numbers() == before


def test_pidfds_are_closed_when_descriptors_are_lost(pidfds: Pair, fd: int) -> None:
    a, b = pidfds
    raw(a, b"more than there is room for", *[fd] * 8)
    before = numbers()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = [number for number in range(1000) if number not in before]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[3], hard))
    try:
        refused(lambda: ipc.receive_fds(b, 64, 8), "fds_truncated", xsem.BadHandleError)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert numbers() == before


class Answering(socket.socket):
    """A socket whose recvmsg returns the data of the test."""

    ancillary: Any

    def recvmsg(self, *_: Any) -> Any:
        return b"data", self.ancillary, 0, None


def test_credentials_and_pidfd_errors_are_not_closed_as_fds(fd: int) -> None:
    given, unasked = os.dup(fd), os.dup(fd)
    with Answering(socket.AF_UNIX, STREAM) as sock:
        sock.ancillary = [
            (socket.SOL_SOCKET, SCM_CREDENTIALS, struct.pack("iii", fd, fd, fd)),
            (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", given)),
            (socket.SOL_SOCKET, SCM_PIDFD, struct.pack("i", unasked)),
            (socket.SOL_SOCKET, SCM_PIDFD, struct.pack("i", -errno.ESRCH)),
            (socket.IPPROTO_IP, SCM_PIDFD, struct.pack("i", fd)),
        ]
        before = numbers()
        arrival = received_handles.receive(sock, 16, 4)
        assert (arrival.data, arrival.has_ancillary, arrival.flags) == (b"data", True, 0)
        assert arrival.credentials == struct.pack("iii", fd, fd, fd)
        assert numbers() == before - {unasked}
        [handle] = arrival.handles
        assert handle.fileno() == given
        handle.close()
        assert numbers() == before - {unasked, given}


def test_handles_that_were_taken_are_not_closed(stream: Pair, fd: int) -> None:
    raw(stream[0], b"data", fd, fd)
    before = numbers()
    with Receiver(stream[1], 4, 0) as receiver:
        receiver.receive_once(16)
        handles = receiver.take()
    assert numbers() == before | {handle.fileno() for handle in handles}
    assert len(handles) == 2
    for handle in handles:
        handle.close()


# ---- packets without data
def test_empty_packet_does_not_end_the_stream(packets: Pair, fd: int) -> None:
    a, b = packets
    raw(a, b"")
    raw(a, b"", fd)
    ipc.send(a, payload=b"after it")
    a.close()
    before = numbers()
    refused(lambda: ipc.receive(b), "bad_message")
    refused(lambda: ipc.receive(b), "bad_message")
    assert numbers() == before
    assert ipc.receive(b).payload == b"after it"
    refused(lambda: ipc.receive(b), "peer_closed")


def test_empty_packet_of_a_connected_peer_is_a_bad_message(packets: Pair) -> None:
    raw(packets[0], b"")
    refused(lambda: ipc.receive(packets[1]), "bad_message")
    raw(packets[0], b"")
    assert ipc.receive_fds(packets[1], 16, 1) == (b"", [])


def test_descriptor_of_an_empty_packet_is_given_to_the_caller(packets: Pair, fd: int) -> None:
    raw(packets[0], b"", fd)
    packets[0].close()
    data, handles = ipc.receive_fds(packets[1], 16, 1)
    assert data == b""
    assert same_open_file(handles[0].fileno(), fd)
    handles[0].close()
    refused(lambda: ipc.receive_fds(packets[1], 16, 1), "peer_closed")


def test_empty_packets_before_the_end_are_the_end(packets: Pair) -> None:
    raw(packets[0], b"")
    packets[0].close()
    refused(lambda: ipc.receive(packets[1]), "peer_closed")


# ---- timeouts
def timed_out(call: Callable[[], object]) -> str:
    with pytest.raises(xsem.WaitTimeoutError) as caught:
        call()
    return caught.value.message


def fill(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with pytest.raises(BlockingIOError):
        while True:
            sock.send(b"x" * 100, socket.MSG_DONTWAIT)


@pytest.mark.parametrize(("own", "default", "waited"), [(0.0, 30.0, "0"), (0.02, 30.0, "0.02"), (None, 0.03, "0.03")])
def test_timeout_of_the_socket_applies_by_default(
    pair: Pair, own: float | None, default: float, waited: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ipc.sockets, "DEFAULT_TIMEOUT_S", default)
    a, b = pair
    fill(a)
    for sock in pair:
        sock.settimeout(own)
    for call in (lambda: ipc.receive(a), lambda: ipc.receive_fds(a, 1, 1), lambda: ipc.send(a)):
        assert timed_out(call).endswith(f" for {waited} s")
    assert (a.gettimeout(), b.gettimeout()) == (own, own)


def test_timeout_of_the_kernel_applies_to_a_socket_without_another(pair: Pair) -> None:
    a, _ = pair
    fill(a)
    for option, microseconds in ((socket.SO_RCVTIMEO, 20_000), (socket.SO_SNDTIMEO, 40_000)):   # whole ticks
        a.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", 0, microseconds))
    with Connection(os.dup(a.fileno())) as connection:
        for channel in (a, connection):
            assert timed_out(lambda: ipc.receive(channel)).endswith(" for 0.02 s")   # noqa: B023
            assert timed_out(lambda: ipc.receive_fds(channel, 1, 1)).endswith(" for 0.02 s")   # noqa: B023
            assert timed_out(lambda: ipc.send(channel)).endswith(" for 0.04 s")   # noqa: B023
            assert timed_out(lambda: asyncio.run(ipc.areceive(channel))).endswith(" for 0.02 s")   # noqa: B023
            assert timed_out(lambda: asyncio.run(ipc.asend(channel))).endswith(" for 0.04 s")   # noqa: B023
    a.settimeout(0.06)
    assert timed_out(lambda: ipc.receive(a)).endswith(" for 0.06 s")


@pytest.mark.parametrize("own", [0.0, 3600.0, None])
def test_given_timeout_overrides_the_timeout_of_the_socket(pair: Pair, own: float | None) -> None:
    a, _ = pair
    fill(a)
    a.settimeout(own)
    for call in (lambda: ipc.receive(a, timeout_s=0.02), lambda: ipc.receive_fds(a, 1, 1, timeout_s=0.02),
                 lambda: ipc.send(a, timeout_s=0.02)):
        assert timed_out(call).endswith(" for 0.02 s")
    assert a.gettimeout() == own


@pytest.mark.parametrize("own", [0.0, 5.0, None])
def test_available_message_needs_no_time(pair: Pair, fd: int, own: float | None) -> None:
    for sock in pair:
        sock.settimeout(own)
    ipc.send(pair[0], desc(fd), payload=b"there")
    with ipc.receive(pair[1]) as message:
        assert message.payload == b"there"


# ---- payload
class Foreign(bytearray):
    """A buffer other than bytes."""


@pytest.mark.parametrize("payload", [
    b"bytes", bytearray(b"array"), memoryview(b"view"), memoryview(array.array("d", [0.5] * 8192)),
    memoryview(bytes(range(12))).cast("B", [3, 4]), array.array("H", [1, 2, 3]), memoryview(b""), Foreign(b"f"),
    memoryview(b"0123456789")[2:7],
], ids=lambda payload: f"{type(payload).__name__} {memoryview(payload).nbytes}")
def test_payload_is_counted_in_bytes(pair: Pair, payload: Any) -> None:
    sender = threading.Thread(target=ipc.send, args=(pair[0],), kwargs={"payload": payload})
    sender.start()
    assert ipc.receive(pair[1]).payload == memoryview(payload).tobytes()
    sender.join()


@pytest.mark.parametrize("elements", [8193, 9000, 65536])
def test_payload_longer_in_bytes_than_in_elements_is_refused(pair: Pair, elements: int) -> None:
    view = memoryview(array.array("d", bytes(8 * elements)))
    caught = refused(lambda: ipc.send(pair[0], payload=view), "payload_too_long")
    assert str(8 * elements) in caught.message
    ipc.send(pair[0], payload=b"next")
    assert ipc.receive(pair[1]).payload == b"next"


def _released() -> memoryview:
    view = memoryview(b"gone")
    view.release()
    return view


@pytest.mark.parametrize("payload", [
    "text", None, 5, [1, 2], memoryview(b"0123456789")[::2], memoryview(b"0123456789")[::-1], _released(),
], ids=["str", "None", "int", "list", "every other byte", "backwards", "released"])
def test_non_contiguous_payload_is_refused(pair: Pair, payload: Any) -> None:
    refused(lambda: ipc.send(pair[0], payload=payload), "bad_payload")
    ipc.send(pair[0], payload=b"next")
    assert ipc.receive(pair[1]).payload == b"next"
