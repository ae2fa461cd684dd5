"""The exchange of tickets on Linux: over a Unix socket of type SOCK_SEQPACKET, abstract or in a directory."""

from __future__ import annotations

import array
import contextlib
import errno
import logging
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

from xsem.data.handles import own
from xsem.data.peers import Peer, peer_user
from xsem.data.running_system import read_small
from xsem.data.signallers import signallers_of_all
from xsem.errors import BadArgumentError, BadHandleError, BusyError, DriverError, WaitTimeoutError, XsemError
from xsem.ipc import ticket_files, wire
from xsem.ipc.message import Message, decode, encode, split
from xsem.ipc.sockets import Receiver
from xsem.ipc.ticket_verdicts import GRANTED, OTHER_USER, OVER, SPENT, absent, ended, refusal
from xsem.ipc.tickets import MAX_TICKET_BYTES, Fields, Ticket
from xsem.runtime.threads import exiting
from xsem.types import MemoryDesc, OwnedHandle, SemaphoreDesc

__all__ = ["Content", "Send", "Session", "ask"]

_log = logging.getLogger("xsem")

_MAX_CONNECTIONS: Final = 64
_SEND_BUFFER: Final = 1 << 18
_USUAL_OVERFLOW_USER: Final = 65534
_ALL_USERS: Final = 2**32 - 1   # -1 is not a user


class Content:
    """The message of an offer. The last reference closes the duplicates of its file descriptors."""

    # The handles of the descriptors are borrowed until `keep`.
    def __init__(
        self, descs: Sequence[SemaphoreDesc | MemoryDesc], payload: bytes | bytearray | memoryview
    ) -> None:
        self.data, self._fds = encode(descs, payload)
        self._signallers = signallers_of_all(descs)
        self.handles: list[OwnedHandle] = []

    def keep(self) -> None:
        """Duplicate the file descriptors."""
        try:
            for fd in self._fds:
                self.handles.append(own(os.dup, fd))
        except OSError as error:
            raise _system_error(error) from error
        for each in self._signallers:
            each.opened(self)

    @property
    def open(self) -> bool:
        """Whether a process may still claim the message."""
        return any(not handle.closed for handle in self.handles)

    def claimed_by(self, peer: Peer | None) -> None:
        """Note the process that claims the message."""
        for each in self._signallers:
            each.receiver(peer)

    def close(self) -> None:
        """Close the duplicates."""
        for handle in self.handles:
            handle.close()


Send: TypeAlias = Callable[[int, Content | None], None]


