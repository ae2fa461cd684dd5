"""`asend` and `areceive`: transfers that wait in an asyncio event loop."""

from __future__ import annotations

import select
import socket
import sys
from collections.abc import Sequence
from typing import Final, Literal

from xsem.data.peers import Peer
from xsem.errors import WaitTimeoutError
from xsem.ipc import wire
from xsem.ipc.channels import Channel, socket_of
from xsem.ipc.message import Message, Payload, Sendable, decode, encode, split, whole
from xsem.ipc.socket_receivers import note_receivers
from xsem.ipc.sockets import SO_RCVTIMEO, SO_SNDTIMEO, NotReady, Receiver, Sender, check_socket, limit_of, own_timeout
from xsem.ipc.windows import asynchronous as pipes
from xsem.ipc.windows.pipe import Pipe
from xsem.runtime.timeouts import check_timeout
from xsem.types import MemoryDesc, SemaphoreDesc

__all__ = ["areceive", "asend"]

_LONGEST_S: Final = 1e9


async def asend(
    sock: Channel, *descs: Sendable, payload: Payload = b"",
    timeout_s: float | Literal["socket"] | None = "socket",
) -> None:
    """Send descriptors and a payload as one message, as `send` does. The event loop runs meanwhile.

    Parameters
    ----------
    sock : socket.socket, Connection, Transport, StreamWriter or Pipe
        As in `send`. The socket can be blocking or not. Its timeout and its flags do not change.
    *descs, payload
        As in `send`. Keep the descriptors open until the end of the call.
    timeout_s : float, None or "socket"
        As in `send`, but a non-blocking socket has no timeout of its own: "socket" then means 30 s.

    Raises
    ------
    BadArgumentError, BadHandleError, BusyError, ReleasedError, UnsupportedError, WaitTimeoutError
        As `send`.

    Notes
    -----
    A cancelled call leaves the state that `send` describes for an error. Two calls for one direction of a socket must
    not overlap. Calls for one direction of a `Pipe` take place one after the other. The call uses a duplicate of the
    socket, so cancel it before you close the socket.
    """
    with whole(descs, payload) as (sent, data_of_application):
        await _send(sock, sent, data_of_application, timeout_s)


async def _send(
    sock: Channel, descs: Sequence[SemaphoreDesc | MemoryDesc], payload: Payload,
    timeout_s: float | Literal["socket"] | None,
) -> None:
    if isinstance(sock, Pipe):
        await pipes.send(sock, descs, payload, limit_of(timeout_s))
        return
    with socket_of(sock, "send", duplicates=True) as inner:
        check_socket(inner)
        data, fds = encode(descs, payload)
        # The 0 of a non-blocking socket means that an event loop waits for it.
        turns = _Turns(inner, limit_of(timeout_s, own_timeout(sock, inner, SO_SNDTIMEO) or None))
        note_receivers(inner, descs)
        with Sender(inner, data, fds, None, waits=False) as sender:
            while True:
                try:
                    sender.send()
                except NotReady as wanted:
                    await turns.ready(wanted)
                else:
                    return


async def areceive(sock: Channel, *, timeout_s: float | Literal["socket"] | None = "socket") -> Message:
    """Receive one message, as `receive` does. The event loop runs meanwhile.

    Parameters
    ----------
    sock : socket.socket, Connection, Transport, StreamWriter or Pipe
        As in `receive`. The socket can be blocking or not. Its timeout and its flags do not change.
    timeout_s : float, None or "socket"
        As in `asend`.

    Returns
    -------
    Message
        The message. It owns the received file descriptors, and the caller must close it.

    Raises
    ------
    BadArgumentError, BadHandleError, BusyError, UnsupportedError, WaitTimeoutError
        As `receive`.
    ReleasedError
        ``released``.

    Notes
    -----
    After an error or a cancellation every received file descriptor is closed, as `receive` describes. A cancellation
    loses no message of a `Pipe`: the next call receives it.
    """
    if isinstance(sock, Pipe):
        return await pipes.receive(sock, limit_of(timeout_s))
    with socket_of(sock, "receive", duplicates=True) as inner:
        check_socket(inner)
        turns = _Turns(inner, limit_of(timeout_s, own_timeout(sock, inner, SO_RCVTIMEO) or None))
        with Receiver(inner, wire.MAX_FDS, None, waits=False) as receiver:
            if inner.type == socket.SOCK_SEQPACKET:
                header, body = split(await turns.receive(receiver, wire.MAX_MESSAGE_BYTES))
            else:
                header = wire.decode_header(await turns.receive_exactly(receiver, wire.HEADER_BYTES))
                body = await turns.receive_exactly(receiver, header.body_bytes)
            message = decode(header, body, receiver.handles, receiver.peer or Peer.of_socket(inner))
            receiver.take()
    return message


class _Turns:
    """Waits of one transfer in the event loop, within its time limit. `sock` belongs to the transfer alone."""

    def __init__(self, sock: socket.socket, timeout_s: float | None) -> None:
        check_timeout(timeout_s)
        self._sock = sock
        self._timeout_s = timeout_s
        import asyncio  # already loaded: the caller runs in an event loop

        self._loop = asyncio.get_running_loop()
        self._end = None if self._timeout_s is None else self._loop.time() + min(self._timeout_s, _LONGEST_S)

    async def ready(self, wanted: NotReady) -> None:
        """Return when the socket may be ready."""
        if sys.platform == "win32":
            raise NotImplementedError
        import asyncio  # as above

        number = self._sock.fileno()
        woken = asyncio.Event()
        add, remove = ((self._loop.add_reader, self._loop.remove_reader) if wanted.events & select.POLLIN
                       else (self._loop.add_writer, self._loop.remove_writer))
        add(number, woken.set)
        try:
            left = None if self._end is None else max(0.0, self._end - self._loop.time())
            await asyncio.wait_for(woken.wait(), left)
        except TimeoutError as error:
            raise WaitTimeoutError(f"{wanted.why} for {self._timeout_s:g} s") from error
        finally:
            remove(number)

    async def receive(self, receiver: Receiver, size: int) -> bytes:
        """Return the data of one recvmsg call."""
        while True:
            try:
                return receiver.receive_once(size)
            except NotReady as wanted:
                await self.ready(wanted)

    async def receive_exactly(self, receiver: Receiver, size: int) -> bytes:
        """Return `size` bytes of a stream."""
        data = b""
        while len(data) < size:
            data += await self.receive(receiver, size - len(data))
        return data
