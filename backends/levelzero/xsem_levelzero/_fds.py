"""A duplicate to keep of a file descriptor that a driver is given.

Intel's driver has changed its mind: before 26.05 it never closed an imported fd, 26.05 closes it after success, 26.09
after failure too (docs/levelzero.md). So after a successful import the number is compared with a duplicate that was
kept (`xsem.spi.same_open_file`; where the kernel cannot tell, better to leak one number than to close another's); after
a failed one the facade does the same.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Final

from xsem.errors import BusyError
from xsem.types import OwnedHandle

__all__ = ["duplicate"]

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
