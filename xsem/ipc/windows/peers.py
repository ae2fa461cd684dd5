"""The process at the other end of a pipe: its user and its handles."""

from __future__ import annotations

import sys

from xsem.data.handles import adopt
from xsem.data.peers import Peer
from xsem.errors import BadArgumentError
from xsem.types import OwnedHandle

if sys.platform == "win32":
    from xsem.data.windows.processes import open_process, take_handle, user_of

__all__ = ["other_user", "process_of_user", "taken"]


def process_of_user(pid: int) -> OwnedHandle:
    """Return a handle of a process, or refuse the process of another user."""
    if sys.platform == "win32":
        number = open_process(pid)
        if number is None:
            if Peer.of(pid).started is None:
                raise BadArgumentError(f"process {pid} has ended", reason="peer_closed")
            raise other_user()
        process = adopt(number)
        if user_of(number) == user_of():
            return process
        process.close()
        raise other_user()
    raise NotImplementedError


def taken(process: int, number: int) -> OwnedHandle:
    """Return a duplicate of a handle of another process, owned by the caller."""
    if sys.platform == "win32":
        return adopt(take_handle(process, number))
    raise NotImplementedError


def other_user() -> BadArgumentError:
    """Return the error for a peer of another user."""
    return BadArgumentError("the process at the other end of the pipe belongs to another user", reason="other_user")
