"""A connected pipe, which passes descriptors between two processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self

from xsem.data.peers import Peer
from xsem.data.signallers import note_sent
from xsem.errors import BadArgumentError, BadHandleError, DriverError, XsemError
from xsem.ipc import wire
from xsem.ipc.message import Message, check_nt_content, decode, split
from xsem.ipc.windows.calls import ENDED, PipeError
from xsem.ipc.windows.deadlines import Deadline, Turn, Turns
from xsem.ipc.windows.incoming import Incoming
from xsem.ipc.windows.outgoing import Outgoing
from xsem.ipc.windows.peers import taken
from xsem.ipc.windows.transit import Transit, settle_all
from xsem.runtime.timeouts import DEFAULT_TIMEOUT_S
from xsem.types import MemoryDesc, OwnedHandle, SemaphoreDesc

__all__ = ["NOTHING_SENT", "NOT_READ", "OTHER_RECEIVES", "OTHER_SENDS", "Pipe"]

# Why a call takes too long.
NOT_READ: Final = "the peer does not read"
NOTHING_SENT: Final = "the peer sent nothing"
OTHER_SENDS: Final = "another thread sends"
OTHER_RECEIVES: Final = "another thread receives"


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
        self._incoming = Incoming(handle)
        self._sending: Turns = {}
        self._receiving: Turns = {}
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

        Raises
        ------
        UnsupportedError
            A pipe does not carry the handle type.
        BadHandleError
            ``closed_fd``, ``negative_fd``. Nothing was sent. ``closed_fd``, too, if another thread closes the pipe.
        ReleasedError
            ``handle_closed``: an `OwnedHandle` is closed. ``released``: the pipe is closed.
        BadArgumentError
            ``not_a_descriptor``, ``not_a_handle``, ``too_many_descriptors``; ``bad_payload``, ``payload_too_long``;
            ``bad_name``, ``bad_timeout``. ``peer_closed``: the peer closed the pipe.
        BusyError
            ``fd_limit``.
        WaitTimeoutError
            ``timeout``: the peer does not read, or another thread sends.
        DriverError, OutOfMemoryError
            ``system_call_failed``, ``out_of_memory``.
        """
        deadline = Deadline(timeout_s)
        self._handle.fileno()
        data, numbers = check_nt_content(descs, payload)
        turn = Turn(self._sending, deadline, OTHER_SENDS)
        try:
            turn.wait()
            outgoing = self._outgoing(descs, data, numbers)
            with outgoing as call:
                call.start()
                if not call.wait(deadline) and call.cancel():
                    raise deadline.passed(NOT_READ)
            outgoing.check()
        except PipeError as error:
            raise self._refusal(error) from error
        finally:
            self._sending.pop(turn, None)

    def _outgoing(
        self, descs: Sequence[SemaphoreDesc | MemoryDesc], payload: bytes, numbers: Sequence[int | None],
    ) -> Outgoing:
        settle_all()
        self._transit.settle()
        note_sent(descs, [self.peer])
        return Outgoing(self._handle, self._transit, descs, payload, numbers)

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

        Raises
        ------
        BadArgumentError
            ``peer_closed``: the peer closed the pipe. ``bad_magic``, ``bad_version``, ``bad_message``;
            ``sender_ended``: the sender ended before this call took the handles of its message; ``bad_timeout``.
        BadHandleError
            ``fd_count``; ``closed_fd``: the sender closed a handle of its message.
        BusyError
            ``fd_limit``.
        ReleasedError
            ``released``: the pipe is closed.
        WaitTimeoutError
            ``timeout``: the peer sends nothing, or another thread receives.
        DriverError, OutOfMemoryError
            ``system_call_failed``, ``out_of_memory``.
        """
        deadline = Deadline(timeout_s)
        self._handle.fileno()
        turn = Turn(self._receiving, deadline, OTHER_RECEIVES)
        try:
            turn.wait()
            settle_all()
            return self._message(self._data(deadline))
        finally:
            self._receiving.pop(turn, None)

    def _data(self, deadline: Deadline) -> bytes:
        try:
            while (data := self._incoming.finished()) is None:
                with self._incoming.begin() as call:
                    call.start()
                    if not call.wait(deadline) and call.cancel():
                        raise deadline.passed(NOTHING_SENT)
        except PipeError as error:
            raise self._refusal(error) from error
        return data

    def _message(self, data: bytes) -> Message:
        """Return the received message, and drop it from `_incoming`, also after a refusal."""
        handles: list[OwnedHandle] = []
        receipts: list[OwnedHandle] = []
        try:
            try:
                message = self._decoded(data, handles, receipts)
            except XsemError:
                self._incoming.drop(receipts)
                raise
            self._incoming.drop(receipts)
            handles.clear()
            return message
        finally:
            for each in (*handles, *receipts):
                each.close()

    def _decoded(self, data: bytes, handles: list[OwnedHandle], receipts: list[OwnedHandle]) -> Message:
        header, body = split(data, wire.NT_HANDLES)
        numbers = wire.handle_numbers(header, body)
        # The receipt first: after a refusal, the sender can close its duplicates, too.
        for into, wanted in ((receipts, [header.receipt] if header.receipt else []), (handles, numbers)):
            for number in wanted:
                into.append(self._take(number))
        return decode(header, body, handles, self.peer)

    def _take(self, number: int) -> OwnedHandle:
        """Duplicate a handle of the peer into this process."""
        try:
            return taken(self._transit.process.fileno(), number)
        except (BadHandleError, DriverError) as error:
            if self._transit.peer_ended:
                raise BadArgumentError(
                    f"process {self.peer.pid}, which sent the message, has ended: it must live until the message is "
                    "received", reason="sender_ended") from error
            raise BadHandleError(f"process {self.peer.pid} has closed a handle of its message", reason="closed_fd",
                                 call="DuplicateHandle", code=error.code, code_name=error.code_name) from error

    def _refusal(self, error: PipeError) -> XsemError:
        """Return the error of the application."""
        if error.code not in ENDED:
            return error.error()
        self._transit.lost()
        ended = "has ended" if self._transit.peer_ended else "has closed the pipe"
        return BadArgumentError(f"process {self.peer.pid} {ended}", reason="peer_closed", **error.fields)
