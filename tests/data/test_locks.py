"""The lock of `with` statements: re-entrant, and free again after Ctrl-C at each place."""

from __future__ import annotations

import pytest
from support.at_once import in_thread
from support.interrupts import interruptions

from xsem.data.locks import Lock


def test_with_statement_takes_the_lock_once_for_each_level() -> None:
    lock = Lock()
    with lock:
        with lock:
            pass
        in_thread(lambda: refused(lock))
    in_thread(lambda: free(lock))
    with pytest.raises(RuntimeError):
        lock.release()


def refused(lock: Lock) -> None:
    assert not lock.acquire(blocking=False)


def free(lock: Lock) -> None:
    assert lock.acquire(blocking=False)
    lock.release()


def test_interrupted_with_statement_leaves_the_lock_as_before() -> None:
    lock = Lock()

    def act() -> None:
        with lock, lock:
            pass

    for outer in (False, True):
        places = []
        if outer:
            lock.acquire()
        for place, otherwise in interruptions(act):
            places.append(place)
            assert not otherwise
            if outer:
                lock.release()
            with pytest.raises(RuntimeError, match="un-acquired"):
                lock.release()
            if outer:
                lock.acquire()
        assert places
        if outer:
            lock.release()
