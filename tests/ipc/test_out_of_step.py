"""A stream that failed in the middle of a message: nothing that is queued behind the failure is ever parsed."""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

import pytest
from support.fixtures import refused

import xsem
from xsem import ipc
from xsem.ipc import sockets, wire
from xsem.ipc.channels import Channel
from xsem.ipc.windows.calls import MORE_DATA, PipeError
from xsem.ipc.windows.incoming import Incoming
from xsem.types import OwnedHandle, SemaphoreDesc

# Bytes of whole messages, inside the payload of an honest one: the next messages, if the receiver parses the rest.
SMUGGLED = wire.encode([SemaphoreDesc.sync_fd(-1)], [False], b"smuggled")
HONEST = wire.encode([], [], SMUGGLED * 3)

pytestmark = pytest.mark.usefixtures("no_leak")


class Stream:
    """A connected stream, and a file whose last duplicates are in the queue."""

    def __init__(self) -> None:
        self.far, self.near = socket.socketpair()
        self.reader, self._writer = os.pipe()

    def queue(self, data: bytes) -> None:
        """Send the message, and behind it two messages with a file descriptor each."""
        self.far.send(data)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [self._writer]))]
        for _ in range(2):
            self.far.sendmsg([wire.encode([SemaphoreDesc.sync_fd(self._writer)], [True], b"behind")], rights)

    def check(self) -> None:
        """Check that the queue is gone, with its file descriptors, and that the peer cannot send."""
        os.close(self._writer)
        self._writer = -1
        poller = select.poll()
        poller.register(self.reader, select.POLLIN)
        assert poller.poll(20_000) == [(self.reader, select.POLLHUP)]
        with pytest.raises(BrokenPipeError):
            self.far.send(SMUGGLED)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._writer)
        self.far.close()
        self.near.close()
        os.close(self.reader)


@pytest.fixture
def stream() -> Iterator[Stream]:
    made = Stream()
    yield made
    made.close()


def patched(data: bytes, at: int, value: int) -> bytes:
    changed = bytearray(data)
    changed[at] = value
    return bytes(changed)


