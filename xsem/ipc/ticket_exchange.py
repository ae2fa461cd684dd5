"""`offer` and `claim`: descriptors for channels that carry only text or bytes."""

from __future__ import annotations

import os
import sys
from typing import Final

from xsem.data.transfers import LIFETIME_S
from xsem.errors import BadArgumentError, UnsupportedError
from xsem.ipc.message import Message, Payload, Sendable, whole
from xsem.ipc.offers import server
from xsem.ipc.ticket_files import check_directory
from xsem.ipc.tickets import Ticket, check_lifetime, check_system, now_ns
from xsem.runtime.timeouts import DEFAULT_TIMEOUT_S, check_timeout

if sys.platform == "win32":
    from xsem.ipc.windows.ticket_pipes import Content, ask
else:
    from xsem.ipc.ticket_sockets import Content, ask

__all__ = ["claim", "offer"]

_MAX_CLAIMS: Final = 2**31 - 1


def offer(
    *descs: Sendable, payload: Payload = b"", claims: int = 1,
    lifetime_s: float = LIFETIME_S, at: str | os.PathLike[str] | None = None,
) -> Ticket:
    """Offer descriptors and a payload to other processes, and return a ticket for them.

    The ticket is a short text, for channels that carry no file descriptors: Ray, Dask, Celery, HTTP, a file. Processes
    of the same user on the same machine get the message by `claim`. A thread of xsem serves the claims, and ends with
    the last offer.

    Parameters
    ----------
    *descs : SemaphoreDesc or MemoryDesc; or one FrameRing or Message
        As in `send`.
    payload : bytes or another C-contiguous buffer
        As in `send`.
    claims : int
        Number of claims, from 1. Each claim gets its own file descriptors.
    lifetime_s : float
        Seconds until the offer ends, more than 0 and at most ten years.
    at : str or os.PathLike, optional
        Path of a directory that the other container mounts, too. The offer creates a socket file in it (mode 0600),
        which takes the claims, and removes it with the last offer. Default: an abstract socket, which only processes of
        the same network namespace reach. Linux only.

    Returns
    -------
    Ticket
        The ticket. It holds no resource.

    Raises
    ------
    BadArgumentError
        ``bad_claims``, ``bad_timeout``; ``bad_directory``, ``path_too_long``: the path of a socket has at most 107
        bytes; as `send`, without the reasons of the socket.
    UnsupportedError, BadHandleError, ReleasedError
        As `send`; also if the system is neither Linux nor Windows, for `at` on Windows, and ``subinterpreter``.
    BusyError
        ``no_thread``: the system refuses a thread. ``fd_limit``.
    DriverError
        ``system_call_failed``: the system refuses the socket, for example because this user may not write to `at`.

    Notes
    -----
    Ownership: the offer keeps duplicates of the file descriptors or NT handles until the last claim, the end of
    `lifetime_s`, or the end of this process. The handles of the caller stay open, on success and on failure. After an
    error or Ctrl-C no offer exists. A forked child serves no offers of its parent. On Windows, this process must live
    until `claim` has returned.

    Examples
    --------
    >>> import xsem
    >>> with xsem.open_device("host") as device, device.create_timeline(3).export() as desc:
    ...     ticket = xsem.ipc.offer(desc, payload=b"frames", lifetime_s=60)
    ...     with xsem.ipc.claim(ticket) as message:     # in another process
    ...         message.payload
    b'frames'
    """
    if isinstance(claims, bool) or not isinstance(claims, int) or not 1 <= claims <= _MAX_CLAIMS:
        raise BadArgumentError(f"claims is an int from 1, not {claims!r}", reason="bad_claims")
    check_lifetime(lifetime_s)
    deadline_ns = now_ns() + int(lifetime_s * 1e9)
    if at is not None and sys.platform == "win32":
        raise UnsupportedError("containers of Windows share no pipes: offer without at=", capability="ipc.offer.at")
    directory = None if at is None else check_directory(at)
    with whole(descs, payload) as (offered, data):
        return server(directory).add(Content(offered, data), claims, deadline_ns)


def claim(
    ticket: str | bytes, *, timeout_s: float | None = DEFAULT_TIMEOUT_S, at: str | os.PathLike[str] | None = None
) -> Message:
    """Return the message that another process of this machine offered.

    Parameters
    ----------
    ticket : Ticket, str or bytes
        The ticket, or its text.
    timeout_s : float or None
        Seconds. None: no limit.
    at : str or os.PathLike, optional
        For a ticket of ``offer(at=…)``: the path that the directory has in this container. It has no effect on other
        tickets.

    Returns
    -------
    Message
        The message. It owns its handles, and the caller must close it.

    Raises
    ------
    BadArgumentError
        ``bad_ticket``: the text is not a ticket. ``ticket_forged``: the text was changed. ``ticket_expired``: the
        lifetime is over. ``ticket_spent``: the ticket was claimed as often as offered, or `at` is not the directory of
        its offer. ``sender_ended``: the offering process has ended. ``other_user``: the offering process belongs to
        another user, or one of the two users has no mapping in a user namespace. ``other_host``: the ticket is from
        another machine, or from before a restart. ``other_container``: a container with another network namespace.
        ``bad_directory``: the ticket needs `at`, or `at` does not name a directory; ``path_too_long``; ``bad_timeout``.
    BadHandleError
        ``fds_truncated``: this process cannot open so many file descriptors. The claim counts.
    BusyError
        ``fd_limit``: this process cannot open another file descriptor; on Windows, so many handles: the claim counts.
    DriverError
        ``system_call_failed``: the system refuses a call, for example in a sandbox.
    UnsupportedError
        The system is neither Linux nor Windows.
    WaitTimeoutError
        ``timeout``: the offering process does not answer, for example because it is stopped.

    Notes
    -----
    Ownership: after an error or Ctrl-C every received handle is closed. An interrupted claim can count.

    Examples
    --------
    >>> import xsem
    >>> with xsem.open_device("host") as device, device.create_timeline(3).export() as desc:
    ...     text = str(xsem.ipc.offer(desc))
    ...     with xsem.ipc.claim(text) as message:       # in another process
    ...         device.import_semaphore(message.semaphores[0]).value()
    3
    """
    if isinstance(ticket, bytes):
        ticket = ticket.decode("ascii", "replace")
    ticket = Ticket(ticket)
    check_timeout(timeout_s)
    now_ns()   # refuses other systems
    fields, _ = ticket.fields()
    check_system(fields)
    return ask(ticket, fields, timeout_s, None if at is None else check_directory(at))
