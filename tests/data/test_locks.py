"""The lock of `with` statements is re-entrant."""

from __future__ import annotations

import pytest
from support.at_once import in_thread

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
