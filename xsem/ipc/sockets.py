"""Transfer of whole messages with file descriptors over a Unix socket, within a timeout."""

from __future__ import annotations

import array
import contextlib
import errno
import select
import socket
import struct
import sys
import time
from collections.abc import Sequence
from typing import Final, Literal, Self

from xsem.data.peers import Peer
from xsem.errors import (
    BadArgumentError,
    BadHandleError,
    BusyError,
    DriverError,
    OutOfMemoryError,
    WaitTimeoutError,
    XsemError,
)
from xsem.ipc.channels import no_sockets
from xsem.ipc.received_handles import receive
from xsem.runtime.timeouts import DEFAULT_TIMEOUT_S, check_timeout
from xsem.types import OwnedHandle

__all__ = ["SO_RCVTIMEO", "SO_SNDTIMEO", "NotReady", "Receiver", "Sender", "check_socket", "limit_of", "own_timeout"]


SO_RCVTIMEO: Final = getattr(socket, "SO_RCVTIMEO", 20)
SO_SNDTIMEO: Final = getattr(socket, "SO_SNDTIMEO", 21)

_TIMEVAL: Final = struct.Struct("ll")
_SLICE_MS: Final = 50
_LONGEST_S: Final = 1e9
_DISCARDED_BYTES: Final = 1 << 16
_HANG_UP: Final = getattr(select, "POLLHUP", 0) | getattr(select, "POLLRDHUP", 0)


def check_socket(sock: socket.socket) -> None:
    """Refuse a socket that cannot pass file descriptors in order."""
    if sys.platform == "win32" or not hasattr(socket, "SCM_RIGHTS"):
        raise no_sockets()
    if (not isinstance(sock, socket.SocketType) or sock.family != socket.AF_UNIX
            or sock.type not in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)):
        raise BadArgumentError(f"a connected AF_UNIX socket, SOCK_STREAM or SOCK_SEQPACKET, is needed, not {sock!r}",
                               reason="not_a_unix_socket")
    try:
        listens = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise _refusal(sock, "getsockopt", error) from error
    if listens:  # the kernel would let a receiver wait forever
        raise _not_connected(sock)


def own_timeout(channel: object, sock: socket.socket, option: int) -> float | None:
    """Return the timeout in seconds that the socket of a channel has itself. None: it has none."""
    # `option` is that of the kernel, for a socket without a timeout of `socket.socket.settimeout`.
    timeout = channel.gettimeout() if isinstance(channel, socket.socket) else None
    if timeout is not None or sys.platform != "linux":
        return timeout
    try:
        seconds, microseconds = _TIMEVAL.unpack(sock.getsockopt(socket.SOL_SOCKET, option, _TIMEVAL.size))
    except OSError as error:
        raise _refusal(sock, "getsockopt", error) from error
    return seconds + microseconds / 1e6 or None


def limit_of(timeout_s: float | Literal["socket"] | None, own: float | None = None) -> float | None:
    """Return the time limit of a call. `own` is the timeout of the socket; a pipe has none."""
    if isinstance(timeout_s, str) and timeout_s == "socket":
        return DEFAULT_TIMEOUT_S if own is None else own
    return timeout_s


class NotReady(Exception):  # noqa: N818 - never reaches the application
    """The socket is not ready, and the transfer does not wait. The same call goes on when the socket is ready."""

    def __init__(self, events: int, why: str) -> None:
        super().__init__(why)
        self.events = events
        self.why = why


