"""How the handle in a descriptor reaches a process that multiprocessing is about to spawn.

Only while it spawns is there a channel that carries file descriptors; at any other time pickling a number would name
another file in the process that reads it.
"""

from __future__ import annotations

import os
import weakref
from multiprocessing import context
from typing import Any

from xsem.data.handle_types import OsHandleKind
from xsem.data.handles import Handle, OwnedHandle, own
from xsem.errors import BadArgumentError, ReleasedError, UnsupportedError

__all__ = ["carry", "uncarry"]

# Numbers already handed to one spawning process. The "spawn" method passes descriptors on under their own number, so
# the second descriptor with that number must make a duplicate over there, or two owners would close it.
_passed: weakref.WeakKeyDictionary[Any, set[int]] = weakref.WeakKeyDictionary()


def carry(fields: dict[str, Any], os_handle_kind: OsHandleKind) -> dict[str, Any]:
    """The fields with the handle in a form that pickles.

    Raises
    ------
    BadArgumentError
        ``pickled_outside_spawn``: no process is being spawned by this thread.
    UnsupportedError
        The handle is an NT handle (use DuplicateHandle) or the address of an object in this process.
    """
    popen: Any = context.get_spawning_popen()
    if popen is None:
        raise BadArgumentError(
            "a descriptor can be pickled only while multiprocessing spawns a process; use xsem.ipc to send it",
            reason="pickled_outside_spawn",
        )
    handle = fields["handle"]
    carried = dict(fields)
    if handle is None or os_handle_kind is OsHandleKind.KMT or handle == -1:
        return carried
    if os_handle_kind is not OsHandleKind.FD:
        raise UnsupportedError(
            f"a handle of sort {os_handle_kind.value!r} means nothing in another process",
            capability="descriptor.pickle",
        )
    number = _number(handle)
    numbers = _passed.setdefault(popen, set())
    by_number = popen.method == "spawn"
    shared = by_number and number in numbers
    # Announced once: the system call that starts the process refuses a list with a number in it twice.
    carried["handle"] = _Carried(popen.DupFd(number if shared else popen.duplicate_for_child(number)), shared)
    numbers.add(number)
    return carried


def uncarry(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields again, in the spawned process, with an `OwnedHandle`."""
    handle = fields["handle"]
    if isinstance(handle, _Carried):
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


def _number(handle: Handle) -> int:
    number = handle if isinstance(handle, int) else handle.fileno()
    if number < 0:
        raise ReleasedError("the descriptor's file is closed", reason="handle_closed")
    return number
