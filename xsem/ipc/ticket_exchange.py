"""`offer` and `claim`: descriptors for channels that carry only text or bytes."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from typing import Final, Self

from xsem.data.handles import store
from xsem.data.peers import Peer, peer_user
from xsem.errors import BadArgumentError, UnsupportedError, WaitTimeoutError
from xsem.ipc import wire
from xsem.ipc.message import Message, decode, encode, split
from xsem.ipc.offers import FORGED, GRANTED, OTHER_USER, OVER, SPENT, server
from xsem.ipc.sockets import Receiver
from xsem.ipc.tickets import Fields, Ticket, check_system, is_running, now_ns
from xsem.runtime.timeouts import DEFAULT_TIMEOUT_S, check_timeout
from xsem.types import MemoryDesc, SemaphoreDesc

__all__ = ["claim", "offer"]

_MAX_CLAIMS: Final = 2**31 - 1
_MAX_LIFETIME_S: Final = 10 * 365 * 86400


def offer(
    *descs: SemaphoreDesc | MemoryDesc, payload: bytes | bytearray | memoryview = b"", claims: int = 1,
    lifetime_s: float = 60.0,
) -> Ticket:
    """Offer descriptors and a payload to other processes, and return a ticket for them.

    The ticket is a short text, for channels that carry no file descriptors: Ray, Dask, Celery, HTTP, a file. Processes
    of the same user on the same machine get the message by `claim`. A thread of xsem serves the claims, and ends with
    the last offer.

    Parameters
    ----------
    *descs : SemaphoreDesc or MemoryDesc
        At most 64 descriptors, as in `send`.
    payload : bytes or another C-contiguous buffer
        As in `send`.
    claims : int
        Number of claims, from 1. Each claim gets its own file descriptors.
    lifetime_s : float
        Seconds until the offer ends, more than 0 and at most ten years.

    Returns
    -------
    Ticket
        The ticket. It holds no resource.

    Raises
    ------
    BadArgumentError
        ``bad_claims``, ``bad_timeout``; as `send`, without the reasons of the socket.
    UnsupportedError, BadHandleError, ReleasedError
        As `send`; also if the system is not Linux.
    BusyError
        ``no_thread``: the system refuses a thread. ``fd_limit``.

    Notes
    -----
    Ownership: the offer keeps duplicates of the file descriptors until the last claim, the end of `lifetime_s`, or the
    end of this process. The file descriptors of the caller stay open, on success and on failure. After an error or
    Ctrl-C no offer exists. A forked child serves no offers of its parent.
    """
    if isinstance(claims, bool) or not isinstance(claims, int) or not 1 <= claims <= _MAX_CLAIMS:
        raise BadArgumentError(f"claims is an int from 1, not {claims!r}", reason="bad_claims")
    check_timeout(lifetime_s)
    if lifetime_s is None or not 0 < lifetime_s <= _MAX_LIFETIME_S:
        raise BadArgumentError(f"lifetime_s is seconds > 0 and at most ten years, not {lifetime_s!r}",
                               reason="bad_timeout")
    deadline_ns = now_ns() + int(lifetime_s * 1e9)
    data, fds = encode(descs, payload)
    return server().add(data, fds, claims, deadline_ns)


def claim(ticket: str | bytes, *, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> Message:
    """Return the message that another process of this machine offered.

    Parameters
    ----------
    ticket : Ticket, str or bytes
        The ticket, or its text.
    timeout_s : float or None
        Seconds. None: no limit.

    Returns
    -------
    Message
        The message. It owns its file descriptors, and the caller must close it.

    Raises
    ------
    BadArgumentError
        ``bad_ticket``: the text is not a ticket. ``ticket_forged``: the text was changed. ``ticket_expired``: the
        lifetime is over. ``ticket_spent``: the ticket was claimed as often as offered. ``sender_ended``: the offering
        process has ended. ``other_user``: the offering process belongs to another user. ``other_host``: the ticket is
        from another machine, or from before a restart. ``other_container``: a container with another network
        namespace. ``bad_timeout``.
    BadHandleError
        ``fds_truncated``: this process cannot open so many file descriptors. The claim counts.
    UnsupportedError
        The system is not Linux.
    WaitTimeoutError
        ``timeout``: the offering process does not answer, for example because it is stopped.

    Notes
    -----
    Ownership: after an error or Ctrl-C every received file descriptor is closed. An interrupted claim can count.
    """
    if isinstance(ticket, bytes):
        ticket = ticket.decode("ascii", "replace")
    ticket = Ticket(ticket)
    check_timeout(timeout_s)
    now_ns()   # refuses other systems
    fields, _ = ticket.fields()
    check_system(fields)
    with _Line(fields, timeout_s) as line, line:
        line.connect()
        return line.ask(ticket)


class _Line:
    """Connection to the offering process. The caller enters it twice, as `sockets._Transfer`."""

    def __init__(self, fields: Fields, timeout_s: float | None) -> None:
        self._fields = fields
        self._timeout_s = timeout_s
        self._end = None if timeout_s is None else time.monotonic() + min(timeout_s, 1e9)
        self._sockets: list[socket.socket] = []

    def connect(self) -> None:
        if sys.platform == "win32":
            raise UnsupportedError("tickets need Unix sockets", capability="ipc.offer")
        store(self._sockets, socket.socket, socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock = self._sockets[0]
        sock.setblocking(False)
        while True:
            try:
                sock.connect(self._fields.name)
                break
            except BlockingIOError:   # the queue of connections is full
                if self._end is not None and time.monotonic() > self._end:
                    raise WaitTimeoutError(f"process {self._fields.pid}, which offers the ticket, accepted no "
                                           f"connection for {self._timeout_s:g} s") from None
                time.sleep(0.002)
            except ConnectionRefusedError as error:   # nothing has that address
                raise self._absent() from error
        # Of all users, only the offering user can have made the proof in the ticket, so the text stays secret.
        if peer_user(sock) != os.geteuid():
            raise _refusal(OTHER_USER)

    def ask(self, ticket: Ticket) -> Message:
        sock = self._sockets[0]
        left = None if self._end is None else max(0.0, self._end - time.monotonic())
        with Receiver(sock, wire.MAX_DESCRIPTORS, left) as receiver, receiver:
            try:
                # A process that refuses this user answers and closes the connection before it reads the ticket.
                with contextlib.suppress(BrokenPipeError):
                    sock.send(ticket.encode("ascii"), getattr(socket, "MSG_NOSIGNAL", 0))
                answer = receiver.receive_once(1 + wire.MAX_MESSAGE_BYTES)
            except (BrokenPipeError, ConnectionError) as error:
                raise self._absent() from error
            except BadArgumentError as error:
                if error.reason not in ("peer_closed", "truncated_message"):
                    raise
                raise self._absent() from error
            if answer[:1] != bytes([GRANTED]):
                raise _refusal(answer[0] if answer else SPENT)
            message = decode(*split(answer[1:]), receiver.handles, Peer.of_socket(sock))
            receiver.take()
        return message

    def _absent(self) -> BadArgumentError:
        """Return the error for an offer that is not served any more."""
        if not is_running(self._fields):
            return BadArgumentError(f"process {self._fields.pid}, which offered the ticket, has ended: it must live "
                                    "until the ticket is claimed", reason="sender_ended")
        return _refusal(OVER if self._fields.expired else SPENT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for sock in self._sockets:
            sock.close()


def _refusal(verdict: int) -> BadArgumentError:
    if verdict == OTHER_USER:
        return BadArgumentError("the ticket belongs to another user: only processes of the user that offered it can "
                                "claim it", reason="other_user")
    if verdict == FORGED:
        return BadArgumentError("the offering process did not write this ticket, or the text was changed on its way",
                                reason="ticket_forged")
    if verdict == OVER:
        return BadArgumentError("the lifetime of the ticket is over: offer with a longer lifetime_s",
                                reason="ticket_expired")
    return BadArgumentError("the ticket was claimed as often as it was offered: offer with more claims",
                            reason="ticket_spent")
