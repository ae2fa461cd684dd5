"""Handles on their way through a channel of multiprocessing.

The resource sharer of multiprocessing keeps a duplicate in the sender until a process fetches it once. It has no time
limit and tells no outcome, so this module adds a lifetime, an answer to a late receiver, and a note of the receiver.
"""

from __future__ import annotations

import heapq
import itertools
import os
import socket
import sys
import threading
import time
from multiprocessing import reduction
from typing import Any, Final

from xsem.data import locks
from xsem.data.handles import OwnedHandle, adopt, own
from xsem.data.peers import Peer
from xsem.data.signallers import Signallers
from xsem.errors import BadArgumentError, BusyError

if sys.platform == "win32":
    from xsem.data.file_descriptors import duplicate_fd
    from xsem.data.windows.processes import give_handle, open_process

__all__ = ["LIFETIME_S", "Kept", "fetch"]

LIFETIME_S: Final = 60.0
"""Default lifetime of a transfer and of a ticket, in seconds."""

_OPEN: Final = 0
_OVER: Final = 1
_TAKEN_BACK: Final = 2
_FETCHED: Final = 3


class Kept:
    """A duplicate of a handle, for one process that fetches it within the lifetime."""

    # The number is borrowed. `signallers` belong to a semaphore, and get the receiver.
    def __init__(self, number: int, lifetime_s: float, signallers: Signallers | None) -> None:
        self._signallers = signallers
        self._state = _OPEN
        self._lock = locks.Lock()
        self._handle = _duplicate(number)
        if signallers is not None:
            signallers.opened(self)
        # The resource sharer's address, and the number of this handle there.
        self.ident: Any = _sharer().register(self._send, self.close)
        try:
            _Process.deadlines.add(self, time.monotonic() + lifetime_s)
        except BaseException:
            self.forget()
            raise

    @property
    def open(self) -> bool:
        """Whether a process may still fetch the handle."""
        return not self._handle.closed

    def expire(self) -> None:
        """End the lifetime. A late receiver gets an error that says so."""
        self._end(_OVER)

    def take_back(self) -> bool:
        """Close the handle. Return False if a process has fetched it, or the lifetime is over."""
        return self._end(_TAKEN_BACK)

    def forget(self) -> None:
        """Close the handle of a pickle that no process has."""
        self._end(_TAKEN_BACK)
        _sharer()._cache.pop(self.ident[1], None)

    def close(self) -> None:
        """Close the handle."""
        self._handle.close()
        _Process.deadlines.remove(self)

    def _end(self, state: int) -> bool:
        with self._lock:
            if self._state != _OPEN:
                return False
            self._state = state
        self.close()
        return True

    def _send(self, connection: Any, pid: int) -> None:
        """Answer a receiver, on the thread of the resource sharer, which calls `close` afterwards."""
        with self._lock:
            state = self._state
            if state == _OPEN:
                self._state = _FETCHED
        connection.send_bytes(bytes([state]))
        if state == _OPEN:
            if self._signallers is not None:
                self._signallers.receiver(_receiver(connection, pid))
            _give(connection, pid, self._handle)


def fetch(ident: Any) -> OwnedHandle:
    """Fetch a handle from its sender."""
    with _sharer().get_connection(ident) as connection:
        answer = connection.recv_bytes(1)[0]
        if answer == _OVER:
            raise BadArgumentError(
                "the lifetime of the descriptor's transfer is over: receive it sooner, or let its sender put "
                f"xsem.ipc.Transfer(desc, lifetime_s=…) in its place (the default is {LIFETIME_S:g} s)",
                reason="transfer_expired")
        if answer == _TAKEN_BACK:
            raise BadArgumentError("the sender has taken the descriptor back (xsem.ipc.Transfer.take_back): ask it for "
                                   "another", reason="transfer_taken_back")
        return own(_take, connection)


def _sharer() -> Any:
    from multiprocessing import resource_sharer

    return resource_sharer._resource_sharer  # type: ignore[attr-defined,unused-ignore]


if sys.platform == "win32":
    def _duplicate(number: int) -> OwnedHandle:
        return duplicate_fd(number, for_driver=False)

    def _receiver(connection: Any, pid: int) -> Peer | None:
        return Peer.of(pid)

    def _give(connection: Any, pid: int, handle: OwnedHandle) -> None:
        process = open_process(pid)
        if process is not None:
            with adopt(process):
                connection.send_bytes(give_handle(process, handle.fileno()).to_bytes(8, "little"))

    def _take(connection: Any) -> int:
        return int.from_bytes(connection.recv_bytes(8), "little")

else:
    def _duplicate(number: int) -> OwnedHandle:
        return own(os.dup, number)

    def _receiver(connection: Any, pid: int) -> Peer | None:
        # By the socket, because the receiver's own number can be that of another PID namespace.
        with socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            return Peer.of_socket(sock)

    def _give(connection: Any, pid: int, handle: OwnedHandle) -> None:
        reduction.send_handle(connection, handle.fileno(), pid)

    _take = reduction.recv_handle


class _Deadlines:
    """The ends of the lifetimes. A thread waits for the next one, as long as a transfer is open."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._order = itertools.count()
        self._heap: list[tuple[float, int, Kept]] = []
        self.open: set[Kept] = set()
        self._thread: threading.Thread | None = None

    def add(self, kept: Kept, deadline: float) -> None:
        """Let a transfer expire at a time of `time.monotonic`."""
        with self._changed:
            self.open.add(kept)
            heapq.heappush(self._heap, (deadline, next(self._order), kept))
            if len(self._heap) > 2 * len(self.open) + 64:   # most of them were fetched
                self._heap = [each for each in self._heap if each[2] in self.open]
                heapq.heapify(self._heap)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="xsem-transfers", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    raise BusyError("the thread that ends transfers cannot be started now",
                                    reason="no_thread") from error
                self._thread = thread
            self._changed.notify()

    def remove(self, kept: Kept) -> None:
        """Forget a transfer that is over."""
        with self._changed:
            self.open.discard(kept)
            if not self.open:
                self._changed.notify()

    def _run(self) -> None:
        while (expired := self._next()) is not None:
            expired.expire()
            del expired

    def _next(self) -> Kept | None:
        """Wait for the next end of a lifetime; None if no transfer is open."""
        with self._changed:
            while self.open:
                deadline, _, kept = self._heap[0]
                left_s = deadline - time.monotonic()
                if kept not in self.open or left_s <= 0:
                    heapq.heappop(self._heap)
                    if kept in self.open:
                        self.open.remove(kept)
                        return kept
                else:
                    del kept
                    self._changed.wait(min(left_s, threading.TIMEOUT_MAX))
            self._heap.clear()
            self._thread = None
            return None


class _Process:
    deadlines = _Deadlines()


def _in_child() -> None:
    before, _Process.deadlines = _Process.deadlines, _Deadlines()
    for kept in before.open:
        kept.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
