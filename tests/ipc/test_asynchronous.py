"""`ipc.asend` and `ipc.areceive`, and the channels that every call of `xsem.ipc` takes."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing.connection
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.fixtures import reason_of
from support.open_files import numbers

import xsem
from xsem import ipc
from xsem.spi import same_open_file
from xsem.types import OwnedHandle, SemaphoreDesc

LARGE = b"x" * 65536

pytestmark = pytest.mark.usefixtures("no_leak")


@pytest.fixture
def desc(fd: int) -> SemaphoreDesc:
    return SemaphoreDesc.opaque_fd(fd, device_uuid=None)


def check(message: ipc.Message, desc: SemaphoreDesc, payload: bytes = b"frame") -> None:
    with message:
        handle = message.semaphores[0].handle
        assert isinstance(handle, OwnedHandle)
        assert isinstance(desc.handle, int)
        assert same_open_file(handle.fileno(), desc.handle)
        assert message.payload == payload


@pytest.mark.parametrize("blocking", [True, False])
def test_message_crosses_while_the_loop_runs(
    pair: tuple[socket.socket, socket.socket], desc: SemaphoreDesc, blocking: bool
) -> None:
    for sock in pair:
        sock.setblocking(blocking)

    async def exchange() -> None:
        receiving = asyncio.create_task(ipc.areceive(pair[1]))
        await asyncio.sleep(0)   # it waits, and the loop goes on
        assert not receiving.done()
        await ipc.asend(pair[0], desc, payload=b"frame")
        check(await receiving, desc)

    asyncio.run(exchange())
    assert [sock.gettimeout() for sock in pair] == [None if blocking else 0.0] * 2


def test_large_message_crosses_a_small_buffer(desc: SemaphoreDesc) -> None:
    near, far = socket.socketpair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)

    async def exchange() -> None:
        _, message = await asyncio.gather(ipc.asend(near, desc, payload=LARGE), ipc.areceive(far))
        check(message, desc, LARGE)

    with near, far:
        asyncio.run(exchange())


def test_timeouts_are_the_argument_or_the_sockets_own(pair: tuple[socket.socket, socket.socket]) -> None:
    assert reason_of(lambda: asyncio.run(ipc.areceive(pair[0], timeout_s=0))) == "timeout"
    pair[0].settimeout(0.01)
    with pytest.raises(xsem.WaitTimeoutError, match=r"0\.01 s"):
        asyncio.run(ipc.areceive(pair[0]))
    assert reason_of(lambda: asyncio.run(ipc.areceive(pair[0], timeout_s=-1))) == "bad_timeout"


@pytest.fixture
def default_timeout() -> Iterator[None]:
    socket.setdefaulttimeout(5)
    yield
    socket.setdefaulttimeout(None)


def test_default_timeout_of_sockets_leaves_the_flags_of_the_channel(
    pair: tuple[socket.socket, socket.socket], default_timeout: None
) -> None:
    ipc.send(pair[0], payload=b"first")
    assert asyncio.run(ipc.areceive(pair[1])).payload == b"first"
    asyncio.run(ipc.asend(pair[0], payload=b"second"))
    with multiprocessing.connection.Connection(os.dup(pair[1].fileno())) as connection:
        assert ipc.receive(connection).payload == b"second"
    assert [os.get_blocking(sock.fileno()) for sock in pair] == [True, True]


def test_number_that_the_application_watches_stays_its_own(pair: tuple[socket.socket, socket.socket]) -> None:
    async def receive() -> bytes:
        seen = asyncio.Event()
        asyncio.get_running_loop().add_reader(pair[1].fileno(), seen.set)
        receiving = asyncio.create_task(ipc.areceive(pair[1]))
        await asyncio.sleep(0)
        await ipc.asend(pair[0], payload=b"frame")
        await seen.wait()
        assert asyncio.get_running_loop().remove_reader(pair[1].fileno())
        return (await receiving).payload

    assert asyncio.run(receive()) == b"frame"


def test_closed_peer_ends_a_wait_in_the_loop(pair: tuple[socket.socket, socket.socket]) -> None:
    async def wait() -> None:
        receiving = asyncio.create_task(ipc.areceive(pair[1]))
        await asyncio.sleep(0)
        pair[0].close()
        await receiving

    assert reason_of(lambda: asyncio.run(wait())) == "peer_closed"


def test_cancelled_receive_between_messages_leaves_the_stream_usable(
    pair: tuple[socket.socket, socket.socket], desc: SemaphoreDesc
) -> None:
    async def cancel() -> None:
        receiving = asyncio.create_task(ipc.areceive(pair[1]))
        await asyncio.sleep(0)
        receiving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await receiving
        await ipc.asend(pair[0], desc, payload=b"frame")
        check(await ipc.areceive(pair[1]), desc)

    asyncio.run(cancel())


def test_cancelled_receive_within_a_message_ends_the_stream(desc: SemaphoreDesc) -> None:
    near, far = socket.socketpair()
    message = ipc.Message(semaphores=(desc,), memories=(), payload=b"frame")

    async def cancel() -> None:
        data, fds = ipc.pack(message)
        socket.send_fds(near, [data[:50]], fds)
        receiving = asyncio.create_task(ipc.areceive(far))
        while readable(far):   # noqa: ASYNC110 - until the first part is read
            await asyncio.sleep(0)
        receiving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await receiving

    def readable(sock: socket.socket) -> bool:
        try:
            return bool(sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return False

    before = numbers()
    with near, far:
        asyncio.run(cancel())
        assert numbers() == before
        assert reason_of(lambda: ipc.receive(far)) == "peer_closed"


# ---- other channels than sockets
def test_connection_of_multiprocessing_is_taken(desc: SemaphoreDesc) -> None:
    near, far = multiprocessing.Pipe()
    before = numbers()
    with near, far:
        ipc.send(near, desc, payload=b"frame")
        check(ipc.receive(far), desc)
        asyncio.run(ipc.asend(near, desc, payload=b"frame"))
        check(asyncio.run(ipc.areceive(far)), desc)
        assert numbers() == before
        near.send("its own messages still pass")
        assert far.recv() == "its own messages still pass"
    assert reason_of(lambda: ipc.send(near)) == "not_a_unix_socket"   # closed


def test_pipe_of_one_direction_is_refused() -> None:
    near, far = multiprocessing.Pipe(duplex=False)   # not a socket
    before = numbers()
    with near, far:
        assert reason_of(lambda: ipc.receive(near)) == "not_a_unix_socket"
        assert reason_of(lambda: ipc.send(far)) == "not_a_unix_socket"
        assert numbers() == before


@pytest.mark.parametrize("other", [3, None, "socket", object(), open])
def test_object_that_is_not_a_channel_is_refused(other: Any) -> None:
    assert reason_of(lambda: ipc.send(other)) == "not_a_unix_socket"
    assert reason_of(lambda: asyncio.run(ipc.areceive(other))) == "not_a_unix_socket"


def test_streams_of_asyncio_are_taken(tmp_path: Path, desc: SemaphoreDesc) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()   # type: ignore[attr-defined]
        writer.write(b"go\n")
        await writer.drain()
        check(await ipc.areceive(writer), desc)
        await ipc.asend(writer.transport, desc, payload=b"back")
        writer.close()
        await writer.wait_closed()
        served.set()

    served = asyncio.Event()

    async def exchange() -> None:
        async with await asyncio.start_unix_server(serve, str(tmp_path / "socket")):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "socket"))
            assert await reader.readline() == b"go\n"
            with pytest.raises(xsem.BusyError) as failure:
                await ipc.areceive(writer)
            assert failure.value.reason == "transport_busy"
            writer.transport.pause_reading()   # type: ignore[attr-defined]
            await ipc.asend(writer, desc, payload=b"frame")
            check(await ipc.areceive(writer), desc, b"back")
            writer.close()
            await writer.wait_closed()
            await served.wait()

    before = numbers()
    asyncio.run(exchange())
    assert numbers() == before


def test_refused_stream_reader_names_the_writer() -> None:
    async def refusals() -> None:
        near, far = socket.socketpair()
        with far:
            reader, writer = await asyncio.open_unix_connection(sock=near)
            wrong: Any = reader
            for act in (ipc.send, ipc.receive):
                with pytest.raises(xsem.BadArgumentError, match=r"the StreamWriter of asyncio\.open_unix_connection"):
                    act(wrong)
            with pytest.raises(xsem.BadArgumentError, match=r"the StreamWriter of asyncio\.open_unix_connection"):
                await ipc.areceive(wrong)
            writer.close()
            await writer.wait_closed()

    before = numbers()
    asyncio.run(refusals())
    assert numbers() == before
