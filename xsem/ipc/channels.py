"""The socket of a channel: a socket, a connection of multiprocessing, or a transport of asyncio."""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol, TypeAlias

from xsem.errors import BadArgumentError, BusyError, UnsupportedError
from xsem.types import SupportsFileno

__all__ = ["Channel", "no_sockets", "socket_of"]


class SupportsExtraInfo(Protocol):
    """An `asyncio.Transport` or an `asyncio.StreamWriter`."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the object with this name; ``socket`` names the socket."""


Channel: TypeAlias = socket.socket | SupportsFileno | SupportsExtraInfo
"""A connected socket, a connection of multiprocessing, a transport or stream writer of asyncio, or a `Pipe`."""


@contextmanager
def socket_of(
    channel: Channel, direction: Literal["send", "receive"], *, duplicates: bool = False
) -> Iterator[socket.socket]:
    """Give the socket of a channel to one transfer, or a duplicate that the end of ``with`` closes."""
    # A transfer that waits in an event loop uses a duplicate of a socket, too: meanwhile, the application can close or
    # detach its socket, and can have registered the number with the loop itself.
    if isinstance(channel, socket.socket) and not duplicates:
        yield channel
        return
    if os.name == "nt":
        raise _no_pipes_of_multiprocessing() if type(channel).__name__ == "PipeConnection" else no_sockets()
    inner: Any = channel
    if hasattr(channel, "get_extra_info"):
        inner = _of_transport(getattr(channel, "transport", channel), direction)
    try:
        made = _duplicate(_number(inner))
    except OSError as error:
        raise _not_a_socket(channel) from error
    if made is None:
        raise _not_a_socket(channel)
    with made:
        yield made


def _duplicate(number: int) -> socket.socket | None:
    """Return a duplicate of a socket; None if the number is not one of a socket."""
    if sys.platform == "win32":
        raise NotImplementedError
    if not stat.S_ISSOCK(os.fstat(number).st_mode):
        return None
    blocking = os.get_blocking(number)
    made = os.dup(number)
    try:
        return socket.socket(fileno=made)   # it asks the kernel for family, type and protocol
    except OSError:
        os.close(made)
        raise
    finally:
        os.set_blocking(number, blocking)   # `socket.setdefaulttimeout` changes the flag of the channel, too


def _of_transport(transport: Any, direction: Literal["send", "receive"]) -> Any:
    """Return the socket of a transport that transfers no data of its own in this direction."""
    if direction == "receive" and transport.is_reading():
        raise BusyError("the transport reads from its socket, and would lose file descriptors: call "
                        "pause_reading() first", reason="transport_busy")
    if direction == "send" and transport.get_write_buffer_size():
        raise BusyError("the transport still has bytes to write: drain() it first", reason="transport_busy")
    return transport.get_extra_info("socket")


def _number(channel: Any) -> int:
    try:
        number = channel.fileno()
    except Exception as error:   # multiprocessing raises OSError for a closed connection
        raise _not_a_socket(channel) from error
    if type(number) is not int or not 0 <= number < 2**31:
        raise BadArgumentError(f"the socket is closed or detached: {channel!r}", reason="socket_closed")
    return number


def _not_a_socket(channel: Any) -> BadArgumentError:
    return BadArgumentError(
        "a connected AF_UNIX socket, SOCK_STREAM or SOCK_SEQPACKET, is needed, or an open channel with one "
        "(multiprocessing.Pipe(), the StreamWriter of asyncio.open_unix_connection()), not "
        f"{channel!r}", reason="not_a_unix_socket")


def no_sockets() -> UnsupportedError:
    """Return the error for a system without sockets that pass file descriptors."""
    return UnsupportedError(
        "file descriptors pass through Unix sockets only. On Windows, send, receive, asend and areceive take a pipe of "
        "xsem.ipc.listen or xsem.ipc.connect", capability="ipc")


def _no_pipes_of_multiprocessing() -> UnsupportedError:
    return UnsupportedError(
        "a PipeConnection of multiprocessing cannot be a channel of xsem.ipc: Windows tells which process created the "
        "pipe, not which process has its other end now, so handles cannot be duplicated. Use xsem.ipc.listen and "
        "xsem.ipc.connect, or put the descriptors into the connection: connection.send(desc)", capability="ipc")
