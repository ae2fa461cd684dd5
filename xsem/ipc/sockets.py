"""Bytes and file descriptors through a Unix socket: whole, within a time, and never one too many or too few."""

from __future__ import annotations

import array
import contextlib
import select
import socket
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from xsem.errors import BadArgumentError, BadHandleError, UnsupportedError, WaitTimeoutError
from xsem.timeouts import check_timeout
from xsem.types import OwnedHandle

__all__ = ["MAX_FDS", "Receiver", "check_socket", "send_all"]

MAX_FDS: Final = 253
"""SCM_MAX_FD: the most file descriptors that the kernel passes in one message."""

_SLICE_MS: Final = 50


def check_socket(sock: socket.socket) -> None:
    """Refuse what cannot carry file descriptors in order.

    Raises
    ------
    BadArgumentError
        ``not_a_unix_socket``.
    UnsupportedError
        This system passes no file descriptors through sockets.
    """
    if sys.platform == "win32" or not hasattr(socket, "SCM_RIGHTS"):
        raise UnsupportedError("file descriptors pass through Unix sockets only; on Windows use DuplicateHandle",
                               capability="ipc")
    if (not isinstance(sock, socket.socket) or sock.family != socket.AF_UNIX
            or sock.type not in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)):
        raise BadArgumentError(f"a connected AF_UNIX socket, SOCK_STREAM or SOCK_SEQPACKET, is needed, not {sock!r}",
                               reason="not_a_unix_socket")


def send_all(sock: socket.socket, data: bytes, fds: Sequence[int], timeout_s: float | None) -> None:
    """Send everything; the fds go with the first byte. The caller's fds stay open.

    If it fails after the first byte, the sending side is shut down: half a message would put the reader out of step.
    """
    if sys.platform == "win32":
        raise NotImplementedError
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    clock = _Clock(timeout_s)
    sent = 0
    try:
        while sent < len(data):
            clock.wait(sock, select.POLLOUT, "the peer does not read")
            try:
                sent += sock.sendmsg([data[sent:]], ancillary if sent == 0 else [],
                                     socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                continue
    except BaseException:
        if sent:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
        raise


class Receiver:
    """One message in the making: what has come so far is closed again unless it is `taken`."""

    def __init__(self, sock: socket.socket, max_fds: int, timeout_s: float | None) -> None:
        check_timeout(timeout_s)
        self._sock = sock
        self._max_fds = max_fds
        self._clock = _Clock(timeout_s)
        self._begun = False
        self._taken = False
        self.handles: list[OwnedHandle] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._taken:
            return
        for handle in self.handles:
            handle.close()
        if error is not None and self._begun and self._sock.type == socket.SOCK_STREAM:
            # The rest of this message would be read as the start of the next.
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RD)

    def take(self) -> list[OwnedHandle]:
        """The handles, to be owned by the caller."""
        self._taken = True
        return self.handles

    def receive_once(self, size: int) -> bytes:
        """What one recvmsg gives, at most `size` bytes; b"" at the end of the stream.

        Raises
        ------
        BadHandleError
            ``fds_truncated``: more came than there was room for, or this process may have open.
        BadArgumentError
            ``message_truncated``.
        WaitTimeoutError
        """
        if sys.platform == "win32":
            raise NotImplementedError
        while True:
            self._clock.wait(self._sock, select.POLLIN, "the peer sent nothing" if not self._begun else
                             "the peer stopped in the middle of a message")
            try:
                # Room for one more than is wanted: the kernel would drop it, with no more than MSG_CTRUNC to tell.
                data, ancillary, flags, _ = self._sock.recvmsg(
                    size, socket.CMSG_SPACE((self._max_fds + 1) * 4) + _OTHER_ANCILLARY, _RECEIVE_FLAGS)
            except BlockingIOError:
                continue
            break
        self._begun = self._begun or bool(data)
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array.array("i")
                numbers.frombytes(content[: len(content) - len(content) % numbers.itemsize])
                self.handles += [OwnedHandle(number) for number in numbers]
        if flags & socket.MSG_CTRUNC:
            raise BadHandleError("file descriptors were lost on the way: more came than fit, or than this process may "
                                 "have open", reason="fds_truncated", likely_causes=("raise `ulimit -n`",))
        if flags & socket.MSG_TRUNC:
            raise BadArgumentError(f"the message is longer than {size} bytes", reason="message_truncated")
        if len(self.handles) > self._max_fds:
            raise BadHandleError(f"{len(self.handles)} file descriptors came, and at most {self._max_fds} are expected",
                                 reason="fd_count")
        return data

    def receive_exactly(self, size: int) -> bytes:
        """`size` bytes of a stream.

        Raises
        ------
        BadArgumentError
            ``peer_closed``: the stream ended before the message; ``truncated_message``: within it.
        """
        data = b""
        while len(data) < size:
            more = self.receive_once(size - len(data))
            if not more:
                raise end_of_stream(self._begun)
            data += more
        return data


def end_of_stream(begun: bool) -> BadArgumentError:
    """The error for a peer that closed its socket."""
    if begun:
        return BadArgumentError("the peer closed the socket in the middle of a message", reason="truncated_message")
    return BadArgumentError("the peer closed the socket", reason="peer_closed")


# The sender's credentials and security label may come along unasked, if somebody set SO_PASSCRED or SO_PASSSEC.
_OTHER_ANCILLARY: Final = 512
_RECEIVE_FLAGS: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0) | getattr(socket, "MSG_DONTWAIT", 0)


class _Clock:
    """Waits for the socket in slices, so that Ctrl-C works, whatever timeout the socket itself has."""

    def __init__(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s

    def wait(self, sock: socket.socket, events: int, why: str) -> None:
        if sys.platform == "win32":
            raise NotImplementedError
        poller = select.poll()
        poller.register(sock, events)
        while True:
            left_ms = _SLICE_MS if self._deadline is None else (self._deadline - time.monotonic()) * 1000
            if poller.poll(max(0.0, min(_SLICE_MS, left_ms))):
                return
            if left_ms <= 0:
                raise WaitTimeoutError(f"{why} for {self._timeout_s:g} s")
