"""The places of a timeline's page: which processes hold it, and which of them have ended (docs/host-objects.md)."""

# A process has one place for each page, however many times it imports the page. It has the lock of its place as long as
# it runs.

from __future__ import annotations

import contextlib
import os
import struct
import sys
from typing import Final

from xsem.data.locks import Lock
from xsem.data.peers import Peer
from xsem.errors import BadArgumentError, BusyError, XsemError
from xsem.portable.byte_locks import LockFile
from xsem.portable.linux import calling, elsewhere

__all__ = ["Holder"]

_PLACES: Final = 128
_FIRST_LOCK: Final = 4096   # the byte of place 0, behind the page
_RECORDS_AT: Final = 512
_RECORD: Final = struct.Struct("=IIQ")   # pid, count, start time
_COUNTS_MASK: Final = 2**32 - 1
_REMEMBERED: Final = 4096


class _Place:
    """The place of this process in one page; for a read-only import, only a file to ask with."""

    __slots__ = ("file", "key", "number", "users")

    def __init__(self, file: LockFile, key: tuple[int, int], number: int | None) -> None:
        self.file = file   # it has the lock
        self.key = key
        self.number = number
        self.users: set[object] = set()   # the imports


class _Table:
    """The places of this process. A forked child begins with a new table, because the lock may be taken at the fork."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.places: dict[tuple[int, int], _Place] = {}
        # How many times this process has joined pages that it has left. Only the latest, because nothing tells when a
        # page has ended.
        self.left: dict[tuple[int, int], int] = {}


_table = _Table()


class Holder:
    """One import of a page in this process. Without `writable`, it takes no place."""

    __slots__ = ("__weakref__", "_by", "_place")

    def __init__(self, fd: int, *, writable: bool) -> None:
        self._by = object()   # not `self`, which the table would keep alive
        status = os.fstat(fd)
        key = (status.st_dev, status.st_ino)
        self._place = _taken(_table, fd, key, self._by) if writable else _asking(fd, key, self._by)

    def close(self) -> None:
        """Leave the place, if no other import uses it. A second call has no effect. Finalizers may call this method."""
        place, table = self._place, _table   # not those of the parent process
        with table.lock:
            place.users.discard(self._by)
            if place.users or place.file.closed:
                return
            if place.number is not None:
                if table.places.get(place.key) is place:
                    del table.places[place.key]
                table.left[place.key] = table.left.pop(place.key, 0) + 1
                while len(table.left) > _REMEMBERED:
                    table.left.pop(next(iter(table.left)))
                with contextlib.suppress(XsemError):   # the record only names the process
                    _write_record(place, None)
            place.file.close()

    def joined(self) -> int | None:
        """Return how many times other processes have taken a place, modulo 2**32; None after `close`."""
        place, table = self._place, _table   # not those of the parent process
        with table.lock:
            if place.file.closed:
                return None
            own = table.left.get(place.key, 0) + (place.key in table.places)
            return (sum(count for _, count, _ in _records(place)) - own) & _COUNTS_MASK

    def ended(self) -> tuple[Peer, ...] | None:
        """Return the processes that have ended without leaving, if no other process and no other import holds the page.

        None: there is another holder, or this one is closed.
        """
        place, table = self._place, _table   # not those of the parent process
        with table.lock:
            if place.file.closed or len(place.users) > 1:
                return None
            if table.places.get(place.key, place) is not place:   # a read-only import beside others
                return None
            records = _records(place)
            if place.file.locked_by_others(_FIRST_LOCK, _PLACES):   # one question covers all places
                return None
        return tuple([peer for at, record in enumerate(records) if at != place.number
                      and (peer := _peer_of(*record)) is not None])

    def __del__(self) -> None:
        if getattr(self, "_place", None) is not None and not sys.is_finalizing():
            self.close()


def _taken(table: _Table, fd: int, key: tuple[int, int], by: object) -> _Place:
    """Return the place of this process for a page. The first import takes it."""
    with table.lock:
        while (place := table.places.get(key)) is not None:
            place.users.add(by)
            if table.places.get(key) is place:
                return place
            # A finalizer on this thread has just given up the last import before this one.
        made = _free_place(fd, key)
        made.users.add(by)
        table.places[key] = made
        return made


def _asking(fd: int, key: tuple[int, int], by: object) -> _Place:
    made = _Place(LockFile(fd, os.O_RDONLY), key, None)
    made.users.add(by)
    return made


def _free_place(fd: int, key: tuple[int, int]) -> _Place:
    file = LockFile(fd, os.O_RDWR)
    try:
        for number in range(_PLACES):
            if file.lock(_FIRST_LOCK + number):
                made = _Place(file, key, number)
                _write_record(made, Peer.of(os.getpid()))
                return made
    except BaseException:
        file.close()
        raise
    file.close()
    raise BusyError(f"{_PLACES} processes hold the timeline, its maximum: one of them must release it first. A process "
                    "that only waits can import a handle of export(read_only=True)", reason="too_many_holders")


# The records are read and written as the file, because a page can be unmapped while a handle of it exists.
def _records(place: _Place) -> list[tuple[int, int, int]]:
    if sys.platform != "linux":
        raise elsewhere()
    with calling("pread"):
        data = os.pread(place.file.fileno(), _PLACES * _RECORD.size, _RECORDS_AT)
    return list(_RECORD.iter_unpack(data[:len(data) - len(data) % _RECORD.size]))


def _write_record(place: _Place, owner: Peer | None) -> None:
    """Note the new owner of a place, or that the owner has left it."""
    if sys.platform != "linux":
        raise elsewhere()
    number = place.number or 0
    at = _RECORDS_AT + number * _RECORD.size
    count = _records(place)[number][1]
    record = _RECORD.pack(0, count, 0) if owner is None else (
        _RECORD.pack(owner.pid, (count + 1) & _COUNTS_MASK, owner.started or 0))
    with calling("pwrite"):
        os.pwrite(place.file.fileno(), record, at)


def _peer_of(pid: int, count: int, started: int) -> Peer | None:
    """Return the process of a record; None for a place that is unused or left, and for garbage."""
    try:
        return Peer(pid, started or None) if count else None
    except BadArgumentError:
        return None


def _in_child() -> None:
    global _table
    _table = _Table()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