# ---- how a stream gets out of step
def _interrupted(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> wire.Header:
        raise KeyboardInterrupt

    stream.queue(HONEST)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(wire, "decode_header", interrupt)
        ipc.receive(stream.near)


def _interrupted_in_the_system_call(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the call received something is not known then."""
    def interrupt(*_: object) -> object:
        raise KeyboardInterrupt

    stream.queue(HONEST)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(sockets, "receive", interrupt)
        ipc.receive(stream.near)


def _refused(data: bytes, reason: str, receive: Callable[[socket.socket], object] = ipc.receive) -> Any:
    def fail(stream: Stream, _monkeypatch: pytest.MonkeyPatch) -> None:
        stream.queue(data)
        with pytest.raises(xsem.XsemError) as failure:
            receive(stream.near)
        assert failure.value.reason == reason

    return fail


def _in_a_loop(sock: Channel) -> None:
    asyncio.run(ipc.areceive(sock))


def _cancelled(stream: Stream, _monkeypatch: pytest.MonkeyPatch) -> None:
    async def cancel() -> None:
        task = await _begun(stream)
        stream.queue(HONEST[40:])
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(cancel())


async def _begun(stream: Stream) -> asyncio.Task[ipc.Message]:
    """Begin to receive a message whose first bytes have come."""
    stream.far.send(HONEST[:40])
    task = asyncio.create_task(ipc.areceive(stream.near))
    while select.select([stream.near], [], [], 0)[0]:   # noqa: ASYNC110 - until they are read
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    return task


def _stopped(stream: Stream, _monkeypatch: pytest.MonkeyPatch) -> None:
    stream.far.send(HONEST[:40])
    with pytest.raises(xsem.WaitTimeoutError):
        ipc.receive(stream.near, timeout_s=0.01)


FAILURES: dict[str, Callable[[Stream, pytest.MonkeyPatch], None]] = {
    "interrupted": _interrupted,
    "interrupted in the system call": _interrupted_in_the_system_call,
    "cancelled": _cancelled,
    "timeout": _stopped,
    "magic": _refused(patched(HONEST, 0, 0), "bad_magic"),
    "version": _refused(patched(HONEST, 4, 9), "bad_version"),
    "version in a loop": _refused(patched(HONEST, 4, 9), "bad_version", _in_a_loop),
    "lengths": _refused(patched(HONEST, 8, 0), "bad_message"),
    "record": _refused(patched(SMUGGLED, 32, 9) + SMUGGLED, "bad_message"),
    "lost descriptor": _refused(patched(SMUGGLED, 14, 1) + SMUGGLED, "fd_count"),
    "own format": _refused(b"", "fd_count", lambda sock: ipc.receive_fds(sock, 8, 0)),
}


# ---- who receives next
def _child(sock: socket.socket) -> str:
    program = ("import socket, sys, xsem\n"
               "try: xsem.ipc.receive(socket.socket(fileno=int(sys.argv[1])))\n"
               "except xsem.XsemError as error: print(error.reason)")
    done = subprocess.run([sys.executable, "-c", program, str(sock.fileno())], pass_fds=[sock.fileno()],
                          capture_output=True, text=True, check=True, timeout=55)
    return done.stdout.strip()


Receive: TypeAlias = Callable[[Any], object]
RECEIVERS: dict[str, Receive] = {
    "receive": ipc.receive, "areceive": _in_a_loop, "receive_fds": lambda sock: ipc.receive_fds(sock, 1 << 17, 64),
}


@pytest.mark.parametrize("again", RECEIVERS)
@pytest.mark.parametrize("failure", FAILURES)
def test_stream_out_of_step_has_ended_whatever_is_queued(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, failure: str, again: str
) -> None:
    FAILURES[failure](stream, monkeypatch)
    for _ in range(3):
        refused(lambda: RECEIVERS[again](stream.near), "peer_closed")
    stream.check()


def test_every_other_handle_of_the_stream_has_ended_too(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    before = stream.near.dup()
    FAILURES["version"](stream, monkeypatch)
    assert _child(stream.near) == "peer_closed"
    with before, stream.near.dup() as after, socket.socket(fileno=stream.near.detach()) as other:
        for sock in (before, after, other):
            for receive in RECEIVERS.values():
                refused(lambda: receive(sock), "peer_closed")   # noqa: B023
            assert sock.recv(1) == b""
        with Connection(os.dup(other.fileno())) as connection:
            refused(lambda: ipc.receive(connection), "peer_closed")
            with pytest.raises(EOFError):
                connection.recv_bytes()
    stream.check()


def test_connection_of_multiprocessing_out_of_step_has_ended(stream: Stream) -> None:
    with Connection(stream.near.detach()) as connection:
        stream.queue(patched(HONEST, 4, 9))
        refused(lambda: ipc.receive(connection), "bad_version")
        for receive in (ipc.receive, _in_a_loop):
            refused(lambda: receive(connection), "peer_closed")   # noqa: B023
        with pytest.raises(EOFError):
            connection.recv_bytes()
        stream.check()


def test_stream_detached_during_a_receive_has_ended(stream: Stream) -> None:
    async def cancel() -> socket.socket:
        task = await _begun(stream)
        detached = socket.socket(fileno=stream.near.detach())
        stream.queue(HONEST[40:])
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return detached

    with asyncio.run(cancel()) as detached:
        refused(lambda: ipc.receive(detached), "peer_closed")
    stream.check()


def test_peer_that_closed_after_the_queued_messages_changes_nothing(stream: Stream) -> None:
    ipc.send(stream.near, payload=b"unread: the close of the peer resets the connection")
    stream.queue(patched(HONEST, 4, 9))
    stream.far.close()
    refused(lambda: ipc.receive(stream.near), "bad_version")
    for _ in range(2):
        refused(lambda: ipc.receive(stream.near), "peer_closed")


def test_other_direction_of_a_stream_out_of_step_goes_on(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    FAILURES["version"](stream, monkeypatch)
    ipc.send(stream.near, payload=b"your version is unknown here")
    assert ipc.receive(stream.far).payload == b"your version is unknown here"
    stream.check()


def test_packets_are_never_out_of_step() -> None:
    far, near = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with far, near:
        for data in (patched(HONEST, 4, 9), HONEST):
            far.send(data)
        refused(lambda: ipc.receive(near), "bad_version")
        assert ipc.receive(near).payload == SMUGGLED * 3


def test_send_interrupted_in_the_system_call_ends_the_stream() -> None:
    class Interrupted(socket.socket):
        def sendmsg(self, buffers: Any, *_: Any) -> int:
            super().send(buffers[0][:40])
            raise KeyboardInterrupt

    far, near = socket.socketpair()
    with far, near, Interrupted(fileno=os.dup(near.fileno())) as sock:
        with pytest.raises(KeyboardInterrupt):
            ipc.send(sock, payload=b"cut short")
        refused(lambda: ipc.send(near), "peer_closed")
        refused(lambda: ipc.receive(far), "truncated_message")


# ---- pipes of Windows: a message longer than any buffer is read in parts
class Read:
    """A read of a pipe that has ended, as `xsem.ipc.windows.calls.OverlappedCall`."""

    def __init__(self, code: int | None, data: bytes = b"") -> None:
        self.code = code
        self.cancelled = code in (None, 995)
        self.data = data


TAIL = Read(0, wire.encode_nt([], [], b"smuggled", 0))


def finished(incoming: Incoming, read: Any) -> bytes | None:
    incoming._read = read
    return incoming.finished()


@pytest.mark.parametrize("between", [[], [Read(None)], [Read(995)], [Read(8)], [Read(MORE_DATA), Read(8), Read(995)]],
                         ids=["at once", "not begun", "cancelled", "no memory", "several"])
def test_rest_of_a_longer_message_of_a_pipe_is_never_a_message(between: list[Read]) -> None:
    incoming: Any = Incoming(OwnedHandle.__new__(OwnedHandle))
    for read in (Read(MORE_DATA, b"first part"), *between):
        if read.code == 8:
            with pytest.raises(PipeError):
                finished(incoming, read)
        else:
            assert finished(incoming, read) is None
    refused(lambda: finished(incoming, TAIL), "message_truncated")
    assert finished(incoming, Read(0, b"the next message")) == b"the next message"
