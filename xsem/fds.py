"""File descriptors: whether two numbers are one open file, and duplicates that a driver is given."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
import threading
from typing import ClassVar, Final

from xsem.errors import BadHandleError, BusyError
from xsem.handles import OwnedHandle, own

__all__ = ["DriverFd", "duplicate_fd", "kernel_can_compare", "same_open_file"]

_F_DUPFD_QUERY: Final = 1027  # Linux >= 6.10: F_LINUX_SPECIFIC_BASE + 3
_KCMP: Final = {"x86_64": 312, "aarch64": 272, "riscv64": 272, "ppc64le": 354, "s390x": 343}.get(platform.machine())
_KCMP_FILE: Final = 0
# Duplicates for drivers: above the numbers that the application's own calls get, which are the lowest free ones.
# Where RLIMIT_NOFILE leaves no such numbers, the second range stands in, and then any number.
_TURN: Final = range(512, 4096)
_LOWER: Final = 128


class _Numbers:
    """How often a duplicate of xsem's got each number, and where the next one for a driver begins to look."""

    # Re-entrant: a finalizer or a signal handler of the application's may import something.
    lock = threading.RLock()
    turn = _TURN.start
    issued: ClassVar[dict[int, int]] = {}


def _new_lock() -> None:
    # The thread that held the old one does not exist in the child.
    _Numbers.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)


def same_open_file(a: int, b: int) -> bool | None:
    """Whether two fds of this process mean the same open file description; None where the kernel cannot tell.

    So a backend finds out whether its driver has closed a handle: keep a duplicate, and compare the number with it.
    """
    if sys.platform != "linux":
        return None
    import fcntl

    try:
        return fcntl.fcntl(a, _F_DUPFD_QUERY, b) == 1
    except OSError as error:
        if error.errno == errno.EBADF:
            return False
    # fstat cannot stand in: all anonymous inodes (eventfd, sync files, device memory) share one inode number.
    if _KCMP is None:
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    pid = os.getpid()
    order = libc.syscall(ctypes.c_long(_KCMP), ctypes.c_long(pid), ctypes.c_long(pid), ctypes.c_long(_KCMP_FILE),
                         ctypes.c_ulong(a), ctypes.c_ulong(b))
    if order < 0:
        return False if ctypes.get_errno() == errno.EBADF else None
    return bool(order == 0)


def kernel_can_compare() -> bool:
    """Whether `same_open_file` has an answer here."""
    with own(os.open, os.devnull, os.O_RDONLY) as file:
        return same_open_file(file.fileno(), file.fileno()) is not None


def duplicate_fd(fd: int, *, for_driver: bool = True) -> OwnedHandle:
    """Duplicate a file descriptor, close-on-exec.

    Parameters
    ----------
    fd : int
        Borrowed.
    for_driver : bool
        The duplicate gets a high number that was not another duplicate's a moment ago; otherwise the lowest free one.

    Returns
    -------
    OwnedHandle
        The caller's.

    Raises
    ------
    BadHandleError
        ``closed_fd``.
    BusyError
        ``fd_limit``.
    """
    try:
        with _Numbers.lock:
            duplicate = _dup_high(fd) if for_driver else own(os.dup, fd)
            try:
                number = duplicate.fileno()
                _Numbers.issued[number] = _Numbers.issued.get(number, 0) + 1
                if for_driver:
                    _Numbers.turn = number + 1 if number + 1 in _TURN else _TURN.start
            except BaseException:
                duplicate.close()
                raise
            return duplicate
    except OverflowError:
        raise BadHandleError(f"{fd} is too large for a file descriptor", reason="closed_fd") from None
    except OSError as error:
        if error.errno == errno.EBADF:
            raise BadHandleError(f"file descriptor {fd} is not open", reason="closed_fd") from None
        raise BusyError(
            f"file descriptor {fd} cannot be duplicated: {error.strerror}; release something, or raise RLIMIT_NOFILE",
            reason="fd_limit", call="dup", code=error.errno, code_name=errno.errorcode.get(error.errno or 0),
        ) from error


def _dup_high(fd: int) -> OwnedHandle:
    if sys.platform != "win32":
        import fcntl

        for least in (_Numbers.turn, _TURN.start, _LOWER):
            try:
                return own(fcntl.fcntl, fd, fcntl.F_DUPFD_CLOEXEC, least)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.EMFILE):  # beyond the limit; none is free from there on
                    raise
    return own(os.dup, fd)


class DriverFd:
    """A file descriptor that a driver is given, and what tells afterwards whether the driver has closed it.

    Made before the driver's call. The kernel's comparison cannot tell two duplicates of one file apart, so that is not
    enough: a number that the driver closed may belong to another import of the same file a moment later. Each number
    therefore has a count of the duplicates that got it, and a number with a new count was closed.

    Parameters
    ----------
    given : OwnedHandle
        What the driver is given.
    kept : OwnedHandle
        Another number of the same open file, which stays open as long as this object is asked.

    Attributes
    ----------
    number : int
        Of `given`.
    """

    __slots__ = ("_given", "_issued", "_kept", "number")

    def __init__(self, given: OwnedHandle, kept: OwnedHandle) -> None:
        self._given = given
        self._kept = kept
        self.number: int = given.fileno()
        self._issued = _Numbers.issued.get(self.number, 0)

    def left_open(self) -> bool | None:
        """Whether the driver has left the number open; None where the kernel cannot tell.

        False stays false. True holds until the driver's next call that may close the number.
        """
        with _Numbers.lock:
            if _Numbers.issued.get(self.number, 0) != self._issued:
                return False
            return same_open_file(self._kept.fileno(), self.number)

    def settle(self) -> None:
        """Close the number if the driver left it open; otherwise give it up.

        Where the kernel cannot tell, the number is leaked: another import's number is never closed.
        """
        if self._given.closed:
            return
        if self.left_open():
            self._given.close()
        else:
            self._given.detach()
