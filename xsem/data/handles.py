"""Ownership of operating-system handles: each handle has one owner, which closes it exactly once."""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Callable
from typing import Any, Protocol, Self, TypeAlias

from xsem.errors import BadArgumentError, BadHandleError, ReleasedError

if sys.platform == "win32":
    from xsem.data.windows.handles import close_nt, is_open_nt

__all__ = [
    "Follower", "Handle", "LentHandle", "OwnedHandle", "SupportsFileno", "adopt", "check_nt", "follow", "follower_of",
    "number_of", "own",
]

_log = logging.getLogger("xsem")


class SupportsFileno(Protocol):
    """Object with a file descriptor: a socket, a file or an `OwnedHandle`."""

    def fileno(self) -> int:
        """Return the file descriptor.

        Returns
        -------
        int
            The number. The object keeps ownership.
        """


class Follower(Protocol):
    """An object that follows where the handle of a semaphore goes."""

    def number_given(self) -> None:
        """Note that the application has the number, and can give it to any process."""


class OwnedHandle:
    """Owner of one file descriptor or Windows NT handle. The owner closes it exactly once.

    `close`, the end of ``with`` and the collection of the object close the handle. `detach` gives up the number without
    closing it. Any thread may call any method.

    Parameters
    ----------
    handle : int
        An open file descriptor (POSIX) or NT handle (Windows). On success, the object owns the handle. On failure, the
        caller still owns the handle, and the handle stays open.

    Raises
    ------
    BadHandleError
        ``negative_fd``; ``closed_fd``: the number is not an open file descriptor, or not an open NT handle. On
        Windows: ``null_handle``, also for INVALID_HANDLE_VALUE (-1 or 2**64 - 1), and ``pseudo_handle`` (-2 to -6).
    BadArgumentError
        ``not_an_int``.

    Examples
    --------
    >>> import os
    >>> with OwnedHandle(os.open(os.devnull, os.O_RDONLY)) as handle:
    ...     handle.closed
    False
    >>> handle.closed
    True
    """

    __slots__ = ("__weakref__", "_follower", "_slot")

    def __init__(self, handle: int) -> None:
        if isinstance(handle, bool) or not isinstance(handle, int):
            raise BadArgumentError(f"a handle is an int, not {type(handle).__name__}", reason="not_an_int")
        check_open(handle)
        # A list of one element, because pop() is atomic: if two threads close the handle, one of them gets the number.
        self._slot: list[int] = [handle]

    def fileno(self) -> int:
        """Return the number. This object keeps ownership.

        Returns
        -------
        int
            File descriptor, or NT handle.

        Raises
        ------
        ReleasedError
            ``handle_closed``: the handle was closed or detached.
        """
        self._number_given()
        return _owned_number(self)

    def detach(self) -> int:
        """Give up ownership and return the number. The caller must close it.

        Returns
        -------
        int
            File descriptor, or NT handle.

        Raises
        ------
        ReleasedError
            ``handle_closed``: the handle was closed or detached.
        """
        self._number_given()
        try:
            return self._slot.pop()
        except IndexError:
            raise ReleasedError("the handle has been closed or detached; each export() returns a new one",
                                reason="handle_closed") from None

    def take(self) -> Self:
        """Move the handle to a new object and return that object.

        The handle has an owner at every moment. After the call, this object is in the same state as after `detach`.

        Returns
        -------
        OwnedHandle
            The new owner.

        Raises
        ------
        ReleasedError
            ``handle_closed``: the handle was closed or detached.
        """
        taker = object.__new__(type(self))
        taker._slot, self._slot = self._slot, []
        _owned_number(taker)
        follower = follower_of(self)
        if follower is not None:
            follow(taker, follower)
        return taker

    def close(self) -> None:
        """Close the handle. A call on a closed or detached handle has no effect.

        The method never raises an OSError. A failure is logged as a warning. The usual cause is that other code closed
        this number, perhaps by mistake.
        """
        try:
            number = self._slot.pop()
        except IndexError:
            return
        try:
            close_number(number)
        except OSError as error:
            # On Linux, close() frees the number even if it reports an error.
            _log.warning("handle %s could not be closed: %s%s", number, error.strerror,
                         "; other code has closed it" if error.errno == errno.EBADF else "")

    @property
    def closed(self) -> bool:
        """True if the handle was closed or detached."""
        return not self._slot

    def _number_given(self) -> None:
        follower = follower_of(self)
        if follower is not None:
            follower.number_given()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_slot"):   # not after an error of the constructor
            self.close()

    def __repr__(self) -> str:
        return f"<OwnedHandle {self._slot[0]}>" if self._slot else "<OwnedHandle closed>"

    def __reduce__(self) -> object:  # type: ignore[override]
        raise BadArgumentError(
            "a handle cannot be pickled by itself; send its descriptor through a channel of multiprocessing",
            reason="handle_pickled",
        )


