"""Descriptors over a Unix socket (SOCK_STREAM or SOCK_SEQPACKET), with a few bytes of the application's own.

The format is docs/ipc.md; ``examples/c/xsem_send.h`` sends it from C and C++. Nothing that is received is executed or
interpreted beyond that format.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Literal, Self

from xsem.data.handles import check_open
from xsem.errors import BadArgumentError, BadHandleError, ReleasedError, UnsupportedError
from xsem.ipc import wire
from xsem.ipc.sockets import MAX_FDS, Receiver, Sender, check_socket
from xsem.runtime.timeouts import DEFAULT_TIMEOUT_S
from xsem.types import Handle, MemoryDesc, OwnedHandle, SemaphoreDesc

__all__ = ["Message", "receive", "receive_fds", "send"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """What `receive` gives.

    Attributes
    ----------
    semaphores : tuple of SemaphoreDesc
    memories : tuple of MemoryDesc
        In the order sent. Their handles are `OwnedHandle`, close-on-exec; closing the message closes them.
    payload : bytes
        The application's own bytes (extent, format, pitch), not looked at.
    """

    semaphores: tuple[SemaphoreDesc, ...]
    memories: tuple[MemoryDesc, ...]
    payload: bytes

    def close(self) -> None:
        """Close all handles; importing first is what takes duplicates of them."""
        for semaphore in self.semaphores:
            semaphore.close()
        for memory in self.memories:
            memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def send(
    sock: socket.socket, *descs: SemaphoreDesc | MemoryDesc, payload: bytes | bytearray | memoryview = b"",
    timeout_s: float | Literal["socket"] | None = "socket",
) -> None:
    """Send descriptors and a payload as one message.

    Parameters
    ----------
    sock : socket.socket
        Connected. Its timeout and its flags do not change.
    *descs : SemaphoreDesc or MemoryDesc
        At most 64, of types whose handle is a file descriptor. The kernel duplicates the fds for the receiver: the
        caller's stay open, whatever happens.
    payload : bytes or another C-contiguous buffer
        At most 65,536 bytes; the element type does not matter.
    timeout_s : float, None or "socket"
        Seconds for the whole message; None: no limit. "socket": the timeout of `sock` (`socket.socket.settimeout`), or
        30 s if `sock` has no timeout. With 0, also the value of a non-blocking socket, the call does not wait.

    Raises
    ------
    UnsupportedError
        A Win32, KMT or NvSci handle: it means nothing in another process.
    BadHandleError
        ``closed_fd``, ``negative_fd``; ReleasedError for a closed `OwnedHandle`. Nothing was sent.
    BadArgumentError
        ``not_a_descriptor``, ``not_a_handle``, ``too_many_descriptors``; ``bad_payload``, ``payload_too_long``;
        ``not_a_unix_socket``, ``socket_closed``, ``not_connected``; ``bad_timeout``. Nothing was sent.
        ``peer_closed``: the peer closed its socket. ``truncated_message``: the peer closed its socket after a part of
        the message was sent.
    BusyError
        ``fd_limit``: more fds are in transit than this process may have open.
    WaitTimeoutError
        ``timeout``: the peer does not read.

    Notes
    -----
    An error or Ctrl-C leaves one of three states: the whole message was sent; nothing of it was sent; or, on a stream,
    a part was sent and the sending side is shut down. In the third state the next `send` raises ``peer_closed``.
    """
    check_socket(sock)
    if len(descs) > wire.MAX_DESCRIPTORS:
        raise BadArgumentError(f"a message takes at most {wire.MAX_DESCRIPTORS} descriptors, not {len(descs)}",
                               reason="too_many_descriptors")
    content = _content(payload)
    fds = [_fd(desc) for desc in descs]
    data = wire.encode(descs, [fd is not None for fd in fds], content)
    with Sender(sock, data, [fd for fd in fds if fd is not None], _limit(sock, timeout_s)) as sender, sender:
        sender.send()


def receive(sock: socket.socket, *, timeout_s: float | Literal["socket"] | None = "socket") -> Message:
    """Receive one message; never reads into the next. Ctrl-C works.

    Parameters
    ----------
    sock : socket.socket
        Connected. Its timeout and its flags do not change.
    timeout_s : float, None or "socket"
        Seconds for the whole message, as in `send`.

    Returns
    -------
    Message
        It owns the handles that came.

    Raises
    ------
    BadArgumentError
        ``peer_closed``: the peer closed its socket between messages; ``truncated_message``: within a message.
        ``message_truncated``, ``bad_magic``, ``bad_version``; ``bad_message``, also for an empty packet.
        ``not_a_unix_socket``, ``socket_closed``, ``not_connected``; ``bad_timeout``.
    BadHandleError
        ``fd_count``, ``fds_truncated``.
    WaitTimeoutError
        ``timeout``.

    Notes
    -----
    After an error or Ctrl-C every received file descriptor is closed. A stream in the middle of a message is shut down
    for reading, because its next byte does not begin a message; the next `receive` then raises ``peer_closed``. On a
    SOCK_SEQPACKET socket the packet is lost, and the next `receive` returns the next packet. Before the first byte the
    socket does not change.
    """
    check_socket(sock)
    with Receiver(sock, wire.MAX_DESCRIPTORS, _limit(sock, timeout_s)) as receiver, receiver:
        if sock.type == socket.SOCK_SEQPACKET:
            data = receiver.receive_once(wire.MAX_MESSAGE_BYTES)
            if len(data) < wire.HEADER_BYTES:
                raise wire.bad_message("it is shorter than a header")
            header, body = wire.decode_header(data[: wire.HEADER_BYTES]), data[wire.HEADER_BYTES :]
            if len(body) != header.body_bytes:
                raise wire.bad_message("its length is not what its header says")
        else:
            header = wire.decode_header(receiver.receive_exactly(wire.HEADER_BYTES))
            body = receiver.receive_exactly(header.body_bytes)
        if len(receiver.handles) != header.fds:
            raise BadHandleError(f"{len(receiver.handles)} file descriptors came with a message that announces "
                                 f"{header.fds}", reason="fd_count")
        semaphores, memories, payload = wire.decode_body(header, body, receiver.handles)
        message = Message(semaphores=tuple(semaphores), memories=tuple(memories), payload=payload)
        receiver.take()
    return message


def receive_fds(
    sock: socket.socket, max_bytes: int, max_fds: int, *, timeout_s: float | Literal["socket"] | None = "socket"
) -> tuple[bytes, list[OwnedHandle]]:
    """Receive bytes and file descriptors from a sender that knows nothing of xsem: one recvmsg.

    Parameters
    ----------
    max_bytes, max_fds : int
        How much is taken at most; `max_fds` at most 253.
    timeout_s : float, None or "socket"
        Seconds, as in `send`.

    Returns
    -------
    tuple of bytes and list of OwnedHandle
        The handles are the caller's, close-on-exec. On a stream the bytes may be fewer than the sender wrote at once.
        On a SOCK_SEQPACKET socket b"" is an empty packet. An empty packet just before the peer closes cannot be told
        from the end of the connection, unless ancillary data comes with it.

    Raises
    ------
    BadHandleError
        ``fd_count``: more than `max_fds` came; ``fds_truncated``. All that came are closed.
    BadArgumentError
        ``peer_closed``; ``message_truncated`` (SOCK_SEQPACKET); ``bad_size``; ``not_a_unix_socket``,
        ``socket_closed``, ``not_connected``; ``bad_timeout``.
    WaitTimeoutError
        ``timeout``.
    """
    check_socket(sock)
    for what, value, high in (("max_bytes", max_bytes, 2**30), ("max_fds", max_fds, MAX_FDS)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= high or value == max_bytes == 0:
            raise BadArgumentError(f"{what} is out of range: {value!r}", reason="bad_size")
    with Receiver(sock, max_fds, _limit(sock, timeout_s)) as receiver, receiver:
        data = receiver.receive_once(max_bytes)
        return data, receiver.take()


def _limit(sock: socket.socket, timeout_s: float | Literal["socket"] | None) -> float | None:
    if isinstance(timeout_s, str) and timeout_s == "socket":
        own = sock.gettimeout()
        return DEFAULT_TIMEOUT_S if own is None else own
    return timeout_s


def _content(payload: bytes | bytearray | memoryview) -> bytes:
    try:
        with memoryview(payload) as view:
            size, contiguous = view.nbytes, view.c_contiguous
            if contiguous and size <= wire.MAX_PAYLOAD_BYTES:
                return view.tobytes()
    except (TypeError, ValueError, BufferError) as error:  # not a buffer, or a released or closed one
        raise BadArgumentError(f"payload must be bytes or another buffer: {error}", reason="bad_payload") from error
    if not contiguous:
        raise BadArgumentError("payload must be contiguous: pass its copy, for instance bytes(payload)",
                               reason="bad_payload")
    raise BadArgumentError(f"payload is at most {wire.MAX_PAYLOAD_BYTES} bytes, not {size}", reason="payload_too_long")


def _fd(desc: SemaphoreDesc | MemoryDesc) -> int | None:
    if isinstance(desc, SemaphoreDesc):
        known = desc.type in wire.SEMAPHORE_NUMBERS
    elif isinstance(desc, MemoryDesc):
        known = desc.type in wire.MEMORY_NUMBERS
    else:
        raise BadArgumentError(f"a SemaphoreDesc or MemoryDesc is needed, not {type(desc).__name__}",
                               reason="not_a_descriptor")
    if not known:
        raise UnsupportedError(f"a handle of type {desc.type.value} cannot be sent through a socket",
                               capability=f"ipc.{desc.type.value}", handle_type=desc.type)
    handle = desc.handle
    if handle == -1:
        return None
    number = _number(handle)
    check_open(number)
    return number


def _number(handle: Handle | None) -> int:
    if handle is None or isinstance(handle, int):
        return -1 if handle is None else handle
    try:
        number = handle.fileno()
    except ReleasedError:
        raise
    except (ValueError, OSError) as error:  # a closed file object raises ValueError
        raise BadHandleError(f"{type(handle).__name__}.fileno() failed: {error}", reason="closed_fd") from error
    if type(number) is not int:
        raise BadArgumentError(f"{type(handle).__name__}.fileno() is not an int", reason="not_a_handle")
    return number
