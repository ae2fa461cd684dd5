"""File descriptors that were given to a driver: who closes them, and when.

By the specification an import hands the fd over to OpenCL, which may close it at once, keep the number and close it
with the object, or forget it. NVIDIA's driver leaves the number of imported memory open (measured on an H200, driver
580.159). To close it then could close a number that the driver goes on using. So the number stays as it is as long as
the object lives, and the kernel is asked once that is gone.
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

__all__ = ["GivenFd", "duplicate", "still_ours"]

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


class GivenFd:
    """One fd, from before its import until its object is gone.

    Parameters
    ----------
    handle : OwnedHandle
        What the driver is about to get.
    """

    __slots__ = ("_given", "_kept")

    def __init__(self, handle: OwnedHandle) -> None:
        self._kept = duplicate(handle.fileno())
        self._given: OwnedHandle | None = None

    def another(self) -> OwnedHandle:
        """A duplicate of the same file, for another import."""
        return duplicate(self._kept.fileno())

    def refused(self) -> None:
        """The import failed; what became of the handle, the facade finds out."""
        self._kept.close()

    def imported(self, handle: OwnedHandle) -> None:
        """The import succeeded: the number is the driver's, as long as the object lives."""
        number = handle.detach()
        if still_ours(self._kept.fileno(), number):
            self._given = OwnedHandle(number)

    def object_gone(self) -> None:
        """The object has been released; close what the driver has left open."""
        given, self._given = self._given, None
        if given is not None:
            if still_ours(self._kept.fileno(), given.fileno()):
                given.close()
            else:
                given.detach()
        self._kept.close()
