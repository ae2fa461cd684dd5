"""The socket of a channel: a socket, a connection of multiprocessing, or a transport of asyncio."""

from __future__ import annotations

import os
import socket
import stat
import sys
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeAlias

from xsem.errors import BadArgumentError, BusyError, UnsupportedError
from xsem.types import SupportsFileno

__all__ = ["Channel", "SocketOf", "no_sockets"]


class SupportsExtraInfo(Protocol):
    """An `asyncio.Transport` or an `asyncio.StreamWriter`."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the object with this name; ``socket`` names the socket."""


Channel: TypeAlias = socket.socket | SupportsFileno | SupportsExtraInfo
"""A connected socket, a connection of multiprocessing, a transport or stream writer of asyncio, or a `Pipe`."""

# With a number and -1 for the rest, the constructor asks the kernel for family, type and protocol.
_open: Final = partial(socket.SocketType, -1, -1, -1)


class SocketOf:
    """The socket of a channel, for one transfer. The caller enters it twice: ``with of as sock, of:``.

    The end of ``with`` closes the duplicate of a channel that is not a socket. The channel stays open.

    Parameters
    ----------
    channel : Channel
    direction : "send" or "receive"
        A transport must not transfer data of its own in this direction.
    duplicates : bool
        Whether the transfer uses a duplicate of a socket, too. A transfer that waits in an event loop does: meanwhile,
        the application can close or detach its socket, and can have registered the number with the loop itself.
    """

    def __init__(
        self, channel: Channel, direction: Literal["send", "receive"], *, duplicates: bool = False
    ) -> None:
        self._channel = channel
        self._direction = direction
        self._only_duplicates = duplicates
        self._duplicates: list[socket.SocketType] = []

    def __enter__(self) -> socket.socket:
        channel: Any = self._channel
        if isinstance(channel, socket.socket) and not self._only_duplicates:
            return channel
        if os.name == "nt":
            raise _no_pipes_of_multiprocessing() if type(channel).__name__ == "PipeConnection" else no_sockets()
        if not self._duplicates:
            if hasattr(channel, "get_extra_info"):
                channel = self._transport(getattr(channel, "transport", channel))
            try:
                self._duplicate(_number(channel))
            except OSError as error:
                raise _not_a_socket(self._channel) from error
        made: Any = self._duplicates[0]
        return made  # type: ignore[no-any-return]

    def __exit__(self, *exc: object) -> None:
        for each in self._duplicates:
            each.close()

    def _duplicate(self, number: int) -> None:
        if sys.platform == "win32":
            raise NotImplementedError
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            raise _not_a_socket(self._channel)
        blocking = os.get_blocking(number)
        # C code takes the number from `dup` to its owner: Ctrl-C takes effect before or after that.
        self._duplicates.extend(map(_open, map(os.dup, (number,))))
        os.set_blocking(number, blocking)   # `socket.setdefaulttimeout` changes the flag of the channel, too

    def _transport(self, transport: Any) -> Any:
        if self._direction == "receive" and transport.is_reading():
            raise BusyError("the transport reads from its socket, and would lose file descriptors: call "
                            "pause_reading() first", reason="transport_busy")
        if self._direction == "send" and transport.get_write_buffer_size():
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
