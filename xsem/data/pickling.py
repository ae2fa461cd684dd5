"""Transfer of a descriptor's handle to a process that multiprocessing spawns.

multiprocessing provides a channel for file descriptors only while it spawns a process. At any other time, a pickled
number would refer to another file in the process that unpickles it.
"""

from __future__ import annotations

import os
import weakref
from multiprocessing import context
from typing import Any

from xsem.data.handle_types import OsHandleKind
from xsem.data.handles import Handle, OwnedHandle, check_open, own
from xsem.errors import BadArgumentError, ReleasedError, UnsupportedError

__all__ = ["carry", "uncarry"]

# Numbers that each spawned process already received. The "spawn" method keeps the number of a file descriptor. The
# second descriptor with that number must be duplicated in the child, because otherwise two owners would close it.
_passed: weakref.WeakKeyDictionary[Any, set[int]] = weakref.WeakKeyDictionary()


def carry(fields: dict[str, Any], os_handle_kind: OsHandleKind) -> dict[str, Any]:
    """Return the fields, with the handle in a form that can be pickled.

    Raises
    ------
    BadArgumentError
        ``pickled_outside_spawn``: this thread does not spawn a process.
    UnsupportedError
        The handle is the address of an object in this process, or it belongs to another operating system.
    ReleasedError
        ``handle_closed``: the handle was closed.
    """
    popen: Any = context.get_spawning_popen()
    if popen is None:
        raise BadArgumentError(
            "a descriptor can be pickled only while multiprocessing spawns a process; use xsem.ipc to send it",
            reason="pickled_outside_spawn",
        )
    handle = fields["handle"]
    carried = dict(fields)
    # A name and a KMT handle are valid in every process.
    if handle is None or os_handle_kind is OsHandleKind.KMT or handle == -1:
        return carried
    if os_handle_kind is OsHandleKind.NT and os.name == "nt":
        number = _number(handle)
        check_open(number)
        # DuplicateHandle into the child, once for each descriptor, so each owner in the child has its own number.
        carried["handle"] = _CarriedNt(popen.duplicate_for_child(number))
        return carried
    if os_handle_kind is not OsHandleKind.FD or os.name == "nt":
        raise UnsupportedError(
            f"a handle of kind {os_handle_kind.value!r} is not valid in another process",
            capability="descriptor.pickle",
        )
    number = _number(handle)
    numbers = _passed.setdefault(popen, set())
    by_number = popen.method == "spawn"
    shared = by_number and number in numbers
    # Each number is passed once: the system call that starts the process refuses a list with a repeated number.
    carried["handle"] = _Carried(popen.DupFd(number if shared else popen.duplicate_for_child(number)), shared)
    numbers.add(number)
    return carried


def uncarry(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields in the spawned process, with an `OwnedHandle` as the handle."""
    handle = fields["handle"]
    if isinstance(handle, _Carried | _CarriedNt):
        fields["handle"] = handle.own()
    return fields


class _Carried:
    def __init__(self, dup_fd: Any, shared: bool) -> None:
        self._dup_fd = dup_fd
        self._shared = shared

    def own(self) -> OwnedHandle:
        number: int = self._dup_fd.detach()
        handle = own(os.dup, number) if self._shared else OwnedHandle(number)
        os.set_inheritable(handle.fileno(), False)
        return handle


class _CarriedNt:
    def __init__(self, number: int) -> None:
        self._number = number

    def own(self) -> OwnedHandle:
        return OwnedHandle(self._number)


def _number(handle: Handle) -> int:
    number = handle if isinstance(handle, int) else handle.fileno()
    if number < 0:
        raise ReleasedError("the descriptor's file is closed", reason="handle_closed")
    return number
