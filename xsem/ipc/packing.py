"""Messages for a channel of the application that carries bytes and file descriptors: D-Bus, Wayland, zenoh, ROS 2."""

from __future__ import annotations

import os
from collections.abc import Sequence

from xsem.data.handles import check_open
from xsem.data.signallers import note_sent
from xsem.errors import BadArgumentError, BadHandleError
from xsem.ipc import wire
from xsem.ipc.message import Message, decode, encode, split
from xsem.types import OwnedHandle

__all__ = ["pack", "unpack"]


def pack(message: Message) -> tuple[bytes, list[int]]:
    """Return the bytes and the file descriptors of a message, for a channel of the application.

    The channel must carry file descriptors and keep their order. `unpack` is the inverse. For a channel that carries
    only bytes, use `offer`.

    Parameters
    ----------
    message : Message
        The message. `Message(semaphores=…, memories=…, payload=…)` creates one from descriptors.

    Returns
    -------
    tuple of bytes and list of int
        One message in the format of ``docs/ipc.md``, and its file descriptors, at most 253.

    Raises
    ------
    BadArgumentError
        ``not_a_message``; as `send`, without the reasons of the socket.
    UnsupportedError, BadHandleError, ReleasedError
        As `send`.

    Notes
    -----
    Ownership: the file descriptors are borrowed from the descriptors, on success and on failure. Keep the message open
    until the channel has duplicated or sent the file descriptors.

    Examples
    --------
    >>> import xsem
    >>> message = xsem.ipc.Message(semaphores=(xsem.SemaphoreDesc.sync_fd(-1),), memories=(), payload=b"640x480")
    >>> data, fds = xsem.ipc.pack(message)
    >>> len(data), fds
    (103, [])
    >>> xsem.ipc.unpack(data, fds) == message
    True
    """
    if not isinstance(message, Message):
        raise BadArgumentError(f"a Message is needed, not {type(message).__name__}", reason="not_a_message")
    data, fds = encode([*message.semaphores, *message.memories], message.payload)
    note_sent(message.semaphores, ())
    return data, fds


def unpack(data: bytes | bytearray | memoryview, fds: Sequence[int | OwnedHandle]) -> Message:
    """Return the message of bytes and file descriptors that `pack` created in another process.

    Parameters
    ----------
    data : bytes or another C-contiguous buffer
        The bytes of one message.
    fds : sequence of int or OwnedHandle
        The file descriptors that came with the bytes, in the order of the sender.

    Returns
    -------
    Message
        The message. It owns the file descriptors, which are close-on-exec, and the caller must close it.

    Raises
    ------
    BadArgumentError
        ``bad_magic``, ``bad_version``, ``bad_message``; ``bad_payload``: `data` is not a buffer; ``not_an_int``.
    BadHandleError
        ``fd_count``; ``closed_fd``, ``negative_fd``; ``duplicate_fd``: a number occurs twice.
    ReleasedError
        ``handle_closed``: an `OwnedHandle` is closed.

    Notes
    -----
    Ownership: on success the message owns all file descriptors, and each given `OwnedHandle` is in the state after
    `OwnedHandle.detach`. On failure the caller still owns all of them, and each stays open. After Ctrl-C, the caller
    owns those that a given `OwnedHandle` still holds.
    """
    try:
        with memoryview(data) as view:
            if view.nbytes > wire.MAX_MESSAGE_BYTES:
                raise wire.bad_message(f"it is longer than {wire.MAX_MESSAGE_BYTES} bytes")
            header, body = split(view.tobytes())
    except (TypeError, ValueError) as error:
        if isinstance(error, BadArgumentError):
            raise
        raise BadArgumentError(f"data must be bytes or another buffer: {error}", reason="bad_payload") from error
    try:
        fds = list(fds)
    except TypeError as error:
        raise BadArgumentError(f"fds must be a sequence of ints or OwnedHandles, not {type(fds).__name__}",
                               reason="not_an_int") from error
    numbers = [_checked(fd) for fd in fds]
    if len(set(numbers)) != len(numbers):
        raise BadHandleError("a file descriptor occurs twice: each number has one owner", reason="duplicate_fd")
    # The new owners are empty until the message is complete, because a refused message takes nothing.
    handles = [_empty() for _ in numbers]
    message = decode(header, body, handles)
    for number in numbers:
        os.set_inheritable(number, False)
    for handle, fd in zip(handles, fds, strict=True):
        handle._slot.append(fd._slot.pop() if isinstance(fd, OwnedHandle) else fd)
    return message


def _checked(fd: int | OwnedHandle) -> int:
    number = fd.fileno() if isinstance(fd, OwnedHandle) else fd
    if isinstance(number, bool) or not isinstance(number, int):
        raise BadArgumentError(f"a file descriptor is an int or an OwnedHandle, not {type(fd).__name__}",
                               reason="not_an_int")
    check_open(number)
    return number


def _empty() -> OwnedHandle:
    handle = OwnedHandle.__new__(OwnedHandle)
    handle._slot = []
    return handle
