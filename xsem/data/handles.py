"""Ownership of operating-system handles: one owner, closed exactly once."""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import starmap
from typing import Any, Protocol, Self, TypeAlias, TypeVar

from xsem.errors import BadArgumentError, BadHandleError, ReleasedError, XsemError

__all__ = ["Handle", "OwnedHandle", "SupportsFileno", "check_nt", "own", "store"]

_log = logging.getLogger("xsem")

_T = TypeVar("_T")


class SupportsFileno(Protocol):
    """Anything with a file descriptor: a socket, a file, an `OwnedHandle`."""

    def fileno(self) -> int: ...


class OwnedHandle:
    """Owns one file descriptor or Windows NT handle and closes it exactly once.

    It is closed by `close`, at the end of ``with``, or when collected. `detach` gives the number up unclosed.
    All methods may be called from any thread.

    Parameters
    ----------
    handle : int
        An open descriptor (POSIX) or handle (Windows). Owned from here on; on an error it is left alone.

    Raises
    ------
    BadHandleError
        ``negative_fd``, ``closed_fd``: nothing is open under that number. On Windows: ``null_handle``, also for
        INVALID_HANDLE_VALUE (-1 or 2**64 - 1), and ``pseudo_handle`` (-2 to -6).
    BadArgumentError
        ``not_an_int``.
    """

    __slots__ = ("__weakref__", "_slot")

    def __init__(self, handle: int) -> None:
        # One-element list: pop() is atomic, so that of two racing closers exactly one gets the number. It holds
        # the number before the checks: after Ctrl-C in a check, the finalizer closes it.
        self._slot: list[int] = [handle]
        try:
            if isinstance(handle, bool) or not isinstance(handle, int):
                raise BadArgumentError(f"a handle is an int, not {type(handle).__name__}", reason="not_an_int")
            check_open(handle)
        except XsemError:
            self._slot.clear()
            raise

    def fileno(self) -> int:
        """The number, still owned by this object.

        Raises
        ------
        ReleasedError
            ``handle_closed``: it was closed or detached.
        """
        try:
            return self._slot[0]
        except IndexError:
            raise ReleasedError("the handle has been closed or detached", reason="handle_closed") from None

    def detach(self) -> int:
        """Give up ownership: the caller must close the number from now on.

        Raises
        ------
        ReleasedError
            ``handle_closed``.
        """
        try:
            return self._slot.pop()
        except IndexError:
            raise ReleasedError("the handle has been closed or detached", reason="handle_closed") from None

    def take(self) -> Self:
        """Move the handle to a new object, with an owner at every moment. This object is then as after `detach`.

        Raises
        ------
        ReleasedError
            ``handle_closed``.
        """
        taker = object.__new__(type(self))
        taker._slot, self._slot = self._slot, []
        taker.fileno()
        return taker

    def close(self) -> None:
        """Close the handle; harmless when already closed or detached.

        Never raises an OSError: a failure is logged as a warning. It usually means that other code closed this number,
        perhaps by mistake.
        """
        number = self._slot.copy()
        try:
            # C code moves the number from the slot to the system call: Ctrl-C cannot come in between.
            deque(map(close_number, iter(self._slot.pop, self)), maxlen=0)
        except IndexError:  # the slot is empty: the number is closed now, or was before
            return
        except OSError as error:
            # After any error of close() the number is free (Linux).
            _log.warning("handle %s could not be closed: %s%s", *number, error.strerror,
                         "; other code has closed it" if error.errno == errno.EBADF else "")

    @property
    def closed(self) -> bool:
        """Whether it was closed or detached."""
        return not self._slot

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        # __init__ may have failed before the slot existed.
        if not getattr(self, "_slot", None):
            return
        try:
            self.close()
        except BaseException:
            self.close()  # Ctrl-C came before the number was taken from the slot
            raise

    def __repr__(self) -> str:
        return f"<OwnedHandle {self._slot[0]}>" if self._slot else "<OwnedHandle closed>"

    def __reduce__(self) -> object:  # type: ignore[override]
        raise BadArgumentError(
            "a handle cannot be pickled by itself; pickle the descriptor that holds it, while multiprocessing spawns",
            reason="handle_pickled",
        )


def check_nt(handle: int, what: str = "the NT handle") -> None:
    """Refuse a number that is not the NT handle of an object: null, INVALID_HANDLE_VALUE, or a pseudo handle.

    Windows handles come as signed and as unsigned ints: -1 and 2**64 - 1 are the same handle.

    Raises
    ------
    BadHandleError
        ``null_handle``, ``pseudo_handle``.
    """
    signed = handle - 2**64 if handle >= 2**63 else handle
    if signed in (0, -1):
        raise BadHandleError(f"{what} is {'INVALID_HANDLE_VALUE' if signed else 'null'}", reason="null_handle")
    if -6 <= signed <= -2:  # the current thread and its tokens; DuplicateHandle makes a real handle
        raise BadHandleError(f"{what} is a pseudo handle ({signed}), not an object's", reason="pseudo_handle")


def store(into: list[_T], call: Callable[..., _T], *args: Any, **named: Any) -> None:
    """Append the result of a call to a list.

    C code does the append: Ctrl-C cannot come between the call's return and the append.
    """
    into.extend(starmap(partial(call, *args, **named), [()]))


def own(call: Callable[..., int], *args: Any) -> OwnedHandle:
    """Call a function that returns a new file descriptor, and own the descriptor.

    If `call` is a C function, Ctrl-C cannot come between the two steps.
    """
    handle = OwnedHandle.__new__(OwnedHandle)
    handle._slot = []
    try:
        store(handle._slot, call, *args)
    except BaseException:
        handle.close()  # now: the traceback keeps the object alive
        raise
    return handle


Handle: TypeAlias = OwnedHandle | SupportsFileno | int
"""An int or an object with `fileno` is borrowed: xsem never closes it. An `OwnedHandle` closes itself."""


if sys.platform == "win32":
    import ctypes

    _kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
    _kernel32.CloseHandle.argtypes = [ctypes.c_void_p]

    def check_open(handle: int) -> None:
        """Refuse what cannot be an NT handle."""
        check_nt(handle)

    def close_number(handle: int) -> None:
        """Close an NT handle."""
        if not _kernel32.CloseHandle(handle):
            raise OSError(errno.EBADF, f"CloseHandle failed with error {ctypes.get_last_error()}")

else:

    def check_open(handle: int) -> None:
        """Refuse a number under which no file descriptor is open."""
        if handle < 0:
            raise BadHandleError(f"{handle} is not a file descriptor", reason="negative_fd")
        try:
            os.get_inheritable(handle)  # one fcntl(F_GETFD)
        except OSError:
            raise BadHandleError(f"file descriptor {handle} is not open", reason="closed_fd") from None
        except OverflowError:
            raise BadHandleError(f"{handle} is too large for a file descriptor", reason="closed_fd") from None

    close_number = os.close
