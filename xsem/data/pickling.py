"""Transfer of a descriptor's handle by the pickler of multiprocessing.

Two ways exist. While multiprocessing spawns a process, the process receives the file descriptor at its start. In a
Queue, a Pipe, a Pool or a ProcessPoolExecutor, the resource sharer of multiprocessing keeps a duplicate in the sender
until the receiver fetches it (`multiprocessing.reduction.DupFd`; Windows: `_DupNt`). Any other pickler gives bytes
only, and a pickled number would refer to another file in the process that unpickles it.
"""

from __future__ import annotations

import os
import sys
import weakref
from multiprocessing import AuthenticationError, context, reduction
from typing import Any

from xsem.data.handle_types import OsHandleKind
from xsem.data.handles import Handle, OwnedHandle, check_open, own
from xsem.data.hosts import host_id
from xsem.data.peers import Peer
from xsem.errors import BadArgumentError, ReleasedError, UnsupportedError

if sys.platform == "win32":
    from xsem.data.file_descriptors import duplicate_fd
    from xsem.data.nt_processes import give_handle, open_process

__all__ = ["carry", "carry_by_multiprocessing", "uncarry"]

# Numbers that each spawned process already received. The "spawn" method keeps the number of a file descriptor. The
# second descriptor with that number must be duplicated in the child, because otherwise two owners would close it.
_passed: weakref.WeakKeyDictionary[Any, set[int]] = weakref.WeakKeyDictionary()


def carry(fields: dict[str, Any], os_handle_kind: OsHandleKind) -> dict[str, Any]:
    """Return the fields, with the handle in a form that any pickler can write while multiprocessing spawns a process.

    Raises
    ------
    BadArgumentError
        ``pickled_outside_multiprocessing``: this thread does not spawn a process.
    UnsupportedError, ReleasedError, BadHandleError
        As `carry_by_multiprocessing`.
    """
    if context.get_spawning_popen() is None:
        raise BadArgumentError(
            "a descriptor holds a file descriptor of this process, which bytes cannot carry: only the pickler of "
            "multiprocessing takes descriptors (Queue, Pipe, Pool, ProcessPoolExecutor, arguments of Process); use "
            "xsem.ipc.offer for a ticket that any channel carries, or xsem.ipc.send or xsem.ipc.pack",
            reason="pickled_outside_multiprocessing",
        )
    return carry_by_multiprocessing(fields, os_handle_kind)


def carry_by_multiprocessing(fields: dict[str, Any], os_handle_kind: OsHandleKind) -> dict[str, Any]:
    """Return the fields, with the handle in a form that the pickler of multiprocessing can write.

    Raises
    ------
    UnsupportedError
        The handle is the address of an object in this process, or it belongs to another operating system.
    BadHandleError
        ``closed_fd``.
    ReleasedError
        ``handle_closed``: the handle was closed.

    Notes
    -----
    The handle stays open in this process, on success and on failure. Outside of a spawn, multiprocessing keeps a
    duplicate until a process unpickles the descriptor, or until this process ends.
    """
    handle = fields["handle"]
    carried = dict(fields)
    # A name and a KMT handle are valid in every process.
    if handle is None or os_handle_kind is OsHandleKind.KMT or handle == -1:
        return carried
    if os_handle_kind is not (OsHandleKind.NT if os.name == "nt" else OsHandleKind.FD):
        raise UnsupportedError(
            f"a handle of kind {os_handle_kind.value!r} is not valid in another process",
            capability="descriptor.pickle",
        )
    number = _number(handle)
    if "peer" in fields and fields["peer"] is None:
        carried["peer"] = Peer.of(os.getpid())
    popen: Any = context.get_spawning_popen()
    if popen is None:
        carried["handle"] = _for_any_process(number)
    elif os.name == "nt":
        check_open(number)
        # DuplicateHandle into the child, once for each descriptor, so each owner in the child has its own number.
        carried["handle"] = _CarriedNt(popen.duplicate_for_child(number))
    else:
        carried["handle"] = _for_spawned(popen, number)
    return carried


def _for_any_process(number: int) -> _Fetched:
    if sys.platform == "win32":
        return _Fetched(_DupNt(number), host_id(), os.getpid())
    if not hasattr(reduction, "DupFd"):
        raise UnsupportedError("multiprocessing passes no file descriptors on this system",
                               capability="descriptor.pickle")
    check_open(number)
    return _Fetched(reduction.DupFd(number), host_id(), os.getpid())


def _for_spawned(popen: Any, number: int) -> _Carried:
    numbers = _passed.setdefault(popen, set())
    by_number = popen.method == "spawn"
    shared = by_number and number in numbers
    # Each number is passed once: the system call that starts the process refuses a list with a repeated number.
    carried = _Carried(popen.DupFd(number if shared else popen.duplicate_for_child(number)), shared)
    numbers.add(number)
    return carried


def uncarry(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields in the process that unpickles them, with an `OwnedHandle` as the handle.

    Raises
    ------
    BadArgumentError
        ``other_host``, ``sender_ended``, ``already_received``, ``authentication_failed``.
    """
    handle = fields["handle"]
    if isinstance(handle, _Carried | _CarriedNt | _Fetched):
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


class _Fetched:
    """A file descriptor that the process `pid` of the system `host` keeps until it is fetched once."""

    def __init__(self, dup_fd: Any, host: str, pid: int) -> None:
        self._dup_fd = dup_fd
        self._host = host
        self._pid = pid

    def own(self) -> OwnedHandle:
        if self._host != host_id():
            raise BadArgumentError(
                f"the descriptor was pickled on another machine ({self._host}): a handle is valid only on the machine "
                "of its exporter", reason="other_host")
        try:
            handle = own(self._dup_fd.detach)
        except AuthenticationError as error:
            raise BadArgumentError(
                f"process {self._pid}, which pickled the descriptor, has another key of multiprocessing "
                "(multiprocessing.current_process().authkey)", reason="authentication_failed") from error
        except (FileNotFoundError, ConnectionError) as error:
            raise BadArgumentError(
                f"process {self._pid}, which pickled the descriptor, has ended or is in another container: it must "
                "live until the descriptor is received", reason="sender_ended") from error
        except (EOFError, RuntimeError) as error:
            raise BadArgumentError(
                f"process {self._pid} no longer has the descriptor: pickled bytes can be received once",
                reason="already_received") from error
        if os.name != "nt":   # DuplicateHandle creates a handle that is not inheritable
            os.set_inheritable(handle.fileno(), False)
        return handle


class _DupNt:
    """The counterpart of `multiprocessing.reduction.DupFd` for an NT handle.

    The resource sharer keeps a duplicate until a process of the same key fetches it once. It then duplicates the handle
    into that process.
    """

    _id: Any

    def __init__(self, number: int) -> None:
        if sys.platform == "win32":
            kept = duplicate_fd(number, for_driver=False)

            def send(connection: Any, pid: int) -> None:
                process = open_process(pid)
                if process is not None:
                    with process:
                        connection.send_bytes(give_handle(process.fileno(), kept.fileno()).to_bytes(8, "little"))

            self._id = _sharer().register(send, kept.close)

    def detach(self) -> int:
        """Fetch the handle. The caller owns it."""
        with _sharer().get_connection(self._id) as connection:
            return int.from_bytes(connection.recv_bytes(8), "little")


def _sharer() -> Any:
    from multiprocessing import resource_sharer

    return resource_sharer._resource_sharer  # type: ignore[attr-defined,unused-ignore]


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
