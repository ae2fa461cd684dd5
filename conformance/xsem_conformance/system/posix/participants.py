"""A participant's process, connected by a Unix socket."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from xsem.cli.interpreter import python

# For the type checker. Windows has another module in place of this one.
assert sys.platform != "win32" or not TYPE_CHECKING  # noqa: S101

__all__ = ["Channel", "connected", "launch"]

Channel = socket.socket


def launch(module: str, device: str) -> tuple[Channel, subprocess.Popen[bytes]]:
    """Start the participant's module in a process of its own, and return the connection and the process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        return ours, subprocess.Popen(  # noqa: S603 - this interpreter and this package
            [*python(), "-m", module, str(theirs.fileno()), device, str(os.getpid())],
            pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
        )


def connected(address: str) -> Channel:
    """Return the connection in the participant's process; `address` is the first argument of its command."""
    return socket.socket(fileno=int(address))
