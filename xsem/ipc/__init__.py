"""Descriptors over a Unix socket (SOCK_STREAM or SOCK_SEQPACKET), with a few bytes of the application's own.

The format is docs/ipc.md; ``examples/c/xsem_send.h`` sends it from C and C++. Nothing that is received is executed or
interpreted beyond that format.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Self

from xsem.errors import BadArgumentError, BadHandleError, UnsupportedError
from xsem.handles import check_open
from xsem.ipc import wire
from xsem.ipc.sockets import MAX_FDS, Receiver, check_socket, end_of_stream, send_all
from xsem.timeouts import DEFAULT_TIMEOUT_S
from xsem.types import MemoryDesc, OwnedHandle, SemaphoreDesc

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


def send(sock: socket.socket, *descs: SemaphoreDesc | MemoryDesc, payload: bytes = b"") -> None:
    """Send descriptors and a payload as one message.

    Parameters
    ----------
    sock : socket.socket
        Connected; its own timeout and blocking mode do not matter and stay as they are.
    *descs : SemaphoreDesc or MemoryDesc
        At most 64, of types whose handle is a file descriptor. The kernel duplicates the fds for the receiver: the
        caller's stay open, whatever happens.
    payload : bytes
        At most 64 KiB.

    Raises
    ------
    UnsupportedError
        A Win32, KMT or NvSci handle: it means nothing in another process.
    BadHandleError
        ``closed_fd``; ReleasedError for a closed `OwnedHandle`. Nothing was sent.
    BadArgumentError
        ``not_a_descriptor``, ``too_many_descriptors``, ``payload_too_long``, ``not_a_unix_socket``.
    WaitTimeoutError
        The peer does not read; if part of the message has gone, the socket's sending side has been shut down.
    OSError
        The socket's own, e.g. BrokenPipeError.
    """
    check_socket(sock)
    if len(descs) > wire.MAX_DESCRIPTORS:
        raise BadArgumentError(f"a message takes at most {wire.MAX_DESCRIPTORS} descriptors, not {len(descs)}",
                               reason="too_many_descriptors")
    if not isinstance(payload, bytes | bytearray | memoryview) or len(payload) > wire.MAX_PAYLOAD_BYTES:
        raise BadArgumentError(f"payload is bytes, at most {wire.MAX_PAYLOAD_BYTES}", reason="payload_too_long")
    fds = [_fd(desc) for desc in descs]
    data = wire.encode(descs, [fd is not None for fd in fds], bytes(payload))
    send_all(sock, data, [fd for fd in fds if fd is not None], DEFAULT_TIMEOUT_S)


def receive(sock: socket.socket, *, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> Message:
    """Receive one message; never reads into the next. Ctrl-C works.

    Returns
    -------
    Message
        It owns the handles that came.

    Raises
    ------
    BadArgumentError
        ``peer_closed``: the peer closed the socket between messages; ``truncated_message``, ``message_truncated``,
        ``bad_magic``, ``bad_version``, ``bad_message``.
    BadHandleError
        ``fd_count``, ``fds_truncated``.
    WaitTimeoutError
        ``timeout``.

    Notes
    -----
    On an error every file descriptor that came is closed, and a stream in the middle of a message is shut down for
    reading: what would follow is no message.
    """
    check_socket(sock)
    with Receiver(sock, wire.MAX_DESCRIPTORS, timeout_s) as receiver:
        if sock.type == socket.SOCK_SEQPACKET:
            data = receiver.receive_once(wire.MAX_MESSAGE_BYTES)
            if not data:
                raise end_of_stream(False)
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
        receiver.take()
    return Message(semaphores=tuple(semaphores), memories=tuple(memories), payload=payload)


def receive_fds(
    sock: socket.socket, max_bytes: int, max_fds: int, *, timeout_s: float | None = DEFAULT_TIMEOUT_S
) -> tuple[bytes, list[OwnedHandle]]:
    """Receive bytes and file descriptors from a sender that knows nothing of xsem: one recvmsg.

    Parameters
    ----------
    max_bytes, max_fds : int
        How much is taken at most; `max_fds` at most 253.

    Returns
    -------
    tuple of bytes and list of OwnedHandle
        The handles are the caller's, close-on-exec. On a stream the bytes may be fewer than the sender wrote at once.

    Raises
    ------
    BadHandleError
        ``fd_count``: more than `max_fds` came; ``fds_truncated``. All that came are closed.
    BadArgumentError
        ``peer_closed``; ``message_truncated`` (SOCK_SEQPACKET).
    WaitTimeoutError
        ``timeout``.
    """
    check_socket(sock)
    for what, value, high in (("max_bytes", max_bytes, 2**30), ("max_fds", max_fds, MAX_FDS)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= high or value == max_bytes == 0:
            raise BadArgumentError(f"{what} is out of range: {value!r}", reason="bad_size")
    with Receiver(sock, max_fds, timeout_s) as receiver:
        data = receiver.receive_once(max_bytes)
        if not data:
            raise end_of_stream(False)
        return data, receiver.take()


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
    number = handle if isinstance(handle, int) else handle.fileno() if handle is not None else -1
    check_open(number)
    return number