class _Transfer:
    """Transfer of one message. The end of ``with`` calls `close`."""

    _direction: int

    def __init__(self, sock: socket.socket, timeout_s: float | None, *, waits: bool = True) -> None:
        check_timeout(timeout_s)
        self._sock = sock
        # Without waits, the calls raise `NotReady` where they would wait.
        self._clock = _Clock(timeout_s) if waits else _NoWait()
        self._unsure = False   # Ctrl-C came in a system call, which can have transferred a part

    @property
    def begun(self) -> bool:
        """True if a part of the message was transferred, but not the whole message."""
        raise NotImplementedError

    def close(self) -> None:
        """Give up an incomplete message. A second call has no effect."""
        # The stream ends in that direction: the receiver would parse the rest as the start of the next message.
        if (self.begun or self._unsure) and self._sock.type == socket.SOCK_STREAM:
            with contextlib.suppress(OSError):
                self._end_stream()

    def _end_stream(self) -> None:
        self._sock.shutdown(self._direction)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Sender(_Transfer):
    """Transfer of one message to the peer. The file descriptors travel with the first byte."""

    _direction = socket.SHUT_WR

    def __init__(self, sock: socket.socket, data: bytes, fds: Sequence[int], timeout_s: float | None, *,
                 waits: bool = True) -> None:
        self._data = data
        self._fds = fds   # borrowed
        self._sent = 0   # bytes
        super().__init__(sock, timeout_s, waits=waits)

    @property
    def begun(self) -> bool:
        """True if a part of the message was sent, but not the whole message."""
        return 0 < self._sent < len(self._data)

    def send(self) -> None:
        """Send the whole message."""
        if sys.platform == "win32":
            raise NotImplementedError
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", self._fds))] if self._fds else []
        while self._sent < len(self._data):
            self._clock.wait(self._sock, select.POLLOUT, "the peer does not read")
            try:
                self._sent += self._sock.sendmsg([self._data[self._sent:]], [] if self._sent else rights,
                                                 socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except (BlockingIOError, TimeoutError):
                continue
            except OSError as error:
                raise _refusal(self._sock, "sendmsg", error, begun=self.begun) from error
            except BaseException:
                self._unsure = True
                raise


class Receiver(_Transfer):
    """Transfer of one message from the peer."""

    _direction = socket.SHUT_RD

    def __init__(self, sock: socket.socket, max_fds: int, timeout_s: float | None, *, waits: bool = True) -> None:
        self._max_fds = max_fds
        self._begun = False
        self._credentials: bytes | None = None
        self.handles: list[OwnedHandle] = []   # received; `close` closes those that `take` did not hand out
        super().__init__(sock, timeout_s, waits=waits)

    @property
    def begun(self) -> bool:
        """True if a part of the message was received and `take` was not called."""
        return self._begun

    @property
    def peer(self) -> Peer | None:
        """The sender, if the socket passes credentials (SO_PASSCRED). They are exact also for a `socket.socketpair`."""
        return None if self._credentials is None else Peer.of_credentials(self._credentials)

    def take(self) -> list[OwnedHandle]:
        """Return the handles of a complete message. The caller owns them."""
        self._begun = False
        handles, self.handles = self.handles, []
        return handles

    def close(self) -> None:
        """Give up a message that was not taken and close its handles. A second call has no effect."""
        super().close()
        for handle in self.handles:
            handle.close()

    def _end_stream(self) -> None:
        if sys.platform == "win32":
            raise NotImplementedError
        super()._end_stream()
        # Linux still returns the bytes in the queue after that, and another object or process with this socket would
        # parse them. The peer cannot add any, so the queue ends; a call without room for them closes its descriptors.
        while self._sock.recv(_DISCARDED_BYTES, socket.MSG_DONTWAIT):
            pass

    def receive_once(self, size: int) -> bytes:
        """Return the data of one recvmsg call, at most `size` bytes. b"" means an empty packet."""
        if sys.platform == "win32":
            raise NotImplementedError
        reset = False
        while True:
            events = self._clock.wait(self._sock, select.POLLIN | _HANG_UP, "the peer sent nothing" if not self.begun
                                      else "the peer stopped in the middle of a message")
            try:
                # The room is one file descriptor larger than needed. Without that room, the kernel would drop an extra
                # file descriptor, and only MSG_CTRUNC would show it.
                arrival = receive(self._sock, size, self._max_fds + 1)
                self.handles += arrival.handles
                self._begun = self._begun or bool(arrival.data)
            except (BlockingIOError, TimeoutError):
                continue
            except OSError as error:
                # The peer closed its socket before it read all our data. Data that it sent earlier can still be read.
                if isinstance(error, ConnectionResetError) and not reset:
                    reset = True
                    continue
                raise _refusal(self._sock, "recvmsg", error, begun=self.begun) from error
            except BaseException:
                self._unsure = True
                raise
            break
        self._credentials = self._credentials or arrival.credentials
        if arrival.flags & socket.MSG_CTRUNC:
            raise BadHandleError("file descriptors were lost on the way: more came than fit, or than this process may "
                                 "have open", reason="fds_truncated", likely_causes=("raise `ulimit -n`",))
        if arrival.flags & socket.MSG_TRUNC:
            raise BadArgumentError(f"the message is longer than {size} bytes", reason="message_truncated")
        if len(self.handles) > self._max_fds:
            raise BadHandleError(f"{len(self.handles)} file descriptors came, and at most {self._max_fds} are expected",
                                 reason="fd_count")
        if not arrival.data and not arrival.has_ancillary and self._ended(events):
            raise _end_of_stream(self.begun)
        return arrival.data

    def receive_exactly(self, size: int) -> bytes:
        """Return `size` bytes of a stream. The errors are those of `receive_once`."""
        data = b""
        while len(data) < size:
            data += self.receive_once(size - len(data))
        return data

    def _ended(self, events: int) -> bool:
        """Tell whether an empty answer is the end of the stream. On SOCK_SEQPACKET it can also be an empty packet."""
        if self._sock.type != socket.SOCK_SEQPACKET:
            return True
        if not events & _HANG_UP:
            return False  # the peer had not closed its socket, so this was an empty packet
        # If the socket holds more bytes, this was an empty packet. Otherwise xsem takes it for the end of the stream.
        return not _bytes_waiting(self._sock)


def _bytes_waiting(sock: socket.socket) -> int:
    if sys.platform == "win32":
        raise NotImplementedError
    import fcntl
    import termios

    try:
        return int.from_bytes(fcntl.ioctl(sock, termios.FIONREAD, bytes(4)), sys.byteorder)
    except OSError as error:
        raise _refusal(sock, "ioctl", error) from error


def _end_of_stream(begun: bool) -> BadArgumentError:
    if begun:
        return BadArgumentError("the peer closed the socket in the middle of a message", reason="truncated_message")
    return BadArgumentError("the peer closed the socket, or a call that failed in the middle of a message shut it down",
                            reason="peer_closed")


def _not_connected(sock: socket.socket) -> BadArgumentError:
    return BadArgumentError(f"the socket is not connected: {sock!r}", reason="not_connected")


def _closed(sock: socket.socket) -> BadArgumentError:
    return BadArgumentError(f"the socket is closed or detached: {sock!r}", reason="socket_closed")


def _refusal(sock: socket.socket, call: str, error: OSError, *, begun: bool = False) -> XsemError:
    """Return the error for a system call that failed."""
    number = error.errno or 0
    if number in (errno.EPIPE, errno.ECONNRESET):
        return _end_of_stream(begun)
    if sock.fileno() < 0:
        return _closed(sock)
    if number in (errno.EBADF, errno.ENOTSOCK):
        return BadHandleError("a file descriptor of the message or of the socket was closed during the call",
                              reason="closed_fd", call=call)
    if number == errno.ENOTCONN or (number == errno.EINVAL and not _has_peer(sock)):
        return _not_connected(sock)
    if number == errno.EMSGSIZE:
        return BadArgumentError("the packet is longer than the socket's send buffer: raise SO_SNDBUF",
                                reason="payload_too_long", call=call)
    if number in (errno.ETOOMANYREFS, errno.EMFILE, errno.ENFILE):
        return BusyError(f"more file descriptors are on their way than this process may send: {error.strerror}",
                         reason="fd_limit", call=call)
    if number in (errno.ENOMEM, errno.ENOBUFS):
        return OutOfMemoryError(f"the kernel has no memory for the message: {error.strerror}", reason="out_of_memory",
                                call=call)
    return DriverError(f"{call} failed: {error.strerror or error}", reason="system_call_failed", call=call, code=number,
                       code_name=errno.errorcode.get(number))


def _has_peer(sock: socket.socket) -> bool:
    try:
        sock.getpeername()
    except OSError:
        return False
    return True


class _Clock:
    """Deadline of one transfer. It waits for the socket in slices, so that Ctrl-C works."""

    def __init__(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s
        self._deadline = None if timeout_s is None else time.monotonic() + min(timeout_s, _LONGEST_S)

    def wait(self, sock: socket.socket, events: int, why: str) -> int:
        """Return the events of poll. A closed peer also causes events."""
        if sys.platform == "win32":
            raise NotImplementedError
        poller = select.poll()
        try:
            poller.register(sock, events)
        except ValueError as error:  # a closed socket: its number is -1
            raise _closed(sock) from error
        while True:
            left_ms = _SLICE_MS if self._deadline is None else (self._deadline - time.monotonic()) * 1000
            ready = poller.poll(max(0.0, min(_SLICE_MS, left_ms)))
            if ready:
                return ready[0][1]
            if left_ms <= 0:
                raise WaitTimeoutError(f"{why} for {self._timeout_s:g} s")


class _NoWait(_Clock):
    """Never waits."""

    def __init__(self) -> None:
        super().__init__(0.0)

    def wait(self, sock: socket.socket, events: int, why: str) -> int:
        """Return the events of poll, or raise `NotReady`."""
        try:
            return super().wait(sock, events, why)
        except WaitTimeoutError:
            raise NotReady(events, why) from None
