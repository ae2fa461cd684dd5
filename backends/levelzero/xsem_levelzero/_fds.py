"""What became of a file descriptor that a driver was given: asked of the kernel.

Intel's driver has changed its mind: before 26.05 it never closed an imported fd, 26.05 closes it after success, 26.09
after failure too (docs/levelzero.md). So after a successful import the number is compared with a duplicate that was
kept; after a failed one the facade does the same.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
from typing import Final

from xsem.errors import BusyError
from xsem.types import OwnedHandle

__all__ = ["duplicate", "still_ours"]

_F_DUPFD_QUERY: Final = 1027  # Linux 6.10
_KCMP: Final = {"x86_64": 312, "aarch64": 272}.get(platform.machine())
_KCMP_FILE: Final = 0
_HIGH: Final = 512


def duplicate(fd: int) -> OwnedHandle:
    """A duplicate with a high number, which no call of the application's is given next.

    Raises
    ------
    BusyError
        ``fd_limit``.
    """
    if sys.platform != "win32":
        import fcntl

        try:
            return OwnedHandle(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH))
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EMFILE):
                raise
    try:
        return OwnedHandle(os.dup(fd))
    except OSError as error:
        raise BusyError(f"file descriptor {fd} cannot be duplicated: {error.strerror}", reason="fd_limit") from error


def still_ours(kept: int, given: int) -> bool:
    """Whether `given` is still the file that `kept` is, so that nobody closed it.

    False where the kernel cannot tell: better to leak one number than to close another's.
    """
    if sys.platform != "linux":
        return False
    import fcntl

    try:
        return fcntl.fcntl(kept, _F_DUPFD_QUERY, given) == 1
    except OSError as error:
        if error.errno == errno.EBADF or _KCMP is None:
            return False
    libc = ctypes.CDLL(None, use_errno=True)
    pid = os.getpid()
    return int(libc.syscall(ctypes.c_long(_KCMP), ctypes.c_long(pid), ctypes.c_long(pid), ctypes.c_long(_KCMP_FILE),
                            ctypes.c_ulong(kept), ctypes.c_ulong(given))) == 0
