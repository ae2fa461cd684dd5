"""Pipes of Windows that pass descriptors between two processes of one user. ``docs/ipc.md`` describes them."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Sequence
from typing import Final, Self

from xsem.data.peers import Peer
from xsem.errors import (
    BadArgumentError,
    BadHandleError,
    BusyError,
    DriverError,
    UnsupportedError,
    XsemError,
)
from xsem.ipc import wire
from xsem.ipc.message import Message, check_nt_content, decode, split
from xsem.ipc.pipe_calls import (
    ACCESS_DENIED,
    BUSY,
    ENDED,
    MORE_DATA,
    NOT_FOUND,
    Deadline,
    PipeError,
    Transfer,
    connect_pipe,
    create_pipe,
    give_receipt,
    peer_pid,
)
from xsem.ipc.transit import Transit, settle_all
from xsem.runtime.timeouts import DEFAULT_TIMEOUT_S, wait_in_slices
from xsem.types import MemoryDesc, OwnedHandle, SemaphoreDesc

if sys.platform == "win32":
    from xsem.data.nt_processes import open_process, take_handle, user_of

__all__ = ["Pipe", "PipeListener", "connect", "listen"]

_PREFIX: Final = "\\\\.\\pipe\\"
_MAX_NAME: Final = 256
_RETRY_NS: Final = 5_000_000


class Pipe:
    """A connected pipe of Windows, the result of `connect` and `PipeListener.accept`.

    A pipe is a channel for `send` and `receive`. The end of ``with`` closes the pipe. Any thread may call any method.
    Two transfers in one direction take place one after the other.

    Attributes
    ----------
    peer : Peer
        The process at the other end. It belongs to the user of this process.

    Parameters
    ----------
    handle, process : OwnedHandle
        The pipe, and the process at the other end. This object owns both.
    peer : Peer
        As above.
    """

    def __init__(self, handle: OwnedHandle, process: OwnedHandle, peer: Peer) -> None:
        self._handle = handle
        self._transit = Transit(process)
        self._sending, self._receiving = threading.Lock(), threading.Lock()
        self.peer = peer

    def fileno(self) -> int:
        """Return the number of the pipe's NT handle. This object owns it.

        Returns
        -------
        int
            The number.

        Raises
        ------
        ReleasedError
            ``handle_closed``.
        """
        return self._handle.fileno()

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._handle.closed

    def close(self) -> None:
        """Close the pipe. The peer can still receive the messages in it. A second call has no effect.

        The handles of those messages stay open until the peer has received them or has ended. A later call of
        `xsem.ipc` closes them. At the end of this process, Windows closes them.
        """
        if not self._handle.closed:
            self._handle.close()
            self._transit.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_transit"):
            self.close()

    def __repr__(self) -> str:
        return f"<Pipe to process {self.peer.pid}{', closed' if self.closed else ''}>"

    def send(
        self, descs: Sequence[SemaphoreDesc | MemoryDesc], payload: bytes | bytearray | memoryview = b"", *,
        timeout_s: float | None = DEFAULT_TIMEOUT_S,
    ) -> None:
        """Send one message, as `xsem.ipc.send` does.

        Parameters
        ----------
        descs : sequence of SemaphoreDesc or MemoryDesc
            The descriptors. The caller keeps their handles, on success and on failure.
        payload : bytes-like
            Bytes of the application.
        timeout_s : float or None
            Seconds; None: no limit.
        """
        deadline = Deadline(timeout_s)
        self._handle.fileno()
        data, numbers = check_nt_content(descs, payload)
        with _Turn(self._sending, deadline, "another thread sends"):
            settle_all()
            self._transit.settle()
            kept, receipt = self._transit.keep([number for number in numbers if number is not None])
            try:
                copies = iter([each.fileno() for each in kept])
                message = wire.encode_nt(descs, [None if number is None else next(copies) for number in numbers], data,
                                         receipt if kept else 0)
                self._write(message, deadline)
                self._transit.sent(kept)
                kept = []
            except PipeError as error:
                raise self._refusal(error) from error
            finally:
                for each in kept:
                    each.close()

    def _write(self, message: bytes, deadline: Deadline) -> None:
        buffer = ctypes.create_string_buffer(message, len(message))
        transfer = Transfer(self._handle, "WriteFile", buffer)
        with transfer, transfer:
            transfer.start()
            if not transfer.wait(deadline) and transfer.cancel():
                raise deadline.passed("the peer does not read")
        if transfer.code:
            raise PipeError("WriteFile", transfer.code)

    def receive(self, *, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> Message:
        """Receive one message, as `xsem.ipc.receive` does.

        Parameters
        ----------
        timeout_s : float or None
            Seconds; None: no limit.

        Returns
        -------
        Message
            The message. It owns the received handles.
        """
        deadline = Deadline(timeout_s)
        self._handle.fileno()
        with _Turn(self._receiving, deadline, "another thread receives"):
            settle_all()
            try:
                data = self._read(deadline)
            except PipeError as error:
                raise self._refusal(error) from error
            header, body = split(data, wire.NT_HANDLES)
            return self._decoded(header, body)

    def _read(self, deadline: Deadline) -> bytes:
        buffer = ctypes.create_string_buffer(wire.MAX_NT_MESSAGE_BYTES)
        longer = False
        while True:
            transfer = Transfer(self._handle, "ReadFile", buffer)
            with transfer, transfer:
                transfer.start()
                if not transfer.wait(deadline) and transfer.cancel():
                    raise deadline.passed("the peer sent nothing")
            if transfer.code == MORE_DATA:   # the next read continues the same message
                longer = True
                continue
            if transfer.code:
                raise PipeError("ReadFile", transfer.code)
            if longer:
                raise BadArgumentError(f"the message is longer than {len(buffer)} bytes", reason="message_truncated")
            return buffer.raw[:transfer.count]

    def _decoded(self, header: wire.Header, body: bytes) -> Message:
        numbers = wire.handle_numbers(header, body)
        handles: list[OwnedHandle] = []
        receipts: list[OwnedHandle] = []
        try:
            # The receipt first: after a refusal, the sender can close its duplicates, too.
            for into, wanted in ((receipts, [header.receipt] if header.receipt else []), (handles, numbers)):
                for number in wanted:
                    into.append(self._take(number))
            message = decode(header, body, handles, self.peer)
            handles = []
            return message
        finally:
            for each in handles:
                each.close()
            for each in receipts:
                give_receipt(each.fileno())
                each.close()

    def _take(self, number: int) -> OwnedHandle:
        """Duplicate a handle of the peer into this process."""
        try:
            return _taken(self._transit.process.fileno(), number)
        except (BadHandleError, DriverError) as error:
            if self._transit.peer_ended:
                raise BadArgumentError(
                    f"process {self.peer.pid}, which sent the message, has ended: it must live until the message is "
                    "received", reason="sender_ended") from error
            raise BadHandleError(f"process {self.peer.pid} has closed a handle of its message", reason="closed_fd",
                                 call="DuplicateHandle", code=error.code) from error

    def _refusal(self, error: PipeError) -> XsemError:
        if error.code not in ENDED:
            return error.error()
        ended = "has ended" if self._transit.peer_ended else "has closed the pipe"
        return BadArgumentError(f"process {self.peer.pid} {ended}", reason="peer_closed", call=error.call,
                                code=error.code)


class _Turn:
    """The right to transfer in one direction of a pipe, within the time limit."""

    def __init__(self, lock: threading.Lock, deadline: Deadline, why: str) -> None:
        self._lock = lock
        self._deadline = deadline
        self._why = why

    def __enter__(self) -> None:
        left = self._deadline.left_s
        # A wait of `Lock.acquire` ends early for Ctrl-C only if it has a limit.
        if not wait_in_slices(lambda timeout_ns: self._lock.acquire(timeout=timeout_ns / 1e9), left):
            raise self._deadline.passed(self._why)

    def __exit__(self, *exc: object) -> None:
        self._lock.release()


class PipeListener:
    """A named pipe that waits for connections, the result of `listen`. The end of ``with`` closes it.

    Attributes
    ----------
    name : str
        Name of the pipe, for `connect` in another process of the same user.

    Parameters
    ----------
    name : str
        As above.
    user : str
        The security identifier of the user who may connect.
    """

    def __init__(self, name: str, user: str) -> None:
        self.name = name
        self._user = user
        self._lock = threading.Lock()
        try:
            self._instance = create_pipe(name, user, first=True)
        except PipeError as error:
            if error.code == ACCESS_DENIED:
                raise BusyError(f"the name {name!r} is in use", reason="name_in_use", call=error.call,
                                code=error.code) from error
            raise error.error() from error

    def accept(self, *, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> Pipe:
        """Wait for the next connection and return it.

        Parameters
        ----------
        timeout_s : float or None
            Seconds; None: no limit.

        Returns
        -------
        Pipe
            The connection. The caller must close it.

        Raises
        ------
        WaitTimeoutError
            ``timeout``: no process of this user connects.
        ReleasedError
            ``handle_closed``: the listener is closed.
        BadArgumentError
            ``bad_timeout``.
        BusyError
            ``fd_limit``.
        """
        deadline = Deadline(timeout_s)
        with _Turn(self._lock, deadline, "another thread accepts"):
            settle_all()
            while True:
                try:
                    connected = self._connected(deadline)
                    return _authenticated(connected, of_client=True)
                except PipeError as error:
                    raise error.error() from error
                except BadArgumentError as error:   # the client has ended, or belongs to another user
                    if error.reason not in ("peer_closed", "other_user"):
                        raise

    def _connected(self, deadline: Deadline) -> OwnedHandle:
        transfer = Transfer(self._instance, "ConnectNamedPipe")
        with transfer, transfer:
            transfer.start()
            if not transfer.wait(deadline) and transfer.cancel():
                raise deadline.passed("no process connected")
        if transfer.code and transfer.code not in ENDED:
            raise PipeError("ConnectNamedPipe", transfer.code)
        # The next instance exists before the connection ends, so another process cannot take the name.
        following = create_pipe(self.name, self._user, first=False)
        connected, self._instance = self._instance, following
        return connected

    def close(self) -> None:
        """Close the listener. Connections stay open. A second call has no effect."""
        self._instance.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<PipeListener {self.name}{', closed' if self._instance.closed else ''}>"


def listen(name: str | None = None) -> PipeListener:
    r"""Create a named pipe of Windows for connections of processes of the same user on this machine.

    Parameters
    ----------
    name : str, optional
        Name of the pipe, which begins with ``\\.\pipe\``. By default, a random name.

    Returns
    -------
    PipeListener
        The listener. The caller must close it.

    Raises
    ------
    UnsupportedError
        The system is not Windows: use a Unix socket there.
    BadArgumentError
        ``bad_name``.
    BusyError
        ``name_in_use``: a pipe has the name. ``fd_limit``.
    """
    if name is None:
        name = f"{_PREFIX}xsem-{os.urandom(16).hex()}"
    _check_name(name)
    if sys.platform == "win32":
        settle_all()
        return PipeListener(name, user_of())
    raise _no_pipes("listen")


def connect(name: str, *, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> Pipe:
    """Connect to the pipe of a `PipeListener` of another process.

    Parameters
    ----------
    name : str
        `PipeListener.name` of the other process.
    timeout_s : float or None
        Seconds; None: no limit.

    Returns
    -------
    Pipe
        The connection. The caller must close it.

    Raises
    ------
    UnsupportedError
        The system is not Windows: use a Unix socket there.
    BadArgumentError
        ``no_listener``: no pipe has the name. ``other_user``: the listening process belongs to another user.
        ``peer_closed``: the listening process has ended. ``bad_name``, ``bad_timeout``.
    BusyError
        ``fd_limit``.
    WaitTimeoutError
        ``timeout``: the other process accepts no connection.
    """
    _check_name(name)
    deadline = Deadline(timeout_s)
    if sys.platform != "win32":
        raise _no_pipes("connect")
    settle_all()
    while True:
        try:
            return _authenticated(connect_pipe(name), of_client=False)
        except PipeError as error:
            if error.code == NOT_FOUND:
                raise BadArgumentError(f"no process listens at {name!r}", reason="no_listener") from error
            if error.code == ACCESS_DENIED:
                raise _other_user() from error
            if error.code != BUSY:
                raise error.error() from error
        left = deadline.left_s
        if left == 0.0:
            raise deadline.passed("the listening process accepted no connection")
        wait_in_slices(lambda _: False, min(_RETRY_NS / 1e9, _RETRY_NS / 1e9 if left is None else left))


def _authenticated(handle: OwnedHandle, *, of_client: bool) -> Pipe:
    """Return the pipe to a process of the same user. After an error the handle is closed."""
    with handle:
        try:
            pid = peer_pid(handle.fileno(), of_client=of_client)
        except PipeError as error:
            raise BadArgumentError("the other process has closed the pipe", reason="peer_closed") from error
        peer = Peer.of(pid)
        with _process_of_user(pid) as process:
            return Pipe(handle.take(), process.take(), peer)


def _process_of_user(pid: int) -> OwnedHandle:
    """Return a handle of a process, or refuse the process of another user."""
    if sys.platform == "win32":
        process = open_process(pid)
        if process is None:
            if Peer.of(pid).started is None:
                raise BadArgumentError(f"process {pid} has ended", reason="peer_closed")
            raise _other_user()
        if user_of(process.fileno()) == user_of():
            return process
        process.close()
        raise _other_user()
    raise NotImplementedError


def _taken(process: int, number: int) -> OwnedHandle:
    if sys.platform == "win32":
        return take_handle(process, number)
    raise NotImplementedError


def _check_name(name: object) -> None:
    if (not isinstance(name, str) or not name.startswith(_PREFIX) or not len(_PREFIX) < len(name) <= _MAX_NAME
            or "\0" in name):
        raise BadArgumentError(f"the name of a pipe begins with {_PREFIX} and has at most {_MAX_NAME} characters, not "
                               f"{name!r}", reason="bad_name")


def _other_user() -> BadArgumentError:
    return BadArgumentError("the process at the other end of the pipe belongs to another user", reason="other_user")


def _no_pipes(call: str) -> UnsupportedError:
    return UnsupportedError("only Windows has these pipes; use a Unix socket (socket.socketpair)",
                            capability=f"ipc.{call}")
