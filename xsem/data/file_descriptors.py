"""Comparison of file descriptors and NT handles, and duplicates for drivers."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
from typing import Any, ClassVar, Final

from xsem.data.handles import OwnedHandle, adopt, own
from xsem.data.locks import Lock
from xsem.errors import BadHandleError, BusyError

if sys.platform == "win32":
    from xsem.data.windows.handles import duplicate_nt, same_object
else:
    import fcntl
    import resource

__all__ = [
    "DriverFd", "duplicate_fd", "fd_limit_error", "free_fds", "kernel_can_compare", "no_more_files", "same_open_file",
]

_F_DUPFD_QUERY: Final = 1027  # Linux >= 6.10: F_LINUX_SPECIFIC_BASE + 3
# Only Linux has kcmp. On Windows, platform.machine() can start a process.
_KCMP: Final = {"x86_64": 312, "aarch64": 272, "riscv64": 272, "ppc64le": 354, "s390x": 343}.get(
    platform.machine() if sys.platform == "linux" else "")
_KCMP_FILE: Final = 0
_HANDLE: Final = "NT handle" if sys.platform == "win32" else "file descriptor"
# Duplicates for drivers get high numbers, because the application's own calls get the lowest free numbers. If
# RLIMIT_NOFILE leaves no free number in this range, the search begins at `_LOWER`. After that, any number is accepted.
_TURN: Final = range(512, 4096)
_LOWER: Final = 128


class _Numbers:
    """Count of duplicates for each number, and the start of the next search for a driver's number."""

    # Re-entrant, because a finalizer or a signal handler of the application can import a handle.
    lock = Lock()
    turn = _TURN.start
    issued: ClassVar[dict[int, int]] = {}


def _new_lock() -> None:
    # The thread that held the old lock does not exist in the child.
    _Numbers.lock = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)


def free_fds() -> int | None:
    """Return how many more file descriptors this process can open.

    Drivers report a full table of file descriptors as a failed initialization, an unknown error or missing memory. With
    this function, or with `fd_limit_error`, a backend can name the cause.

    Returns
    -------
    int or None
        None: unknown, because `/proc` is not mounted, or on Windows.

    Examples
    --------
    >>> free_fds() != 0
    True
    """
    if sys.platform != "win32":
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        try:
            # The listing itself opens one, which is in the list and closed afterwards.
            return max(0, limit - sum(int(each) < limit for each in os.listdir("/proc/self/fd")) + 1)
        except OSError as error:
            return 0 if error.errno in (errno.EMFILE, errno.ENFILE) else None
    return None


def fd_limit_error(what: str, opens: int = 1, **fields: Any) -> BusyError | None:
    """Return the error for a failure whose cause is the limit on open files, or None if it has another cause.

    Parameters
    ----------
    what : str
        Name of the failed call, or of the library that did not load.
    opens : int
        Number of files that the call opens. The start of a driver can open several at once.
    **fields
        Fields of the error, see `XsemError`: for example ``call``, ``code`` and ``code_name``.

    Returns
    -------
    BusyError or None
        ``fd_limit``. None: the process can open `opens` more files, or `free_fds` is unknown.

    Examples
    --------
    >>> fd_limit_error("acmeOpen", call="acmeOpen", code=3) is None
    True
    """
    free = free_fds()
    return None if free is None or free >= opens else no_more_files(what, free, **fields)


def no_more_files(what: str, free: int, **fields: Any) -> BusyError:
    """Return the error for a failure of a process that can open only `free` more files."""
    return BusyError(f"{what} failed, and the process can open only {free} more files: release devices and objects, or "
                     "raise the limit (ulimit -n, RLIMIT_NOFILE)", reason="fd_limit", **fields)


def same_open_file(a: int, b: int) -> bool | None:
    """Tell whether two fds of this process refer to the same open file description; Windows: to the same object.

    With this function, a backend can detect that its driver closed a handle: keep a duplicate, and compare the number
    with the duplicate.

    Parameters
    ----------
    a, b : int
        File descriptors, or NT handles on Windows. Both are borrowed.

    Returns
    -------
    bool or None
        True if both refer to the same open file description. False if they differ, or a number is not open. None if the
        kernel cannot compare them.
    """
    if sys.platform == "win32":
        return same_object(a, b)
    if sys.platform != "linux":
        return None
    import fcntl

    try:
        return fcntl.fcntl(a, _F_DUPFD_QUERY, b) == 1
    except OSError as error:
        if error.errno == errno.EBADF:
            return False
    # fstat is not a substitute: all anonymous inodes (eventfd, sync files, device memory) share one inode number.
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
    """Tell whether the kernel supports `same_open_file`."""
    if sys.platform == "win32":
        return same_object(0, 0) is not None
    with own(os.open, os.devnull, os.O_RDONLY) as file:
        return same_open_file(file.fileno(), file.fileno()) is not None


