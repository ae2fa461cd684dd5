"""Processes that sent or received descriptors, and whether they still run."""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
from dataclasses import dataclass
from typing import Final, Self

from xsem.data.handles import own
from xsem.data.params import check_int
from xsem.data.running_system import read_small
from xsem.errors import BadArgumentError

if sys.platform == "win32":
    from xsem.data.windows.processes import start_of_process

__all__ = ["Peer", "peer_pid", "peer_user", "start_of"]

_PF_EXITING: Final = 4
_CREDENTIALS: Final = struct.Struct("iII")
_LARGEST_PID: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Peer:
    """A process that sent a descriptor, keeps it for its receivers, or received it.

    `xsem.ipc.receive`, `xsem.ipc.claim` and the channels of multiprocessing note the sender in `SemaphoreDesc.peer`. If
    every process that can signal a semaphore has ended, a wait for it raises `WaitTimeoutError` (``peer_ended``) before
    its timeout (docs/explanation/peers.md). A peer holds no file descriptor.

    Attributes
    ----------
    pid : int
        Number of the process.
    started : int or None
        Start time of the process, in clock ticks since the start of the machine; Windows: in 100 ns since 1601. It
        distinguishes a later process with the same number. None if the process had ended, or the time cannot be read.

    Raises
    ------
    BadArgumentError
        ``not_a_peer``, ``not_an_int``.

    Examples
    --------
    >>> import os
    >>> import xsem
    >>> xsem.Peer.of(os.getpid()).alive
    True
    """

    pid: int
    started: int | None

    def __post_init__(self) -> None:
        check_int("pid", self.pid, 1, _LARGEST_PID, reason="not_a_peer")
        if self.started is not None:
            check_int("started", self.started, 0, 2**64 - 1, reason="not_a_peer")

    @classmethod
    def of(cls, pid: int) -> Self:
        """Return the peer that has this number now.

        Parameters
        ----------
        pid : int
            Number of the process.

        Returns
        -------
        Peer
            The peer. Its `started` is None if the process does not exist.

        Raises
        ------
        BadArgumentError
            ``not_a_peer``, ``not_an_int``.
        """
        check_int("pid", pid, 1, _LARGEST_PID, reason="not_a_peer")
        return cls(pid, start_of(pid))

    @classmethod
    def of_socket(cls, sock: socket.socket) -> Self | None:
        """Return the process at the other end of a connected Unix socket (SO_PEERCRED).

        Parameters
        ----------
        sock : socket.socket
            A connected Unix socket. It does not change.

        Returns
        -------
        Peer or None
            The process. None if it is this process, as for `socket.socketpair`, or if the system is not Linux.

        Raises
        ------
        BadArgumentError
            ``not_a_unix_socket``: the object is not a socket.
        """
        if not callable(getattr(sock, "getsockopt", None)):
            raise BadArgumentError(f"a connected Unix socket is needed, not {type(sock).__name__}",
                                   reason="not_a_unix_socket")
        if sys.platform != "linux":
            return None
        try:
            data = _peer_credentials(sock)
        except OSError:
            return None
        return cls.of_credentials(data)

    @classmethod
    def of_credentials(cls, data: bytes) -> Self | None:
        """Return the process of a ``struct ucred``.

        Parameters
        ----------
        data : bytes
            The bytes of the ``struct ucred``.

        Returns
        -------
        Peer or None
            The process. None for this process, and for a process of a hidden PID namespace.

        Raises
        ------
        BadArgumentError
            ``not_a_peer``: the bytes are not a ``struct ucred``.
        """
        try:
            pid: int = _CREDENTIALS.unpack(data)[0]
        except (TypeError, struct.error) as error:
            raise BadArgumentError(f"a struct ucred is {_CREDENTIALS.size} bytes, not {data!r}",
                                   reason="not_a_peer") from error
        return None if pid <= 0 or pid == os.getpid() else cls.of(pid)

    @property
    def alive(self) -> bool:
        """Whether the process runs. False from the moment in which it begins to end. Never blocks."""
        if sys.platform == "win32":
            return self.started is None or start_of(self.pid) == self.started
        if sys.platform != "linux":
            return True
        try:
            with own(os.pidfd_open, self.pid) as pidfd:
                poller = select.poll()
                poller.register(pidfd.fileno(), select.POLLIN)
                if poller.poll(0):
                    return False
        except ProcessLookupError:
            return False
        except OSError:   # no pidfd in this kernel or sandbox, or no free number: `start_of` tells
            pass
        return self.started is None or start_of(self.pid) == self.started


def peer_pid(sock: socket.socket) -> int:
    """Return the number of the process at the other end of a connected Unix socket (SO_PEERCRED): also of this one."""
    pid: int = _CREDENTIALS.unpack(_peer_credentials(sock))[0]
    return pid


def peer_user(sock: socket.socket) -> int:
    """Return the user of the process at the other end of a connected Unix socket (SO_PEERCRED)."""
    user: int = _CREDENTIALS.unpack(_peer_credentials(sock))[1]
    return user


def _peer_credentials(sock: socket.socket) -> bytes:
    """Return the ``struct ucred`` of the other end: pid, user and group."""
    if sys.platform != "linux":
        raise NotImplementedError
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)


def start_of(pid: int) -> int | None:
    """Return the start time of a process. None without such a process, if it is ending, or if it cannot be read."""
    if sys.platform == "win32":
        return start_of_process(pid)
    try:
        # The name of the program, in parentheses, can contain any character.
        after_name = read_small(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return None
    # The kernel sets PF_EXITING before it closes the files of the process, and the state Z after that.
    return None if after_name[0] in b"ZX" or int(after_name[6]) & _PF_EXITING else int(after_name[19])
