"""Names of pipes, and the error of a system without named pipes."""

from __future__ import annotations

import os
from typing import Final

from xsem.errors import BadArgumentError, UnsupportedError

__all__ = ["PREFIX", "check_name", "new_name", "no_pipes"]

PREFIX: Final = "\\\\.\\pipe\\"
_MAX_NAME: Final = 256


def new_name() -> str:
    """Return a random name that no other pipe has."""
    return f"{PREFIX}xsem-{os.urandom(16).hex()}"


def check_name(name: object) -> None:
    """Refuse a name that is not the name of a pipe."""
    if (not isinstance(name, str) or not name.startswith(PREFIX) or not len(PREFIX) < len(name) <= _MAX_NAME
            or "\0" in name):
        raise BadArgumentError(f"the name of a pipe begins with {PREFIX} and has at most {_MAX_NAME} characters, not "
                               f"{name!r}", reason="bad_name")


def no_pipes(call: str) -> UnsupportedError:
    """Return the error for a system without named pipes."""
    return UnsupportedError("only Windows has these pipes; use a Unix socket (socket.socketpair)",
                            capability=f"ipc.{call}")
