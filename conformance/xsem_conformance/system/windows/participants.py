"""A participant's process, connected by a named pipe of `xsem.ipc`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

from xsem import ipc
from xsem.cli.interpreter import python
from xsem.errors import WaitTimeoutError

# For the type checker. Every system can import this module, and only Windows can call its functions.
assert sys.platform == "win32" or not TYPE_CHECKING  # noqa: S101

__all__ = ["Channel", "connected", "launch"]

Channel = ipc.Pipe

_START_S: Final = 60.0
"""Longest time until a new process connects. Under Wine, the start of Python takes seconds on a busy machine."""
_LOOK_S: Final = 5.0
"""Time between two looks at a process that does not connect."""


def launch(module: str, device: str) -> tuple[Channel, subprocess.Popen[bytes]]:
    """Start the participant's module in a process of its own, and return the connection and the process."""
    with ipc.listen() as listener:
        process = subprocess.Popen(  # noqa: S603 - this interpreter and this package
            [*python(), "-m", module, listener.name, device, str(os.getpid())], stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + _START_S
        while True:
            try:
                return listener.accept(timeout_s=_LOOK_S), process
            except WaitTimeoutError:
                if process.poll() is not None:
                    raise RuntimeError(f"the process of a participant ends with status {process.returncode}") from None
                if time.monotonic() > deadline:
                    process.kill()
                    raise RuntimeError(f"the process of a participant does not start within {_START_S:g} s") from None


def connected(address: str) -> Channel:
    """Return the connection in the participant's process; `address` is the first argument of its command."""
    return ipc.connect(address, timeout_s=_START_S)
