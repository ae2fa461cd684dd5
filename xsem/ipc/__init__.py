"""Transfer of descriptors and a payload of the application over a Unix socket (SOCK_STREAM or SOCK_SEQPACKET).

On Windows, a named pipe takes the place of the socket: `listen` and `connect`.

``docs/ipc.md`` specifies the format, and ``examples/c/xsem_send.h`` sends it from C and C++. xsem parses only this
format and executes nothing that it receives.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Literal

from xsem.data.peers import Peer
from xsem.errors import BadArgumentError
from xsem.ipc import wire
from xsem.ipc.asynchronous import areceive, asend
from xsem.ipc.channels import Channel, socket_of
from xsem.ipc.message import Message, Payload, Sendable, decode, encode, split, whole
from xsem.ipc.packing import pack, unpack
from xsem.ipc.socket_receivers import note_receivers
from xsem.ipc.sockets import SO_RCVTIMEO, SO_SNDTIMEO, Receiver, Sender, check_socket, limit_of, own_timeout
from xsem.ipc.ticket_exchange import claim, offer
from xsem.ipc.tickets import Ticket
from xsem.ipc.transfers import Transfer
from xsem.ipc.windows.connections import connect
from xsem.ipc.windows.listener import PipeListener, listen
from xsem.ipc.windows.pipe import Pipe
from xsem.types import MemoryDesc, OwnedHandle, SemaphoreDesc

__all__ = [
    "Message", "Pipe", "PipeListener", "Ticket", "Transfer", "areceive", "asend", "claim", "connect", "listen", "offer",
    "pack", "receive", "receive_fds", "send", "unpack",
]


def send(
    sock: Channel, *descs: Sendable, payload: Payload = b"",
    timeout_s: float | Literal["socket"] | None = "socket",
) -> None:
    """Send descriptors and a payload as one message.

    Parameters
    ----------
    sock : socket.socket, Connection, Transport, StreamWriter or Pipe
        A connected Unix socket, or a channel with one: `multiprocessing.Pipe`, `asyncio.open_unix_connection`. Its
        timeout and its flags do not change. A transport must have written all its bytes. On Windows: a `Pipe`.
    *descs : SemaphoreDesc or MemoryDesc; or one FrameRing or Message
        At most 128 descriptors, of types whose handle is a file descriptor, with at most 253 file descriptors. A ring
        is sent as the message of its `FrameRing.export`, and a `Message` with its payload. The kernel duplicates the
        fds for the receiver. `Pipe`: of types whose handle is an NT handle, with its handle or name, or a KMT handle.
        The handles of the caller stay open, on success and on failure.
    payload : bytes or another C-contiguous buffer
        At most 65,536 bytes, of any element type.
    timeout_s : float, None or "socket"
        Seconds for the whole message; None: no limit. "socket": the timeout of `sock` (`socket.socket.settimeout`, or
        SO_SNDTIMEO; for a receive SO_RCVTIMEO), or 30 s if `sock` has no timeout, as a `Pipe`. With 0, the call does
        not wait. A non-blocking socket has the timeout 0.

    Raises
    ------
    UnsupportedError
        A Unix socket does not carry the handle type, or a `Pipe` does not. Windows: `sock` is not a `Pipe`.
    BadHandleError
        ``closed_fd``, ``negative_fd``. Nothing was sent.
    ReleasedError
        ``handle_closed``: an `OwnedHandle` is closed. Nothing was sent.
    BadArgumentError
        ``not_a_descriptor``, ``not_a_handle``, ``too_many_descriptors``; ``too_many_fds``: memory of several
        allocations has a file descriptor for each; ``bad_payload``, ``payload_too_long``;
        ``not_a_unix_socket``, ``socket_closed``, ``not_connected``; ``bad_timeout``; ``bad_name``. Nothing was sent.
        ``peer_closed``: the peer closed its socket. ``truncated_message``: the peer closed its socket after a part of
        the message was sent.
    BusyError
        ``transport_busy``. ``fd_limit``: more fds are in transit than this process can have open.
    WaitTimeoutError
        ``timeout``: the peer does not read.

    Notes
    -----
    After an error the message was sent whole or not at all. On a stream it may also be cut short, and then the sending
    side is shut down so that the peer cannot misread the rest: the next `send` raises ``peer_closed``. After Ctrl-C the
    sending side may also be shut down behind a whole message. A message through a `Pipe` is never cut short. This
    process must live until the receiver has a message with NT handles.

    Examples
    --------
    >>> import socket
    >>> import xsem
    >>> left, right = socket.socketpair()               # `right` is usually in another process
    >>> with left, right, xsem.open_device("host") as device:
    ...     frames = device.create_timeline()
    ...     with frames.export() as desc:
    ...         xsem.ipc.send(left, desc, payload=b"640x480")
    ...     with xsem.ipc.receive(right) as message:
    ...         imported = device.import_semaphore(message.semaphores[0])
    ...     message.payload
    b'640x480'
    """
    with whole(descs, payload) as (sent, data_of_application):
        _send(sock, sent, data_of_application, timeout_s)


def _send(
    sock: Channel, descs: Sequence[SemaphoreDesc | MemoryDesc], payload: Payload,
    timeout_s: float | Literal["socket"] | None,
) -> None:
    if isinstance(sock, Pipe):
        sock.send(descs, payload, timeout_s=limit_of(timeout_s))
        return
    with socket_of(sock, "send") as inner:
        check_socket(inner)
        data, fds = encode(descs, payload)
        limit_s = limit_of(timeout_s, own_timeout(sock, inner, SO_SNDTIMEO))
        note_receivers(inner, descs)
        with Sender(inner, data, fds, limit_s) as sender:
            sender.send()


def receive(sock: Channel, *, timeout_s: float | Literal["socket"] | None = "socket") -> Message:
    """Receive one message, and no bytes of the next message. Ctrl-C interrupts the call.

    Parameters
    ----------
    sock : socket.socket, Connection, Transport, StreamWriter or Pipe
        As in `send`. A transport must have stopped reading (`pause_reading`).
    timeout_s : float, None or "socket"
        Seconds for the whole message, as in `send`.

    Returns
    -------
    Message
        The message. It owns the received file descriptors, and the caller must close it.

    Raises
    ------
    BadArgumentError
        ``peer_closed``: the peer closed its socket between messages. ``truncated_message``: the peer closed its socket
        within a message. ``message_truncated``, ``bad_magic``, ``bad_version``; ``bad_message``, also for an empty
        packet. ``not_a_unix_socket``, ``socket_closed``, ``not_connected``; ``bad_timeout``. `Pipe`: ``sender_ended``,
        the sender ended before this call took the handles of its message.
    BadHandleError
        ``fd_count``, ``fds_truncated``. `Pipe`: ``closed_fd``, the sender closed a handle of its message.
    BusyError
        ``transport_busy``.
    UnsupportedError
        Windows: `sock` is not a `Pipe`.
    WaitTimeoutError
        ``timeout``: the peer sends nothing, or stops within a message.

    Notes
    -----
    After an error or Ctrl-C every received file descriptor is closed; only those of the system call that Ctrl-C
    interrupts can leak. In the middle of a message the next byte of a stream does not begin a message, so the stream
    ends for reading: what is queued is discarded, and its file descriptors are closed. Each later receive from the
    socket, also from a duplicate of it, raises ``peer_closed``. On a SOCK_SEQPACKET socket the packet is lost, and the
    next `receive` returns the next packet. If no byte was received, the socket does not change; Ctrl-C in the system
    call counts as a byte. A `Pipe` behaves as a SOCK_SEQPACKET socket.

    Examples
    --------
    >>> import socket
    >>> import xsem
    >>> left, right = socket.socketpair()               # `left` is usually in another process
    >>> with left, right, xsem.open_device("host") as device:
    ...     with device.create_timeline(3).export() as desc:
    ...         xsem.ipc.send(left, desc)
    ...     with xsem.ipc.receive(right) as message:
    ...         device.import_semaphore(message.semaphores[0]).value()
    3
    """
    if isinstance(sock, Pipe):
        return sock.receive(timeout_s=limit_of(timeout_s))
    with socket_of(sock, "receive") as inner:
        check_socket(inner)
        limit_s = limit_of(timeout_s, own_timeout(sock, inner, SO_RCVTIMEO))
        with Receiver(inner, wire.MAX_FDS, limit_s) as receiver:
            if inner.type == socket.SOCK_SEQPACKET:
                header, body = split(receiver.receive_once(wire.MAX_MESSAGE_BYTES))
            else:
                header = wire.decode_header(receiver.receive_exactly(wire.HEADER_BYTES))
                body = receiver.receive_exactly(header.body_bytes)
            message = decode(header, body, receiver.handles, receiver.peer or Peer.of_socket(inner))
            receiver.take()
    return message


def receive_fds(
    sock: Channel, max_bytes: int, max_fds: int, *, timeout_s: float | Literal["socket"] | None = "socket"
) -> tuple[bytes, list[OwnedHandle]]:
    """Receive bytes and file descriptors in the sender's own format, with one recvmsg call.

    Parameters
    ----------
    sock : socket.socket, Connection, Transport or StreamWriter
        As in `send`. A transport must have stopped reading (`pause_reading`).
    max_bytes, max_fds : int
        Maximum numbers of bytes and file descriptors; `max_fds` is at most 253.
    timeout_s : float, None or "socket"
        Seconds, as in `send`.

    Returns
    -------
    tuple of bytes and list of OwnedHandle
        The data and the file descriptors. The caller owns the file descriptors, which are close-on-exec. On a stream
        the data can be shorter than the sender's write. On a SOCK_SEQPACKET socket b"" is an empty packet. An empty
        packet without ancillary data, sent last before the peer closes its socket, looks like the end of the stream.

    Raises
    ------
    BadHandleError
        ``fd_count``: more than `max_fds` came; ``fds_truncated``. All received file descriptors are closed.
    BadArgumentError
        ``peer_closed``; ``message_truncated`` (SOCK_SEQPACKET); ``bad_size``; ``not_a_unix_socket``,
        ``socket_closed``, ``not_connected``; ``bad_timeout``.
    BusyError
        ``transport_busy``.
    UnsupportedError
        The system is Windows.
    WaitTimeoutError
        ``timeout``: the peer sends nothing.

    Notes
    -----
    After an error or Ctrl-C the file descriptors are closed and the stream ends as after a failed `receive`.
    """
    with socket_of(sock, "receive") as inner:
        check_socket(inner)
        _check_sizes(max_bytes, max_fds)
        limit_s = limit_of(timeout_s, own_timeout(sock, inner, SO_RCVTIMEO))
        with Receiver(inner, max_fds, limit_s) as receiver:
            data = receiver.receive_once(max_bytes)
            return data, receiver.take()


def _check_sizes(max_bytes: int, max_fds: int) -> None:
    for what, value, high in (("max_bytes", max_bytes, 2**30), ("max_fds", max_fds, wire.MAX_FDS)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= high or value == max_bytes == 0:
            raise BadArgumentError(f"{what} is out of range: {value!r}", reason="bad_size")

