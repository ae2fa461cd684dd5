"""Start the processes of participants by forks: a new interpreter takes a third of a second to import the suite.

The server is a fork of a process with one thread. This process has imported the suite, but neither a plugin nor a
vendor's library. A forked participant therefore behaves as a participant of a new interpreter.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from xsem_conformance.case.remote_participant import RemoteParticipant, main

# For the type checker. Only the worker on Linux uses this module, but every system can import it.
assert sys.platform == "linux" or not TYPE_CHECKING  # noqa: S101

if sys.platform == "linux":
    from xsem_conformance.system.posix.endings import ASK_FOR_STACKS, dump_stacks_to, end_with

__all__ = ["serve_forks"]

_LONGEST: Final = 4096
_STANDARD: Final = 3   # descriptors 0 to 2
_LAST: Final = 1 << 16


class _Forked:
    """A forked process, as a process descriptor. The server is its parent, so this process collects no zombie."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def kill(self) -> None:
        """Kill the process."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end of the process."""
        if not select.select([self._descriptor], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("participant", timeout or 0)

    def __del__(self) -> None:
        os.close(self._descriptor)


def serve_forks() -> Callable[[], object] | None:
    """Fork the server, and let `RemoteParticipant` use the server. The process must still have only one thread."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    if os.fork():
        theirs.close()
        RemoteParticipant.launch = staticmethod(lambda device: _asked(ours, device))
        return None
    ours.close()
    end_with(parent)
    signal.signal(ASK_FOR_STACKS, signal.SIG_IGN)   # the request for stacks goes to the whole group
    # An inherited pipe would stay open after the end of its owner.
    kept = theirs.fileno()
    os.closerange(_STANDARD, kept)
    os.closerange(kept + 1, _LAST)
    return _serve(theirs)


def _asked(server: socket.socket, device: str) -> tuple[socket.socket, _Forked]:
    connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        socket.send_fds(server, [json.dumps(device).encode()], [theirs.fileno()])
    _, descriptors, _, _ = socket.recv_fds(server, 1, 1)
    if not descriptors:
        connection.close()
        raise RuntimeError("the process that starts participants has ended")
    return connection, _Forked(descriptors[0])


def _serve(requests: socket.socket) -> Callable[[], object]:
    """Fork a process for each request. Return in each forked process, and end the server with its parent."""
    server = os.getpid()
    while True:
        asked, descriptors, _, _ = socket.recv_fds(requests, _LONGEST, 1)
        if not asked:
            os._exit(0)
        process = os.fork()
        if not process:
            requests.close()
            end_with(server)
            dump_stacks_to(_STANDARD - 1)
            return lambda: _participate(descriptors[0], json.loads(asked))
        os.close(descriptors[0])
        told = os.pidfd_open(process)
        socket.send_fds(requests, [b"1"], [told])
        os.close(told)
        _reap()


def _reap() -> None:
    """Collect the processes that have ended. After the end of the server, the system collects the last processes."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _participate(connection: int, device: str) -> None:
    with socket.socket(fileno=connection) as end:
        main(end, device)