class Session:
    """The sockets of the thread that serves offers."""

    def __init__(self, directory: str | None = None) -> None:
        # First the socket that listens, then the connections, oldest first.
        self.sockets: list[socket.socket] = []
        self._directory = directory   # None: the socket is abstract
        self._file: str | None = None

    @property
    def closed(self) -> bool:
        """Whether every socket is closed."""
        return not self.sockets

    @property
    def owes(self) -> bool:
        """Whether a claimed message needs this session. The kernel keeps messages in sockets, so none does."""
        return False

    def listen(self, address: bytes) -> None:
        """Begin to listen."""
        try:
            self._listen(address)
        except OSError as error:
            raise _system_error(error) from error

    def _listen(self, address: bytes) -> None:
        if sys.platform == "win32":
            raise NotImplementedError
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sockets.append(sock)
        sock.setblocking(False)
        if self._directory is None:
            sock.bind(_name(address))
            sock.listen(_MAX_CONNECTIONS)
        else:
            path = ticket_files.path_of(self._directory, address)
            ticket_files.listen(sock, path, _MAX_CONNECTIONS)
            self._file = path

    def turn(self, timeout_s: float, answer: Callable[[bytes, Send], None]) -> None:
        """Wait for connections and requests, and answer them. `answer` gets a function that sends the answer."""
        for sock in self._ready(timeout_s):
            if sock not in self.sockets:
                continue
            if sock is self.sockets[0]:
                try:
                    self._accept()
                except OSError as error:
                    if error.errno in (errno.EMFILE, errno.ENFILE):
                        time.sleep(0.05)   # the claim waits until this process can open a file descriptor
                continue
            try:
                request = sock.recv(MAX_TICKET_BYTES)
                if request:
                    answer(request, partial(_send, sock))
            except OSError as error:   # the claiming process ended; the claim does not count
                _log.debug("a claim of a ticket failed: %s", error)
            self._drop(sock)

    def _accept(self) -> None:
        """Accept a connection. Close it at once if it belongs to another user."""
        if sys.platform == "win32":
            raise NotImplementedError
        connection, _ = self.sockets[0].accept()
        self.sockets.append(connection)
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        try:
            admitted = self._admits(connection)
        except OSError as error:   # a sandbox refuses getsockopt
            admitted = False
            _log.warning("a claim of a ticket is refused, because its user is unknown: %s", error)
        if not admitted:
            with contextlib.suppress(OSError):
                connection.send(bytes([OTHER_USER]))
            self._drop(connection)
        if len(self.sockets) > _MAX_CONNECTIONS:
            self._drop(self.sockets[1])

    def _admits(self, connection: socket.socket) -> bool:
        return _is_own_user(connection)

    def _ready(self, timeout_s: float) -> list[socket.socket]:
        """Return the sockets that have a connection or data."""
        if sys.platform == "win32":
            raise NotImplementedError
        poller = select.poll()
        for sock in self.sockets:
            poller.register(sock, select.POLLIN)
        numbers = {number for number, _ in poller.poll(timeout_s * 1000)}
        return [sock for sock in self.sockets if sock.fileno() in numbers]

    def _drop(self, connection: socket.socket) -> None:
        # Close first: other threads read `closed`, which must not be true before.
        connection.close()
        self.sockets.remove(connection)

    def abandon(self) -> None:
        """Close all sockets in a forked child. The file is its parent's."""
        self._file = None
        self.close()

    def close(self) -> None:
        """Close all sockets."""
        # The file of a process that ends with an offer stays: it tells a claim that the process has ended.
        if self._file is not None and not exiting():
            ticket_files.remove(self._file)
            self._file = None
        while self.sockets:
            self._drop(self.sockets[-1])


def _send(sock: socket.socket, verdict: int, content: Content | None) -> None:
    if sys.platform == "win32":
        raise NotImplementedError
    if content is None:
        sock.send(bytes([verdict]), socket.MSG_NOSIGNAL)
        return
    numbers = array.array("i", [handle.fileno() for handle in content.handles])
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)] if numbers else []
    content.claimed_by(Peer.of_socket(sock))
    sock.sendmsg([bytes([verdict]), content.data], rights, socket.MSG_NOSIGNAL)


def ask(ticket: Ticket, fields: Fields, timeout_s: float | None, directory: str | None = None) -> Message:
    """Claim the message of a ticket, with the errors of `xsem.ipc.claim`."""
    if sys.platform == "win32":
        raise NotImplementedError
    name: str | bytes = _name(fields.address)
    if fields.in_directory:
        if directory is None:
            raise BadArgumentError("the ticket was offered in a directory: pass the path that this directory has here, "
                                   "claim(ticket, at=…)", reason="bad_directory")
        name = ticket_files.path_of(directory, fields.address)
    end = None if timeout_s is None else time.monotonic() + min(timeout_s, 1e9)
    try:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError as error:
        raise _system_error(error, "socket") from error
    with sock:
        _connect(sock, name, fields, timeout_s, end)
        left = None if end is None else max(0.0, end - time.monotonic())
        with Receiver(sock, wire.MAX_FDS, left) as receiver:
            return _answer(sock, receiver, ticket, partial(_absent, name, fields))


def _connect(
    sock: socket.socket, name: str | bytes, fields: Fields, timeout_s: float | None, end: float | None
) -> None:
    sock.setblocking(False)
    while True:
        try:
            sock.connect(name)
            break
        except BlockingIOError:   # the queue of connections is full
            if end is not None and time.monotonic() > end:
                raise WaitTimeoutError(f"process {fields.pid}, which offers the ticket, accepted no connection for "
                                       f"{timeout_s:g} s") from None
            time.sleep(0.002)
        except OSError as error:
            raise _no_connection(error, fields) from error
    try:
        is_own_user = _is_own_user(sock)
    except OSError as error:
        raise _system_error(error, "getsockopt") from error
    # Of all users, only the offering user can have made the proof in the ticket, so the text stays secret.
    if not is_own_user:
        raise refusal(OTHER_USER)


