"""The processes that can receive what is sent to a connected Unix socket."""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from xsem.data.peers import Peer
from xsem.data.signallers import note_sent
from xsem.types import MemoryDesc, SemaphoreDesc

__all__ = ["note_receivers"]

_SOCK_DIAG: Final = 4   # NETLINK_SOCK_DIAG
_BY_FAMILY: Final = 20   # SOCK_DIAG_BY_FAMILY, the type of a request and of its answer
_SHOW_PEER: Final = 4   # UDIAG_SHOW_PEER
_PEER: Final = 2   # UNIX_DIAG_PEER
_NL_HEADER: Final = struct.Struct("=IHHII")
_REQUEST: Final = struct.Struct("=BBHIIIQ")
_ANSWER_BYTES: Final = 16   # of a struct unix_diag_msg
_ATTRIBUTE: Final = struct.Struct("=HHI")


def note_receivers(sock: socket.socket, descs: Sequence[SemaphoreDesc | MemoryDesc]) -> None:
    """Note which processes can receive the semaphores of a message. Before the send: no receiver is ever unknown."""
    if any(isinstance(desc, SemaphoreDesc) for desc in descs):
        note_sent(descs, _receivers(sock))


def _receivers(sock: socket.socket) -> list[Peer]:
    """Return the processes at the other end. Empty if they are not known, or if the end is only in this process."""
    # SO_PEERCRED names the process that connected or listened. For a socket of `socket.socketpair`, it names the
    # creator of the pair. The processes that hold the other end are then found in /proc.
    peer = Peer.of_socket(sock)
    if peer is not None:
        return [peer]
    if sys.platform != "linux":
        return []
    try:
        other = _other_end(sock)
        return [] if other is None else [Peer.of(pid) for pid in _holders(f"socket:[{other}]") if pid != os.getpid()]
    except OSError:   # no netlink, or no /proc
        return []


def _other_end(sock: socket.socket) -> int | None:
    """Return the inode of the connected socket."""
    if sys.platform != "linux":
        raise NotImplementedError
    request = _REQUEST.pack(socket.AF_UNIX, 0, 0, 0xFFFFFFFF, os.fstat(sock.fileno()).st_ino, _SHOW_PEER, 2**64 - 1)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _SOCK_DIAG) as kernel:
        kernel.settimeout(1.0)
        kernel.sendto(_NL_HEADER.pack(_NL_HEADER.size + len(request), _BY_FAMILY, 1, 1, 0) + request, (0, 0))
        answer = kernel.recv(4096)
    length, kind, *_ = _NL_HEADER.unpack_from(answer)
    at = _NL_HEADER.size + _ANSWER_BYTES
    while kind == _BY_FAMILY and at + _ATTRIBUTE.size <= length:
        size, name, value = _ATTRIBUTE.unpack_from(answer, at)
        if name == _PEER:
            return int(value)
        at += max(4, (size + 3) & ~3)
    return None


def _holders(link: str) -> Iterator[int]:
    """Yield the processes of this user that have a file descriptor with this link."""
    for name in os.listdir("/proc"):
        if name.isdigit() and _holds(f"/proc/{name}/fd", link):
            yield int(name)


def _holds(folder: str, link: str) -> bool:
    try:
        numbers = os.listdir(folder)
    except OSError:   # the process of another user, or it has ended
        return False
    for number in numbers:
        try:
            if os.readlink(f"{folder}/{number}") == link:
                return True
        except OSError:   # closed meanwhile
            continue
    return False
