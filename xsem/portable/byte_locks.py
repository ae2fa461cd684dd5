"""Locks on bytes behind the end of a file, which tell the processes of that file who is alive."""

# The kernel drops a lock with the last descriptor of its file description, also after SIGKILL, and in every namespace.

from __future__ import annotations

import errno
import os
import struct
import sys
import weakref
from typing import Final

from xsem.portable.files import reopen
from xsem.portable.linux import calling, elsewhere

__all__ = ["LockFile"]

# Numbers from linux/fcntl.h: a Python that was built with old headers lacks them.
_F_OFD_GETLK: Final = 36
_F_OFD_SETLK: Final = 37
_FLOCK: Final = struct.Struct("=hh4xqqi4x")   # type, whence, start, length, pid


class LockFile:
    """A file, opened again, so that its locks are its own. A forked child closes it."""

    __slots__ = ("__weakref__", "_file")

    def __init__(self, fd: int, mode: int) -> None:
        self._file = reopen(fd, mode)
        _open.add(self)

    def fileno(self) -> int:
        """The file descriptor."""
        return self._file.fileno()

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        return self._file.closed

    def close(self) -> None:
        """Give all locks up. A second call has no effect."""
        self._file.close()

    def lock(self, at: int) -> bool:
        """Lock the byte, and return False if another file description has it."""
        if sys.platform != "linux":
            raise elsewhere()
        import fcntl

        with calling("fcntl"):
            try:
                self._control(_F_OFD_SETLK, fcntl.F_WRLCK, at, 1)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                return False
        return True

    def unlock(self, at: int) -> None:
        """Give the lock of a byte up."""
        if sys.platform != "linux":
            raise elsewhere()
        import fcntl

        with calling("fcntl"):
            self._control(_F_OFD_SETLK, fcntl.F_UNLCK, at, 1)

    def locked_by_others(self, at: int, count: int = 1) -> bool:
        """Return whether another file description has the lock of one of `count` bytes."""
        if sys.platform != "linux":
            raise elsewhere()
        import fcntl

        with calling("fcntl"):
            found = self._control(_F_OFD_GETLK, fcntl.F_WRLCK, at, count)
        kind: int = _FLOCK.unpack(found)[0]
        return kind != fcntl.F_UNLCK

    def _control(self, command: int, kind: int, at: int, count: int) -> bytes:
        if sys.platform != "linux":
            raise elsewhere()
        import fcntl

        return fcntl.fcntl(self._file.fileno(), command, _FLOCK.pack(kind, os.SEEK_SET, at, count, 0))


_open: Final[weakref.WeakSet[LockFile]] = weakref.WeakSet()


def _in_child() -> None:
    for each in _open:
        each.close()   # so that the parent's end ends its locks


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
