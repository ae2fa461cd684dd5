"""One call of recvmsg, with an owner for each file descriptor that comes with it."""

from __future__ import annotations

import array
import socket
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from xsem.data.handles import adopt
from xsem.types import OwnedHandle

__all__ = ["Arrival", "receive"]

_SCM_RIGHTS: Final = getattr(socket, "SCM_RIGHTS", 1)
_SCM_CREDENTIALS: Final = 2
_CREDENTIALS_BYTES: Final = 12   # pid, uid, gid
_SCM_PIDFD: Final = 4  # Linux >= 6.5, for SO_PASSPIDFD: a file descriptor of the sender's process
# Room for other ancillary data: the application may have set SO_PASSCRED, SO_PASSSEC or SO_PASSPIDFD.
_OTHER_ANCILLARY: Final = 512
_RECEIVE_FLAGS: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0) | getattr(socket, "MSG_DONTWAIT", 0)

_Ancillary: TypeAlias = Sequence[tuple[int, int, bytes]]


class Arrival(NamedTuple):
    """What one call of recvmsg returned."""

    data: bytes
    handles: list[OwnedHandle]   # of SCM_RIGHTS, in order
    credentials: bytes | None    # the ``struct ucred`` of the sender, if the application has set SO_PASSCRED
    has_ancillary: bool
    flags: int


def receive(sock: socket.socket, size: int, max_fds: int) -> Arrival:
    """Call recvmsg once, with space for `size` bytes and `max_fds` file descriptors. A pidfd is closed at once."""
    if sys.platform == "win32":
        raise NotImplementedError
    space = socket.CMSG_SPACE(max_fds * array.array("i").itemsize) + _OTHER_ANCILLARY
    data, ancillary, flags, _ = sock.recvmsg(size, space, _RECEIVE_FLAGS)
    handles = [adopt(number) for number in _numbers(ancillary, _SCM_RIGHTS)]
    for number in _numbers(ancillary, _SCM_PIDFD):
        adopt(number).close()
    credentials = [content for level, kind, content in ancillary if level == socket.SOL_SOCKET
                   and kind == _SCM_CREDENTIALS and len(content) == _CREDENTIALS_BYTES]
    return Arrival(data, handles, credentials[0] if credentials else None, bool(ancillary), flags)


def _numbers(ancillary: _Ancillary, kind: int) -> list[int]:
    numbers = array.array("i")
    for level, each, content in ancillary:
        if level == socket.SOL_SOCKET and each == kind:
            numbers.frombytes(content[: len(content) - len(content) % numbers.itemsize])
    return [number for number in numbers if number >= 0]   # SCM_PIDFD holds an error code if the sender has ended
