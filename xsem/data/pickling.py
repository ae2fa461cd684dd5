"""Transfer of a descriptor's handle by the pickler of multiprocessing.

Two ways exist. While multiprocessing spawns a process, the process receives the file descriptor at its start. In a
Queue, a Pipe, a Pool or a ProcessPoolExecutor, the sender keeps a duplicate until the receiver fetches it, or until the
lifetime of the transfer is over (`Kept`). Any other pickler gives bytes only, and a pickled number would refer to
another file in the process that unpickles it.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from multiprocessing import AuthenticationError, context, reduction
from typing import Any

from xsem.data.handle_types import OsHandleKind
from xsem.data.handles import OwnedHandle, check_open, number_of, own
from xsem.data.peers import Peer
from xsem.data.running_system import system_id
from xsem.data.signallers import Signallers, signallers_of
from xsem.data.transfers import LIFETIME_S, Kept, fetch
from xsem.errors import BadArgumentError, ReleasedError, UnsupportedError

__all__ = ["carry", "carry_by_multiprocessing", "uncarry"]

# Numbers that each spawned process already received. The "spawn" method keeps the number of a file descriptor. The
# second descriptor with that number must be duplicated in the child, because otherwise two owners would close it.
_passed: weakref.WeakKeyDictionary[Any, set[int]] = weakref.WeakKeyDictionary()
# The transfers to each process that is being spawned. Its number is known only when it runs.
_spawned: weakref.WeakKeyDictionary[Any, list[_Spawned]] = weakref.WeakKeyDictionary()


def carry(fields: dict[str, Any], os_handle_kind: OsHandleKind) -> dict[str, Any]:
    """Return the fields, with the handle in a form for any pickler while multiprocessing spawns a process."""
    if context.get_spawning_popen() is None:
        raise BadArgumentError(
            "a descriptor holds a file descriptor of this process, which bytes cannot carry: only the pickler of "
            "multiprocessing takes descriptors (Queue, Pipe, Pool, ProcessPoolExecutor, arguments of Process); use "
            "xsem.ipc.offer for a ticket that any channel carries, or xsem.ipc.send or xsem.ipc.pack",
            reason="pickled_outside_multiprocessing",
        )
    return carry_by_multiprocessing(fields, os_handle_kind)


def carry_by_multiprocessing(
    fields: dict[str, Any], os_handle_kind: OsHandleKind, *, lifetime_s: float = LIFETIME_S,
    keep: Callable[[Kept], object] | None = None,
) -> dict[str, Any]:
    """Return the fields, with the handle in a form that the pickler of multiprocessing can write."""
    # The handle stays open in this process. Outside of a spawn, this process keeps a duplicate for `lifetime_s`, or
    # until a process unpickles the descriptor, and `keep` gets that transfer.
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
    number = number_of(handle)
    if number < 0:   # of a closed socket
        raise ReleasedError("the descriptor's file is closed", reason="handle_closed")
    signallers = None
    if "peer" in fields:
        carried["peer"] = fields["peer"] or Peer.of(os.getpid())
        signallers = signallers_of(handle)
    popen: Any = context.get_spawning_popen()
    if popen is None:
        carried["handle"], kept = _for_any_process(number, lifetime_s, signallers)
        if keep is not None:
            keep(kept)
        return carried
    if os.name == "nt":
        check_open(number)
        # DuplicateHandle into the child, once for each descriptor, so each owner in the child has its own number.
        carried["handle"] = _CarriedNt(popen.duplicate_for_child(number))
    else:
        carried["handle"] = _for_spawned(popen, number)
    if signallers is not None:
        _spawned.setdefault(popen, []).append(_Spawned(popen, signallers))
    return carried


def _for_any_process(number: int, lifetime_s: float, signallers: Signallers | None) -> tuple[_Fetched, Kept]:
    if not reduction.HAVE_SEND_HANDLE:
        raise UnsupportedError("multiprocessing passes no file descriptors on this system",
                               capability="descriptor.pickle")
    check_open(number)
    kept = Kept(number, lifetime_s, signallers)
    return _Fetched(kept.ident, system_id(), os.getpid()), kept


def _for_spawned(popen: Any, number: int) -> _Carried:
    numbers = _passed.setdefault(popen, set())
    by_number = popen.method == "spawn"
    shared = by_number and number in numbers
    # Each number is passed once: the system call that starts the process refuses a list with a repeated number.
    carried = _Carried(popen.DupFd(number if shared else popen.duplicate_for_child(number)), shared)
    numbers.add(number)
    return carried


def uncarry(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields in the process that unpickles them, with an `OwnedHandle` as the handle."""
    handle = fields["handle"]
    if isinstance(handle, _Carried | _CarriedNt | _Fetched):
        fields["handle"] = handle.own()
    return fields


class _Spawned:
    """The transfer of a semaphore to a process at its start."""

    def __init__(self, popen: Any, signallers: Signallers) -> None:
        self._popen = weakref.ref(popen)
        self._signallers = signallers
        self._noted = False
        signallers.opened(self)

    @property
    def open(self) -> bool:
        """Whether the process is still being started. If it runs, it is noted."""
        if not self._noted:
            pid = getattr(self._popen(), "pid", None)
            if pid is None:
                return True
            self._signallers.receiver(Peer.of(pid))
            self._noted = True
        return False


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
    """A handle that the process `pid` of the system `host` keeps until it is fetched once."""

    def __init__(self, ident: Any, host: str, pid: int) -> None:
        self._ident = ident
        self._host = host
        self._pid = pid

    def own(self) -> OwnedHandle:
        if self._host != system_id():
            raise BadArgumentError(
                f"the descriptor was pickled on another machine ({self._host}): a handle is valid only on the machine "
                "of its exporter", reason="other_host")
        try:
            handle = fetch(self._ident)
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


class _CarriedNt:
    def __init__(self, number: int) -> None:
        self._number = number

    def own(self) -> OwnedHandle:
        return OwnedHandle(self._number)
