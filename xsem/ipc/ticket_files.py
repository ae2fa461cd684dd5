"""Socket files of offers, in a directory that containers share."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import sys
from typing import Final

from xsem.errors import BadArgumentError
from xsem.ipc.tickets import boot

__all__ = ["check_directory", "listen", "path_of", "remove"]

_LONGEST: Final = 107   # sizeof(sockaddr_un.sun_path), without the NUL
_PREFIX: Final = "xsem-"
_BEFORE: Final = ".new-"   # of the same length


def check_directory(at: object) -> str:
    """Return the absolute path of a directory in which socket files are possible."""
    path = os.fspath(at) if isinstance(at, os.PathLike) else at
    if not isinstance(path, str) or not os.path.isdir(path):
        raise BadArgumentError(f"at is the path of a directory that both processes can open, not {at!r}",
                               reason="bad_directory")
    path = os.path.abspath(path)
    length = len(os.fsencode(path_of(path, bytes(8))))
    if length > _LONGEST:
        raise BadArgumentError(f"a socket file in {path} would have a path of {length} bytes, and the kernel permits "
                               f"{_LONGEST}: mount the directory at a shorter path", reason="path_too_long")
    return path


def path_of(directory: str, address: bytes) -> str:
    """Return the path of the socket file with this address."""
    return os.path.join(directory, f"{_system()}{address.hex()}")


def listen(sock: socket.socket, path: str, backlog: int) -> None:
    """Bind the socket to this path, for this user only, and begin to listen."""
    if sys.platform == "win32":
        raise NotImplementedError
    directory, name = os.path.split(path)
    _remove_left_behind(directory)
    os.fchmod(sock.fileno(), 0o600)   # the file gets this mode
    # A file that refuses a connection counts as left behind. So the file gets its name when it accepts connections.
    before = os.path.join(directory, _BEFORE + name.removeprefix(_PREFIX))
    sock.bind(before)
    try:
        sock.listen(backlog)
        os.rename(before, path)
    except BaseException:
        remove(before)
        raise


def remove(path: str) -> None:
    """Remove the socket file, if it is still there."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def _remove_left_behind(directory: str) -> None:
    """Remove the files of processes of this system that have ended."""
    if sys.platform == "win32":
        raise NotImplementedError
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if not name.startswith(_system()) or not _is_socket(path):
            continue
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            probe.setblocking(False)
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                remove(path)
            except OSError:   # of another user, or its queue of connections is full
                continue


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


def _system() -> str:
    # Machines can share a directory, too, and a socket of another one refuses every connection.
    return f"{_PREFIX}{boot()[:4].hex()}-"
