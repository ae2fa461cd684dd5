"""`connect`: the client of a named pipe, and the check of both ends that the peer belongs to the same user."""

from __future__ import annotations

import sys
import time
from typing import Final

from xsem.data.peers import Peer
from xsem.errors import BadArgumentError
from xsem.ipc.windows.calls import ACCESS_DENIED, BUSY, NOT_FOUND, PipeError, connect_pipe, peer_pid
from xsem.ipc.windows.deadlines import Deadline
from xsem.ipc.windows.names import check_name, no_pipes
from xsem.ipc.windows.peers import other_user, process_of_user
from xsem.ipc.windows.pipe import Pipe
from xsem.ipc.windows.transit import settle_all
from xsem.runtime.timeouts import DEFAULT_TIMEOUT_S
from xsem.types import OwnedHandle

__all__ = ["authenticated", "connect"]

_RETRY_S: Final = 0.005


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
    check_name(name)
    deadline = Deadline(timeout_s)
    if sys.platform != "win32":
        raise no_pipes("connect")
    settle_all()
    while True:
        try:
            return authenticated(connect_pipe(name), of_client=False)
        except PipeError as error:
            if error.code == NOT_FOUND:
                raise BadArgumentError(f"no process listens at {name!r}", reason="no_listener") from error
            if error.code == ACCESS_DENIED:
                raise other_user() from error
            if error.code != BUSY:
                raise error.error() from error
        left = deadline.left_s
        if left == 0.0:
            raise deadline.passed("the listening process accepted no connection")
        time.sleep(_RETRY_S if left is None else min(_RETRY_S, left))


def authenticated(handle: OwnedHandle, *, of_client: bool) -> Pipe:
    """Return the pipe to a process of the same user. After an error the handle is closed."""
    with handle:
        try:
            pid = peer_pid(handle.fileno(), of_client=of_client)
        except PipeError as error:
            raise BadArgumentError("the other process has closed the pipe", reason="peer_closed") from error
        peer = Peer.of(pid)
        with process_of_user(pid) as process:
            return Pipe(handle.take(), process.take(), peer)
