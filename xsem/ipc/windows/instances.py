"""The instances of a named pipe: one waits for a client, the others are connected."""

from __future__ import annotations

from xsem.errors import BadArgumentError, BusyError
from xsem.ipc.windows.calls import ACCESS_DENIED, ENDED, OverlappedCall, PipeError, create_pipe
from xsem.ipc.windows.connections import authenticated
from xsem.ipc.windows.pipe import Pipe

__all__ = ["Instances"]


class Instances:
    """A named pipe with an instance that waits for the next client. One call at a time uses it."""

    def __init__(self, name: str, user: str) -> None:
        self._name = name
        self._user = user
        try:
            self._instance = create_pipe(name, user, first=True)
        except PipeError as error:
            if error.code == ACCESS_DENIED:
                raise BusyError(f"the name {name!r} is in use", reason="name_in_use", **error.fields) from error
            raise error.error() from error

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._instance.closed

    def arrival(self) -> OverlappedCall:
        """Return the wait for the next client, to be started."""
        return OverlappedCall(self._instance, "ConnectNamedPipe")

    def accepted(self, arrival: OverlappedCall) -> Pipe | None:
        """Return the connection to the client that has arrived. None: it has ended, or belongs to another user."""
        try:
            if arrival.code and arrival.code not in ENDED:
                raise PipeError("ConnectNamedPipe", arrival.code)
            # Without a free handle, the next arrival is the same client.
            # The next instance exists before the connection ends, so another process cannot take the name.
            following = create_pipe(self._name, self._user, first=False)
            connected, self._instance = self._instance, following
            return authenticated(connected, of_client=True)
        except PipeError as error:
            raise error.error() from error
        except BadArgumentError as error:
            if error.reason not in ("peer_closed", "other_user"):
                raise
            return None

    def close(self) -> None:
        """Close the instance that waits. Connections stay open. A second call has no effect."""
        self._instance.close()
