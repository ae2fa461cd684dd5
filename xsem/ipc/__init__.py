"""Transfer of descriptors and a payload of the application over a Unix socket (SOCK_STREAM or SOCK_SEQPACKET).

``docs/ipc.md`` specifies the format, and ``examples/c/xsem_send.h`` sends it from C and C++. xsem parses only this
format and executes nothing that it receives.
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
    """One received message, the result of `receive`.

    Attributes
    ----------
    semaphores : tuple of SemaphoreDesc
        Descriptors of semaphores, in the order of the sender.
    memories : tuple of MemoryDesc
        Descriptors of memory, in the order of the sender.
    payload : bytes
        Bytes of the application, for example extent, format and pitch. xsem does not parse them.

    Notes
    -----
    Ownership: each received file descriptor is an `OwnedHandle`, close-on-exec. `close` and the end of ``with`` close
    all of them. An import does not take the handles from the descriptors, neither on success nor on failure.

    Examples
    --------
    >>> import socket
    >>> import xsem
    >>> left, right = socket.socketpair()
    >>> xsem.ipc.send(left, xsem.SemaphoreDesc.sync_fd(-1), payload=b"640x480")
    >>> with xsem.ipc.receive(right) as message:
    ...     message.semaphores[0].type.value, message.payload
    ('sync_fd', b'640x480')
    >>> left.close()
    >>> right.close()
    """

    semaphores: tuple[SemaphoreDesc, ...]
    memories: tuple[MemoryDesc, ...]
    payload: bytes

    def close(self) -> None:
        """Close all handles. An earlier import keeps its own duplicate of the handle."""
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
        A connected socket. Its timeout and its flags do not change.
    *descs : SemaphoreDesc or MemoryDesc
        At most 64 descriptors, of types whose handle is a file descriptor. The kernel duplicates the fds for the
        receiver. The fds of the caller stay open, on success and on failure.
    payload : bytes or another C-contiguous buffer
        At most 65,536 bytes, of any element type.
    timeout_s : float, None or "socket"
        Seconds for the whole message; None: no limit. "socket": the timeout of `sock` (`socket.socket.settimeout`), or
        30 s if `sock` has no timeout. With 0, the call does not wait. A non-blocking socket has the timeout 0.

    Raises
    ------
    UnsupportedError
        The handle is a Win32, KMT or NvSci handle. Such a handle is not valid in another process.
    BadHandleError
        ``closed_fd``, ``negative_fd``. Nothing was sent.
    ReleasedError
        ``handle_closed``: an `OwnedHandle` is closed. Nothing was sent.
    BadArgumentError
        ``not_a_descriptor``, ``not_a_handle``, ``too_many_descriptors``; ``bad_payload``, ``payload_too_long``;
        ``not_a_unix_socket``, ``socket_closed``, ``not_connected``; ``bad_timeout``. Nothing was sent.
        ``peer_closed``: the peer closed its socket. ``truncated_message``: the peer closed its socket after a part of
        the message was sent.
    BusyError
        ``fd_limit``: more fds are in transit than this process can have open.
    WaitTimeoutError
        ``timeout``: the peer does not read.

    Notes
    -----
    An error or Ctrl-C leaves one of three states. In the first, the whole message was sent. In the second, no part of
    the message was sent. In the third, a part of the message was sent on a stream, and the sending side is shut down.
    The next `send` then raises ``peer_closed``.
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
    """Receive one message, and no bytes of the next message. Ctrl-C interrupts the call.

    Parameters
    ----------
    sock : socket.socket
        A connected socket. Its timeout and its flags do not change.
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
        packet. ``not_a_unix_socket``, ``socket_closed``, ``not_connected``; ``bad_timeout``.
    BadHandleError
        ``fd_count``, ``fds_truncated``.
    WaitTimeoutError
        ``timeout``: the peer sends nothing, or stops within a message.

    Notes
    -----
    After an error or Ctrl-C every received file descriptor is closed. A stream in the middle of a message is shut down
    for reading, because its next byte does not begin a message. The next `receive` then raises ``peer_closed``. On a
    SOCK_SEQPACKET socket the packet is lost, and the next `receive` returns the next packet. If no byte was received,
    the socket does not change.
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
    """Receive bytes and file descriptors in the sender's own format, with one recvmsg call.

    Parameters
    ----------
    sock : socket.socket
        A connected socket. Its timeout and its flags do not change.
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
    WaitTimeoutError
        ``timeout``: the peer sends nothing.
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
    except (TypeError, ValueError, BufferError) as error:  # not a buffer, or a released or closed buffer
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
