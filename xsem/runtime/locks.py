"""Locks that a caller does not wait for without a limit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from xsem.runtime.native import Lock

__all__ = ["held_within"]


@contextmanager
def held_within(lock: Lock, timeout_s: float) -> Iterator[bool]:
    """Hold a lock for a block if it is free within `timeout_s` seconds; yield whether it is held."""
    try:
        yield lock.acquire(timeout=timeout_s)
    finally:
        with suppress(RuntimeError):   # not acquired; a variable would not know it after Ctrl-C in the call
            lock.release()