def duplicate_fd(fd: int, *, for_driver: bool = True) -> OwnedHandle:
    """Duplicate a file descriptor, close-on-exec; Windows: an NT handle, not inheritable, with the same access.

    Parameters
    ----------
    fd : int
        The file descriptor or NT handle, borrowed. It stays open.
    for_driver : bool
        True: the duplicate gets a high number that no recent duplicate had. False: the lowest free number. Windows
        chooses the number in both cases.

    Returns
    -------
    OwnedHandle
        The duplicate. The caller owns it.

    Raises
    ------
    BadHandleError
        ``closed_fd``: `fd` is not open.
    BusyError
        ``fd_limit``: the process cannot open another file descriptor or handle.
    DriverError, OutOfMemoryError
        ``system_call_failed``, ``out_of_memory``: Windows refused the call.
    """
    try:
        with _Numbers.lock:
            duplicate = _duplicate(fd, for_driver)
            number = duplicate.fileno()
            _Numbers.issued[number] = _Numbers.issued.get(number, 0) + 1
            if for_driver:
                _Numbers.turn = number + 1 if number + 1 in _TURN else _TURN.start
            return duplicate
    except OverflowError:
        raise BadHandleError(f"{fd} is too large for a {_HANDLE}", reason="closed_fd") from None
    except OSError as error:
        if error.errno == errno.EBADF:
            raise BadHandleError(f"{_HANDLE} {fd} is not open", reason="closed_fd") from None
        raise BusyError(
            f"{_HANDLE} {fd} cannot be duplicated: {error.strerror}; release something, or raise RLIMIT_NOFILE",
            reason="fd_limit", call="dup", code=error.errno, code_name=errno.errorcode.get(error.errno or 0),
        ) from error


if sys.platform == "win32":
    def _duplicate(number: int, for_driver: bool) -> OwnedHandle:
        if not -(2**63) <= number < 2**64:   # ctypes would truncate the number
            raise OverflowError
        return adopt(duplicate_nt(number))

else:

    def _duplicate(number: int, for_driver: bool) -> OwnedHandle:
        for least in (_Numbers.turn, _TURN.start, _LOWER) if for_driver else ():
            try:
                return own(fcntl.fcntl, number, fcntl.F_DUPFD_CLOEXEC, least)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.EMFILE):  # EINVAL: above the limit. EMFILE: no free number
                    raise
        return own(os.dup, number)


class DriverFd:
    """File descriptor or NT handle for a driver, with a test whether the driver has closed it.

    Create the object before the driver's call. A comparison by the kernel is not enough, because the kernel cannot
    distinguish two duplicates of one file. A number that the driver closed can soon belong to another import of the
    same file. Each number therefore has a count of its duplicates: a new count means that the number was closed.

    Parameters
    ----------
    given : OwnedHandle
        The file descriptor for the driver.
    kept : OwnedHandle or int
        Another file descriptor of the same open file. `kept` must stay open while this object is in use. After an early
        close of `kept`, `left_open` returns False: the number of `given` can leak, but xsem closes no other file.

    Attributes
    ----------
    number : int
        The number of `given`.

    Examples
    --------
    >>> import os
    >>> kept = own(os.open, os.devnull, os.O_RDONLY)
    >>> fd = DriverFd(duplicate_fd(kept.fileno()), kept)
    >>> # here comes the driver's call with fd.number
    >>> fd.settle()                     # closes the number if the driver left it open
    >>> kept.close()
    """

    __slots__ = ("_given", "_issued", "_kept", "number")

    def __init__(self, given: OwnedHandle, kept: OwnedHandle | int) -> None:
        self._given = given
        self._kept = kept
        self.number: int = given.fileno()
        self._issued = _Numbers.issued.get(self.number, 0)

    def left_open(self) -> bool | None:
        """Tell whether the driver has left the number open.

        Returns
        -------
        bool or None
            None if the kernel cannot compare file descriptors. False is final. True is valid until the driver's next
            call that can close the number.
        """
        with _Numbers.lock:
            if _Numbers.issued.get(self.number, 0) != self._issued:
                return False
            kept = self._kept if isinstance(self._kept, int) else self._kept.fileno()
            return same_open_file(kept, self.number)

    def settle(self) -> None:
        """Close the number if the driver left it open. Otherwise give the number up without closing it.

        If the kernel cannot compare file descriptors, the number leaks. So xsem never closes the number of another
        import.
        """
        if self._given.closed:
            return
        if self.left_open():
            self._given.close()
        else:
            self._given.detach()