class LentHandle(OwnedHandle):
    """A duplicate that a driver may take. Only its fate, once it is known, closes it, and not its collection."""

    __slots__ = ()

    def __init__(self, duplicate: OwnedHandle) -> None:
        self._slot, duplicate._slot = duplicate._slot, []

    def __del__(self) -> None:
        pass


def follow(handle: OwnedHandle, follower: Follower) -> None:
    """Let an object follow a handle."""
    handle._follower = follower  # type: ignore[attr-defined]


def follower_of(handle: OwnedHandle) -> Follower | None:
    """Return the object that follows a handle."""
    return getattr(handle, "_follower", None)   # some owners are made without the constructor


def number_of(handle: Handle) -> int:
    """Return the number of a handle, for a call of xsem that gives it to no other process."""
    if isinstance(handle, int):
        return handle
    if isinstance(handle, OwnedHandle):
        return _owned_number(handle)
    try:
        number = handle.fileno()
    except ReleasedError:
        raise
    except Exception as error:   # a closed file object raises ValueError
        raise BadHandleError(f"{type(handle).__name__}.fileno() failed: {error}", reason="closed_fd") from error
    if type(number) is not int:
        raise BadArgumentError(f"{type(handle).__name__}.fileno() is not an int", reason="not_a_handle")
    return number


def _owned_number(handle: OwnedHandle) -> int:
    try:
        return handle._slot[0]
    except IndexError:
        raise ReleasedError("the handle has been closed or detached; each export() returns a new one",
                            reason="handle_closed") from None


def check_nt(handle: int, what: str = "the NT handle") -> None:
    """Refuse a number that is not the NT handle of an object: null, INVALID_HANDLE_VALUE, a pseudo handle."""
    # A Windows handle can be a signed or an unsigned int: -1 and 2**64 - 1 are the same handle.
    signed = handle - 2**64 if handle >= 2**63 else handle
    if signed in (0, -1):
        raise BadHandleError(f"{what} is {'INVALID_HANDLE_VALUE' if signed else 'null'}", reason="null_handle")
    if -6 <= signed <= -2:  # the current thread and its tokens; DuplicateHandle creates a real handle
        raise BadHandleError(f"{what} is a pseudo handle ({signed}), not an object's", reason="pseudo_handle")


def adopt(number: int) -> OwnedHandle:
    """Return the owner of a number that the system has just given, so that it needs no check."""
    handle = OwnedHandle.__new__(OwnedHandle)
    handle._slot = [number]
    return handle


def own(call: Callable[..., int], *args: Any) -> OwnedHandle:
    """Call a function that returns a new file descriptor, and return an owner of it.

    Parameters
    ----------
    call : callable
        The function, for example `os.dup`. Its result must be an open file descriptor without another owner.
    *args
        Arguments of `call`.

    Returns
    -------
    OwnedHandle
        The file descriptor. The caller owns it. If `call` raises, the error passes through and no handle exists.
    """
    return adopt(call(*args))


Handle: TypeAlias = OwnedHandle | SupportsFileno | int
"""A handle. xsem borrows an int or an object with `fileno` and never closes it. An `OwnedHandle` closes itself."""


if sys.platform == "win32":
    def close_number(handle: int) -> None:
        """Close the NT handle, or raise OSError as `os.close` does."""
        if not close_nt(handle):
            raise OSError(errno.EBADF, "it is not open")

    def check_open(handle: int) -> None:
        """Refuse a number that is not the open NT handle of an object."""
        if not -(2**63) <= handle < 2**64:
            raise BadHandleError(f"{handle} is too large for an NT handle", reason="closed_fd")
        check_nt(handle)
        if not is_open_nt(handle):
            raise BadHandleError(f"NT handle {handle:#x} is not open", reason="closed_fd")

else:

    def check_open(handle: int) -> None:
        """Refuse a number that is not an open file descriptor."""
        if handle < 0:
            raise BadHandleError(f"{handle} is not a file descriptor", reason="negative_fd")
        try:
            os.get_inheritable(handle)  # one fcntl(F_GETFD)
        except OSError:
            raise BadHandleError(f"file descriptor {handle} is not open", reason="closed_fd") from None
        except OverflowError:
            raise BadHandleError(f"{handle} is too large for a file descriptor", reason="closed_fd") from None

    close_number = os.close