def _no_connection(error: OSError, fields: Fields) -> XsemError:
    if fields.in_directory and isinstance(error, FileNotFoundError):
        return refusal(OVER if fields.expired else SPENT)
    if fields.in_directory and isinstance(error, PermissionError):
        return refusal(OTHER_USER)
    if not isinstance(error, ConnectionRefusedError):
        return _system_error(error, "connect")
    # Nothing has that address. In a directory, a file without its process.
    return ended(fields) if fields.in_directory else absent(fields)


def _absent(name: str | bytes, fields: Fields) -> BadArgumentError:
    """Return the error for an offer that ended during its claim."""
    if sys.platform == "win32":
        raise NotImplementedError
    if not fields.in_directory:
        return absent(fields)
    # In another PID namespace, the number of the process means nothing.
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as again:
        again.setblocking(False)
        try:
            again.connect(name)
        except ConnectionRefusedError:
            return ended(fields)
        except OSError:
            pass
    return refusal(OVER if fields.expired else SPENT)


def _answer(
    sock: socket.socket, receiver: Receiver, ticket: Ticket, absence: Callable[[], BadArgumentError]
) -> Message:
    try:
        # A process that refuses this user answers and closes the connection before it reads the ticket.
        with contextlib.suppress(BrokenPipeError):
            sock.send(ticket.encode("ascii"), getattr(socket, "MSG_NOSIGNAL", 0))
        answer = receiver.receive_once(1 + wire.MAX_MESSAGE_BYTES)
    except (BrokenPipeError, ConnectionError) as error:
        raise absence() from error
    except BadArgumentError as error:
        if error.reason not in ("peer_closed", "truncated_message"):
            raise
        raise absence() from error
    if answer[:1] != bytes([GRANTED]):
        raise refusal(answer[0] if answer else SPENT)
    message = decode(*split(answer[1:]), receiver.handles, Peer.of_socket(sock))
    receiver.take()
    return message


def _name(address: bytes) -> bytes:
    """Return the name of an abstract Unix socket, which exists only while it is open."""
    return b"\0xsem-" + address.hex().encode("ascii")


def _is_own_user(sock: socket.socket) -> bool:
    """Whether the process at the other end of a socket belongs to the user of this process."""
    if sys.platform == "win32":
        raise NotImplementedError
    user = os.geteuid()
    return peer_user(sock) == user and (user != _unmapped_user() or _every_user_is_mapped())


def _unmapped_user() -> int:
    """Return the number that the kernel shows for each user without a mapping in this user namespace."""
    try:
        return int(read_small("/proc/sys/kernel/overflowuid"))
    except OSError:   # no /proc
        return _USUAL_OVERFLOW_USER


def _every_user_is_mapped() -> bool:
    """Whether this user namespace has a number for each user, as the first namespace of a machine."""
    try:
        mapped = [int(line.split()[2]) for line in read_small("/proc/self/uid_map").splitlines()]
    except OSError:
        return False
    return sum(mapped) >= _ALL_USERS


def _system_error(error: OSError, call: str = "bind") -> XsemError:
    what = "offer" if call == "bind" else "claim"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return BusyError(f"this process can open no more file descriptors, which the {what} of a ticket needs: close "
                         "some, or raise the limit (ulimit -n)", reason="fd_limit")
    if error.errno == errno.EBADF:
        return BadHandleError("a file descriptor was closed during the call", reason="closed_fd")
    return DriverError("the kernel, a sandbox (seccomp) or the permissions of the directory (at=) refused the socket "
                       f"of the {what} of a ticket: {error.strerror}", reason="system_call_failed", call=call,
                       code=error.errno, code_name=errno.errorcode.get(error.errno or 0))
