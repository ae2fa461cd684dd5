"""`listen`: the server of a named pipe."""

from __future__ import annotations

import sys
from typing import Self

from xsem.ipc.windows.deadlines import Deadline, Turn, Turns
from xsem.ipc.windows.instances import Instances
from xsem.ipc.windows.names import check_name, new_name, no_pipes
from xsem.ipc.windows.pipe import Pipe
from xsem.ipc.windows.transit import settle_all
from xsem.runtime.timeouts import DEFAULT_TIMEOUT_S

if sys.platform == "win32":
    from xsem.data.windows.processes import user_of

__all__ = ["PipeListener", "listen"]


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
        self._turns: Turns = {}
        self._instances = Instances(name, user)

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
        turn = Turn(self._turns, deadline, "another thread accepts")
        try:
            turn.wait()
            settle_all()
            while True:
                with self._instances.arrival() as call:
                    call.start()
                    if not call.wait(deadline) and call.cancel():
                        raise deadline.passed("no process connected")
                pipe = self._instances.accepted(call)
                if pipe is not None:
                    return pipe
        finally:
            self._turns.pop(turn, None)

    def close(self) -> None:
        """Close the listener. Connections stay open. A second call has no effect."""
        self._instances.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<PipeListener {self.name}{', closed' if self._instances.closed else ''}>"


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
    DriverError
        ``system_call_failed``: Windows does not say who the user of this process is.
    """
    if name is None:
        name = new_name()
    check_name(name)
    if sys.platform == "win32":
        settle_all()
        return PipeListener(name, user_of())
    raise no_pipes("listen")
